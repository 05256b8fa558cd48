"""A ranked plan and its items, as read from a markdown document."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from optagent.agent.change import Change
from optagent.agent.search.space import Axis


class Status(StrEnum):
    """Where an item stands. `parked` waits for an answer; `dropped` was taken out by the owner."""

    OPEN = "open"
    TRYING = "trying"
    KEPT = "kept"
    REVERTED = "reverted"
    INCONCLUSIVE = "inconclusive"
    INVALID = "invalid"
    DEAD = "dead"
    PARKED = "parked"
    DROPPED = "dropped"


class Risk(StrEnum):
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"


@dataclass(frozen=True)
class Item:
    """One idea of the plan.

    `rank` is None for an item without a place in the ranking (it comes after all ranked ones, in document order).
    `needs` are item ids or conditions such as `cuda>=13`; all must hold. `retry_when` is the condition under which a
    dead item is worth another look. `line` is the 1-based line of its heading. Without `change` it is prose for a
    person or a model. `space` are the flags and variables that the change leaves open within a range, in canonical
    order; `change` holds the fixed rest, which may be empty then. `expected_gain` is a fraction as (low, high), for
    example (0.1, 0.18).
    """

    id: str
    title: str
    line: int
    rank: int | None = None
    prose: str = ""
    status: Status = Status.OPEN
    change: Change | None = None
    space: tuple[Axis, ...] = ()
    needs: tuple[str, ...] = ()
    expected_gain: tuple[float, float] | None = None
    cost: str = ""
    risk: Risk = Risk.LOW
    approval: bool = False
    may_break: str = ""
    undo: str = ""
    retry_when: str | None = None
    result: str = ""


@dataclass(frozen=True)
class Problem:
    """Something wrong with the document. `fatal`: the plan cannot be followed until it is mended. `ambiguous`: it can
    be read in more than one way (two items of one rank, statuses that contradict each other), which is a question to
    its owner rather than a mistake of form."""

    line: int
    message: str
    fatal: bool = True
    ambiguous: bool = False


@dataclass(frozen=True)
class Plan:
    """Items in the order in which they are to be tried (rank, then document order), and what is wrong with the document."""

    title: str = ""
    items: tuple[Item, ...] = ()
    problems: tuple[Problem, ...] = field(default=())

    def item(self, item_id: str) -> Item | None:
        return next((i for i in self.items if i.id == item_id), None)
