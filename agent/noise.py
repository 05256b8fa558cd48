"""How much a launch's result varies by itself: learnt from repeated launches of one configuration, in per cent.

All of it is about 100·ln(value): for small spreads that is the relative standard deviation in per cent.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

NOISE_FLOOR = 0.3
"""Per cent. No launch-to-launch spread below this is believed: six launches cannot show it."""
DOUBT = 1.0
DOUBT_FROM_PAIRS_ALONE = 4.0
"""By how much the variance is taken to be more than it was estimated, over its degrees of freedom. An estimate that came
out low by chance is what keeps changes that do nothing; tests/benchmarks/verdicts.py shows how often that still happens."""
USUAL_NOISE, USUAL_DF = 1.5, 2
"""Per cent by which launches usually vary; beside what was seen it counts as so many degrees of freedom."""


@dataclass(frozen=True)
class Noise:
    """Standard deviation of one launch's result, in per cent of it, and the degrees of freedom it rests on."""

    launch_sd: float
    df: int

    @property
    def pair_sd(self) -> float:
        """Of the log ratio of two launches, in per cent."""
        return max(self.launch_sd, NOISE_FLOOR) * math.sqrt(2)


def noise_of(values: Sequence[float]) -> Noise:
    """The noise that repeated launches of one configuration show. Needs two values or more, all above zero."""
    logs = [100 * math.log(v) for v in values]
    return Noise(math.sqrt(_squares(logs) / (len(logs) - 1)), len(logs) - 1)


def with_usual(noise: Noise | None) -> float:
    """The standard deviation of a launch in per cent: what few launches showed, together with what is usual."""
    if noise is None:
        return USUAL_NOISE
    squares = noise.df * max(noise.launch_sd, NOISE_FLOOR) ** 2 + USUAL_DF * USUAL_NOISE**2
    return math.sqrt(squares / (noise.df + USUAL_DF))


def pooled(noises: Sequence[Noise]) -> Noise:
    """Several estimates of the same noise as one, weighted by their degrees of freedom."""
    df = sum(n.df for n in noises)
    return Noise(math.sqrt(sum(n.launch_sd**2 * n.df for n in noises) / df), df)


def of_one_number(launch_sd: float, run_sd: float, df: int, runs: int = 1) -> Noise:
    """The noise of a launch's number when launches vary by `launch_sd` and the `runs` within one, whose mean it is, by
    `run_sd` (all in per cent)."""
    return Noise(math.sqrt(launch_sd**2 + run_sd**2 / runs), df)


def with_pairs(noise: Noise | None, gains: Sequence[float]) -> Noise:
    """The noise to judge these log ratios of pairs by: what was learnt before, or more where the pairs themselves show
    more (a machine may have become restless since), and some doubt about either. Without `noise`, from the pairs alone;
    it is then infinite until there are two."""
    df = len(gains) - 1
    return _believed(noise, Noise(math.sqrt(_squares(gains) / df / 2), df) if df > 0 else None)


def with_groups(noise: Noise | None, groups: Sequence[Sequence[float]]) -> Noise:
    """The same for launches that were not made in pairs: `groups` are the logs of each configuration's, and only those
    that `noise` has not seen yet. Infinite while there is neither `noise` nor a group of two."""
    several = [group for group in groups if len(group) > 1]
    df = sum(len(group) - 1 for group in several)
    return _believed(noise, Noise(math.sqrt(sum(map(_squares, several)) / df), df) if df else None)


def _believed(learnt: Noise | None, shown: Noise | None) -> Noise:
    """What was learnt and what is shown now as one estimate, doubted; never less than what was learnt."""
    if learnt is None:
        return _doubted(shown, DOUBT_FROM_PAIRS_ALONE) if shown else Noise(math.inf, 1)
    if shown is None:
        return _doubted(learnt, DOUBT)
    both = pooled([learnt, shown])
    return _doubted(Noise(max(learnt.launch_sd, both.launch_sd), both.df), DOUBT)


def _doubted(noise: Noise, doubt: float) -> Noise:
    return Noise(max(noise.launch_sd, NOISE_FLOOR) * math.sqrt(1 + doubt / noise.df), noise.df)


def _squares(values: Sequence[float]) -> float:
    mean = sum(values) / len(values)
    return sum((x - mean) ** 2 for x in values)
