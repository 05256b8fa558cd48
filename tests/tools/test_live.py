"""The live toolbox from end to end on the simulated deployment, with its real processes, sockets, files and git."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from optagent.tools.calls.bench import Bench, Workload
from optagent.tools.calls.clock import AskTime
from optagent.tools.calls.configuration import Configuration, FlagValue
from optagent.tools.calls.gate import Examine
from optagent.tools.calls.logs import ReadLog
from optagent.tools.calls.patch import RestoreCheckout
from optagent.tools.calls.server import EnvironmentRequest, InstallFiles, Launch, ListFlags, Stop
from optagent.tools.calls.world import KnownProcess, ProbeWorld
from optagent.tools.deployment import Deployment, ServingEnvironment
from optagent.tools.live import LiveToolbox
from optagent.tools.simulator.world import known_good_files
from optagent.tools.toolbox import Toolbox

FLAGS: dict[str, FlagValue] = {"model-path": "moonshotai/Kimi-K2.5", "tp-size": 8, "mem-fraction-static": 0.9}
FAST = {**os.environ, "OPTAGENT_SIMULATION_SPEED": "100000"}
Quiet = Callable[[str], None]


@pytest.fixture
def deployment(free_port: int) -> Deployment:
    return Deployment(
        port=free_port,
        environment="cu128",
        environments={"cu128": ServingEnvironment(), "cu13": ServingEnvironment()},
        source=".optagent/simulation/checkout",
        flags=FLAGS,
    )


@pytest.fixture
def toolbox(tmp_path: Path, deployment: Deployment, quiet: Quiet) -> Iterator[Toolbox]:
    toolbox = LiveToolbox(tmp_path, deployment, quiet, FAST)
    yield toolbox
    seen = toolbox.probe(ProbeWorld(environment="cu128", launches=["L1", "L2"]))
    for number, process in enumerate(seen.processes):
        assert toolbox.stop(Stop(key=f"end-{number}", pid=process.pid, start_time=process.start_time)).gone


def test_a_whole_campaign_s_worth_of_calls(toolbox: Toolbox) -> None:
    before = toolbox.probe(ProbeWorld(environment="cu128", files=["sitecustomize.py"]))
    assert before.simulated
    assert before.checkout is not None
    assert before.checkout.dirty  # the last session's edits
    assert before.gpus is not None
    assert before.environments == {"cu128": True, "cu13": False}

    restored = toolbox.restore_checkout(
        RestoreCheckout(key="r", revision=before.checkout.revision, reason="the test wants the known-good state")
    )
    assert (restored.problem, restored.revision) == (None, before.checkout.revision)
    installed = toolbox.install_files(InstallFiles(key="i", environment="cu128", files=known_good_files()))
    assert installed.before["sitecustomize.py"] == before.files["sitecustomize.py"]

    request = Launch(key="k1", launch="L1", configuration=Configuration("cu128", FLAGS), log=".optagent/logs/L1.log")
    launched = toolbox.launch(request)
    assert launched.outcome == "ready", launched
    assert launched.pid is not None
    assert launched.start_time is not None
    known = [KnownProcess(pid=launched.pid, start_time=launched.start_time)]
    during = toolbox.probe(ProbeWorld(environment="cu128", known=known))
    assert during.server is not None
    assert (during.server.known, during.server.healthy) == (True, True)
    assert during.gpus is not None
    assert during.gpus[0].memory_used_gb > before.gpus[0].memory_used_gb
    assert toolbox.read_log(ReadLog(path=request.log, alive=True)).status == "ready"

    url = launched.url or ""
    workload = Workload(input_len=256, output_len=32, num_prompts=3, warmup_requests=1)
    bench = Bench(key="b1", run="R1", url=url, workload=workload, seed=1, result_file=".optagent/runs/R1.json")
    run = toolbox.bench(bench)
    assert run.valid, run.invalid_because
    assert run.simulated
    assert run.metrics["output_throughput"] > 0
    assert toolbox.bench(bench) == run
    ask = Examine(key="x", url=url, prompts=["a", "b"], max_tokens=4, concurrency=2, file=".optagent/gate/X.json.gz")
    examined = toolbox.examine(ask)
    assert (examined.problem, examined.simulated) == (None, True)
    assert [(one.concurrency, one.failed, one.tokens) for one in examined.passes] == [(1, 0, 8), (2, 0, 8)]
    assert toolbox.examine(ask) == examined

    stop = Stop(key="st", pid=launched.pid, start_time=launched.start_time)
    assert toolbox.stop(stop).gone
    after = toolbox.probe(ProbeWorld(environment="cu128", known=known))
    assert (after.port_open, [p.alive for p in after.processes]) == (False, [False])
    assert after.gpus == before.gpus


def test_a_launch_that_fails_says_why(toolbox: Toolbox) -> None:
    flags = FLAGS | {"mem-fraction-static": 0.5}
    launched = toolbox.launch(
        Launch(key="k", launch="L2", configuration=Configuration("cu128", flags), log=".optagent/logs/L2.log")
    )
    assert launched.outcome == "crashed"
    assert launched.simulated
    assert launched.reading is not None
    assert launched.reading.cause is not None
    assert launched.reading.cause.kind == "memory-fraction-too-low"


def test_environments_are_created_beside_each_other(toolbox: Toolbox) -> None:
    first = toolbox.prepare_environment(EnvironmentRequest(key="e", name="cu13"))
    again = toolbox.prepare_environment(EnvironmentRequest(key="e", name="cu13"))
    assert (first.ready, first.created, again.ready, again.created) == (True, True, True, False)
    assert first.versions["cuda"].startswith("13")
    assert not toolbox.prepare_environment(EnvironmentRequest(key="e", name="none")).ready
    assert toolbox.install_files(InstallFiles(key="i", environment="none", files={"a": "b"})).problem


def test_flags_of_the_simulator(toolbox: Toolbox) -> None:
    names = ["tp-size", "disable-cuda-graph", "attention-backend", "mem-fraction", "mem-fracton-static"]
    for _ in range(2):
        listed = toolbox.list_flags(ListFlags(environment="cu128", names=names))
        assert listed.flags is not None
        assert listed.version == "0.5.8"
        assert list(listed.flags) == names
        size, graph, backend, short, wrong = listed.flags.values()
        assert (size.known, size.switch, size.choices) == (True, False, None)
        assert (graph.known, graph.switch) == (True, True)
        assert "triton" in (backend.choices or [])
        assert (short.known, short.begins) == (False, ["mem-fraction-static"])
        assert (wrong.begins, wrong.similar) == ([], ["mem-fraction-static"])


def test_the_time_is_utc(toolbox: Toolbox) -> None:
    now = toolbox.clock(AskTime()).now
    assert len(now) == 20
    assert now.endswith("Z")


def test_a_server_elsewhere_is_not_started_from_here(tmp_path: Path, quiet: Quiet) -> None:
    away = Deployment(kind="sglang", host="192.0.2.1", environments={"default": ServingEnvironment(python="python")})
    launch = Launch(key="k", launch="L", configuration=Configuration("default"), log="l.log")
    launched = LiveToolbox(tmp_path, away, quiet).launch(launch)
    assert launched.outcome == "not-started"
    assert "192.0.2.1" in (launched.problem or "")


def test_a_real_environment_that_is_not_there(tmp_path: Path, free_port: int, quiet: Quiet) -> None:
    environments = {"default": ServingEnvironment(python="venv/bin/python"), "none": ServingEnvironment()}
    toolbox = LiveToolbox(tmp_path, Deployment(kind="sglang", port=free_port, environments=environments), quiet)
    world = toolbox.probe(ProbeWorld(environment="default"))
    assert (world.versions, world.environments, world.simulated) == ({}, {"default": False, "none": False}, False)
    assert "venv/bin/python" in (toolbox.prepare_environment(EnvironmentRequest(key="e", name="default")).problem or "")
    for name in ("default", "none", "unheard-of"):
        launch = Launch(key="k", launch="L", configuration=Configuration(name), log="l.log")
        assert toolbox.launch(launch).outcome == "not-started"
        assert toolbox.list_flags(ListFlags(environment=name, names=["tp-size"])).problem


def test_versions_of_a_real_interpreter(tmp_path: Path, free_port: int, quiet: Quiet) -> None:
    environments = {"default": ServingEnvironment(python=sys.executable)}
    toolbox = LiveToolbox(tmp_path, Deployment(kind="sglang", port=free_port, environments=environments), quiet)
    for _ in range(2):
        world = toolbox.probe(ProbeWorld(environment="default"))
        assert world.versions["python"] == ".".join(map(str, sys.version_info[:3]))
        assert "sglang" not in world.versions


def test_importing_the_toolbox_is_cheap() -> None:
    script = "import sys, optagent.tools.live as _; print(*{'httpx', 'psutil', 'git', 'pynvml'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
