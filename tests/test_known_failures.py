"""What failed identically is not launched again, and what only looks alike is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from optagent.agent.change import Change, apply_change
from optagent.agent.experiments import ITEM, Experiment, Failure
from optagent.agent.known_failures import failed_identically, known_failures
from optagent.tools.calls.configuration import Configuration

BASE = Configuration("cu128", {"tp-size": 8, "mem-fraction-static": 0.9}, {"NCCL_P2P_LEVEL": "SYS"}, {}, "a1")
LARGER = Change(flags={"mem-fraction-static": 0.97})
CANDIDATE = apply_change(BASE, LARGER)
OOM = Failure("candidate", "launch", "gpu-oom-pool", "out of memory", ("x.log:7: CUDA out of memory",))


def failed(failure: Failure = OOM, **changed: Any) -> Experiment:
    known = Experiment("E0002", ITEM, "larger", BASE, "S001", "larger", LARGER, CANDIDATE, verdict="failed")
    return replace(known, failures=(failure,), **changed)


@pytest.mark.parametrize(
    "again",
    [
        CANDIDATE,
        replace(CANDIDATE, flags={"tp": "8", "mem-fraction-static": "0.970", "enable-metrics": False}),
        replace(CANDIDATE, env={"NCCL_P2P_LEVEL": " SYS"}),
    ],
)
def test_the_same_configuration_fails_without_a_launch(again: Configuration) -> None:
    found = failed_identically(again, [failed()])
    assert found is not None
    assert (found.arm, found.stage, found.kind) == ("candidate", "launch", "gpu-oom-pool")
    assert found.evidence[0] == "E0002"
    assert "out of memory" in found.summary


@pytest.mark.parametrize(
    "other",
    [
        BASE,
        replace(CANDIDATE, environment="cu13"),
        replace(CANDIDATE, revision="b2"),
        replace(CANDIDATE, env={}),
        replace(CANDIDATE, files={"a.py": "x"}),
        replace(CANDIDATE, flags={**CANDIDATE.flags, "page-size": 64}),
    ],
)
def test_any_difference_is_worth_a_launch(other: Configuration) -> None:
    assert failed_identically(other, [failed()]) is None


@pytest.mark.parametrize(
    "earlier",
    [
        failed(verdict=""),  # still under way
        failed(verdict="keep"),  # it failed once and then ran
        failed(replace(OOM, kind="port-in-use")),
        failed(replace(OOM, kind="peer-died")),
        failed(replace(OOM, arm="baseline"), verdict="invalid"),
        failed(replace(OOM, stage="lint")),
        failed(candidate=None),
        replace(failed(), failures=(), verdict="invalid"),
    ],
)
def test_failures_that_may_pass_or_say_nothing_bind_nothing(earlier: Experiment) -> None:
    assert known_failures([earlier]) == {}
    assert failed_identically(CANDIDATE, [earlier]) is None


def test_a_gate_that_was_not_passed_counts_as_well() -> None:
    wrong = failed(Failure("candidate", "gate", "wrong-output", "it repeats itself"), verdict="invalid")
    found = failed_identically(CANDIDATE, [wrong])
    assert found is not None
    assert found.stage == "gate"


@pytest.mark.parametrize(
    ("then", "now", "known"),
    [({}, {"cuda": "13.0"}, True), ({"cuda": "12.8"}, {}, True), ({"cuda": "12.8"}, {"cuda": "12.8", "nccl": "2"}, True),
     ({"cuda": "12.8"}, {"cuda": "13.0"}, False)],
)  # fmt: skip
def test_other_versions_are_another_try(then: dict[str, str], now: dict[str, str], known: bool) -> None:
    assert (failed_identically(CANDIDATE, [failed(versions=then)], now) is not None) is known


def test_an_item_that_was_opened_again_is_launched_again() -> None:
    assert failed_identically(CANDIDATE, [failed()], retried=["larger"]) is None
    assert failed_identically(CANDIDATE, [failed()], retried=["other"]) is not None


def test_the_latest_failure_is_the_evidence() -> None:
    found = failed_identically(CANDIDATE, [failed(), failed(id="E0007")])
    assert found is not None
    assert found.evidence[0] == "E0007"
