"""The tools on a real SGLang. A launch takes some 20 s, so each test asks much of one."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from optagent.agent.config import load_config
from optagent.tools.calls.bench import Bench
from optagent.tools.calls.configuration import Configuration, FlagValue
from optagent.tools.calls.gate import Examine
from optagent.tools.calls.logs import ReadLog
from optagent.tools.calls.server import Launch, Launched, ListFlags, Stop
from optagent.tools.calls.world import KnownProcess, ProbeWorld
from optagent.tools.deployment import Deployment, ServingEnvironment
from optagent.tools.live import LiveToolbox

pytestmark = pytest.mark.sglang

LOG = "logs/server.log"


class Server:
    """The campaign's deployment, launched at most once in a test and always stopped."""

    def __init__(self, root: Path, deployment: Deployment) -> None:
        self.deployment = deployment
        self.toolbox = LiveToolbox(root, deployment, report=lambda line: None)
        self.launched: Launched | None = None

    def launch(self, **flags: FlagValue) -> Launched:
        """Launch the baseline with `flags` on top; underscores in their names stand for dashes."""
        added = {name.replace("_", "-"): value for name, value in flags.items()}
        configuration = Configuration("default", {**self.deployment.flags, **added}, self.deployment.env)
        self.launched = self.toolbox.launch(
            Launch(key="launch-1", launch="launch-1", configuration=configuration, log=LOG)
        )
        return self.launched

    def stop(self) -> None:
        if self.launched and self.launched.outcome == "ready":
            self.toolbox.stop(Stop(key="clean-up", pid=pid_of(self.launched), start_time=start_of(self.launched)))


def pid_of(launched: Launched) -> int:
    assert launched.pid is not None
    return launched.pid


def start_of(launched: Launched) -> float:
    assert launched.start_time is not None
    return launched.start_time


@pytest.fixture
def server(campaign: Path) -> Iterator[Server]:
    server = Server(campaign, load_config(campaign).deployment)
    yield server
    server.stop()


def test_a_server_is_launched_asked_measured_and_stopped(server: Server, campaign: Path) -> None:
    launched = server.launch(max_running_requests=16)
    assert launched.outcome == "ready", launched
    assert launched.reading is not None
    assert (launched.reading.status, launched.reading.kv_tokens, launched.reading.context_len) == ("ready", 8192, 2048)
    assert not launched.simulated
    assert launched.url is not None

    process = KnownProcess(pid=pid_of(launched), start_time=start_of(launched))
    world = server.toolbox.probe(ProbeWorld(environment="default", known=[process]))
    assert world.server is not None
    assert (world.server.known, world.server.healthy) == (True, True)
    assert world.versions["sglang"] == "0.5.23"

    ask = Examine(
        key="x", url=launched.url, prompts=["def main():", "import os"], texts=["import os, sys"], max_tokens=8,
        concurrency=2, file="gate/x.json.gz",
    )  # fmt: skip
    examined = server.toolbox.examine(ask)
    assert [(p.concurrency, p.failed, p.tokens) for p in examined.passes] == [(1, 0, 16), (2, 0, 16)]
    assert examined.accept_length is None
    again = server.toolbox.examine(
        ask.model_copy(update={"key": "y", "file": "gate/y.json.gz", "references": ["gate/x.json.gz"]})
    )
    compared = again.comparisons[0]
    assert compared.problem is None
    assert (compared.agreement[0].exact, compared.kl) == (1.0, 0.0), "an unchanged server repeats its greedy answers"

    workload = load_config(campaign).workload
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
        ListFlags(environment="default", names=["max-running-requests", "max-runing-requests"])
    )
    assert listed.flags is not None, listed.problem
    assert listed.flags["max-running-requests"].known
    assert not listed.flags["max-runing-requests"].known
    assert listed.flags["max-runing-requests"].similar[0] == "max-running-requests"

    launched = server.launch(max_runing_requests=16)
    assert (launched.outcome, launched.exit_code) == ("crashed", 2)
    assert cause_of(launched) == ("arguments", "config-error", "fix-argument")
    assert "--max-runing-requests" in evidence_of(launched)


def test_what_cannot_be_compiled_is_told_from_running_out_of_memory(server: Server) -> None:
    launched = server.launch(enable_torch_compile=True)
    # The dying server kills its own processes, itself last: its exit looks like the kernel's OOM killer.
    assert (launched.outcome, launched.exit_code) == ("crashed", -9)
    assert cause_of(launched) == ("graph-capture", "graph-capture-incompatible", "disable-feature")
    assert "init_cpu_graph_state" in evidence_of(launched)


def test_an_environment_that_is_not_whole_fails_in_its_imports(campaign: Path) -> None:
    deployment = load_config(campaign).deployment
    python = deployment.environments["default"].python
    broken = deployment.model_copy(update={"environments": {"default": ServingEnvironment(python=python)}})
    launched = Server(campaign, broken).launch()
    assert (launched.outcome, launched.exit_code) == ("crashed", 1)
    assert cause_of(launched) == ("arguments", "package-mismatch", "install-or-upgrade")
    assert "torchvision::nms" in evidence_of(launched)


def test_nothing_is_started_while_another_program_holds_the_port(server: Server) -> None:
    with socket.create_server(("127.0.0.1", server.deployment.port)):
        launched = server.launch()
    assert (launched.outcome, launched.pid) == ("port-taken", None)


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
