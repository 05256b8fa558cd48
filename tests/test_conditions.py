"""Conditions: what they accept, what they say of facts, and what they say when they are none."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optagent.agent.conditions import OPERATORS, holds, looks_like_condition, parse_condition

FACTS = {
    "cuda": "12.8",
    "sglang": "0.5.23.post1",
    "torch": "2.9.1+cu128",
    "python": "3.9.18",
    "gpu.count": "8",
    "gpu.memory_gb": "95.6",
    "compute_capability": "12.0",
    "environment": "cu128",
    "odd": "unknown build",
    "empty": "",
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cuda>=13", False),
        ("cuda>=12.8", True),
        ("cuda > 12.8", False),
        ("cuda<13", True),
        ("sglang>=0.5.23", True),
        ("sglang==0.5.23", False),
        ("sglang>=0.5.24", False),
        ("torch==2.9.1", True),
        ("torch==2.9.1+cu128", True),
        ("torch==2.9.1+cu130", False),
        ("torch>2.9.1", False),
        ("python>=3.12", False),
        ("python<3.12", True),
        ("gpu.count>=8", True),
        ("gpu.memory_gb>=120", False),
        ("gpu.memory_gb>95.50", True),
        ("gpu.memory_gb>95.6", False),
        ("compute_capability!=12.0", False),
        ("compute_capability==12", True),
        ("environment==cu13", False),
        ("environment!=cu13", True),
        ("environment==cu128", True),
        ("nccl>=2.28", None),
        ("empty==1", None),
        ("odd>=1", None),
        ("odd==1", False),
        ("cuda>=12 and gpu.count>=8", True),
        ("cuda>=12 AND gpu.count>=9", False),
        ("cuda>=12 and nccl>=2", None),
        ("cuda>=13 and nccl>=2", False),
    ],
)
def test_what_conditions_say_of_facts(text: str, expected: bool | None) -> None:
    assert holds(parse_condition(text), FACTS) is expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "expected a condition such as cuda>=13"),
        ("cuda", "found 'cuda'"),
        ("cuda>=", "expected a condition"),
        (">=13", "expected a condition"),
        ("cuda=13", "expected a condition"),
        ("cuda>=13 or gpu.count>=8", "expected a condition"),
        ("cuda>=13 and", "expected a condition"),
        ("cuda >= 13 >= 12", "expected a condition"),
        ("cuda>=newest", "expected a version or a number after cuda>="),
        ("x" * 500, "expected a condition"),
    ],
)
def test_what_is_no_condition(text: str, said: str) -> None:
    with pytest.raises(ValueError, match="expected") as error:
        parse_condition(text)
    assert said in str(error.value)
    assert len(str(error.value)) < 300


def test_a_condition_is_written_as_it_is_read() -> None:
    assert str(parse_condition("cuda >= 13  and gpu.count >= 8")) == "cuda>=13 and gpu.count>=8"


def test_what_looks_like_a_condition() -> None:
    assert [looks_like_condition(t) for t in ("cuda>=13", "a==b", "graph-bs")] == [True, True, False]


names = st.from_regex(r"[a-z_][a-z0-9_.-]{0,8}[a-z0-9]", fullmatch=True)
versions = st.lists(st.integers(0, 99), min_size=1, max_size=3).map(lambda parts: ".".join(map(str, parts)))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(names, st.sampled_from(sorted(OPERATORS)), versions), min_size=1, max_size=3))
def test_reading_what_was_written_gives_the_same(terms: list[tuple[str, str, str]]) -> None:
    text = " and ".join(f"{n}{o}{v}" for n, o, v in terms)
    assert str(parse_condition(text)) == text
    assert parse_condition(str(parse_condition(text))) == parse_condition(text)


@settings(max_examples=60, deadline=None)
@given(versions, versions)
def test_exactly_one_order_holds(found: str, asked: str) -> None:
    answers = [holds(parse_condition(f"cuda{o}{asked}"), {"cuda": found}) for o in ("<", "==", ">")]
    assert answers.count(True) == 1


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=60))
def test_any_text_is_a_condition_or_a_value_error(text: str) -> None:
    with contextlib.suppress(ValueError):
        assert holds(parse_condition(text), FACTS) in (True, False, None)
