"""Several items at once: where launches are long, the safe ones are tried together before each is looked at alone.

A bundle that gains is kept, and then each of its items is taken out again: what is not missed is left out for good (group
screening: Watson, "A study of the group screening method", 1961). When it does not start, the item that its failure names
is set aside and the rest tried once more; otherwise its items go on one by one. Functions of items and of the bundles that
were tried. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from optagent.agent.change import Change, merged
from optagent.agent.dead_ends import blame_failure
from optagent.agent.ids import number_of
from optagent.agent.part_ids import is_part
from optagent.agent.plan.model import Item, Risk
from optagent.agent.records import Part
from optagent.tools.calls.configuration import Configuration

if TYPE_CHECKING:
    from optagent.agent.experiments import Experiment, Failure

FEWEST, FEWEST_AGAIN = 3, 2
"""Items from which on a bundle saves launches, the first time and after one of them was set aside."""
MOST_LAUNCHES = 3
"""Of a bundle: one that gains much shows it at once, and one that does not is no longer worth its launches."""


@dataclass(frozen=True)
class Bundle:
    """A bundle that was tried: its items, whether it was kept, the configuration it was put on, and the item that its
    failure named."""

    experiment: str
    items: tuple[str, ...]
    kept: bool
    base: Configuration
    blamed: str = ""


def may_join(item: Item) -> bool:
    """Whether the item can be put on together with others: flags and variables alone, that promise something."""
    change = item.change
    if change is None or change.empty or item.risk is not Risk.LOW or item.approval or is_part(item.id):
        return False
    if change.patch or change.files or change.environment or item.space:
        return False
    return item.expected_gain is None or item.expected_gain[1] > 0


def bundle_of(runnable: Sequence[Item], tried: Sequence[Bundle]) -> tuple[Item, ...]:
    """The items to try together next, in the order of `runnable`; empty when none would be. Of items that set the same flag
    the first one counts. What was in a bundle before joins another one only when that one's failure named somebody else.
    """
    out = {i for b in tried for i in b.items if not b.blamed or i == b.blamed}
    items = _compatible([i for i in runnable if may_join(i) and i.id not in out])
    return tuple(items) if len(items) >= (FEWEST_AGAIN if tried else FEWEST) else ()


def together(items: Sequence[Item]) -> Change:
    """The changes of all items as one."""
    return merged(item.change for item in items if item.change is not None)


def without(configuration: Configuration, change: Change, before: Configuration) -> Configuration:
    """The configuration with the change taken out: its flags and variables are again as they were `before`."""
    flags = {k: v for k, v in configuration.flags.items() if k not in change.flags}
    env = {k: v for k, v in configuration.env.items() if k not in change.env}
    return replace(
        configuration,
        flags=flags | {k: before.flags[k] for k in change.flags if k in before.flags},
        env=env | {k: before.env[k] for k in change.env if k in before.env},
    )


def blamed_item(failure: Failure, items: Sequence[Item]) -> str:
    """The item that the failure speaks of; "" when its words do not tell."""
    found = blame_failure([Part(i.title, i.id, i.change or Change()) for i in items], failure).part if items else None
    return (found.item or "") if found is not None else ""


def bundles_of(experiments: Sequence[Experiment], items: Sequence[Item]) -> tuple[Bundle, ...]:
    """The bundles among these experiments that have their verdict."""
    by_id = {i.id: i for i in items}
    return tuple(
        Bundle(
            e.id,
            e.items,
            e.verdict == "keep",
            e.base,
            blamed_item(e.failures[-1], [by_id[n] for n in e.items if n in by_id]) if e.failures else "",
        )
        for e in experiments
        if e.items and e.verdict
    )


def to_take_out(item: Item, bundles: Sequence[Bundle], looked_at: Sequence[str]) -> Bundle | None:
    """The kept bundle that this item came in with and was not taken out of since. `looked_at` are the experiments that
    took this item out."""
    kept = [b for b in bundles if b.kept and item.id in b.items]
    since = number_of(kept[-1].experiment) if kept else 0
    return kept[-1] if kept and not any(number_of(e) > since for e in looked_at) else None


def _compatible(items: Sequence[Item]) -> list[Item]:
    chosen: list[Item] = []
    taken: set[str] = set()
    for item in items:
        assert item.change is not None
        names = {*item.change.flags, *item.change.env}
        if not names & taken:
            chosen.append(item)
            taken |= names
    return chosen
