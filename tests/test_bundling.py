"""Several items at once: which may join, what comes after a bundle, and how an item is taken out again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optagent.agent.bundling import Bundle, blamed_item, bundle_of, may_join, to_take_out, together, without
from optagent.agent.change import Change, apply_change
from optagent.agent.experiments import Failure
from optagent.agent.plan.model import Item, Risk
from optagent.tools.calls.configuration import Configuration

BASE = Configuration("default", {"tp-size": 8, "page-size": 16}, {"NCCL_ALGO": "Ring"})


def item(name: str, risk: Risk = Risk.LOW, **change: Any) -> Item:
    return Item(name, name, 1, risk=risk, change=Change(**(change or {"flags": {name: 1}})))


A, B, C, D, E = (item(name) for name in ("a", "b", "c", "d", "e"))
MEDIUM = item("m", Risk.MEDIUM)


@pytest.mark.parametrize(
    ("one", "joins"),
    [
        (A, True),
        (item("e", env={"NCCL_PROTO": "LL"}), True),
        (MEDIUM, False),
        (replace(A, risk=Risk.HIGH), False),
        (replace(A, approval=True), False),
        (replace(A, expected_gain=(-0.1, 0.0)), False),
        (replace(A, expected_gain=(0.0, 0.1)), True),
        (replace(A, change=None), False),
        (item("p", patch="p.diff"), False),
        (item("f", files={"sitecustomize.py": "x"}), False),
        (item("v", environment="cu13"), False),
    ],
)
def test_which_items_may_join(one: Item, joins: bool) -> None:
    assert may_join(one) == joins


def bundle(*items: Item, kept: bool = False, blamed: str = "") -> Bundle:
    return Bundle("E0002", tuple(i.id for i in items), kept, BASE, blamed)


@pytest.mark.parametrize(
    ("runnable", "tried", "expected"),
    [
        ([A, B, C, D], [], "abcd"),
        ([A, B], [], ""),  # too few to save anything
        ([A, B, MEDIUM, C], [], "abc"),
        ([A, MEDIUM, C], [], ""),
        ([A, B, C], [bundle(A, B, C)], ""),  # what gained nothing together goes on one by one
        ([A, B, C, D], [bundle(A, B, C)], ""),
        ([A, B, C, D, E], [bundle(A, B, C)], "de"),
        ([A, B, C, D], [bundle(A, B, C, D, blamed="b")], "acd"),
        ([A, B, C], [bundle(A, B, C, blamed="b")], "ac"),
        ([A, B, C, D], [bundle(A, B, C, D, blamed="b"), bundle(A, C, D)], ""),
        ([A, B, replace(C, change=A.change)], [], ""),  # two of them set the same flag
    ],
)
def test_what_is_tried_together_next(runnable: list[Item], tried: list[Bundle], expected: str) -> None:
    assert "".join(i.id for i in bundle_of(runnable, tried)) == expected


changes = st.dictionaries(
    st.sampled_from(["a", "b", "tp-size", "page-size"]), st.integers(0, 9) | st.none(), min_size=1
)


@given(changes, changes)
def test_taking_a_change_out_leaves_the_rest(one: dict[str, Any], other: dict[str, Any]) -> None:
    """What is left is as if only the other change had been made, when the two set different flags."""
    other = {k: v for k, v in other.items() if k not in one}
    mine, theirs = Change(flags=one), Change(flags=other)
    both = apply_change(apply_change(BASE, mine), theirs)
    assert without(both, mine, BASE) == apply_change(BASE, theirs)


def test_a_bundle_is_all_of_its_changes() -> None:
    made = together([A, item("e", env={"X": "1"}, flags={"b": True})])
    assert (made.flags, made.env) == ({"a": 1, "b": True}, {"X": "1"})


@pytest.mark.parametrize(
    ("text", "blamed"),
    [
        ("unrecognized arguments: --fuse-all 1", "fuse-all"),
        ("ValueError: fuse_all is not supported", "fuse-all"),
        ("CUDA out of memory", ""),
        ("fuse-all and page-size exclude each other", ""),
    ],
)
def test_a_failure_blames_the_item_it_speaks_of(text: str, blamed: str) -> None:
    items = [item("fuse-all"), item("page-size")]
    assert blamed_item(Failure("candidate", "launch", "config-error", text), items) == blamed


def test_what_was_kept_together_is_taken_out_once() -> None:
    kept, not_kept = bundle(A, B, C, kept=True), bundle(A, B)
    assert to_take_out(A, [kept], []) == kept
    assert to_take_out(A, [kept], ["E0005"]) is None
    assert to_take_out(A, [kept], ["E0001"]) == kept, "it was taken out before, and came in again"
    assert to_take_out(D, [kept], []) is None
    assert to_take_out(A, [not_kept], []) is None
