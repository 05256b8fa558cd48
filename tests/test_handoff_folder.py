"""The folder of handoffs: numbers that are missing, taken twice or dates; which one is the latest, which come after."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optagent.agent.handoff.folder import handoffs_in, later_than, latest_of, next_number, number_of, of_the_same_number


@pytest.mark.parametrize(
    ("names", "latest", "following"),
    [
        ([], "", 1),
        (["README.md"], "", 1),
        (["0001-2026-03-13.md"], "0001-2026-03-13.md", 2),
        (["0001-a.md", "0003-a.md"], "0003-a.md", 4),
        (["0002-2026-01-02.md", "0002-2026-01-01.md"], "0002-2026-01-02.md", 3),
        (["0002-a-b.md", "0002-a.md"], "0002-a-b.md", 3),
        (["notes.md", "0001-a.md"], "0001-a.md", 2),
        (["notes.md"], "notes.md", 1),
        (["2026-05-03-handoff.md"], "2026-05-03-handoff.md", 1),
        (["2026-05-03-handoff.md", "0001-a.md"], "0001-a.md", 2),
        (["2026-05-03.md", "2026-04-30.md"], "2026-05-03.md", 1),
        (["9999-a.md", "10000-a.md"], "10000-a.md", 10001),
        (["10-a.md", "9-b.md"], "10-a.md", 11),
    ],
)
def test_which_is_the_latest_and_which_number_comes_next(names: list[str], latest: str, following: int) -> None:
    assert latest_of(names) == latest
    assert next_number(names) == following


def test_two_of_one_number_name_each_other() -> None:
    names = ["0001-a.md", "0002-a.md", "0002-b.md", "x.md", "y.md"]
    assert of_the_same_number(names, "0002-b.md") == ["0002-a.md"]
    assert of_the_same_number(names, "0001-a.md") == []
    assert of_the_same_number(names, "x.md") == []


def test_what_comes_after_another() -> None:
    names = ["0003-a.md", "0001-a.md", "0010-a.md"]
    assert later_than(names, "0001-a.md") == ["0003-a.md", "0010-a.md"]
    assert later_than(names, "0010-a.md") == []


@given(st.lists(st.from_regex(r"(\d{1,6}-)?[a-z]{0,4}\.md", fullmatch=True), unique=True))
def test_the_next_one_is_always_the_latest(names: list[str]) -> None:
    name = f"{next_number(names):04d}-2026-01-01.md"
    assert name not in names
    assert latest_of([*names, name]) == name
    assert handoffs_in([*names, name])[-1] == name
    assert number_of(name) == next_number(names)
