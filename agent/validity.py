"""Whether a candidate's run may count, held against the baseline's own: what is degenerate differs by model and load."""

from __future__ import annotations

from collections.abc import Sequence

from optagent.agent.experiments import Experiment, Run
from optagent.agent.ledger import Ledger
from optagent.agent.numerics import Numerics, between
from optagent.tools.calls.configuration import Configuration

REPETITIVE = "repetitive"
"""Under this name a run's metrics hold the share of its answers that repeat one short group of words."""

MORE_THAN_BASELINE = 0.25
WITHOUT_BASELINE = 0.9

BEGIN_ALIKE = 0.5
BEGIN_ALIKE_AT_LEAST = 0.2
"""Of the answers, where the change may move the output. Greedy answers to the same prompts begin alike, but for rounding:
nearly all do in the recorded campaign on a real server, and none where they were not computed from the prompts
(tests/test_openings.py)."""
FEWEST_ANSWERS = 4
"""Fewer may all begin otherwise by chance."""


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
    """Of all valid runs of this configuration under this workload, in whichever experiment and sitting."""
    return [
        run.metrics[REPETITIVE]
        for experiment in ledger.measured_here()
        for run in experiment.runs
        if run.valid and REPETITIVE in run.metrics
        if (experiment.base if run.arm == "baseline" else experiment.candidate) == configuration
    ]


def other_answers(ledger: Ledger, experiment: Experiment, run: Run) -> str | None:
    """Why a candidate's run does not count: what it answered is not what the baseline did, so it was not the same work.

    The gate asks other questions; a server could compute what it is asked there, and nothing under the benchmark's load.
    None when this sitting has no run of the baseline with the same prompts.
    """
    if run.seed is None or experiment.candidate is None:
        return None
    known = ledger.openings.get((experiment.base.fingerprint(), run.seed), ())
    return too_few_alike(run.openings, known, between(experiment.base, experiment.candidate))


def too_few_alike(openings: Sequence[str], known: Sequence[str], numerics: Numerics) -> str | None:
    """The reason in words, None when enough of the answers begin as the known ones do."""
    pairs = [(mine, theirs) for mine, theirs in zip(openings, known, strict=False) if theirs]
    alike = sum(mine == theirs for mine, theirs in pairs)
    least = BEGIN_ALIKE if numerics <= Numerics.BATCHING else BEGIN_ALIKE_AT_LEAST
    if len(pairs) < FEWEST_ANSWERS or alike >= least * len(pairs):
        return None
    return f"{alike} of {len(pairs)} answers of the benchmark begin as the baseline's did with the same prompts"


def _words(share: float, compared: str) -> str:
    return f"{share:.0%} of the answers repeat one short group of words over and over{compared}"
