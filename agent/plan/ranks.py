"""The order of the items, and what makes it ambiguous: a rank given twice, a rank that goes backwards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from optagent.agent.plan.draft import Draft
from optagent.agent.plan.headings import Kind
from optagent.agent.plan.model import Problem


class Order(NamedTuple):
    """The drafts in the order in which they are to be tried, each with its rank, and what is wrong with the ranking."""

    drafts: tuple[tuple[Draft, int | None], ...]
    problems: tuple[Problem, ...]


def order(drafts: Sequence[Draft], structured: bool) -> Order:
    """Ranked drafts by rank, then document order; unranked ones after them.

    Priorities (`P0`, `Priority 1`) are tiers that several items may share; that is ambiguous only between items that
    carry a change. Numbers name one item each; in a free-form document they may start anew in every section.
    """
    problems = _problems(drafts, structured)
    ranked = [d for d in drafts if d.rank is not None]
    restarts = not structured and _restarts(ranked)
    parents = list(dict.fromkeys(d.parent for d in ranked))
    keys = {id(d): ((parents.index(d.parent),) if restarts else ()) + d.tier + (d.rank or ()) for d in ranked}
    ranked.sort(key=lambda d: keys[id(d)])
    numbers = [keys[id(d)] for d in ranked]
    stated = all(len(k) == 1 for k in numbers) and (len(set(numbers)) == len(numbers) or bool(problems))
    ordered: list[tuple[Draft, int | None]] = [
        (draft, numbers[n][0] if stated else n + 1) for n, draft in enumerate(ranked)
    ]
    ordered += [(d, None) for d in drafts if d.rank is None]
    return Order(tuple(ordered), tuple(problems))


def _restarts(ranked: Sequence[Draft]) -> bool:
    """Whether numbers repeat from section to section."""
    numbers = [(d.tier, d.rank) for d in ranked if d.kind is not Kind.PRIORITY]
    return len(set(numbers)) < len(numbers) and len({d.parent for d in ranked}) > 1


def _problems(drafts: Sequence[Draft], structured: bool) -> list[Problem]:
    problems: list[Problem] = []
    before: list[Draft] = []
    for draft in drafts:
        if draft.rank is None:
            continue
        rivals = [b for b in before if _rivals(b, draft, structured)]
        twin = next((b for b in rivals if _key(b) == _key(draft)), None)
        larger = next((b for b in rivals if _key(b) > _key(draft)), None)
        if twin:
            said = f"rank {_name(draft)} is given twice: here and in line {twin.line} ({twin.title[:60]!r})"
            problems.append(Problem(draft.line, said, ambiguous=True))
        elif larger:
            said = f"rank {_name(draft)} comes after rank {_name(larger)} of line {larger.line}; which goes first?"
            problems.append(Problem(draft.line, said, ambiguous=True))
        before.append(draft)
    return problems


def _rivals(one: Draft, other: Draft, structured: bool) -> bool:
    """Whether two items cannot share a rank, and must stand in order."""
    if Kind.PRIORITY in (one.kind, other.kind):
        return one.runnable and other.runnable
    return structured or one.parent == other.parent


def _key(draft: Draft) -> tuple[int, ...]:
    return draft.tier + (draft.rank or ())


def _name(draft: Draft) -> str:
    return ".".join(str(part) for part in draft.rank or ())
