"""What the kept changes give together, held against the first baseline. Functions of the ledger."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from optagent.agent.experiments import Experiment
from optagent.agent.ledger import Ledger
from optagent.agent.workloads import called, same


def side_by_side(ledger: Ledger) -> Experiment | None:
    """The last experiment that held the present baseline against the first one, in pairs, under the present workload; None
    when none did."""
    return next(_held_against_first(ledger, ledger.measured_here()), None)


def _held_against_first(ledger: Ledger, experiments: Sequence[Experiment]) -> Iterator[Experiment]:
    baseline, first = ledger.baseline, ledger.first_baseline
    if baseline is None or first is None:
        return
    best, start = baseline.configuration.fingerprint(), first.configuration.fingerprint()
    for e in reversed(experiments):
        if not (e.verdict and e.candidate and e.pairs() and e.effect is not None) or e.pooled or e.removal:
            continue
        if e.candidate.fingerprint() == best and e.base.fingerprint() == start:
            yield e


def total_gain(ledger: Ledger) -> str:
    """What the kept changes give together against the first baseline: measured side by side where that was done. A gain that
    was measured under another workload than the present one says so."""
    if (e := side_by_side(ledger)) is not None:
        return _side_by_side(e)
    if (e := next(_held_against_first(ledger, list(ledger.experiments.values())), None)) is not None and e.under:
        return (
            f"{_side_by_side(e)}, under {called(e.under, ledger.workloads)}; not known under the present workload yet"
        )
    return _by_the_records(ledger)


def _side_by_side(e: Experiment) -> str:
    span = f" [{e.low:+.1%}, {e.high:+.1%}]" if e.low is not None and e.high is not None else ""
    return f"{e.effect:+.1%}{span} against the first baseline, side by side in {len(e.pairs())} pairs ({e.id})"


def _by_the_records(ledger: Ledger) -> str:
    """By what was recorded of the two, where both were measured under the same workload."""
    baseline, first = ledger.baseline, ledger.first_baseline
    if baseline is None or first is None or baseline.configuration == first.configuration:
        return ""
    now, then = baseline.measurement, first.measurement
    if now is None or then is None:
        return ""
    if not same(now.under, then.under):
        was = f" ({called(then.under, ledger.workloads)})" if then.under else ""
        return f"not known yet: the first baseline was measured under another workload{was}"
    of = "" if same(now.under, ledger.under) or not now.under else f", under {called(now.under, ledger.workloads)}"
    return f"{now.value / then.value - 1:+.1%} against the first baseline's record{of}, not yet held side by side"
