"""Which part of a failed combination becomes a dead end: the one that surely does not run, and nothing that only may."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from optagent.agent.change import Change, apply_change
from optagent.agent.experiments import SURVEY, Experiment, Failure, Run
from optagent.agent.survey.blaming import surely_to_blame
from optagent.tools.calls.configuration import Configuration

BASE = Configuration("cu128", {"tp-size": 1})
FA4 = {"attention-backend": "fa4"}
NAMES_FA4 = "ValueError: The 'fa4' attention-backend does not support compute capability 8.9"


def looked_at(flags: dict[str, Any], environment: str | None = None, **more: Any) -> Experiment:
    change = Change(flags, environment=environment)
    one = Experiment("E0007", SURVEY, "t", BASE, "S001", None, change, candidate=apply_change(BASE, change))
    return replace(one, **more)


def failed(flags: dict[str, Any], kind: str, words: str, arm: str = "candidate", **more: Any) -> Experiment:
    return looked_at(flags, failures=(Failure(arm, "launch", kind, words),), verdict="failed", **more)


def ran(flags: dict[str, Any], environment: str | None = None) -> Experiment:
    return looked_at(flags, environment, runs=(Run("candidate", 1, 100.0),), verdict="inconclusive")


@pytest.mark.parametrize(
    ("experiment", "earlier", "blamed"),
    [
        (failed(FA4 | {"stream-interval": 8}, "attention-backend-unsupported", NAMES_FA4), [], FA4),
        (failed(FA4, "unknown", "it died"), [], FA4),  # it was the only change
        (failed(FA4, "hang", "nothing moved"), [], FA4),
        (failed(FA4 | {"stream-interval": 8}, "unknown", "it died"), [], None),
        (failed(FA4 | {"stream-interval": 8}, "hang", NAMES_FA4), [], None),  # these words say where, and not why
        (failed(FA4 | {"cuda-graph-max-bs": 8}, "gpu-oom-graph-capture", "out of memory in cuda graph"), [], None),
        (failed(FA4, "port-in-use", "address in use"), [], None),  # another try may not meet that
        (failed(FA4, "config-error", NAMES_FA4, arm="baseline"), [], None),
        # what ran before does not fail by itself, in the same environment
        (failed(FA4 | {"stream-interval": 8}, "config-error", NAMES_FA4), [ran(FA4)], None),
        (failed(FA4 | {"stream-interval": 8}, "config-error", NAMES_FA4), [ran(FA4, "cu13")], FA4),
        (failed(FA4 | {"stream-interval": 8}, "config-error", NAMES_FA4), [ran({"stream-interval": 8})], FA4),
        (failed({"tp-size": None}, "unknown", "it died"), [], None),  # leaving something out is no change to be tried
        (looked_at(FA4, verdict="inconclusive"), [], None),
    ],
)  # fmt: skip
def test_who_is_surely_to_blame(
    experiment: Experiment, earlier: list[Experiment], blamed: dict[str, Any] | None
) -> None:
    part = surely_to_blame(experiment, earlier)
    assert (part.change.flags if part is not None else None) == blamed
