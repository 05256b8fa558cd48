"""What may be tried: the plan's items, the parts that some were split into, and dead ends that no item stands for. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from optagent.agent.part_ids import is_part, root_of
from optagent.agent.plan.model import Item, Plan, Status
from optagent.agent.plan.owner import effective_status
from optagent.agent.records import DeadEnd, Split
from optagent.agent.splitting import with_parts


def candidates(
    plan: Plan,
    dead_ends: Iterable[DeadEnd],
    splits: Mapping[str, Split],
    status: Mapping[str, Status],
    written: Mapping[str, Status],
) -> list[Item]:
    """All of them in the plan's order: parts right behind their item, what only a dead end tells of at the end."""

    def dropped(item: Item) -> bool:
        return effective_status(item, status, written) is Status.DROPPED

    ends = list(dead_ends)
    left_out = {i.id for i in plan.items if dropped(i)}
    roots = {i.id for i in plan.items} - left_out | {d.id for d in ends if not is_part(d.id)}
    planned = with_parts(plan.items, splits, dropped)
    known = {i.id for i in planned} | left_out
    orphans = [
        Item(d.id, d.title, 0, status=Status.DEAD, change=d.change, retry_when=d.retry_when)
        for d in ends
        if d.change is not None
        and d.id not in known
        and (d.item is None or d.item not in known)
        and (not is_part(d.id) or root_of(d.id) in roots)
    ]
    return [*planned, *with_parts(orphans, splits, dropped)]
