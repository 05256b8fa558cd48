"""The folder of handoffs: which one is the latest, which number comes next, which took the place of which. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_NUMBER = re.compile(r"\d{1,9}")


def handoffs_in(names: Iterable[str]) -> list[str]:
    """The names that are handoffs, oldest first: by their number, then by their name. Those without one come first."""
    return sorted((n for n in names if n.lower() != "readme.md"), key=lambda n: (number_of(n), n.removesuffix(".md")))


def number_of(name: str) -> int:
    """The number at the beginning of a handoff's name, -1 without one; a date is none."""
    found = None if _DATE.match(name) else _NUMBER.match(name)
    return int(found[0]) if found else -1


def latest_of(names: Iterable[str]) -> str:
    """The newest of these names; "" when none is a handoff."""
    return next(reversed(handoffs_in(names)), "")


def next_number(names: Iterable[str]) -> int:
    """One more than the highest number that is taken; a gap is left as it is."""
    return max([0, *(number_of(n) for n in handoffs_in(names))]) + 1


def of_the_same_number(names: Iterable[str], name: str) -> list[str]:
    """Other handoffs that have the number of this one."""
    number = number_of(name)
    return [n for n in handoffs_in(names) if number >= 0 and n != name and number_of(n) == number]


def later_than(names: Iterable[str], name: str) -> list[str]:
    """The handoffs after this one, oldest first."""
    listed = handoffs_in(names)
    return listed[listed.index(name) + 1 :] if name in listed else listed
