"""What a configuration is expected to give, from those that were measured: an additive Gaussian process. Pure.

The logarithm of the objective is a constant, the effect of each factor's level, and a little that depends on the whole
combination (additive Gaussian processes: Duvenaud, Nickisch and Rasmussen, NeurIPS 2011). Levels that are near each other,
such as neighbouring values of one flag, have effects alike.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optagent.agent.experiments import Outlook
from optagent.agent.search.space import number_in
from optagent.agent.survey.factors import Choice, Factor, Level, Value, assignments
from optagent.agent.survey.foreseen import USUAL_SD

TOGETHER = (0.04, 0.003, 0.01, 0.08)
"""Usual standard deviations of what a combination gives beside the sum of its levels' effects. The first one holds until there
is something to learn from."""
ROUNDS = 12
"""How often the sizes of the effects are learnt from the effects, and these from them."""
MUCH_WORSE = 0.3
"""What lies so far (a difference of logarithms) below the best is bad, and how bad says nothing about what is good."""
LEARN_FROM = 5
"""Observations from which on that is taken from them."""
FACTORS_ALIKE = 3.0
"""Combinations that differ in so many factors are alike by 1/e in that."""
MANY, NEAR = 4, 0.35
"""Of so many values of a flag, those that lie so far apart along all of them are alike by 1/e; of fewer, those that differ
by a factor of e."""
ANYWHERE_SD = 20.0
"""Of the constant."""
SITTING_SD = 0.02
"""By which all of a sitting lies off: the machine is not the same every day."""
BELIEVED = 0.5
"""Share of what the plan promises that is expected."""

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Observation:
    """A launch: the choice that it ran, the logarithm of its objective so that more is better, and its sitting."""

    choice: Choice
    value: float
    sitting: str = ""


class _Fit(NamedTuple):
    """How likely the observations are, the covariance of each factor's effects, and the observations' own: its root, and it
    solved for their values."""

    likely: float
    shapes: list[Array]
    root: Array
    weights: Array


class Surface:
    """The posterior after `observations`; `noise` is the standard deviation of one of them (a fraction).

    Most levels do little and a few do much, so the effect of a level has a heavy-tailed prior (Student's t with one degree of
    freedom), which lets one level answer for what several launches have in common. Of how much combinations give beside
    the sum, that of a few usual sizes is taken that makes the observations most likely. Raises ValueError without
    observations.
    """

    def __init__(
        self, factors: Sequence[Factor], before: Mapping[str, Value], observations: Sequence[Observation], noise: float
    ) -> None:
        if not observations:
            raise ValueError("nothing was measured")
        self._tables = [_covariance(f, before) for f in factors]
        self._usual = [np.array([0.0, *(_usual_sd(level) for level in f.levels)]) for f in factors]
        self._felt = [np.minimum((sds / USUAL_SD) ** 2, 1.0) for sds in self._usual]
        self._promised = [np.array([0.0, *(_promised(level) for level in f.levels)]) for f in factors]
        self._seen = _as_array([o.choice for o in observations], len(factors))
        self._sittings = [o.sitting for o in observations]
        self._origin = float(np.median([o.value for o in observations]))
        same = np.array([[one == other for other in self._sittings] for one in self._sittings], dtype=float)
        measured = np.array([o.value for o in observations]) - self._origin
        values = np.maximum(measured, measured.max() - MUCH_WORSE) - self._expected(self._seen)
        apart = SITTING_SD**2 * same + (noise**2 + 1e-9) * np.eye(len(observations))
        sizes = TOGETHER if len(observations) >= LEARN_FROM else TOGETHER[:1]
        fits = [self._fit(size, values, apart) for size in sizes]
        best = max(range(len(fits)), key=lambda n: (round(fits[n].likely, 6), -n))
        self._together, self._shapes, self._root, self._weights = sizes[best], *fits[best][1:]

    def _fit(self, together: float, values: Array, apart: Array) -> _Fit:
        """The effects' sizes and the effects, learnt from each other in turns (expectation-maximisation)."""
        self._together, sds = together, self._usual
        for _ in range(ROUNDS):
            self._shapes = [t * np.outer(sd, sd) for t, sd in zip(self._tables, sds, strict=True)]
            root: Array = np.asarray(np.linalg.cholesky(self._between(self._seen, self._seen) + apart))
            half: Array = np.asarray(np.linalg.solve(root, values))
            weights: Array = np.asarray(np.linalg.solve(root.T, half))
            sds = [self._sizes(factor, root, weights) for factor in range(len(sds))]
        likely = -0.5 * float(half @ half) - float(np.log(np.diag(root)).sum())
        return _Fit(likely, self._shapes, root, weights)

    def _sizes(self, factor: int, root: Array, weights: Array) -> Array:
        """Standard deviations of the levels' effects that go with what the effects came out as, and how sure that is."""
        between = self._shapes[factor][:, self._seen[:, factor]]
        mean, explained = between @ weights, np.linalg.solve(root, between.T)
        var = np.maximum(np.diag(self._shapes[factor]) - np.sum(explained**2, axis=0), 0.0)
        own = np.maximum(np.diag(self._tables[factor]), 1e-3)
        return np.asarray(np.sqrt((self._usual[factor] ** 2 + (mean**2 + var) / own) / 2))

    def at(self, choices: Sequence[Choice]) -> tuple[Array, Array]:
        """(mean, standard deviation) of the true value at each of the choices, without the noise of a launch."""
        asked = _as_array(choices, len(self._shapes))
        between = self._between(asked, self._seen)
        mean = self._origin + self._expected(asked) + between @ self._weights
        explained = np.linalg.solve(self._root, between.T)
        return mean, np.sqrt(np.maximum(self._alone(asked) - np.sum(explained**2, axis=0), 1e-12))

    def beyond(self, choices: Sequence[Choice], other: Choice) -> tuple[Array, Array]:
        """(mean, standard deviation) of how far each of the choices lies ahead of the other one."""
        asked, there = _as_array(choices, len(self._shapes)), _as_array([other], len(self._shapes))
        apart = self._between(asked, self._seen) - self._between(there, self._seen)
        mean = self._expected(asked) - self._expected(there) + apart @ self._weights
        explained = np.linalg.solve(self._root, apart.T)
        own = self._alone(asked) + self._alone(there) - 2 * self._between(asked, there)[:, 0]
        return mean, np.sqrt(np.maximum(own - np.sum(explained**2, axis=0), 1e-12))

    def outlook(self, one: Choice, baseline: Choice) -> Outlook:
        """What is expected of two choices together, in the sitting of the last observation."""
        both = _as_array([one, baseline], len(self._shapes))
        here = np.array([sitting == self._sittings[-1] for sitting in self._sittings], dtype=float)
        between = self._between(both, self._seen) + SITTING_SD**2 * here
        explained = np.linalg.solve(self._root, between.T)
        spread = self._between(both, both) + SITTING_SD**2 - explained.T @ explained
        mean = self._origin + self._expected(both) + between @ self._weights
        return Outlook(float(mean[0]), float(mean[1]), float(spread[0, 0]), float(spread[1, 1]), float(spread[0, 1]))

    def _expected(self, choices: NDArray[np.intp]) -> Array:
        total = np.zeros(len(choices))
        for promised, column in zip(self._promised, choices.T, strict=True):
            total += promised[column]
        return total

    def _alone(self, choices: NDArray[np.intp]) -> Array:
        """The prior variance of each choice."""
        effects = sum(shape[c, c] for shape, c in zip(self._shapes, choices.T, strict=True))
        return self._joined(np.asarray(effects), np.ones(len(choices)))

    def _between(self, some: NDArray[np.intp], others: NDArray[np.intp]) -> Array:
        return self._joined(*self._parts(some, others))

    def _joined(self, effects: Array, together: Array) -> Array:
        return ANYWHERE_SD**2 + effects + self._together**2 * together

    def _parts(self, some: NDArray[np.intp], others: NDArray[np.intp]) -> tuple[Array, Array]:
        """How alike choices are by the sum of their levels, and as combinations."""
        total = np.zeros((len(some), len(others)))
        differing = np.zeros((len(some), len(others)))
        for shape, felt, a, b in zip(self._shapes, self._felt, some.T, others.T, strict=True):
            total += shape[np.ix_(a, b)]
            differing += (a[:, None] != b[None, :]) * np.maximum(felt[a][:, None], felt[b][None, :])
        return total, np.asarray(np.exp(-differing / FACTORS_ALIKE))


def _as_array(choices: Sequence[Choice], width: int) -> NDArray[np.intp]:
    return np.array(choices, dtype=np.intp).reshape(len(choices), width)


def _covariance(factor: Factor, before: Mapping[str, Value]) -> Array:
    """Of the effects of the levels, the first of which is off and has none.

    A level's effect is the sum of what its items add: that of an item which it needs is the same wherever that is on.
    Values of one item have half of its effect in common, and more the nearer they are.
    """
    table = np.zeros((1 + len(factor.levels),) * 2)
    own = [level.items[-1] for level in factor.levels]
    for item in dict.fromkeys(own):
        mine = [0, *(n for n, name in enumerate(own, 1) if name == item)]
        table[np.ix_(mine, mine)] += _values_of_item(factor, mine, before)
    for a, one in enumerate(factor.levels, 1):
        for b, other in enumerate(factor.levels, 1):
            common = set(one.items) & set(other.items)
            table[a, b] += len(common) - (own[a - 1] == own[b - 1])
    return _without_negative(table)


def _promised(level: Level) -> float:
    return BELIEVED * level.promise if level.foreseen is None else level.foreseen.ahead


def _usual_sd(level: Level) -> float:
    return USUAL_SD * level.reach if level.foreseen is None else level.foreseen.sd


def _values_of_item(factor: Factor, mine: Sequence[int], before: Mapping[str, Value]) -> Array:
    """Of off and the levels of one item. Values that are near what they were before can do little."""
    sets = [assignments(factor, before)[n] for n in mine]
    changed = [name for name in sorted(factor.names) if any(s[name] != sets[0][name] for s in sets)]
    near = np.mean([_alike([s[name] for s in sets]) for name in changed], axis=0) if changed else np.eye(len(sets))
    return np.asarray((near - near[:, :1] - near[:1, :] + 1) / 2)


def _without_negative(table: Array) -> Array:
    """The nearest covariance: what a table of likenesses comes to may miss being one by a little."""
    values, vectors = np.linalg.eigh(table)
    return np.asarray((vectors * np.maximum(values, 0.0)) @ vectors.T)


def _alike(values: Sequence[Value]) -> Array:
    """How alike values of one flag are, from 0 to 1: equal or not, or by how near they are where all are numbers."""
    distinct = {repr(v): v for v in values}
    numbers = {text: None if isinstance(v, bool) else number_in(v) for text, v in distinct.items()}
    known = sorted({n for n in numbers.values() if n is not None})
    places = {n: _place(n, known) for n in known}
    names = [repr(v) for v in values]
    return np.array([[_pair(one, other, numbers, places) for other in names] for one in names])


def _place(number: float, known: Sequence[float]) -> float:
    """Where a number stands: by its rank among many, by its size among few."""
    if len(known) >= MANY or number <= 0:
        return known.index(number) / max(1, len(known) - 1) / NEAR
    return math.log(number)


def _pair(one: str, other: str, numbers: Mapping[str, float | None], places: Mapping[float, float]) -> float:
    if one == other:
        return 1.0
    a, b = numbers[one], numbers[other]
    if a is None or b is None:
        return 0.0
    return math.exp(-((places[a] - places[b]) ** 2))
