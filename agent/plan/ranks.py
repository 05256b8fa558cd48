"""The order of the items, and what makes it ambiguous: a rank given twice, a rank that goes backwards."""

from __future__ import annotations

from collections import defaultdict
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


class _Row:
    """Items that cannot share a rank and must stand in order, as far as they have been seen."""

    def __init__(self) -> None:
        self.first: dict[tuple[int, ...], Draft] = {}
        self.last: Draft | None = None

    def add(self, draft: Draft) -> None:
        self.first.setdefault(_key(draft), draft)
        if self.last is None or _key(draft) > _key(self.last):
            self.last = draft

    def complaint(self, draft: Draft) -> str | None:
        """What is wrong with the rank of `draft` after these."""
        if twin := self.first.get(_key(draft)):
            return f"rank {_name(draft)} is given twice: here and in line {twin.line} ({twin.title[:60]!r})"
        if self.last is not None and _key(self.last) > _key(draft):
            return (
                f"rank {_name(draft)} comes after rank {_name(self.last)} of line {self.last.line}; which goes first?"
            )
        return None


def _problems(drafts: Sequence[Draft], structured: bool) -> list[Problem]:
    rows: defaultdict[object, _Row] = defaultdict(_Row)
    problems: list[Problem] = []
    for draft in (d for d in drafts if d.rank is not None):
        held_against, member_of = _rows(draft, structured)
        said = next((c for row in held_against if (c := rows[row].complaint(draft))), None)
        if said:
            problems.append(Problem(draft.line, said, ambiguous=True))
        for row in member_of:
            rows[row].add(draft)
    return problems


def _rows(draft: Draft, structured: bool) -> tuple[list[object], list[object]]:
    """(rows the item is held against, rows it belongs to): priorities count only among what can be run."""
    if draft.kind is Kind.PRIORITY:
        return (["runnable"], ["runnable", "runnable priority"]) if draft.runnable else ([], [])
    numbers = "numbers" if structured else draft.parent
    if draft.runnable:
        return [numbers, "runnable priority"], [numbers, "runnable"]
    return [numbers], [numbers]


def _key(draft: Draft) -> tuple[int, ...]:
    return draft.tier + (draft.rank or ())


def _name(draft: Draft) -> str:
    return ".".join(str(part) for part in draft.rank or ())
