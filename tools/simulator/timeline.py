"""The log of a launch before it is played: lines with virtual times, the ranks interleaved."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Line:
    """`raw` text is written as it is, without prefix or newline. `action` names what happens with the line."""

    at_s: float
    text: str
    rank: int | None = None
    raw: bool = False
    action: str | None = None


class Timeline:
    """Collects lines in virtual time; every rank lags a little behind or runs a little ahead, as ranks do."""

    def __init__(self, ranks: int, draws: random.Random) -> None:
        self.now_s = 0.0
        self.ranks = ranks
        self._draws = draws
        self._lag_s = [draws.uniform(0.0, 0.6) for _ in range(ranks)]
        self._lines: list[Line] = []

    def jitter(self, width: float) -> float:
        return self._draws.uniform(-width, width)

    def wait(self, seconds: float) -> None:
        self.now_s += seconds

    def parent(self, text: str, action: str | None = None) -> None:
        self._lines.append(Line(self.now_s, text, action=action))

    def raw(self, text: str) -> None:
        self._lines.append(Line(self.now_s, text, raw=True))

    def rank(self, rank: int, text: str) -> None:
        """A line of one rank, some moments after now."""
        self._lines.append(Line(self.now_s + self._lag_s[rank % self.ranks], text, rank))

    def each(self, text: Callable[[int], str]) -> None:
        """A line of every rank."""
        for rank in range(self.ranks):
            self.rank(rank, text(rank))

    def lines(self) -> Iterator[Line]:
        """All lines in the order of their times; lines of the same time stay in the order they were added."""
        return iter(sorted(self._lines, key=lambda line: line.at_s))
