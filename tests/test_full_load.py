"""What a server does not survive: the load that a memory setting has to stand, and a run that it died of."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from optagent.agent.cells import Cell
from optagent.agent.change import Change
from optagent.agent.config import CampaignConfig
from optagent.agent.experiments import ITEM, SURVEY, Experiment, Run
from optagent.agent.full_load import death, full_load, stand, wanted
from optagent.agent.session import LedgerJournal, Session
from optagent.tools.calls.configuration import Configuration
from optagent.tools.journal_store import MemoryJournal
from optagent.tools.live import LiveToolbox
from optagent.tools.stub import RecordedCall, Recording, ScriptedToolbox

BASE = Configuration("default", {"tp-size": 8})
MORE = Configuration("default", {"tp-size": 8, "max-running-requests": 256})
CELL = Cell("E0002", "candidate", 1)
TRY = Experiment(
    "E0002", ITEM, "more at once", BASE, "S001", change=Change(flags={"max-running-requests": 256}), candidate=MORE
)
DIED = Run("candidate", 1, None, False, "connection refused")
OOM = {
    "kind": "gpu-oom-runtime",
    "summary": "CUDA out of memory",
    "evidence": [{"line": 7, "text": " OutOfMemoryError "}],
}


class Silent:
    """A narrator that says nothing."""

    def tell(self, what: str, text: str) -> None: ...

    def now(self, text: str) -> None: ...

    def detail(self, text: str) -> None: ...


def session(folder: Path, **answers: dict[str, Any]) -> Session:
    """A session whose tools answer with these results."""
    config = CampaignConfig.model_validate({"name": "x", "deployment": {"kind": "simulator"}})
    calls = tuple(RecordedCall(n, tool, None, result) for n, (tool, result) in enumerate(answers.items(), 1))
    toolbox = ScriptedToolbox(
        Recording("script", calls, {}, [], {}, {}), LiveToolbox(folder, config.deployment, lambda text: None)
    )
    return Session(config, toolbox, LedgerJournal(MemoryJournal()), Silent())


@pytest.mark.parametrize(
    ("experiment", "arm", "asked"),
    [
        (TRY, "candidate", True),
        (TRY, "baseline", False),
        (replace(TRY, change=Change(flags={"stream-interval": 4})), "candidate", False),
        (replace(TRY, removal=True), "candidate", False),
        (replace(TRY, runs=(Run("candidate", 1, 100.0),)), "candidate", False),  # once
        (replace(TRY, runs=(Run("baseline", 1, 100.0), DIED)), "candidate", True),
        (replace(TRY, kind=SURVEY, runs=(Run("candidate", 1, 100.0),)), "candidate", True),  # after its only run
    ],
)
def test_a_memory_setting_has_to_stand_the_full_load(experiment: Experiment, arm: str, asked: bool) -> None:
    assert wanted(experiment, replace(CELL, arm=arm)) == asked


def test_as_many_requests_come_at_once_as_the_server_takes(tmp_path: Path) -> None:
    workload = session(tmp_path).config.workload.model_copy(update={"max_concurrency": 4, "num_prompts": 9})
    for configuration, many in ((BASE, 4), (MORE, 256), (replace(BASE, flags={"max-running-requests": 10**6}), 1024)):
        load = full_load(workload, configuration)
        assert (load.max_concurrency, load.num_prompts, load.warmup_requests) == (many, many, 0)
        assert (load.input_len, load.output_len) == (workload.input_len, workload.output_len)


def test_what_does_not_stand_it_failed_for_the_reason_that_its_log_gives(tmp_path: Path) -> None:
    broken = {"valid": False, "invalid_because": ["3 requests failed"], "result_file": "r.jsonl"}
    failure = stand(
        session(tmp_path, bench=broken, read_log={"status": "crashed", "cause": OOM}), TRY, CELL, "http://x"
    )
    assert failure is not None
    assert (failure.arm, failure.stage, failure.kind) == ("candidate", "load", "gpu-oom-runtime")
    assert "256 requests at once: 3 requests failed" in failure.summary
    assert failure.evidence == (".optagent/logs/E0002-candidate-1.log:7: OutOfMemoryError", "r.jsonl")
    assert stand(session(tmp_path, bench={"valid": True, "metrics": {}}), TRY, CELL, "http://x") is None
    nothing_known = stand(session(tmp_path, bench=broken), TRY, CELL, "http://x")
    assert nothing_known is not None
    assert nothing_known.kind == "load-failed"


@pytest.mark.parametrize(
    ("runs", "log", "kind"),
    [
        ([DIED], {"status": "crashed", "cause": OOM}, "gpu-oom-runtime"),
        ([Run("candidate", 1, 100.0), DIED], {"status": "crashed", "cause": OOM}, "gpu-oom-runtime"),
        ([], {"status": "crashed", "cause": OOM}, None),
        ([DIED, Run("candidate", 1, 100.0)], {"status": "crashed", "cause": OOM}, None),
        ([DIED], {"status": "ready", "cause": OOM}, None),  # it still lives
        ([DIED], {"status": "crashed"}, None),
        ([DIED], {"exists": False}, None),
    ],
)
def test_a_run_that_the_server_died_of_is_a_failure(
    runs: list[Run], log: dict[str, Any], kind: str | None, tmp_path: Path
) -> None:
    for arm in ("candidate", "baseline"):
        found = death(session(tmp_path, read_log=log), TRY, replace(CELL, arm=arm), runs)
        assert (found.kind if found else None) == kind
        if found is not None:
            assert (found.arm, found.stage) == (arm, "load")
            assert found.summary == "died under the load: CUDA out of memory"
            assert found.evidence == (f".optagent/logs/E0002-{arm}-1.log:7: OutOfMemoryError",)
