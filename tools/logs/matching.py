"""Which row of the knowledge table knows a line.

Trying every row on a line is slow, and a log that fails says the same thing many times: a text that differs from enough
others in digits only, all of which were judged alike, is not judged again.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Generic, TypeVar

from optagent.tools.logs.signature import Signature
from optagent.tools.logs.signatures import DEATH, SIGNATURES, STOP

LONGEST_MATCHED = 2000
ALIKE_ENOUGH = 8
MOST_REMEMBERED = 5000
NO_DIGITS = {ord(digit): None for digit in "0123456789"}

Judged = TypeVar("Judged")


@dataclass
class _Remembering(Generic[Judged]):
    """A judgement on texts that is made anew until it came out the same often enough."""

    judge: Callable[[str], Judged]
    _known: dict[str, tuple[Judged, int]] = field(default_factory=dict)

    def __call__(self, text: str) -> Judged:
        shape = text.translate(NO_DIGITS)
        last, times = self._known.get(shape, (None, 0))
        if times >= ALIKE_ENOUGH and last is not None:
            return last
        judged = self.judge(text)
        if len(self._known) >= MOST_REMEMBERED:
            self._known.clear()
        self._known[shape] = (judged, times + 1 if judged == last else 1)
        return judged


@dataclass(frozen=True, slots=True)
class Ends:
    """Whether a line says that the server was asked to stop, and whether it cannot go on after it."""

    stopped: bool
    dead: bool


class Matcher:
    """One for each log that is read."""

    def __init__(self) -> None:
        self._alone = _Remembering(lambda text: _row(text, exception=False))
        self._exception = _Remembering(lambda text: _row(text, exception=True))
        self._ends = _Remembering(_ends)

    def row(self, text: str, *, exception: bool) -> Signature | None:
        """The first row that fits; most rows fit only what an exception says."""
        index = (self._exception if exception else self._alone)(text[:LONGEST_MATCHED])
        return SIGNATURES[index] if index >= 0 else None

    def ends(self, text: str) -> Ends:
        return self._ends(text[:LONGEST_MATCHED])


@cache
def _rows_alone() -> tuple[int, ...]:
    return tuple(index for index, row in enumerate(SIGNATURES) if row.alone)


@cache
def _compiled(expression: str) -> re.Pattern[str]:
    return re.compile(expression)


def _row(text: str, exception: bool) -> int:
    rows = range(len(SIGNATURES)) if exception else _rows_alone()
    return next((index for index in rows if SIGNATURES[index].pattern.search(text)), -1)


def _ends(text: str) -> Ends:
    return Ends(_compiled(STOP).search(text) is not None, _compiled(DEATH).search(text) is not None)
