"""Guard metrics: what must not get worse while the objective gets better. Tested for harm, never for gain.

Non-inferiority with a margin: a guard is harmless when the upper 95 % bound of its loss lies within the margin, harmful
when its loss is beyond the margin and not by chance. In between, more pairs tell; at the last pair the estimate does.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from optagent.agent.log_percent import fraction, log_percent, unsigned
from optagent.agent.noise import Noise, with_groups, with_pairs

MARGIN = 0.03
"""Loss that is allowed where nothing else is said, as a fraction."""
Harm = Literal["harmless", "harmful", "open"]


@dataclass(frozen=True)
class Guard:
    """One metric's values, beside the objective's: (baseline, candidate) `pairs`, or with `unpaired` all values of the one
    and of the other. `direction` is where better lies."""

    pairs: Sequence[tuple[float, float]] = ()
    margin: float = MARGIN
    direction: str = "min"
    unpaired: tuple[Sequence[float], Sequence[float]] | None = None

    @property
    def measured(self) -> bool:
        return bool(self.pairs) or bool(self.unpaired and all(self.unpaired))


def harm(guard: Guard, noise: Noise | None) -> tuple[Harm, float]:
    """Whether the guard got worse, and by which fraction. `noise` is the objective's: a guard is never taken to be
    quieter, and noisier where its own pairs say so."""
    if not guard.measured:
        return "open", 0.0
    mean, doubt = _loss(guard, noise)
    allowed = 100 * math.log1p(guard.margin)
    if mean + doubt <= allowed:
        return "harmless", fraction(mean)
    return ("harmful" if mean > allowed and mean - doubt > 0 else "open"), fraction(mean)


def harmful(guards: Mapping[str, Guard], noise: Noise | None, last: bool) -> str | None:
    """What got worse, in words; None when nothing did. At the `last` pair an open guard counts by its estimate."""
    for name, guard in guards.items():
        state, worse_by = harm(guard, noise)
        if state == "harmful" or (last and state == "open" and worse_by > guard.margin):
            return f"{name} got {unsigned(worse_by)} worse ({guard.margin:.1%} is allowed)"
    return None


def still_open(guards: Mapping[str, Guard], noise: Noise | None) -> str | None:
    """The first guard that more pairs have to tell about; None when there is none."""
    return next((name for name, guard in guards.items() if guard.measured and harm(guard, noise)[0] == "open"), None)


def _loss(guard: Guard, noise: Noise | None) -> tuple[float, float]:
    """(estimate of the loss in log per cent, how far the true one may lie above it, one-sided 95 %)."""
    sign = 1 if guard.direction == "min" else -1
    if guard.unpaired is None:
        losses = [sign * log_percent(baseline, candidate) for baseline, candidate in guard.pairs]
        own = with_pairs(noise, losses)
        return sum(losses) / len(losses), _quantile(own.df) * own.pair_sd / math.sqrt(len(losses))
    base, cand = ([100 * math.log(v) for v in values] for values in guard.unpaired)
    own = with_groups(noise, [base, cand])
    loss = sign * (sum(cand) / len(cand) - sum(base) / len(base))
    return loss, _quantile(own.df) * own.pair_sd * math.sqrt((1 / len(base) + 1 / len(cand)) / 2)


def _quantile(df: int) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(df, 0.95))
