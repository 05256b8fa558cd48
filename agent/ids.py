"""Ids that count up: E0001, Q1, S001."""

from __future__ import annotations

_WIDTH = {"E": 4, "S": 3}


def next_id(prefix: str, count: int) -> str:
    """The id after `count` others."""
    return f"{prefix}{count + 1:0{_WIDTH.get(prefix, 1)}d}"


def number_of(identity: str) -> int:
    """The number in an id that `next_id` gave. Ids are compared by it: beyond their width they do not sort as text."""
    return int("".join(c for c in identity if c.isdigit()) or 0)
