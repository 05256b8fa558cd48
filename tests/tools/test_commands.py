"""Command lines and environments, as data."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from optagent.tools.calls.bench import Workload
from optagent.tools.calls.configuration import Configuration
from optagent.tools.commands import (
    NoInterpreter,
    bench_command,
    help_command,
    launch_command,
    passed_on,
)
from optagent.tools.deployment import Deployment, ServingEnvironment

ROOT = Path("/campaign")
REAL = Deployment(
    kind="sglang",
    port=31000,
    source="checkout",
    flags={"model-path": "models/tiny"},
    environments={
        "cu130": ServingEnvironment(
            python="/envs/cu130/bin/python", folder="env", pythonpath=["standins", "/abs"], env={"OMP_NUM_THREADS": "1"}
        ),
        "default": ServingEnvironment(python="venv/bin/python"),
    },
)
PARENT = {
    "PATH": "/bin", "HOME": "/h", "HF_TOKEN": "t", "HF_HOME": "/hf", "NCCL_P2P_LEVEL": "SYS", "OPENAI_API_KEY": "no",
    "HF_SECRET": "no", "SGLANG_USE_CPU_ENGINE": "1", "PYTHONPATH": "/ours", "VIRTUAL_ENV": "/ours/venv",
}  # fmt: skip


def test_a_real_launch() -> None:
    flags = {"model-path": "m", "port": 1, "tp-size": 2, "trust-remote-code": True, "disable-radix-cache": False}
    configuration = Configuration("cu130", flags=flags, env={"OMP_NUM_THREADS": "4", "SGLANG_X": "1"})
    command = launch_command(ROOT, REAL, configuration, "launch/7", PARENT)
    assert command.argv == (
        "/envs/cu130/bin/python", "-m", "sglang.launch_server", "--host", "127.0.0.1", "--port", "31000",
        "--model-path", "m", "--tp-size", "2", "--trust-remote-code",
    )  # fmt: skip
    assert command.env["PYTHONPATH"] == "/campaign/env:/campaign/standins:/abs:/campaign/checkout/python"
    assert (command.env["OPTAGENT_LAUNCH"], command.env["OPTAGENT_CAMPAIGN"]) == ("launch/7", "/campaign")
    assert (command.env["OMP_NUM_THREADS"], command.env["SGLANG_X"]) == ("4", "1")
    assert (command.env["HF_TOKEN"], command.env["NCCL_P2P_LEVEL"]) == ("t", "SYS")
    assert not {"OPENAI_API_KEY", "HF_SECRET", "SGLANG_USE_CPU_ENGINE", "VIRTUAL_ENV"} & set(command.env)
    assert command.cwd == ROOT


def test_a_python_path_of_variables_comes_behind_the_deployment_s_own() -> None:
    own = ServingEnvironment(python="python", folder="env", pythonpath=["standins"], env={"PYTHONPATH": "/theirs:/abs"})
    deployment = Deployment(kind="sglang", source="checkout", environments={"default": own})
    changed = Configuration("default", env={"PYTHONPATH": "/change:/theirs", "OMP_NUM_THREADS": "4"})
    command = launch_command(ROOT, deployment, changed, "k", PARENT)
    folders = "/campaign/env:/campaign/standins:/campaign/checkout/python:/theirs:/abs"
    assert command.env["PYTHONPATH"] == f"{folders}:/change"
    assert command.env["OMP_NUM_THREADS"] == "4"
    assert help_command(ROOT, deployment, "default", PARENT).env["PYTHONPATH"] == folders
    bench = bench_command(ROOT, deployment, "u", Workload(), 1, Path("/o"), PARENT)
    assert bench.env["PYTHONPATH"] == "/campaign/standins:/theirs:/abs"


def test_a_simulated_launch() -> None:
    deployment = Deployment(source="checkout", environments={"cu128": ServingEnvironment()})
    command = launch_command(ROOT, deployment, Configuration("cu128"), "k", PARENT)
    assert command.argv[:3] == (sys.executable, "-m", "optagent.tools.simulator")
    assert command.env["OPTAGENT_SIMULATION"] == "/campaign/.optagent/simulation"
    assert command.env["OPTAGENT_SIMULATION_SOURCE"] == "/campaign/checkout"
    assert command.env["PYTHONPATH"] == "/campaign/.optagent/simulation/environments/cu128:/ours"
    assert "HF_TOKEN" not in command.env


def test_a_proxy_is_never_asked_for_the_own_address() -> None:
    env = passed_on({"http_proxy": "http://p:1", "NO_PROXY": "corp"})
    assert env["NO_PROXY"] == "corp,localhost,127.0.0.1,::1"
    assert env["no_proxy"] == "localhost,127.0.0.1,::1"
    assert passed_on({"PATH": "/bin"}) == {"PATH": "/bin"}


def test_a_benchmark_of_random_tokens() -> None:
    workload = Workload(input_len=128, output_len=64, num_prompts=32, max_concurrency=8, warmup_requests=2)
    command = bench_command(ROOT, REAL, "http://127.0.0.1:31000", workload, 7, Path("/r/out.part"), PARENT)
    assert " ".join(command.argv) == (
        "/campaign/venv/bin/python -m sglang.bench_serving --backend sglang --base-url http://127.0.0.1:31000 "
        "--model models/tiny --dataset-name random-ids --tokenize-prompt --random-input-len 128 "
        "--random-output-len 64 --random-range-ratio 1.0 --num-prompts 32 --max-concurrency 8 --request-rate inf "
        "--warmup-requests 2 --seed 7 --flush-cache --output-file /r/out.part --output-details --cache-report"
    )
    assert "PYTHONPATH" not in command.env


def test_a_benchmark_of_own_prompts() -> None:
    workload = Workload(dataset="custom", prompts="p.jsonl", output_len=99, flush_cache=False)
    words = bench_command(ROOT, REAL, "u", workload, 7, Path("/o"), PARENT, prompts=Path("/p"), cache_report=False).argv
    text = " ".join(words)
    assert "--dataset-name custom --dataset-path /p --apply-chat-template --sharegpt-output-len 99" in text
    assert "--tokenize-prompt" not in words
    assert not {"--flush-cache", "--cache-report"} & set(words)


def test_an_environment_without_interpreter() -> None:
    for name, deployment in (("none", REAL), ("default", Deployment(kind="sglang"))):
        with pytest.raises(NoInterpreter):
            launch_command(ROOT, deployment, Configuration(name), "k", {})
    assert help_command(ROOT, REAL, "cu130", {}).argv[-1] == "--help"
