"""What the kept changes give together, held against the first baseline. Functions of the ledger."""

from __future__ import annotations

from optagent.agent.experiments import Experiment
from optagent.agent.ledger import Ledger


def side_by_side(ledger: Ledger) -> Experiment | None:
    """The last experiment that held the present baseline against the first one, in pairs; None when none did."""
    baseline, first = ledger.baseline, ledger.first_baseline
    if baseline is None or first is None:
        return None
    best, start = baseline.configuration.fingerprint(), first.configuration.fingerprint()
    for e in reversed(ledger.experiments.values()):
        if not (e.verdict and e.candidate and e.pairs() and e.effect is not None) or e.pooled or e.removal:
            continue
        if e.candidate.fingerprint() == best and e.base.fingerprint() == start:
            return e
    return None


def total_gain(ledger: Ledger) -> str:
    """What the kept changes give together against the first baseline: measured side by side where that was done."""
    if (e := side_by_side(ledger)) is not None:
        span = f" [{e.low:+.1%}, {e.high:+.1%}]" if e.low is not None and e.high is not None else ""
        return f"{e.effect:+.1%}{span} against the first baseline, side by side in {len(e.pairs())} pairs ({e.id})"
    baseline, first = ledger.baseline, ledger.first_baseline
    if baseline and first and baseline.measurement and first.measurement and baseline != first:
        gain = baseline.measurement.value / first.measurement.value - 1
        return f"{gain:+.1%} against the first baseline's record, not yet held side by side"
    return ""
