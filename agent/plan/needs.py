"""What items need of each other: unknown names, unreadable conditions and circles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from optagent.agent.plan.blocks import nearest
from optagent.agent.plan.model import Item, Problem


class Needing(NamedTuple):
    """An item with the 1-based line in which its needs stand."""

    item: Item
    line: int


def check_needs(needing: Sequence[Needing]) -> list[Problem]:
    """Everything that is wrong with what the items need."""
    ids = tuple(n.item.id for n in needing)
    problems = [
        Problem(n.line, f"needs: {said}")
        for n in needing
        for need in n.item.needs
        if (said := _wrong(need, ids)) is not None
    ]
    graph = {n.item.id: [need for need in n.item.needs if need in ids] for n in needing}
    if circle := _circle(graph):
        line = next(n.line for n in needing if n.item.id == circle[0])
        problems.append(Problem(line, f"needs: these items wait for each other: {' -> '.join(circle)}"))
    return problems


def _wrong(need: str, ids: tuple[str, ...]) -> str | None:
    if need in ids:
        return None
    from optagent.agent.conditions import looks_like_condition, parse_condition

    if looks_like_condition(need):
        try:
            parse_condition(need)
        except ValueError as error:
            return str(error)
        return None
    guess = nearest(need, ids)
    return f"no item is called {need[:60]!r}" + (f"; did you mean {guess}?" if guess else "")


def _circle(graph: dict[str, list[str]]) -> list[str] | None:
    """The first circle, as a path that ends where it starts."""
    done: set[str] = set()
    for start in graph:
        path, trail = [start], [iter(graph[start])]
        while path:
            step = next(trail[-1], None)
            if step is None:
                done.add(path.pop())
                trail.pop()
            elif step in path:
                return [*path[path.index(step) :], step]
            elif step not in done:
                path.append(step)
                trail.append(iter(graph[step]))
    return None
