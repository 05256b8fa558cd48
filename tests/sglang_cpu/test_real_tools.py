"""The tools on a real SGLang. A launch takes some 20 s, so each test asks much of one."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from optagent.agent.config import CampaignConfig
from optagent.tools.calls.bench import Bench
from optagent.tools.calls.gate import Examine
from optagent.tools.calls.logs import ReadLog
from optagent.tools.calls.server import Launched, ListFlags, Stop
from optagent.tools.calls.world import KnownProcess, ProbeWorld
from optagent.tools.deployment import ServingEnvironment

if TYPE_CHECKING:
    from conftest import Server, ServerOf

pytestmark = pytest.mark.sglang

LOG = "logs/launch-1.log"


def test_a_server_is_launched_asked_measured_and_stopped(
    server: Server, config: CampaignConfig, campaign: Path
) -> None:
    marker = campaign / "source" / "python" / "sglang" / "srt" / "server_args.py"
    marker.write_text(marker.read_text() + '\nprint("from the checkout", flush=True)\n')
    launched = server.launch(server.with_flags(max_running_requests=16))
    assert launched.outcome == "ready", launched
    assert launched.reading is not None
    assert (launched.reading.status, launched.reading.kv_tokens, launched.reading.context_len) == ("ready", 8192, 2048)
    assert not launched.simulated
    assert launched.url is not None
    assert "from the checkout" in (campaign / LOG).read_text(), "the source that is patched is the source that runs"

    process = KnownProcess(pid=pid_of(launched), start_time=start_of(launched))
    world = server.toolbox.probe(ProbeWorld(environment="default", known=[process]))
    assert world.server is not None
    assert (world.server.known, world.server.healthy) == (True, True)
    assert world.versions["sglang"] == "0.5.23"

    prompts = ["def main():", "import os", "The server is", "1, 2, 3,"]
    question = Examine(
        key="e", url=launched.url, prompts=prompts, texts=["import os\nimport sys\n" * 20], max_tokens=16, concurrency=4,
        file="gates/first.json.gz",
    )  # fmt: skip
    first = server.toolbox.examine(question)
    assert first.problem is None
    assert [(done.concurrency, done.tokens, done.problems) for done in first.passes] == [(1, 64, []), (4, 64, [])]
    assert first.variety == 1, "what is drawn at temperature 1 differs, as the weights are no dummies"
    assert first.accept_length is None
    again = question.model_copy(update={"key": "a", "file": "gates/again.json.gz", "references": [first.file]})
    (compared,) = server.toolbox.examine(again).comparisons
    assert [(seen.concurrency, seen.exact) for seen in compared.agreement] == [(1, 1), (4, 1)]
    assert (compared.kl, compared.far) == (0, 0), "an unchanged server repeats itself"

    workload = config.workload
    request = Bench(key="b", run="run-1", url=launched.url, workload=workload, seed=1, result_file="runs/run-1.json")
    run = server.toolbox.bench(request)
    assert run.valid, run.invalid_because
    assert run.metrics["completed"] == workload.num_prompts
    assert run.metrics["total_output_tokens"] == workload.num_prompts * workload.output_len
    assert run.metrics["output_throughput"] > 0
    assert run.metrics["median_tpot_ms"] > 0
    assert server.toolbox.bench(request) == run, "the same key is the same run"

    stopped = server.toolbox.stop(Stop(key="stop", pid=pid_of(launched), start_time=start_of(launched)))
    assert (stopped.gone, stopped.was_running, stopped.problem) == (True, True, None)
    assert server.toolbox.read_log(ReadLog(path=LOG, alive=False)).status == "stopped"
    world = server.toolbox.probe(ProbeWorld(environment="default", known=[process]))
    assert (world.port_open, [p.alive for p in world.processes]) == (False, [False])


def test_a_flag_that_does_not_exist_is_named(server: Server) -> None:
    listed = server.toolbox.list_flags(
        ListFlags(environment="default", names=["max-running-requests", "max-runing-requests", "cuda-graph-max-bs"])
    )
    assert listed.flags is not None, listed.problem
    assert listed.version == "0.5.23"
    assert listed.flags["max-running-requests"].known
    misspelt = listed.flags["max-runing-requests"]
    assert (misspelt.known, misspelt.begins) == (False, [])
    assert "max-running-requests" in misspelt.similar
    assert len(listed.flags["cuda-graph-max-bs"].begins) > 1, "an ambiguous beginning of other flags"

    launched = server.launch(server.with_flags(max_runing_requests=16))
    assert (launched.outcome, launched.exit_code) == ("crashed", 2)
    assert cause_of(launched) == ("arguments", "config-error", "fix-argument")
    assert "--max-runing-requests" in evidence_of(launched)


def test_what_cannot_be_compiled_is_told_from_running_out_of_memory(server: Server) -> None:
    launched = server.launch(server.with_flags(enable_torch_compile=True))
    # The dying server kills its own processes, itself last: its exit looks like the kernel's OOM killer.
    assert (launched.outcome, launched.exit_code) == ("crashed", -9)
    assert cause_of(launched) == ("graph-capture", "graph-capture-incompatible", "disable-feature")
    assert "init_cpu_graph_state" in evidence_of(launched)


def test_an_environment_that_is_not_whole_fails_in_its_imports(
    campaign: Path, config: CampaignConfig, server_of: ServerOf
) -> None:
    python = config.deployment.environments["default"].python
    broken = {"environments": {"default": ServingEnvironment(python=python)}}
    server = server_of(campaign, config.deployment.model_copy(update=broken))
    launched = server.launch(server.baseline)
    assert (launched.outcome, launched.exit_code) == ("crashed", 1)
    assert cause_of(launched) == ("arguments", "package-mismatch", "install-or-upgrade")
    assert "torchvision::nms" in evidence_of(launched)


def test_nothing_is_started_while_another_program_holds_the_port(server: Server) -> None:
    with socket.create_server(("127.0.0.1", server.deployment.port)):
        launched = server.launch(server.baseline)
    assert (launched.outcome, launched.pid) == ("port-taken", None)


def pid_of(launched: Launched) -> int:
    assert launched.pid is not None
    return launched.pid


def start_of(launched: Launched) -> float:
    assert launched.start_time is not None
    return launched.start_time


def cause_of(launched: Launched) -> tuple[str, str, str]:
    """Phase and kind of the failure, and the kind of what to do."""
    reading = launched.reading
    assert reading is not None
    assert reading.cause is not None
    assert reading.action is not None
    return reading.phase, reading.cause.kind, reading.action.kind


def evidence_of(launched: Launched) -> str:
    assert launched.reading is not None
    assert launched.reading.cause is not None
    return launched.reading.cause.evidence[0].text
