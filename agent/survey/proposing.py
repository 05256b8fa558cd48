"""Which combination is launched next: the one that promises the most beyond the best so far, and is likely to run. Pure."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from optagent.agent.survey.factors import Choice, Factor
from optagent.agent.survey.feasible import Feasible, on
from optagent.agent.survey.surface import Array, Observation, Surface

STARTS = 4
"""Drawn combinations from which the search for the best proposal climbs, beside the best ones that were measured."""
SWEEPS = 4
"""How often it goes over all factors at most."""
AT_ONCE = 4
"""Levels that never ran before in one launch at most: of more of them, one that does harm hides what the others give."""
ENOUGH = 0.15
"""Share of the minimum effect; where no combination can be expected to gain so much more, the survey has seen enough."""
FEWEST, EACH, MOST = 4, 2, 40
"""Launches of a survey at most: so many, and so many more for each factor, up to the last number."""


@dataclass(frozen=True)
class Proposal:
    """A combination, and how much better than the best one so far it is expected to be (a difference of logarithms, with
    what is worse counted as nothing), times how likely it is to run; `worth` is that for each usual launch it costs."""

    choice: Choice
    worth: float
    expected: float = 0.0


def launches_wanted(factors: Sequence[Factor]) -> int:
    """How many launches a survey of these factors takes at most, failed ones included."""
    return min(MOST, FEWEST + EACH * len(factors))


def propose(
    factors: Sequence[Factor],
    surface: Surface,
    seen: Sequence[Observation],
    feasible: Feasible,
    seed: int,
    allowed: Callable[[Choice], bool] = lambda _: True,
    enough: float = 0.0,
) -> Proposal | None:
    """The most promising combination that was not launched yet, and that is `allowed`; None when there is none. One that is
    expected to gain `enough` comes before all that are not. Same arguments, same answer."""
    draws = random.Random(seed)
    known = {o.choice for o in seen} | {f.choice for f in feasible.failures}
    means, _ = surface.at([o.choice for o in seen])
    best = min(zip(-means.round(9), (o.choice for o in seen), strict=True))[1]

    def worth(choices: Sequence[Choice]) -> Array:
        chance = np.array([0.0 if c in known or feasible.new(c) > AT_ONCE else feasible.chance(c) for c in choices])
        found = np.zeros(len(choices))
        open_ = [i for i, likely in enumerate(chance) if likely > 0]
        if open_:
            left = [choices[i] for i in open_]
            ahead, sd = surface.beyond(left, best)
            found[open_] = chance[open_] * _improvement(ahead, sd) / np.array([cost(factors, c) for c in left])
        return found

    starts = [best, (0,) * len(factors)]
    starts += [_drawn(starts[n % 2], factors, draws) for n in range(STARTS)]
    found = [_climb(start, factors, worth, draws, cache(allowed)) for start in dict.fromkeys(starts)]
    found = [replace(p, expected=p.worth * cost(factors, p.choice)) for p in found]
    top = max(found, key=lambda p: (p.expected >= enough, round(p.worth, 9), tuple(-n for n in p.choice)))
    return top if top.worth > 0 else None


def _drawn(start: Choice, factors: Sequence[Factor], draws: random.Random) -> Choice:
    """The choice with a few drawn levels."""
    for n in draws.sample(range(len(factors)), min(AT_ONCE, len(factors))):
        start = with_level(start, n, draws.randrange(1 + len(factors[n].levels)))
    return start


def _climb(
    start: Choice, factors: Sequence[Factor], worth: Callable[[Sequence[Choice]], Array], draws: random.Random,
    allowed: Callable[[Choice], bool],
) -> Proposal:  # fmt: skip
    now = Proposal(start, float(worth([start])[0]) if allowed(start) else 0.0)
    for _ in range(SWEEPS):
        before = now
        for n in draws.sample(range(len(factors)), len(factors)):
            others = [with_level(now.choice, n, level) for level in range(1 + len(factors[n].levels))]
            others = [choice for choice in others if choice != now.choice]
            worths = worth(others).round(9)
            better = [i for i in np.argsort(-worths, kind="stable") if worths[i] > now.worth + 1e-9]
            now = next((Proposal(others[i], float(worths[i])) for i in better if allowed(others[i])), now)
        if now == before:
            break
    return now


def cost(factors: Sequence[Factor], choice: Choice) -> float:
    """What a launch of the choice takes, in usual ones."""
    return max((factors[n].levels[level - 1].cost for n, level in on(choice)), default=1.0)


def with_level(choice: Choice, factor: int, level: int) -> Choice:
    return (*choice[:factor], level, *choice[factor + 1 :])


def _improvement(ahead: Array, sd: Array) -> Array:
    """The expected improvement (Mockus 1974) of values that are normal around `ahead` of the best so far."""
    from scipy.special import ndtr

    z = ahead / sd
    density = np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
    return np.asarray(np.maximum(ahead * ndtr(z) + sd * density, 0.0))
