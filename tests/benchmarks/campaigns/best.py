"""The best true value that a plan's parts can reach: by looking at all combinations, or by climbing from many starts."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from campaigns.model import Model
from campaigns.rivals import points, with_choice
from campaigns.space import Point, Space

MOST_POINTS = 4096
"""Combinations up to which all are looked at."""
STARTS = 10
"""Drawn starts of the climb, beside the baseline and everything that helps alone."""


@dataclass(frozen=True)
class Best:
    """`how` says how it was found; `looked_at` is the number of combinations that were computed."""

    value: float
    point: Point
    how: str
    looked_at: int


def best_reachable(model: Model, space: Space) -> Best:
    """Raises ValueError for a deployment whose baseline does not serve."""
    search = _Search(model, space)
    if search.value(space.nothing) is None:
        raise ValueError(f"{model.deployment.name}: the baseline does not start, or does not stand its load")
    if space.size() <= MOST_POINTS:
        found, how = search.best_of(points(space)), f"all {space.size()} combinations"
    else:
        starts = list(search.starts())
        found = search.best_of(search.climb(start) for start in starts)
        how = f"coordinate ascent with pairs from {len(starts)} starts"
    value = search.value(found)
    assert value is not None
    return Best(value, found, how, len(search.known))


class _Search:
    def __init__(self, model: Model, space: Space) -> None:
        self.model, self.space = model, space
        self.known: dict[Point, float | None] = {}

    def value(self, point: Point) -> float | None:
        if point not in self.known:
            self.known[point] = self.model.value(self.space.configuration(point))
        return self.known[point]

    def better(self, one: Point, other: Point) -> bool:
        mine, theirs = self.value(one), self.value(other)
        if mine is None or theirs is None:
            return mine is not None
        return self.model.deployment.better(mine, theirs)

    def best_of(self, some: Iterator[Point]) -> Point:
        found = self.space.nothing
        for point in some:
            if self.better(point, found):
                found = point
        return found

    def starts(self) -> Iterator[Point]:
        """The baseline, the best choice of every part that helps alone all together, and drawn ones."""
        nothing = self.space.nothing
        yield nothing
        together = nothing
        for place, part in enumerate(self.space.parts):
            alone = [with_choice(nothing, place, choice) for choice in range(1, 1 + len(part.choices))]
            helping = self.best_of(iter(alone))
            if helping != nothing:
                together = with_choice(together, place, helping[place])
        yield together
        draws = random.Random(self.model.deployment.name)
        for _ in range(STARTS):
            point = tuple(draws.randrange(1 + len(part.choices)) for part in self.space.parts)
            yield self.mended(point)

    def mended(self, point: Point) -> Point:
        """The point without the parts that keep it from serving, as far as one after the other is taken out."""
        for place in range(len(point)):
            if self.value(point) is not None:
                break
            point = with_choice(point, place, 0)
        return point

    def climb(self, start: Point) -> Point:
        """Change one part at a time while that helps, then two at a time, until nothing does."""
        now = start
        while True:
            before = now
            for place in range(len(self.space.parts)):
                now = self.best_of_place(now, place)
            if now == before:
                now = self._pair(now)
                if now == before:
                    return now

    def best_of_place(self, point: Point, place: int) -> Point:
        found = point
        for choice in range(1 + len(self.space.parts[place].choices)):
            other = with_choice(point, place, choice)
            if self.better(other, found):
                found = other
        return found

    def _pair(self, point: Point) -> Point:
        """The first pair of parts that are better switched together: on or off, or on with their first value."""
        places = range(len(self.space.parts))
        for one in places:
            for other in places:
                if one < other:
                    tried = with_choice(
                        with_choice(point, one, 0 if point[one] else 1), other, 0 if point[other] else 1
                    )
                    if self.better(tried, point):
                        return tried
        return point
