"""The changes that a search may come to, as far as a principle can tell them apart."""

from __future__ import annotations

from collections.abc import Iterator

from optagent.agent.change import Change
from optagent.agent.search.space import Space, Value, at

SHOWN = 64
"""Values of one axis that are looked at."""


def variants(change: Change | None, space: Space) -> Iterator[Change]:
    """The change with every listed value of every axis in turn, and both ends of a range; the change itself without any."""
    fixed = change or Change()
    if not space:
        yield fixed
        return
    first: dict[str, Value] = {axis.name: _values(axis.values, axis.low)[0] for axis in space}
    for axis in space:
        for value in (*_values(axis.values, axis.low)[:SHOWN], *(() if axis.values else (axis.high,))):
            yield at(fixed, space, {**first, axis.name: value})


def _values(values: tuple[Value, ...], low: float) -> tuple[Value, ...]:
    return values or (low,)
