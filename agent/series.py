"""What launches of two configurations, in the order of their time, say about the difference between them. Pure.

The machine's level is taken for a random walk, a launch's result for level plus effect plus noise (the local level model:
Durbin and Koopman, "Time Series Analysis by State Space Methods", chapter 2). With a walk that stands still all launches of
the baseline count alike; the more it moves, the more a launch counts that was made near in time. Neither the noise nor the
walk is known: both are integrated out, over what was learnt of the noise before and over what these launches show, under
either hypothesis alike. The ratio of the two likelihoods is then tested as Wald's is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import TYPE_CHECKING

from optagent.agent.noise import NOISE_FLOOR, Noise

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Vector = NDArray[np.float64]

WALKS = ((0.0, 0.40), (0.04, 0.20), (0.2, 0.20), (1.0, 0.15), (4.0, 0.05))
"""Variance of the walk's step from one launch to the next, in that of a launch's noise, and how likely it is taken to be
before anything was measured."""
SMALLEST_SD, LARGEST_SD, SDS = NOISE_FLOOR, 20.0, 28
"""Per cent: the noise of one launch that is reckoned with, so many steps in equal ratios."""
USUAL = Noise(2.0, 1)
"""The noise that is expected of a deployment nobody has measured yet, and how firmly. Serving benchmarks were seen to vary
by 0.3 to 3.4 % from launch to launch, and by 5 % and more where they speculate."""

FURTHER, FURTHER_WEIGHT = (2, 4, 8, 16, 32, 64), 0.25
"""Effects that speak for a change beside the least that is wanted, in multiples of it, and their weight all together."""
ENOUGH = 8
"""Degrees of freedom from which on what was learnt stands alone."""


@dataclass(frozen=True)
class Made:
    """One launch: when (a count of launches), whether it had the change, and 100·ln of its result, plus is better."""

    at: int
    changed: bool
    value: float


@dataclass(frozen=True)
class Series:
    """How well every assumption about noise and walk explains the launches so far.

    All vectors have an element for each assumption. The log likelihood at effect b is `weight` + `level` -
    (vv - 2 b uv + b² uu) / 2; `y`, `x` and `spread` are the filter's state: what the next launch is expected to give, how
    much of the change is in that, and the variance of the level.
    """

    noise: Vector
    walk: Vector
    weight: Vector
    level: Vector
    uu: Vector
    uv: Vector
    vv: Vector
    y: Vector
    x: Vector
    spread: Vector
    at: int | None = None

    def and_then(self, made: Made) -> Series:
        """With one more launch, made after the others. The first one only tells where the level is."""
        changed = 1.0 if made.changed else 0.0
        if self.at is None:
            nothing = self.noise * 0.0
            return replace(self, y=nothing + made.value, x=nothing + changed, spread=self.noise, at=made.at)
        spread = self.spread + self.walk * self.noise * (made.at - self.at)
        variance = spread + self.noise
        v, u = made.value - self.y, changed - self.x
        gain = spread / variance
        return replace(
            self,
            level=self.level - _log(variance) / 2,
            uu=self.uu + u * u / variance,
            uv=self.uv + u * v / variance,
            vv=self.vv + v * v / variance,
            y=self.y + gain * v,
            x=self.x + gain * u,
            spread=spread * (1 - gain),
            at=made.at,
        )

    def log_ratio(self, effect: float) -> float:
        """Log of how much likelier the launches are with at least this effect (per cent, above zero) than with none.

        Beside the effect itself, larger ones speak for a change, and losses against it, at a quarter of the weight: what is
        far better than the least that is wanted would otherwise be no likelier a gain than a restless machine.
        """
        return self._likelihood(effect, effect) - self._likelihood(0.0, -effect)

    def _likelihood(self, nearest: float, step: float) -> float:
        further = [_log_sum(self._logs(step * times)) for times in FURTHER]
        top = max(further)
        mixed = top + math.log(sum(math.exp(x - top) for x in further) / len(FURTHER) * FURTHER_WEIGHT)
        return max(_log_sum(self._logs(nearest)), mixed)

    def _logs(self, effect: float) -> Vector:
        return self.weight + self.level - (self.vv - 2 * effect * self.uv + effect * effect * self.uu) / 2

    @property
    def known(self) -> bool:
        """Whether there are launches with the change and without it."""
        return bool((self.uu > 0).all())

    @cached_property
    def _posterior(self) -> tuple[Vector, Vector, Vector]:
        """(share, estimate, variance) of the effect by assumption."""
        estimate = self.uv / self.uu
        logs = self.weight + self.level - (self.vv - self.uv * estimate) / 2 - _log(self.uu) / 2
        return _shares(logs), estimate, 1 / self.uu

    @property
    def effect(self) -> float:
        """Per cent. Only where it is `known`."""
        share, estimate, _ = self._posterior
        return float((share * estimate).sum())

    @property
    def launch_sd(self) -> float:
        """The noise of one launch as it is believed now, in per cent."""
        share, _, _ = self._posterior
        return math.sqrt(float((share * self.noise).sum()))

    def quantile(self, share: float) -> float:
        """The effect below which the true one lies with this probability. Only where it is `known`."""
        weights, estimate, variance = self._posterior
        sd = variance**0.5
        low, high = float((estimate - 12 * sd).min()), float((estimate + 12 * sd).max())
        for _ in range(50):
            middle = (low + high) / 2
            if float((weights * _normal((middle - estimate) / sd)).sum()) < share:
                low = middle
            else:
                high = middle
        return (low + high) / 2

    def prefers_changed(self, at: int) -> bool:
        """Whether one more launch with the change, made at `at`, would tell more than one without it."""
        shares = _shares(self._logs(0.0) if not self.known else self._logs_at_best())

        def left(changed: bool) -> float:
            told = self.and_then(Made(at, changed, 0.0)).uu
            return float((shares / told).sum()) if bool((told > 0).all()) else math.inf

        return left(True) <= left(False) * (1 + 1e-9)

    def _logs_at_best(self) -> Vector:
        return self.weight + self.level - (self.vv - self.uv * self.uv / self.uu) / 2


def before_any(learnt: Noise | None) -> Series:
    """All assumptions before the first launch. `learnt` is the noise as other launches than these showed it."""
    noise, walk, share = _grid()
    found = _believed(learnt)
    ratio = found.launch_sd / noise**0.5
    weight = share + found.df * (_log(ratio) - ratio * ratio / 2)
    nothing = noise * 0.0
    return Series(noise, walk, weight, nothing, nothing, nothing, nothing, nothing, nothing, nothing)


def series_of(launches: Sequence[Made], learnt: Noise | None) -> Series:
    """The launches in the order of their time."""
    found = before_any(learnt)
    for made in sorted(launches, key=lambda one: one.at):
        found = found.and_then(made)
    return found


def _believed(learnt: Noise | None) -> Noise:
    """What was learnt, with what is usual as so many observations more."""
    if learnt is None or not learnt.df:
        return USUAL
    df = learnt.df + USUAL.df
    squares = learnt.df * max(learnt.launch_sd, NOISE_FLOOR) ** 2 + USUAL.df * USUAL.launch_sd**2
    if learnt.df >= ENOUGH:
        return Noise(max(learnt.launch_sd, NOISE_FLOOR), learnt.df)
    return Noise(math.sqrt(squares / df), df)


@cache
def _grid() -> tuple[Vector, Vector, Vector]:
    """(variance of the noise, variance of the walk's step in it, log of the share) for every assumption."""
    import numpy as np

    sds = np.geomspace(SMALLEST_SD, LARGEST_SD, SDS)
    walks = np.array([walk for walk, _ in WALKS])
    shares = np.log(np.array([share for _, share in WALKS]))
    return np.repeat(sds**2, len(WALKS)), np.tile(walks, SDS), np.tile(shares, SDS)


def _log(values: Vector) -> Vector:
    import numpy as np

    found: Vector = np.log(values)
    return found


def _normal(values: Vector) -> Vector:
    from scipy.special import ndtr

    found: Vector = ndtr(values)
    return found


def _shares(logs: Vector) -> Vector:
    import numpy as np

    found: Vector = np.exp(logs - logs.max())
    found /= found.sum()
    return found


def _log_sum(logs: Vector) -> float:
    import numpy as np

    top = float(logs.max())
    return top + math.log(float(np.exp(logs - top).sum()))
