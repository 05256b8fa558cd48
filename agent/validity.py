"""Whether a candidate's run may count, held against the baseline's own: what is degenerate differs by model and load."""

from __future__ import annotations

from collections.abc import Sequence

from optagent.agent.ledger import Ledger
from optagent.tools.calls.configuration import Configuration

REPETITIVE = "repetitive"
"""Under this name a run's metrics hold the share of its answers that repeat one short group of words."""

MORE_THAN_BASELINE = 0.25
WITHOUT_BASELINE = 0.9


def too_repetitive(share: float | None, known: Sequence[float]) -> str | None:
    """Why a candidate's run does not count, None when it does or when nothing is known of it.

    `known` are the shares of the baseline's runs. Random prompts make many a model repeat itself, so the most that was
    seen there is the measure; before anything was seen, nearly all answers must do it.
    """
    if share is None:
        return None
    if not known:
        return _words(share, "") if share > WITHOUT_BASELINE else None
    most = max(known)
    return _words(share, f", of the baseline's {most:.0%} at most") if share > most + MORE_THAN_BASELINE else None


def repetitive_shares(ledger: Ledger, configuration: Configuration) -> list[float]:
    """Of all valid runs of this configuration, in whichever experiment and sitting."""
    return [
        run.metrics[REPETITIVE]
        for experiment in ledger.experiments.values()
        for run in experiment.runs
        if run.valid and REPETITIVE in run.metrics
        if (experiment.base if run.arm == "baseline" else experiment.candidate) == configuration
    ]


def _words(share: float, compared: str) -> str:
    return f"{share:.0%} of the answers repeat one short group of words over and over{compared}"
