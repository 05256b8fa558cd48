"""Laying out a simulated world in a folder: source checkout, serving environments, leftovers of the last session.

folder/scenario.json         the scenario, compiled
folder/checkout              a git repository, with the last session's uncommitted edits
folder/environments/<name>   versions.json and sitecustomize.py
folder/logs                  the log of the last session's pending launch
folder/template              the scenario's files, for environments that are created later
folder/gpu-holders           one file a running server (see holders.py)
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from optagent.tools.calls.configuration import flag_arguments
from optagent.tools.calls.world import Gpu
from optagent.tools.simulator.holders import holders
from optagent.tools.simulator.scenario import LastSession, Scenario, ScenarioError, load, load_compiled, packaged
from optagent.tools.simulator.surroundings import CLOCK, LAUNCH, REFERENCE_SCENARIO, SOURCE, SPEED, WORLD
from optagent.tools.undisturbed import undisturbed

AUTHOR = "SGLang stand-in <simulated@example.invalid>"
BASE_DATE = "2026-03-02T09:00:00+00:00"
PENDING_LOG = "logs/pending-launch.log"
IDLE_GB = 0.5
"""What the driver holds on a GPU nobody uses, in GiB."""


def lay_out(scenario: str | Path | None, folder: Path) -> None:
    """Make sure that the world of a packaged scenario (by name) or of a scenario folder stands in `folder`.

    A world that stands is left as it is. A new one is built beside it and moved into place in one step, so that a crash
    leaves none or a whole one. None is the reference scenario. Raises ScenarioError for a scenario that cannot be used.
    """
    if (folder / "scenario.json").is_file():
        return
    source = scenario_folder(scenario)
    folder.parent.mkdir(parents=True, exist_ok=True)
    building = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        _build(load(source), source, building)
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
        building.replace(folder)
    finally:
        shutil.rmtree(building, ignore_errors=True)


def scenario_folder(scenario: str | Path | None) -> Path:
    """Where the scenario's files are: a folder that has a scenario.yaml, or a packaged scenario of this name."""
    if scenario is None:
        return packaged(REFERENCE_SCENARIO)
    if (Path(scenario) / "scenario.yaml").is_file():
        return Path(scenario)
    return packaged(str(scenario))


def known_good_files(scenario: str | Path | None = None) -> dict[str, str]:
    """The environment files of the scenario's known-good state: name to text."""
    folder = scenario_folder(scenario) / "known-good"
    return {path.name: path.read_text(encoding="utf-8") for path in sorted(folder.iterdir())} if folder.is_dir() else {}


def versions(folder: Path, environment: str) -> dict[str, str]:
    """What the environment runs on, by name; empty when it does not exist."""
    path = folder / "environments" / environment / "versions.json"
    if not path.is_file():
        return {}
    return {str(key): str(value) for key, value in json.loads(path.read_text(encoding="utf-8")).items()}


def create_environment(folder: Path, name: str) -> None:
    """Create an environment the scenario knows; one that exists is left alone.

    Raises ScenarioError for a name the scenario does not have.
    """
    target = folder / "environments" / name
    if target.is_dir():
        return
    scenario = load_compiled(folder / "scenario.json")
    if name not in scenario.environments:
        raise ScenarioError(f"the scenario has no environment {name!r}, only {', '.join(scenario.environments)}")
    building = target.with_name(f".{name}-new")
    shutil.rmtree(building, ignore_errors=True)
    _environment(scenario, folder / "template", building, name)
    building.replace(target)


def gpus(folder: Path) -> list[Gpu]:
    """The world's GPUs, with the memory that running simulated servers hold on them (GiB) and those servers' pids."""
    hardware = load_compiled(folder / "scenario.json").hardware
    held = holders(folder)
    return [
        Gpu(
            index=index,
            name=hardware.gpu,
            memory_total_gb=hardware.memory_gb,
            memory_used_gb=round(IDLE_GB + sum(one.gb for one in held if index < one.gpus), 2),
            compute_capability=hardware.compute_capability,
            holders=[one.pid for one in held if index < one.gpus],
        )
        for index in range(hardware.count)
    ]


def _build(scenario: Scenario, source: Path, folder: Path) -> None:
    (folder / "scenario.json").write_text(json.dumps(asdict(scenario), indent=1) + "\n", encoding="utf-8")
    for part in ("environments", "known-good"):
        if (source / part).is_dir():
            shutil.copytree(source / part, folder / "template" / part, ignore=shutil.ignore_patterns("__pycache__"))
    for name in scenario.environments_at_first:
        _environment(scenario, folder / "template", folder / "environments" / name, name)
    if (source / "checkout").is_dir():
        _checkout(source / "checkout", folder / "checkout")
    if scenario.last_session:
        for part in ("checkout", "environments"):
            _overlay(source / "last-session" / part, folder / part)
        _pending_launch(scenario.last_session, folder)


def _environment(scenario: Scenario, template: Path, target: Path, name: str) -> None:
    target.mkdir(parents=True)
    (target / "versions.json").write_text(json.dumps(scenario.environments[name], indent=1) + "\n", encoding="utf-8")
    _overlay(template / "environments" / name, target)


def _overlay(source: Path, target: Path) -> None:
    """Copy files over a folder, each with the same mode everywhere."""
    for path in sorted(source.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            destination = target / path.relative_to(source)
            destination.parent.mkdir(parents=True, exist_ok=True)
            destination.write_bytes(path.read_bytes())
            destination.chmod(0o644)


def _checkout(source: Path, target: Path) -> None:
    """A repository of one commit that has the same hash wherever it is made."""
    target.mkdir()
    _git(target, "init", "--quiet", "--template=", "--initial-branch=main", "--object-format=sha1")
    for key, value in (("core.autocrlf", "false"), ("core.fileMode", "false"), ("commit.gpgSign", "false")):
        _git(target, "config", key, value)
    _overlay(source, target)
    _git(target, "add", "--all")
    _git(target, "commit", "--quiet", "--no-verify", "--message", "SGLang as it was when the campaign began (stand-in)")


def _git(folder: Path, *words: str) -> None:
    """Run git with nobody's configuration and a fixed author and date. Raises ScenarioError with what it said."""
    name, _, address = AUTHOR.partition(" <")
    env = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    env |= {
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "HOME": str(folder),
        "TZ": "UTC",
        "LC_ALL": "C",
    }
    for role in ("AUTHOR", "COMMITTER"):
        env |= {f"GIT_{role}_NAME": name, f"GIT_{role}_EMAIL": address.rstrip(">"), f"GIT_{role}_DATE": BASE_DATE}
    with undisturbed():
        done = subprocess.run(["git", *words], cwd=folder, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ScenarioError(f"git {words[0]} failed: {done.stderr.strip()}")


def _pending_launch(last: LastSession, folder: Path) -> None:
    """The log of the launch the last session did not wait for: made by launching with what it left behind."""
    log = folder / PENDING_LOG
    log.parent.mkdir(parents=True, exist_ok=True)
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("NCCL_", "SGLANG_", "OPTAGENT_"))}
    package = Path(__file__).absolute().parents[3]
    env = kept | {
        "PYTHONPATH": os.pathsep.join([str(folder / "environments" / last.environment), str(package)]),
        "PYTHONDONTWRITEBYTECODE": "1",
        WORLD: str(folder),
        SOURCE: str(folder / "checkout"),
        LAUNCH: last.launch,
        CLOCK: last.at,
        SPEED: "1e9",
    }
    command = [sys.executable, "-m", "optagent.tools.simulator", *flag_arguments(last.flags)]
    with log.open("wb") as output:
        try:
            subprocess.run(command, env=env, stdout=output, stderr=output, timeout=60, check=False)
        except subprocess.TimeoutExpired:
            raise ScenarioError("the last session's launch did not end: its leftovers must make it fail") from None
    shutil.rmtree(folder / "gpu-holders", ignore_errors=True)
