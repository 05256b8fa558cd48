"""Which answers go round in a circle, and which only look like it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optagent.tools.repetition import circles, repetitive

TABLE = "| a | b | c | d |\n|---|---|---|---|\n| 1 | 2 | 3 | 4 |\n"
CODE = "def f(x):\n    if x:\n        for y in x:\n            if y:\n                return y\n        return 0\n"
NUMBERS = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16"


def characters(text: str) -> list[int]:
    """The ids of a tokenizer that knows nothing but characters."""
    return [ord(character) for character in text]


@pytest.mark.parametrize(
    ("ids", "says"),
    [
        ([0] * 32, True),  # "!!!!!!!!", what NaN logits mostly become
        ([7] * 12, True),
        ([7] * 11, False),  # too short to tell
        ([], False),
        ([1, 2] * 16, True),
        ([1, 2, 3] * 8, True),
        ([1, 2, 3, 4] * 8, True),
        ([1, 2, 3, 4, 5] * 8, False),  # a sentence again and again is what small models do at temperature 0
        ([*range(15), *[9] * 17], True),  # begins well
        ([*range(16), *[9] * 16], False),  # half is not more than half
        ([*[9] * 17, *range(15)], True),
        ([1, 2, 3, 4, 1, 2, 3, 4, 5, 6, 7, 8], False),  # twice is no circle
        ([5, 5, 5, 6, 5, 5, 5, 7] * 4, False),  # often, but not in a row
        (characters(NUMBERS), False),
        (characters(CODE), False),
        (characters(TABLE), False),
        (characters("a,b\n" * 2 + "1,2\n3,4\n5,6\n7,8\n"), False),
    ],
)
def test_tokens(ids: list[int], says: bool) -> None:
    assert repetitive(ids, "whatever the text is") is says


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("!" * 32, True),
        ("!!!!!!!!", False),  # eight characters: too short to tell
        ("the " * 32, True),
        ("the the the", False),
        ("yes no " * 16, True),
        ("haha" * 16, True),
        ("The answer to this is " + "!" * 40, True),
        ("", False),
        (" \n" * 40, False),  # that is an empty answer
        (NUMBERS, False),
        (TABLE, False),
        (TABLE.splitlines()[0] + "\n" + TABLE.splitlines()[1], False),  # cut where it looks worst
        (CODE, False),
        ("Results\n=======\n\nFour.", False),
        ("- one\n- two\n- three\n- four\n- five\n- six\n- seven\n", False),
        ("def f():\n" + " " * 12 + "return 1\n", False),
    ],
)
def test_words_where_no_tokens_are_known(text: str, says: bool) -> None:
    assert repetitive(None, text) is says


@given(st.lists(st.integers(), min_size=1, max_size=4), st.integers(12, 40))
def test_any_short_group_over_and_over_is_a_circle(group: list[int], times: int) -> None:
    assert circles(group * times, 12)


@given(st.lists(st.integers(), unique=True))
def test_what_never_comes_again_is_none(units: Sequence[int]) -> None:
    assert not circles(units, 12)


@given(st.lists(st.integers(0, 2), max_size=40))
def test_backwards_it_is_the_same(units: list[int]) -> None:
    assert circles(units, 12) is circles(units[::-1], 12)
