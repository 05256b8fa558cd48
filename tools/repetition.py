"""Whether an answer goes round in a small circle, as a broken kernel's or a collapsed model's does."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

LONGEST_GROUP = 4
SHORTEST_ANSWER = 12
"""Tokens or words. A shorter answer may well be "no no no"."""

SHORTEST_TEXT = 24
"""Characters, where the tokens are not known: a rule under a heading is about that long."""

LEAST_TIMES = 3
SHARE = 0.5


def repetitive(ids: Sequence[int] | None, text: str) -> bool:
    """Whether one group of one to four tokens, again and again without a break, is more than half of the answer.

    Where the tokens are not known the same is asked of words, and of characters ("!!!!" is one word).
    """
    if ids is not None:
        return circles(ids, SHORTEST_ANSWER)
    return circles(text.split(), SHORTEST_ANSWER) or circles(text.strip(), SHORTEST_TEXT)


def circles(units: Sequence[Hashable], shortest: int) -> bool:
    """Whether more than half of at least `shortest` units is one short group, three times or more in a row.

    In a row, because numbers in a list, cells of a table and indentation come again too, with others between.
    """
    total = len(units)
    if total < shortest:
        return False
    groups = range(1, LONGEST_GROUP + 1)
    runs = ((group, _longest_run(units, group)) for group in groups)
    return any(run > SHARE * total and run >= LEAST_TIMES * group for group, run in runs)


def _longest_run(units: Sequence[Hashable], group: int) -> int:
    """Length of the longest stretch in which every unit is the one `group` places before it, the first group included."""
    longest = run = 0
    for place in range(group, len(units)):
        run = run + 1 if units[place] == units[place - group] else 0
        longest = max(longest, run)
    return longest + group if longest else 0
