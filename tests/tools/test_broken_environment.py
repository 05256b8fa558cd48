"""A serving environment that is broken or replaced under us: every tool answers with what is wrong, and none raises."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from optagent.tools.calls.bench import Bench, Workload
from optagent.tools.calls.configuration import Configuration
from optagent.tools.calls.server import EnvironmentRequest, Launch, ListFlags
from optagent.tools.calls.world import ProbeWorld
from optagent.tools.commands import python_command
from optagent.tools.deployment import Deployment, ServingEnvironment
from optagent.tools.environment_check import SCRIPT, broken
from optagent.tools.live import LiveToolbox

STUB_SGLANG = str(Path(__file__).parents[1] / "fakes")
SITE_THAT_ENDS = "import os\nos._exit(5)\n"
WORKS = f'#!/bin/sh\nexec {sys.executable} "$@"\n'


def interpreter(folder: Path, text: str | None, mode: int = 0o755) -> Path:
    """A Python for an environment: a script with this text, None for none at all."""
    path = folder / "python"
    if text is not None:
        path.write_text(text)
        path.chmod(mode)
    return path


def deployment_of(python: Path, port: int = 1, pythonpath: str = STUB_SGLANG) -> Deployment:
    environment = ServingEnvironment(python=str(python), folder="files", pythonpath=[pythonpath])
    return Deployment(kind="sglang", port=port, environments={"default": environment})


@pytest.mark.parametrize(
    ("text", "mode", "pythonpath", "problem"),
    [
        (WORKS, 0o755, STUB_SGLANG, None),
        (WORKS, 0o755, "elsewhere", "has no package sglang"),
        ("#!/bin/sh\nexit 1\n", 0o755, STUB_SGLANG, "does not run: exit status 1"),
        ("#!/nowhere/sh\n", 0o755, STUB_SGLANG, "does not run: No such file or directory"),
        ("no program at all", 0o755, STUB_SGLANG, "does not run: Exec format error"),
        (WORKS, 0o644, STUB_SGLANG, "does not run: Permission denied"),
        (None, 0, STUB_SGLANG, "does not run: No such file or directory"),
    ],
)
def test_what_is_wrong_with_an_environment(
    tmp_path: Path, text: str | None, mode: int, pythonpath: str, problem: str | None
) -> None:
    python = interpreter(tmp_path, text, mode)
    command = python_command(tmp_path, deployment_of(python, pythonpath=pythonpath), "default", SCRIPT, {})
    assert broken(command) == (problem and f"{python} {problem}")


def test_environment_files_that_end_python_are_not_the_environment_s_fault(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "sitecustomize.py").write_text(SITE_THAT_ENDS)
    python = interpreter(tmp_path, WORKS)
    assert broken(python_command(tmp_path, deployment_of(python), "default", SCRIPT, {})) is None
    toolbox = LiveToolbox(tmp_path, deployment_of(python), lambda text: None)
    launched = toolbox.launch(Launch(key="k", launch="L", configuration=Configuration("default"), log="l.log"))
    assert (launched.outcome, launched.exit_code) == ("crashed", 5)
    assert toolbox.probe(ProbeWorld(environment="default")).environments == {"default": True}


@pytest.mark.parametrize("text", ["#!/bin/sh\nexit 1\n", None], ids=["exits with 1", "deleted"])
def test_every_tool_survives_a_broken_environment(
    tmp_path: Path, free_port: int, quiet: Callable[[str], None], text: str | None
) -> None:
    python = interpreter(tmp_path, WORKS)
    toolbox = LiveToolbox(tmp_path, deployment_of(python, free_port), quiet)
    assert toolbox.probe(ProbeWorld(environment="default")).environments == {"default": True}
    python.unlink()
    interpreter(tmp_path, text)

    assert toolbox.probe(ProbeWorld(environment="default")).environments == {"default": False}
    listed = toolbox.list_flags(ListFlags(environment="default", names=["tp-size"]))
    assert listed.flags is None
    assert listed.problem
    launched = toolbox.launch(Launch(key="k", launch="L", configuration=Configuration("default"), log="l.log"))
    assert (launched.outcome, launched.pid) == ("not-started", None)
    assert str(python) in (launched.problem or "")
    url = f"http://127.0.0.1:{free_port}"
    run = toolbox.bench(Bench(key="b", run="R", url=url, workload=Workload(), seed=1, result_file="R.jsonl"))
    assert not run.valid
    assert run.invalid_because
    prepared = toolbox.prepare_environment(EnvironmentRequest(key="e", name="default"))
    assert prepared.ready == (text is not None)
    assert list((tmp_path / ".optagent" / "processes").glob("*")) == []
