"""Ids of the parts that an item was split into: `item~part`. Ids of a plan have no such sign."""

from __future__ import annotations

PART = "~"


def is_part(item: str) -> bool:
    """Whether the id is that of a part of another item."""
    return PART in item


def root_of(item: str) -> str:
    """The plan's item that a part belongs to; the id itself for every other."""
    return item.partition(PART)[0]
