"""Guard metrics: what must not get worse while the objective gets better. Tested for harm, never for gain.

Non-inferiority with a margin: a guard is harmless when the upper 95 % bound of its loss lies within the margin, harmful
when its loss is beyond the margin and not by chance. In between, more pairs tell; at the last pair the estimate does.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from optagent.agent.noise import Noise, with_pairs

MARGIN = 0.03
"""Loss that is allowed where nothing else is said, as a fraction."""
Harm = Literal["harmless", "harmful", "open"]


@dataclass(frozen=True)
class Guard:
    """(baseline, candidate) pairs of one metric, in the order of the objective's; `direction` is where better lies."""

    pairs: Sequence[tuple[float, float]]
    margin: float = MARGIN
    direction: str = "min"


def harm(guard: Guard, noise: Noise | None) -> tuple[Harm, float]:
    """Whether the guard got worse, and by which fraction. `noise` is the objective's: a guard is never taken to be
    quieter, and noisier where its own pairs say so."""
    losses = [_loss(b, c, guard.direction) for b, c in guard.pairs]
    if not losses:
        return "open", 0.0
    mean, allowed = sum(losses) / len(losses), 100 * math.log1p(guard.margin)
    doubt = _bound(losses, noise)
    if mean + doubt <= allowed:
        return "harmless", math.expm1(mean / 100)
    return ("harmful" if mean > allowed and mean - doubt > 0 else "open"), math.expm1(mean / 100)


def harmful(guards: Mapping[str, Guard], noise: Noise | None, last: bool) -> str | None:
    """What got worse, in words; None when nothing did. At the `last` pair an open guard counts by its estimate."""
    for name, guard in guards.items():
        state, worse_by = harm(guard, noise)
        if state == "harmful" or (last and state == "open" and worse_by > guard.margin):
            return f"{name} got {worse_by:.1%} worse ({guard.margin:.1%} is allowed)"
    return None


def still_open(guards: Mapping[str, Guard], noise: Noise | None) -> str | None:
    """The first guard that more pairs have to tell about; None when there is none."""
    return next((name for name, guard in guards.items() if guard.pairs and harm(guard, noise)[0] == "open"), None)


def _loss(baseline: float, candidate: float, direction: str) -> float:
    ratio = 100 * math.log(candidate / baseline)
    return ratio if direction == "min" else -ratio


def _bound(losses: Sequence[float], noise: Noise | None) -> float:
    """How far the true loss may lie above its estimate, one-sided 95 %."""
    from scipy.special import stdtrit

    own = with_pairs(noise, losses)
    return float(stdtrit(own.df, 0.95)) * own.pair_sd / math.sqrt(len(losses))
