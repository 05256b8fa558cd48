"""Which ranks are the owner's word: places in the plan that differ from how it was first read. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from optagent.agent.part_ids import is_part
from optagent.agent.plan.model import Item


def placed_by_owner(items: Sequence[Item], recorded: Mapping[str, int | None]) -> frozenset[str]:
    """The items that the owner moved, or put in, since the ranks were `recorded`; none while nothing is recorded.

    Numbers alone tell nothing: whoever puts one item in front renumbers all behind it. An item was moved when not all the
    shortest ways to explain the new order leave it where it was; of two that changed places both were.
    """
    if not recorded:
        return frozenset()
    ranked = [i for i in items if i.rank is not None and not is_part(i.id)]
    known = [(i.id, before) for i in ranked if (before := recorded.get(i.id)) is not None]
    new = {i.id for i in ranked} - {name for name, _ in known}
    stayed = in_every_longest_run([before for _, before in known])
    return frozenset(new | {name for (name, _), kept in zip(known, stayed, strict=True) if not kept})


def in_every_longest_run(numbers: Sequence[int]) -> list[bool]:
    """For each number whether it is part of every longest subsequence that does not fall."""
    count = len(numbers)
    ending, starting = [1] * count, [1] * count
    for i in range(count):
        ending[i] += max((ending[j] for j in range(i) if numbers[j] <= numbers[i]), default=0)
    for i in reversed(range(count)):
        starting[i] += max((starting[j] for j in range(i + 1, count) if numbers[i] <= numbers[j]), default=0)
    longest = max(ending, default=0)
    in_some = [ending[i] + starting[i] - 1 == longest for i in range(count)]
    at_place = Counter(ending[i] for i in range(count) if in_some[i])
    return [in_some[i] and at_place[ending[i]] == 1 for i in range(count)]
