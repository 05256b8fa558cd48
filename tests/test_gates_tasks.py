"""G4: a score beside the baseline's on the same tasks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optagent.agent.gates.tasks import fewer_solved, told
from optagent.tools.calls.gate import Evaluated


@pytest.mark.parametrize(
    ("gained", "lost", "fails"),
    [
        (0, 0, False), (5, 0, False), (0, 1, False), (0, 2, False), (0, 3, True), (4, 4, False), (4, 9, False), (4, 10, True),
    ],
)  # fmt: skip
def test_the_same_tasks(gained: int, lost: int, fails: bool) -> None:
    problem = fewer_solved(0.9 + (gained - lost) / 200, 0.9, 200, gained=gained, lost=lost)
    assert (problem is not None) is fails
    if problem:
        assert f"{lost} were solved only by the baseline, {gained} only now" in problem
        assert "90.0% by the baseline" in problem


@pytest.mark.parametrize(
    ("now", "before", "examples", "fails"),
    [(0.95, 0.95, 200, False), (0.92, 0.95, 200, False), (0.90, 0.95, 200, True), (0.90, 0.95, 50, False), (0.0, 1.0, 0, False)],
)  # fmt: skip
def test_tasks_that_cannot_be_told_apart(now: float, before: float, examples: int, fails: bool) -> None:
    assert (fewer_solved(now, before, examples, gained=None, lost=None) is not None) is fails


@given(st.integers(1, 200), st.data())
def test_solving_fewer_never_passes_instead(examples: int, data: st.DataObject) -> None:
    before = data.draw(st.integers(0, examples))
    now = data.draw(st.integers(1, examples))
    first = fewer_solved(now / examples, before / examples, examples, gained=None, lost=None)
    second = fewer_solved((now - 1) / examples, before / examples, examples, gained=None, lost=None)
    assert first is None or second is not None
    gained, lost = data.draw(st.integers(0, 50)), data.draw(st.integers(0, 50))
    third = fewer_solved(0.5, 0.5, 100, gained=gained + 1, lost=lost)
    assert third is None or fewer_solved(0.5, 0.5, 100, gained=gained, lost=lost) is not None
    assert third is None or fewer_solved(0.5, 0.5, 100, gained=gained + 1, lost=lost + 1) is not None


def test_a_score_in_a_line() -> None:
    assert told(Evaluated(score=0.935, examples=200)) == "task check: 93.5% of 200 solved"
    assert told(Evaluated(problem="gsm8k.jsonl is not there")) == "task check: no score, gsm8k.jsonl is not there"
