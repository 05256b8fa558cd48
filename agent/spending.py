"""What a verdict will cost, and how runs are best spread over launches. Pure.

A launch costs minutes and a run within it seconds to minutes; repeating the run lowers only the part of the noise that
runs have. The number of runs a launch that makes a verdict cheapest follows from both (two-stage sampling; Cochran,
"Sampling Techniques", chapter 10).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from optagent.agent.spread import Spread
from optagent.agent.verdict import expected_launches, expected_pairs

MOST_RUNS = 6
"""Runs in one launch at most: more of them say more of this launch, and nothing of the next."""
SURE_OF_SPREAD = 3
"""Degrees of freedom, of launches and of runs, from which on the split between the two is believed."""


@dataclass(frozen=True)
class Costs:
    """Seconds that a launch takes until it serves and has passed its gate, and that one run takes."""

    launch_s: float
    run_s: float

    def of(self, launches: float, runs: int) -> float:
        return launches * (self.launch_s + runs * self.run_s)


def costs_of(launch_s: Sequence[float], run_s: Sequence[float]) -> Costs | None:
    """The median of the latest ones; None when either was never seen."""
    return Costs(_median(launch_s), _median(run_s)) if launch_s and run_s else None


def runs_wanted(spread: Spread, costs: Costs | None, min_effect: float, usual: int) -> int:
    """Runs a launch that make a verdict cheapest; `usual` while noise or costs are not known well enough to say."""
    if costs is None or spread.launch_df < SURE_OF_SPREAD or spread.run_df < SURE_OF_SPREAD:
        return usual

    def cost(runs: int) -> float:
        noise = spread.noise(runs)
        assert noise is not None
        return costs.of(expected_pairs(noise, min_effect), runs)

    return min(range(1, MOST_RUNS + 1), key=lambda runs: (round(cost(runs), 6), runs))


def baseline_launches(calibration: int, sentinel: int, known: int, here: int) -> int:
    """How often the baseline is launched in one go: until noise of which `known` degrees of freedom are there rests on
    those that `calibration` launches give, and until `sentinel` launches were made in this sitting, with those that are
    `here` already. So many launches in one go give one degree of freedom less."""
    return 1 + max(0, calibration - 1 - known, sentinel - here - 1)


@dataclass(frozen=True)
class Forecast:
    """Launches that a verdict takes on average when the change gives the minimum effect; None when nothing is known."""

    launches: float | None
    runs: int
    seconds: float | None

    def sentence(self, spread: Spread) -> str:
        """One line for people, said before the first launch."""
        if self.launches is None:
            return "how many launches it takes is not known yet: nothing was launched twice"
        many = f"about {math.ceil(self.launches - 1e-9)} launches expected"
        runs = f" with {self.runs} runs each" if self.runs > 1 else ""
        time = f", {about(self.seconds)}" if self.seconds is not None else ""
        noise = f"launches vary by {spread.launch_sd:.1f} %" if spread.launch_sd is not None else ""
        within = f", runs within one by {spread.run_sd:.1f} %" if spread.run_sd is not None else ""
        return f"{many}{runs}{time} ({noise}{within})"


def forecast(spread: Spread, costs: Costs | None, min_effect: float, runs: int, pool: int | None) -> Forecast:
    """What a verdict is expected to take. `pool` are the launches of the baseline that are there already; None: in pairs."""
    noise = spread.noise(runs)
    if noise is None:
        return Forecast(None, runs, None)
    launches = 2 * expected_pairs(noise, min_effect) if pool is None else expected_launches(noise, min_effect, pool)
    return Forecast(launches, runs, costs.of(launches, runs) if costs else None)


def about(seconds: float) -> str:
    """A duration that is only roughly known, in words."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def _median(values: Sequence[float]) -> float:
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
