"""From an experiment's runs to its verdict: the ledger's numbers put into the rule of `verdict`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from optagent.agent.cells import hopeless
from optagent.agent.experiments import BASELINE, BUNDLE, CONFIRM, SURVEY, TRIAL, Experiment, Launches
from optagent.agent.guards import Guard
from optagent.agent.noise import Noise, noise_of, with_usual
from optagent.agent.records import Baseline
from optagent.agent.series import Made, Series, series_of
from optagent.agent.verdict import MIN_PAIRS, Judgement, Verdict, gain, geometric_mean, judge, judge_series, screen

MOST_LAUNCHES = 6
"""Of a combination: one that gains shows it soon, and its items have their verdicts still before them either way."""
SURE, WORTH_IT = 1.28, 0.5
"""Standard deviations by which a survey's combination must be ahead of the baseline, and the share of the minimum effect, to be
kept (wrong in one of ten at most). What came in so is taken out again item by item, and stays only where it is missed."""
BY_CHANCE = 3.0
"""Standard deviations that a baseline may lie from its record."""


@dataclass(frozen=True)
class Rules:
    """What a verdict is given by, as the campaign is configured. `tolerance` is how far a baseline may lie from its record;
    `guards` are metrics that must not get worse, each with the loss that is allowed. `confirm_pairs` are made at least of
    all kept changes together: what was kept is what came out high, so the sum of the effects says too much. With `survey_first`
    a survey comes before any verdict, and learns the noise on its way."""

    direction: str = "max"
    min_effect: float = 0.02
    max_pairs: int = 12
    tolerance: float = 0.03
    guards: Mapping[str, float] = field(default_factory=dict)
    confirm_pairs: int = 4
    survey_first: bool = False


def judgement(
    experiment: Experiment,
    rules: Rules,
    *,
    baseline: Baseline,
    base: Launches,
    candidate: Launches,
    noise: Noise | None,
) -> Judgement:
    """The verdict so far. `base` and `candidate` are all of this sitting's launches of the two configurations."""
    if reason := hopeless(experiment):
        return Judgement(Verdict.INVALID, reason)
    if experiment.kind == BASELINE:
        return _baseline(experiment, baseline, rules, noise)
    if experiment.kind == TRIAL:
        return _looked_at(experiment, base, rules.direction, "at this point of the search")
    if experiment.kind == SURVEY:
        return _survey(experiment, rules, base, noise)
    if experiment.pooled:
        judged = _in_series(experiment, rules, base, candidate, noise)
    else:
        judged = _paired(experiment, rules, base, noise)
    return replace(judged, verdict=Verdict.INCONCLUSIVE) if judged.verdict is Verdict.TOO_NOISY else judged


def series_for(
    experiment: Experiment, rules: Rules, base: Launches, candidate: Launches, noise: Noise | None
) -> Series:
    """The launches of both configurations in the order of their time. The candidate's are those of this experiment alone:
    a configuration that came out well before is launched afresh. `noise` is what other launches than these showed."""
    own = candidate.of(experiment.id)
    sides = ((base, experiment.removal), (own, not experiment.removal))
    made = [
        Made(at, changed, gain(1.0, value, rules.direction))
        for launches, changed in sides
        for at, value in zip(launches.at, launches.values, strict=True)
    ]
    return series_of(made, noise)


def _in_series(
    experiment: Experiment, rules: Rules, base: Launches, candidate: Launches, noise: Noise | None
) -> Judgement:
    """The item's verdict: what has it against what has not, whichever of the two is the baseline at present."""
    own = candidate.of(experiment.id)
    if own.values and experiment.candidate_waits:
        return Judgement(Verdict.MORE, "the baseline's output is not known yet")
    without, with_it = (own, base) if experiment.removal else (base, own)
    return judge_series(
        series_for(experiment, rules, base, candidate, noise),
        (len(without), len(with_it), len(own)),
        min_effect=rules.min_effect,
        max_launches=min(rules.max_pairs, MOST_LAUNCHES) if experiment.kind == BUNDLE else rules.max_pairs,
        guards={
            name: Guard(margin=margin, unpaired=(_metric(without, name), _metric(with_it, name)))
            for name, margin in rules.guards.items()
        },
        noise=noise,
    )


def _paired(experiment: Experiment, rules: Rules, base: Launches, noise: Noise | None) -> Judgement:
    if noise is None and len(base) > 1:
        noise = noise_of(base.values)
    pairs, candidates = experiment.pairs(), experiment.values("candidate")
    if experiment.removal:
        pairs = [(without, with_it) for with_it, without in pairs]
    screened = experiment.kind != CONFIRM and not experiment.removal and not pairs and bool(base.values)
    first = candidates.get(1) if screened else None
    if first is not None and noise is not None and (lost := screen(base.values, first, noise, rules.direction)):
        return lost
    return judge(
        pairs,
        noise,
        direction=rules.direction,
        min_effect=rules.min_effect,
        max_pairs=rules.max_pairs,
        guards=_guards(experiment, rules.guards),
        min_pairs=min(rules.confirm_pairs, rules.max_pairs) if experiment.kind == CONFIRM else MIN_PAIRS,
    )


def _metric(launches: Launches, name: str) -> list[float]:
    return [metrics[name] for metrics in launches.metrics if name in metrics]


def _looked_at(experiment: Experiment, base: Launches, direction: str, where: str) -> Judgement:
    """One launch of a search or a survey: it settles nothing. What came out best is held against the baseline afresh."""
    values = list(experiment.values("candidate").values())
    if len(values) < experiment.goal:
        return Judgement(Verdict.MORE, "nothing measured yet")
    value = geometric_mean(values)
    if not base.values:
        return Judgement(Verdict.INCONCLUSIVE, f"{value:.4g} {where}")
    better = math.expm1(gain(geometric_mean(base.values), value, direction) / 100)
    because = f"{value:.4g} {where}, {better:+.1%} against {_launches(len(base))} of the baseline"
    return Judgement(Verdict.INCONCLUSIVE, because, better)


def _launches(number: int) -> str:
    return f"{number} launch{'' if number == 1 else 'es'}"


def _survey(experiment: Experiment, rules: Rules, base: Launches, noise: Noise | None) -> Judgement:
    """A launch of a survey: kept at once where it is far ahead and its output is right, and one observation otherwise."""
    judged = _looked_at(experiment, base, rules.direction, "in the survey")
    if judged.verdict is Verdict.MORE or not ahead_of_all(experiment, rules, base, noise):
        return judged
    if "candidate" not in experiment.gated or experiment.candidate_waits:
        return replace(judged, because=f"{judged.because}; its output was not held against the baseline's")
    return replace(judged, verdict=Verdict.KEEP, because=f"{judged.because}, surely more than noise")


def ahead_of_all(experiment: Experiment, rules: Rules, base: Launches, noise: Noise | None) -> bool:
    """Whether the candidate is ahead of the baseline: by half the minimum effect at the best guess, and surely by
    something."""
    values = list(experiment.values("candidate").values())
    if not values or not base.values:
        return False
    value, noise_sd = geometric_mean(values), with_usual(noise) / 100
    if experiment.outlook is not None:
        log = math.log(value) if rules.direction == "max" else -math.log(value)
        ahead, by_chance = experiment.outlook.after(log, noise_sd)
    else:
        ahead = gain(geometric_mean(base.values), value, rules.direction) / 100
        by_chance = noise_sd * math.sqrt(1 / len(values) + 1 / len(base))
    return ahead >= max(WORTH_IT * math.log1p(rules.min_effect), SURE * by_chance)


def allowed_off(tolerance: float, noise: Noise | None, launches: int, recorded: int) -> float:
    """How far a baseline may lie from its record (a fraction): the tolerance, or what the noise explains if that is more."""
    sd = with_usual(None) if noise is None else noise.launch_sd
    by_chance = BY_CHANCE * sd * math.sqrt(1 / launches + 1 / max(1, recorded))
    return max(tolerance, math.expm1(by_chance / 100))


def _baseline(experiment: Experiment, baseline: Baseline, rules: Rules, noise: Noise | None) -> Judgement:
    values = list(experiment.values("baseline").values())
    enough = 1 if rules.survey_first and baseline.measurement is None else experiment.goal
    if len(values) < enough:
        return Judgement(Verdict.MORE, f"{len(values)} of {experiment.goal} launches")
    mean = geometric_mean(values)
    spread = noise_of(values).launch_sd if len(values) > 1 else None
    what = f"{mean:.4g} over {_launches(len(values))}" + (
        f", one launch varies by {spread:.2f} %" if spread is not None else ""
    )
    record = baseline.measurement
    if record is None:
        return Judgement(Verdict.KEEP, f"{what}; nothing was recorded before")
    off, allowed = mean / record.value - 1, allowed_off(rules.tolerance, noise, len(values), record.runs)
    holds = abs(off) <= allowed
    because = f"{what}; {off:+.1%} against the record of {record.value:.4g}" + (
        "" if holds else f", out of {allowed:.0%}"
    )
    return Judgement(Verdict.KEEP if holds else Verdict.INCONCLUSIVE, because, off)


def _guards(experiment: Experiment, margins: Mapping[str, float]) -> dict[str, Guard]:
    """The complete pairs of each guarded metric (all are latencies, where less is better)."""
    found: dict[str, Guard] = {}
    for name, margin in margins.items():
        metric = {
            (arm, pair): geometric_mean([r.metrics[name] for r in runs])
            for arm in ("baseline", "candidate")
            for pair, runs in experiment.launches(arm).items()
            if all(r.metrics.get(name, 0) > 0 for r in runs)
        }
        pairs = sorted(n for arm, n in metric if arm == "candidate" and ("baseline", n) in metric)
        if pairs:
            found[name] = Guard([(metric["baseline", n], metric["candidate", n]) for n in pairs], margin)
    return found
