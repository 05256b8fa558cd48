"""Items that came in together: the combinations that were kept, and how each item is taken out again. Pure.

A combination that gains is kept, and then each of its items is taken out: what is not missed is left out for good (group
screening: Watson, "A study of the group screening method", 1961).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from optagent.agent.ids import number_of
from optagent.agent.plan.model import Item
from optagent.tools.calls.configuration import Configuration

if TYPE_CHECKING:
    from optagent.agent.experiments import Experiment


@dataclass(frozen=True)
class Bundle:
    """A combination that was tried: its items, whether it was kept, and the configuration it was put on. With a `root`, the
    configuration without any of its items, it stands for all items that were on then: the last such one alone counts."""

    experiment: str
    items: tuple[str, ...]
    kept: bool
    base: Configuration
    root: Configuration | None = None

    @property
    def before(self) -> Configuration:
        """What its items are set back to when they are taken out."""
        return self.root or self.base


def bundles_of(experiments: Sequence[Experiment]) -> tuple[Bundle, ...]:
    """The combinations among these experiments that have their verdict."""
    return tuple(
        Bundle(e.id, e.items, e.verdict == "keep", e.base, e.root) for e in experiments if e.items and e.verdict
    )


def to_take_out(item: Item, bundles: Sequence[Bundle], looked_at: Sequence[str]) -> Bundle | None:
    """The kept combination that this item came in with and was not taken out of since. `looked_at` are the experiments that
    took this item out."""
    kept = [b for b in bundles if b.kept]
    last = next((b for b in reversed(kept) if b.root is not None), None)
    mine = [b for b in kept if item.id in b.items and (b.root is None or b is last)]
    since = number_of(mine[-1].experiment) if mine else 0
    return mine[-1] if mine and not any(number_of(e) > since for e in looked_at) else None
