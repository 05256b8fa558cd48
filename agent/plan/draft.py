"""An item as it was found in the document, before ranks and ids are settled, and the place where its status stands.

Named tuples here and in the other modules that read plans: a frozen dataclass costs a millisecond of start-up each.
"""

from __future__ import annotations

from typing import NamedTuple

from optagent.agent.plan.blocks import Block, Unreadable
from optagent.agent.plan.fields import Fields
from optagent.agent.plan.headings import Kind
from optagent.agent.plan.marks import Mark


class AfterProse(NamedTuple):
    """No block yet: one can be put after this 0-based line."""

    line: int


class InBox(NamedTuple):
    """A checkbox: the character at `column` of the 0-based `line`."""

    line: int
    column: int


class InCell(NamedTuple):
    """A row of a table: (start, end) of the status cell's text in the 0-based `line`, and of the result cell's."""

    line: int
    status: tuple[int, int]
    result: tuple[int, int] | None = None


Place = Block | AfterProse | InBox | InCell | None


class Draft(NamedTuple):
    """`line` is 1-based. `rank` is the stated place, (1, 3) for `1.3`; `tier` the rank of the section it stands in, and
    `parent` the line of that section's heading."""

    title: str
    line: int
    place: Place
    fields: Fields
    rank: tuple[int, ...] | None = None
    kind: Kind | None = None
    tier: tuple[int, ...] = ()
    parent: int = 0
    prose: str = ""
    marks: tuple[Mark, ...] = ()
    extra_blocks: tuple[Block | Unreadable, ...] = ()

    @property
    def runnable(self) -> bool:
        return self.fields.values.get("change") is not None
