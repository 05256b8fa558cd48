"""Which point of a space is launched next: a few that are spread well, then what Optuna makes of the results."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from optagent.agent.search.choosing import Trial
from optagent.agent.search.feasible import FailedTrial, ruled_out
from optagent.agent.search.space import (
    Axis,
    Point,
    Space,
    Value,
    contains,
    count,
    distance,
    is_counted,
    key,
    place_of,
    points,
    size,
    value_at,
)

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

FIRST = 4
"""Launches that are spread evenly before Optuna proposes, at least; half of the budget where that is more."""
WALKED = 8
"""A space of so few points is tried whole."""
FIRST_AXIS, FURTHER_AXIS, MOST = 6, 4, 20
"""Launches for a larger space: for its first axis, for each further one, and at most."""
ENUMERATED = 4096
"""A space of so many points is looked through whole for one that is left; of a larger one, `SAMPLED` points are."""
SAMPLED = 512
CANDIDATES = 24
"""How many candidates Optuna draws to choose its proposal from (its default): more of them make it greedier."""


def trials_wanted(space: Space) -> int:
    """How many launches the search may take, failed ones included."""
    number = size(space)
    if number is not None and number <= WALKED:
        return number
    wanted = min(MOST, FIRST_AXIS + FURTHER_AXIS * (len(space) - 1))
    return wanted if number is None else min(number, wanted)


def next_point(
    space: Space,
    trials: Sequence[Trial],
    failures: Sequence[FailedTrial],
    seed: int,
    direction: str,
    own: Point | None = None,
) -> Point | None:
    """The point to launch next, or None when nothing is left or the budget is used.

    `direction` is "max" or "min". `own` is what the baseline has: it is never proposed, and a trial of it (its value is
    known without a launch) costs nothing of the budget. Same arguments, same answer: nothing is kept between calls.
    """
    inside = [t for t in trials if contains(space, t.point)]
    taken = {key(own)} if own is not None else set()
    spent = {key(t.point) for t in inside} - taken
    spent |= {key(f.point) for f in failures if contains(space, f.point) and ruled_out(f.point, failures)}
    if len(spent) >= trials_wanted(space):
        return None
    taken |= spent

    def is_left(point: Point) -> bool:
        return key(point) not in taken and ruled_out(point, failures) is None

    number = size(space)
    if len(spent) < max(FIRST, trials_wanted(space) // 2) or (number is not None and number <= WALKED):
        first = next((point for point in _spread(space) if is_left(point)), None)
        return first or next((point for point in _candidates(space) if is_left(point)), None)
    proposed = _ask(space, inside, failures, seed + 7919 * len(spent), direction)
    return proposed if is_left(proposed) else _nearest_left(space, proposed, is_left)


def _spread(space: Space) -> Iterator[Point]:
    number = size(space)
    if number is not None and number <= WALKED:
        return iter(_outward(space))
    return itertools.islice(_sequence(space), SAMPLED)


def _outward(space: Space) -> list[Point]:
    """All points of a small space, from the middle on always the one that is farthest from those before."""
    rest = list(points(space))
    middle = {axis.name: value_at(axis, 0.5 - 1e-9) for axis in space}
    rest.sort(key=lambda p: key(p) != key(middle))
    chosen = [rest.pop(0)]
    while rest:
        farthest = max(rest, key=lambda p: round(min(distance(space, p, c) for c in chosen), 9))
        rest.remove(farthest)
        chosen.append(farthest)
    return chosen


def _sequence(space: Space) -> Iterator[Point]:
    """Roberts' additive recurrence, from the middle of the space on: it needs no number of points beforehand.

    M. Roberts, "The Unreasonable Effectiveness of Quasirandom Sequences" (2018).
    """
    ratio = 2.0
    for _ in range(40):
        ratio = (1 + ratio) ** (1 / (len(space) + 1))
    for n in itertools.count():
        yield {a.name: value_at(a, (0.5 + n * ratio ** -(i + 1)) % 1.0) for i, a in enumerate(space)}


def spread_points(space: Space, most: int) -> list[Point]:
    """At most so many points of the space, spread evenly: all of a small one, both ends of a single axis among them."""
    number = size(space)
    if number is not None and number <= most:
        return list(points(space))
    if len(space) == 1:
        places = [n / (most - 1) for n in range(most)]
        found: list[Point] = [{space[0].name: value_at(space[0], place)} for place in places]
    else:
        found = list(itertools.islice(_sequence(space), most))
    return list({key(point): point for point in found}.values())


def _candidates(space: Space) -> Iterator[Point]:
    number = size(space)
    if number is not None and number <= ENUMERATED:
        return points(space)
    lowest = {axis.name: value_at(axis, 0.0) for axis in space}
    return itertools.chain([lowest], itertools.islice(_sequence(space), SAMPLED))


def _nearest_left(space: Space, to: Point, is_left: Callable[[Point], bool]) -> Point | None:
    left = [point for point in _candidates(space) if is_left(point)]
    return min(left, key=lambda point: distance(space, point, to)) if left else None


def _ask(space: Space, trials: Sequence[Trial], failures: Sequence[FailedTrial], seed: int, direction: str) -> Point:
    """What Optuna's TPE sampler proposes after these results. Trials that it is told as failed are nothing to it, so a
    failure is told as a result, the worst there is, that breaks a constraint (Optuna 5.0: `Trial.constraints`)."""
    import optuna

    distributions = {axis.name: _distribution(axis) for axis in space}
    values = [t.value for t in trials]
    worst = (min if direction == "max" else max)(values, default=0.0)
    failed = {key(f.point): (f.point, worst, 1.0) for f in failures if ruled_out(f.point, failures)}
    told = [(t.point, t.value, 0.0) for t in trials] + list(failed.values())
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        sampler = optuna.samplers.TPESampler(
            seed=seed % 2**32, n_startup_trials=1, n_ei_candidates=CANDIDATES, multivariate=True
        )
        study = optuna.create_study(sampler=sampler, direction="maximize" if direction == "max" else "minimize")
        for point, value, violation in told:
            if contains(space, point):
                study.add_trial(
                    optuna.trial.create_trial(
                        params={axis.name: _coded(axis, point[axis.name]) for axis in space},
                        distributions=distributions, value=value, constraints={"failed": violation},
                    )
                )  # fmt: skip
        asked = study.ask(distributions).params
    finally:
        optuna.logging.set_verbosity(verbosity)
    return {axis.name: _decoded(axis, asked[axis.name]) for axis in space}


def _distribution(axis: Axis) -> BaseDistribution:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    n = count(axis)
    if n is None or not is_counted(axis):
        return FloatDistribution(0.0, 1.0)
    return IntDistribution(0, n - 1) if axis.ordered else CategoricalDistribution(range(n))


def _coded(axis: Axis, value: Value) -> float:
    """A value as Optuna is told it: its number among the axis's values, or its place along the axis."""
    n, place = count(axis), place_of(axis, value)
    assert place is not None
    return place if n is None or not is_counted(axis) else int(place * n)


def _decoded(axis: Axis, told: float) -> Value:
    n = count(axis)
    return value_at(axis, told if n is None or not is_counted(axis) else (told + 0.5) / n)
