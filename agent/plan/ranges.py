"""Ranges in an item's change: one of a list of values, or any value from LOW to HIGH."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from optagent.agent.plan.nodes import flag_value_of, is_plain, kind_of, text_of
from optagent.agent.search.space import Axis, Kind, Value, canonical_value, count, number_in, shown

if TYPE_CHECKING:
    from optagent.agent.plan.nodes import Node

LARGEST = 2**53
"""Beyond it, whole numbers are not exact as the floating point numbers that an optimiser works with."""
MOST_STEPS = 1_000_000

_N = r"[+-]?\d{1,20}(?:\.\d{1,20})?(?:[eE][+-]?\d{1,2})?"
_RANGE = re.compile(rf"\s*({_N})\s*\.\.\s*({_N})(?:\s+step\s+({_N}))?\s*\Z", re.ASCII)
_ALONE = re.compile(_N, re.ASCII)
_WHOLE = re.compile(r"[+-]?\d+\Z", re.ASCII)
_SHAPE = "expected LOW..HIGH with two numbers, such as 0.3..1.3 or 8..64 step 8"


def axis_of(kind: Kind, name: str, node: Node) -> Axis | None:
    """The axis that the value of a flag or variable opens; None when it is one value.

    Raises ValueError, with what was expected, for a range that makes no sense.
    """
    if node.id == "sequence":
        return Axis(kind, name, values=_listed(kind, node))
    text = text_of(node)
    if text is None:
        return None
    if match := _RANGE.match(text):
        return _between(kind, name, match)
    if is_plain(node) and _meant_as_range(text):
        raise ValueError(f"{_SHAPE}; found {text[:60]!r} (in quotes it is a plain text)")
    return None


def names_range(node: Node) -> bool:
    """Whether the node is a range, or a list of values, where only one value can stand."""
    text = text_of(node)
    return node.id == "sequence" or (text is not None and is_plain(node) and _RANGE.match(text) is not None)


def _listed(kind: Kind, node: Node) -> tuple[Value, ...]:
    values = [_single(kind, part) for part in node.value]
    if len(values) < 2:
        raise ValueError(f"expected two values or more to choose among, found {len(values) or 'none'}")
    seen: dict[object, Value] = {}
    for value in values:
        if (known := canonical_value(value)) in seen:
            raise ValueError(f"expected every value once, found {_named(seen[known])} and {_named(value)}")
        seen[known] = value
    kinds = sorted({_kind_of_value(v) for v in values if v is not None})
    if kind == "flag" and len(kinds) > 1:
        raise ValueError(f"expected values of one kind, found {' and '.join(kinds)}")
    return tuple(values)


def _single(kind: Kind, node: Node) -> Value:
    text = text_of(node)
    if text is None:
        raise ValueError(f"expected single values in the list, found {kind_of(node)}")
    if _RANGE.match(text) or (is_plain(node) and _meant_as_range(text)):
        raise ValueError(f"expected single values in the list, found the range {text[:60]!r}")
    if kind == "flag":
        return flag_value_of(node)
    return None if kind_of(node) == "nothing" else text


def _kind_of_value(value: Value) -> str:
    if isinstance(value, bool):
        return "true or false"
    return "text" if number_in(value) is None else "numbers"


def _named(value: Value) -> str:
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else shown(value)


def _between(kind: Kind, name: str, match: re.Match[str]) -> Axis:
    said = [text for text in match.groups() if text is not None]
    integer = all(_WHOLE.match(text) for text in said)
    low, high, *steps = (int(text) if integer else float(text) for text in said)
    if not all(math.isfinite(x) and abs(x) <= LARGEST for x in (low, high, *steps)):
        raise ValueError(f"expected numbers up to {LARGEST}, found {match[0].strip()[:60]!r}")
    if low >= high:
        raise ValueError(f"expected the lower end first, found {match[0].strip()[:60]!r}")
    axis = Axis(kind, name, low=low, high=high, step=steps[0] if steps else None, integer=integer)
    if steps and (steps[0] <= 0 or (high - low) / steps[0] > MOST_STEPS or count(axis) == 1):
        raise ValueError(
            f"expected a step above 0 that fits between the ends, {MOST_STEPS} times at most; found {match[3]}"
        )
    return axis


def _meant_as_range(text: str) -> bool:
    """Whether a plain text with two dots in it is a mistaken range rather than a path or a sentence."""
    left, dots, right = (part.strip() for part in text.partition(".."))
    right = right.strip(".")
    if not dots or "/" in text or "\\" in text:
        return False
    if _ALONE.fullmatch(left):
        return True
    if not left:
        return _ALONE.fullmatch(right) is not None
    return len(left.split()) == 1 and len(right.split()) == 1
