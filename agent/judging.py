"""From an experiment's runs to its verdict: the ledger's numbers put into the rule of `verdict`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from optagent.agent.cells import hopeless
from optagent.agent.guards import Guard
from optagent.agent.ledger import BASELINE, ITEM, Experiment
from optagent.agent.noise import Noise, noise_of
from optagent.agent.records import Baseline
from optagent.agent.verdict import Judgement, Verdict, geometric_mean, judge, screen


def judgement(
    experiment: Experiment,
    *,
    baseline: Baseline,
    pool: Sequence[float],
    noise: Noise | None,
    direction: str,
    min_effect: float,
    max_pairs: int,
    tolerance: float,
    guards: Mapping[str, float],
) -> Judgement:
    """The verdict so far. `pool` are this sitting's results of the experiment's base; without `noise`, theirs is taken."""
    if reason := hopeless(experiment):
        return Judgement(Verdict.INVALID, reason)
    if experiment.kind == BASELINE:
        return _baseline(experiment, baseline, tolerance)
    if noise is None and len(pool) > 1:
        noise = noise_of(list(pool))
    pairs, candidates = experiment.pairs(), experiment.values("candidate")
    first = candidates.get(1) if experiment.kind == ITEM and not pairs and pool else None
    if first is not None and noise is not None and (lost := screen(pool, first, noise, direction)):
        return lost
    judged = judge(
        pairs,
        noise,
        direction=direction,
        min_effect=min_effect,
        max_pairs=max_pairs,
        guards=_guards(experiment, guards),
    )
    return replace(judged, verdict=Verdict.INCONCLUSIVE) if judged.verdict is Verdict.TOO_NOISY else judged


def _baseline(experiment: Experiment, baseline: Baseline, tolerance: float) -> Judgement:
    values = list(experiment.values("baseline").values())
    if len(values) < experiment.goal:
        return Judgement(Verdict.MORE, f"{len(values)} of {experiment.goal} launches")
    mean = geometric_mean(values)
    spread = noise_of(values).launch_sd if len(values) > 1 else None
    what = f"{mean:.4g} over {len(values)} launches" + (
        f", one launch varies by {spread:.2f} %" if spread is not None else ""
    )
    record = baseline.measurement
    if record is None:
        return Judgement(Verdict.KEEP, f"{what}; nothing was recorded before")
    off = mean / record.value - 1
    holds = abs(off) <= tolerance
    because = f"{what}; {off:+.1%} against the record of {record.value:.4g}" + (
        "" if holds else f", out of {tolerance:.0%}"
    )
    return Judgement(Verdict.KEEP if holds else Verdict.INCONCLUSIVE, because, off)


def _guards(experiment: Experiment, margins: Mapping[str, float]) -> dict[str, Guard]:
    """The complete pairs of each guarded metric (all are latencies, where less is better)."""
    found: dict[str, Guard] = {}
    for name, margin in margins.items():
        metric = {(r.arm, r.pair): r.metrics[name] for r in experiment.runs if r.valid and r.metrics.get(name, 0) > 0}
        pairs = sorted(n for arm, n in metric if arm == "candidate" and ("baseline", n) in metric)
        if pairs:
            found[name] = Guard([(metric["baseline", n], metric["candidate", n]) for n in pairs], margin)
    return found
