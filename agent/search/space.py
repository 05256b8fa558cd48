"""What an item leaves open: axes with a range of values, and the points between which a search chooses."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from optagent.agent.change import Change
from optagent.tools.calls.configuration import Configuration, FlagValue

Kind = Literal["flag", "env"]
Value = FlagValue | None
"""A value of a flag or variable; None where it is not given."""
Point = Mapping[str, Value]
"""A value for every axis, by the axis's name."""

WIDE = 100.0
"""From this ratio of its ends on, a range above zero is walked in equal ratios instead of equal steps."""
SHOWN = 8
LONGEST = 40
"""How many values, and how many characters of one, a line shows."""

_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,3})?\Z", re.ASCII)


@dataclass(frozen=True)
class Axis:
    """One flag or variable with what it may be: one of `values`, or anything from `low` to `high`.

    A range goes by `step` where it has one and by whole numbers with `integer`; otherwise it is continuous.
    """

    kind: Kind
    name: str
    values: tuple[Value, ...] = ()
    low: float = 0.0
    high: float = 0.0
    step: float | None = None
    integer: bool = False

    @property
    def ordered(self) -> bool:
        """Whether its values lie on a line, so that neighbours can be expected to be alike."""
        return not self.values or all(number_in(v) is not None for v in self.values)


Space = Sequence[Axis]


def number_in(value: Value) -> float | None:
    """The number that a value is or reads as (variables are text); None when it is none."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, str):
        if len(value) > LONGEST or not _NUMBER.match(value):
            return None
        value = int(value) if value.lstrip("+-").isdigit() else float(value)
    try:
        return value if math.isfinite(value) else None
    except OverflowError:  # an integer beyond any float
        return None


def canonical_value(value: Value) -> tuple[str, float | str]:
    """Equal for values that come to the same on a command line: `8`, `8.0` and "8"; False and not given."""
    if value is None or value is False:
        return "absent", ""
    if value is True:
        return "switch", ""
    number = number_in(value)
    return ("text", str(value)) if number is None else ("number", number)


def key(point: Point) -> tuple[tuple[str, tuple[str, float | str]], ...]:
    """Equal for points that come to the same configuration, whatever the order and notation of their values."""
    return tuple((name, canonical_value(point[name])) for name in sorted(point))


def in_order(axes: Space) -> tuple[Axis, ...]:
    """The axes in canonical order: flags before variables, by name, numbers ascending."""
    return tuple(_sorted(axis) for axis in sorted(axes, key=lambda a: (a.kind != "flag", a.name)))


def _sorted(axis: Axis) -> Axis:
    numbers = [(number_in(v), v) for v in axis.values if v is not None]
    if any(n is None for n, _ in numbers):
        return axis
    absent = (None,) if None in axis.values else ()
    return replace(axis, values=(*absent, *(v for _, v in sorted(numbers, key=lambda pair: pair[0] or 0.0))))


def count(axis: Axis) -> int | None:
    """How many values the axis has; None when it is continuous."""
    if axis.values:
        return len(axis.values)
    if axis.step is not None:
        return _steps(axis) + 1
    return int(axis.high) - int(axis.low) + 1 if axis.integer else None


def _steps(axis: Axis) -> int:
    from decimal import Decimal

    return int((Decimal(str(axis.high)) - Decimal(str(axis.low))) / Decimal(str(axis.step)))


def size(space: Space) -> int | None:
    """How many points the space has; None when an axis is continuous."""
    counts = [count(axis) for axis in space]
    return None if None in counts else math.prod(n for n in counts if n is not None)


def points(space: Space) -> Iterator[Point]:
    """All points of a finite space, the first axis slowest."""
    columns = [[_numbered(axis, n) for n in range(count(axis) or 0)] for axis in space]
    for row in itertools.product(*columns):
        yield {axis.name: value for axis, value in zip(space, row, strict=True)}


def _numbered(axis: Axis, index: int) -> Value:
    if axis.values:
        return axis.values[index]
    if axis.step is None:
        return int(axis.low) + index
    from decimal import Decimal

    exact = Decimal(str(axis.low)) + index * Decimal(str(axis.step))
    return int(exact) if axis.integer else float(exact)


def is_counted(axis: Axis) -> bool:
    """Whether a place on the axis means the number of a value, rather than a share of the way from low to high."""
    return count(axis) is not None and not _is_wide(axis)


def _is_wide(axis: Axis) -> bool:
    return not axis.values and axis.step is None and axis.low > 0 and axis.high >= axis.low * WIDE


def value_at(axis: Axis, place: float) -> Value:
    """The value at a place from 0 to 1 along the axis; of a continuous axis no finer than a hundredth of the way."""
    n = count(axis)
    if n is not None and is_counted(axis):
        return _numbered(axis, min(n - 1, int(place * n)))
    if _is_wide(axis):
        exact = math.exp(math.log(axis.low) + place * (math.log(axis.high) - math.log(axis.low)))
        value = float(f"{exact:.3g}")
    else:
        exact = axis.low + place * (axis.high - axis.low)
        value = round(exact, 2 - math.floor(math.log10(axis.high - axis.low)))
    value = min(max(value, axis.low), axis.high)
    return round(value) if axis.integer else value


def place_of(axis: Axis, value: Value) -> float | None:
    """Where a value lies along the axis, from 0 to 1; None when it is none of the axis's values."""
    n, number = count(axis), number_in(value)
    if axis.values:
        wanted = canonical_value(value)
        index = next((i for i, v in enumerate(axis.values) if canonical_value(v) == wanted), None)
        return None if index is None else (index + 0.5) / len(axis.values)
    if number is None or not axis.low <= number <= axis.high or (axis.integer and number != int(number)):
        return None
    if axis.step is not None and n is not None:
        index = round((number - axis.low) / axis.step)
        return (
            (index + 0.5) / n
            if 0 <= index < n and canonical_value(_numbered(axis, index)) == ("number", number)
            else None
        )
    if n is not None and is_counted(axis):
        return (number - axis.low + 0.5) / n
    if _is_wide(axis):
        return (math.log(number) - math.log(axis.low)) / (math.log(axis.high) - math.log(axis.low))
    return (number - axis.low) / (axis.high - axis.low)


def contains(space: Space, point: Point) -> bool:
    """Whether the point has one of its values on every axis, and nothing else."""
    return point.keys() == {a.name for a in space} and all(place_of(a, point[a.name]) is not None for a in space)


def distance(space: Space, a: Point, b: Point) -> float:
    """How far apart two points are, each axis from 0 to 1. Values without an order are equal or 1 apart."""
    return math.sqrt(sum(apart(axis, a.get(axis.name), b.get(axis.name)) ** 2 for axis in space))


def apart(axis: Axis, a: Value, b: Value) -> float:
    """How far apart two values are along the axis, from 0 to 1; a value that the axis does not have is 1 apart."""
    if canonical_value(a) == canonical_value(b):
        return 0.0
    here, there = place_of(axis, a), place_of(axis, b)
    if here is None or there is None or not axis.ordered:
        return 1.0
    return abs(here - there)


def at(change: Change, space: Space, point: Point) -> Change:
    """`change` with the values of a point put in. Raises KeyError when the point lacks an axis."""
    flags, env = dict(change.flags), dict(change.env)
    for axis in space:
        value = point[axis.name]
        if axis.kind == "flag":
            flags[axis.name] = value
        else:
            env[axis.name] = None if value is None else str(value)
    return replace(change, flags=flags, env=env)


def own_point(space: Space, base: Configuration) -> Point:
    """What the axes are in a configuration."""
    return {a.name: base.flags.get(a.name) if a.kind == "flag" else base.env.get(a.name) for a in space}


def describe(space: Space) -> str:
    """The space in one line: every axis with what it may be, and how many points that makes."""
    number = size(space)
    many = f" ({number} points)" if number is not None and len(space) > 1 else ""
    return "; ".join(f"{written_name(axis.name, axis.kind)} {_extent(axis)}" for axis in space) + many


def written_name(name: str, kind: Kind) -> str:
    return f"--{name}" if kind == "flag" else name


def _extent(axis: Axis) -> str:
    if axis.values:
        more = len(axis.values) - SHOWN
        return "one of " + ", ".join(shown(v) for v in axis.values[:SHOWN]) + (f" and {more} more" if more > 0 else "")
    return f"{shown(axis.low)}..{shown(axis.high)}" + (f" step {shown(axis.step)}" if axis.step is not None else "")


def shown(value: Value) -> str:
    """A value in one line, cut where it is long."""
    if value is None:
        return "not given"
    if isinstance(value, bool):
        return "on" if value else "off"
    text = " ".join(str(value).split())
    return text if len(text) <= LONGEST else text[:LONGEST] + "…"
