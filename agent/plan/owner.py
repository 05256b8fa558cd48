"""Whose word a status in the plan is: what was written there last, or an edit of the plan's owner."""

from __future__ import annotations

from collections.abc import Mapping

from optagent.agent.plan.model import Item, Status


def edited_by_owner(item: Item, last_written: Mapping[str, Status]) -> bool:
    """Whether the plan's status is the owner's: it is not what was last written into the plan for this item."""
    written = last_written.get(item.id)
    if written is None:
        return item.status is Status.DROPPED
    return item.status != written


def is_clear(said: Status, recorded: Status) -> bool:
    """Whether the owner's status contradicts no record: to reopen, to drop, and to park what has no result."""
    unsettled = (Status.OPEN, Status.TRYING, Status.PARKED)
    return said in (Status.OPEN, Status.DROPPED) or (said is Status.PARKED and recorded in unsettled)


def effective_status(item: Item, recorded: Mapping[str, Status], last_written: Mapping[str, Status]) -> Status:
    """The journal's word on an item; the plan's own where the journal has none, or where the owner's edit is clear."""
    status = recorded.get(item.id)
    if status is None:
        return item.status
    if edited_by_owner(item, last_written) and is_clear(item.status, Status(status)):
        return item.status
    return Status(status)
