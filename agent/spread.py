"""How results vary between launches of one configuration and between the runs within a launch, taken apart.

One-way analysis of variance with launches as groups: what the runs of a launch differ by is the run's own noise; what the
launches' means differ by beyond that comes from launching. Repeating runs within a launch lowers the first part only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from optagent.agent.noise import Noise, of_one_number


@dataclass(frozen=True)
class Spread:
    """Sums of squares of 100·ln(value), with their degrees of freedom.

    `launch_ss` is over launches' means around the mean of their configuration, `run_ss` over runs around the mean of their
    launch, `shares` the sum of 1/runs over the launches that `launch_ss` counts, each weighted by its degrees of freedom.
    Sums add up: the spread of several configurations in one environment is the sum of theirs.
    """

    launch_ss: float = 0.0
    launch_df: int = 0
    run_ss: float = 0.0
    run_df: int = 0
    shares: float = 0.0

    def __add__(self, other: Spread) -> Spread:
        return Spread(
            self.launch_ss + other.launch_ss,
            self.launch_df + other.launch_df,
            self.run_ss + other.run_ss,
            self.run_df + other.run_df,
            self.shares + other.shares,
        )

    def without_launches(self, other: Spread) -> Spread:
        """Without what `other`, which is part of it, says about launches."""
        return replace(
            self,
            launch_ss=max(0.0, self.launch_ss - other.launch_ss),
            launch_df=max(0, self.launch_df - other.launch_df),
            shares=max(0.0, self.shares - other.shares),
        )

    @property
    def run_sd(self) -> float | None:
        """Standard deviation of one run within a launch, in per cent; None when no launch was measured twice."""
        return math.sqrt(self.run_ss / self.run_df) if self.run_df else None

    @property
    def launch_sd(self) -> float | None:
        """Standard deviation that launching adds, in per cent: without the runs' own, where that is known. None when no
        configuration was launched twice."""
        if not self.launch_df:
            return None
        of_means = self.launch_ss / self.launch_df
        of_runs = (self.run_ss / self.run_df) * self.shares / self.launch_df if self.run_df else 0.0
        return math.sqrt(max(0.0, of_means - of_runs))

    def noise(self, runs: int = 1) -> Noise | None:
        """The noise of a launch's number when it is the mean of `runs` runs; None when nothing is known of launches."""
        if self.launch_sd is None:
            return None
        return of_one_number(self.launch_sd, self.run_sd or 0.0, self.launch_df, runs)


def spread_of(launches: Sequence[Sequence[float]]) -> Spread:
    """The spread that launches of one configuration show, each with the values of its runs (all above zero)."""
    logs = [[100 * math.log(value) for value in launch] for launch in launches if launch]
    if not logs:
        return Spread()
    means = [_mean(launch) for launch in logs]
    df = len(means) - 1
    return Spread(
        launch_ss=_squares(means),
        launch_df=df,
        run_ss=sum(_squares(launch) for launch in logs),
        run_df=sum(len(launch) - 1 for launch in logs),
        shares=df * _mean([1 / len(launch) for launch in logs]),
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _squares(values: Sequence[float]) -> float:
    mean = _mean(values)
    return sum((x - mean) ** 2 for x in values)
