"""Dead ends across notations, releases and workloads: what runs into one, and what makes it worth another look."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optagent.agent.change import Change
from optagent.agent.conditions import WORKLOAD, Term, as_value, conjunction, holds, parse_condition
from optagent.agent.dead_ends import (
    blame_failure,
    is_of,
    is_same_or_more,
    matching,
    of_software,
    retry_condition,
    with_earlier,
    worth_another_look,
)
from optagent.agent.experiments import Failure
from optagent.agent.reconcile import facts_of
from optagent.agent.records import DeadEnd, Part
from optagent.tools.calls.world import World

OLD, NEW = Change(flags={"cuda-graph-max-bs": 32}), Change(flags={"cuda-graph-max-bs-decode": "32"})


@pytest.mark.parametrize(
    ("change", "dead"),
    [
        (Change(flags={"tp": "8", "page-size": 64}), Change(flags={"tensor-parallel-size": 8})),
        (Change(flags={"mem-fraction-static": 0.9}), Change(flags={"mem_fraction_static": "0.90"})),
        (Change(flags={"enable-x": "true"}), Change(flags={"enable-x": True})),
        (Change(flags={"enable-x": False}), Change(flags={"enable-x": None})),
        (Change(env={"NCCL_ALGO": " Tree"}), Change(env={"NCCL_ALGO": "Tree"})),
        (Change(files={"a.py": "x"}), Change(files={"./a.py": "x\n"})),
        (Change(patch="./a.diff", environment="cu13"), Change(patch="a.diff")),
        (Change(flags={"tp": 4, "tp-size": 8}), Change(flags={"tp": 4, "tp-size": 8})),
    ],
)
def test_another_notation_runs_into_the_same_dead_end(change: Change, dead: Change) -> None:
    assert is_same_or_more(change, dead)


@pytest.mark.parametrize(("release", "same"), [(None, False), ("0.5.8", False), ("0.5.23", True), ("0.6", True)])
def test_a_retired_name_counts_where_the_release_has_the_new_one(release: str | None, same: bool) -> None:
    assert is_same_or_more(NEW, OLD, release) is same
    assert is_same_or_more(OLD, NEW, release) is same
    end = DeadEnd("d", "d", "slow", "slow", change=OLD)
    assert (matching(NEW, None, [end], release) == [end]) is same


def test_what_was_refused_for_its_name_does_not_bind_the_right_name() -> None:
    refused = DeadEnd("d", "d", "could be one of two: it is now --cuda-graph-max-bs-decode", "config-error", change=OLD)
    assert matching(NEW, None, [refused], "0.5.23") == []
    assert matching(OLD, None, [refused], "0.5.23") == [refused]


def test_an_items_own_dead_end() -> None:
    end = DeadEnd("d", "d", "slow", item="a", change=Change(flags={"tp": 8}))
    assert is_of(end, "a", None)
    assert is_of(end, "b", Change(flags={"tp-size": "8"}))
    assert not is_of(end, "b", Change(flags={"tp-size": 4}))
    assert not is_of(end, "b", None)


flags = st.dictionaries(
    st.sampled_from(["tp", "tp-size", "page-size", "enable-x"]), st.none() | st.integers(1, 3) | st.booleans()
)
changes = st.builds(
    Change, flags, st.dictionaries(st.sampled_from(["A", "B"]), st.none() | st.sampled_from(["1", " 1"]))
)


@given(changes, changes)
@settings(deadline=None)
def test_whatever_is_added_a_dead_end_is_met_still(change: Change, more: Change) -> None:
    added = Change({**more.flags, **change.flags}, {**more.env, **change.env}, {"a.py": "x"}, "p.diff")
    if not change.empty and not ({"tp", "tp-size"} <= added.flags.keys()):  # the last of two names for a flag counts
        assert is_same_or_more(change, change)
        assert is_same_or_more(added, change)


# Workloads


@pytest.mark.parametrize(
    ("condition", "earlier", "both"),
    [
        ("workload!=a", None, "workload!=a"),
        ("workload!=a", "workload!=b", "workload!=a and workload!=b"),
        ("workload!=a", "workload!=a", "workload!=a"),
        ("workload!=a", "workload!=b and workload!=a", "workload!=a and workload!=b"),
        ("workload!=a", "cuda>=13", "workload!=a"),
        ("workload!=a", "not a condition", "workload!=a"),
        ("cuda>=13", "workload!=b", "cuda>=13"),
        (None, "workload!=b", None),
    ],
)
def test_every_workload_that_it_was_tried_under_stays_out(
    condition: str | None, earlier: str | None, both: str | None
) -> None:
    assert with_earlier(condition, earlier) == both


def test_what_gained_nothing_may_gain_under_another_workload() -> None:
    assert retry_condition("slow", {WORKLOAD: "single-stream"}) == "workload!=single-stream"
    end = DeadEnd("d", "d", "slow", "slow", retry_when="workload!=single-stream and workload!=throughput-8")
    looks = [worth_another_look(end, {WORKLOAD: name}) for name in ("single-stream", "throughput-8", "throughput-32")]
    assert looks == [False, False, True]
    assert not worth_another_look(end, {}), "what is measured with is not known"


@pytest.mark.parametrize(
    ("condition", "software"),
    [
        ("cuda>=13", True), ("sglang>0.5.8", True), ("nccl>=2.30 and cuda>=13", True), ("gpu.memory_gb>96", False),
        ("compute_capability>=12", False), ("workload!=a", False), ("cuda>=13 and workload!=a", False), (None, False),
        ("some day", False), ("environment==cu13", True),
    ],
)  # fmt: skip
def test_which_conditions_another_environment_may_meet(condition: str | None, software: bool) -> None:
    assert of_software(condition) is software


@given(st.text(max_size=200))
@settings(deadline=None)
def test_any_name_of_a_workload_can_stand_in_a_condition(name: str) -> None:
    facts = facts_of(World(), "cu128", name)
    condition = retry_condition("slow", facts)
    assert (condition is None) == (not as_value(name))
    if condition is not None:
        read = parse_condition(condition)
        assert str(read) == condition
        assert holds(read, facts) is False
        assert holds(read, facts_of(World(), "cu128", f"other-{name}")) in (True, False)


def test_terms_once_each() -> None:
    assert conjunction([]) is None
    assert conjunction([Term("a", "!=", "b"), Term("c", ">=", "1"), Term("a", "!=", "b")]) == "a!=b and c>=1"


# Blame, of failures as the journal has them

TREE = Part("tree", None, Change(env={"NCCL_ALGO": "Tree"}))
PAGE = Part("page", None, Change(flags={"page-size": 64}))
PATCH = Part("patch", None, Change(patch="changes/a.diff"))
SWITCH = Part("switch", None, Change(environment="cu13"))


@pytest.mark.parametrize(
    ("failure", "part"),
    [
        (Failure("candidate", "launch", "unknown", "NCCL algo Tree"), TREE),
        (
            Failure("candidate", "launch", "unknown", "it died", ("logs/tree-algo.log:7: page fault",)),
            PAGE,
        ),  # not its path
        (Failure("candidate", "launch", "unknown", "it died", ("E0004",)), None),
        (Failure("candidate", "prepare", "patch", "does not apply"), PATCH),
        (Failure("candidate", "prepare", "environment", "could not be built"), SWITCH),
        (Failure("candidate", "lint", "config-error", "--page-size 64 is not 2"), PAGE),
    ],
)
def test_the_part_that_a_failure_speaks_of(failure: Failure, part: Part | None) -> None:
    assert blame_failure([TREE, PAGE, PATCH, SWITCH], failure).part == part
