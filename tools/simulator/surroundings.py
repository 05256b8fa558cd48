"""What the server process finds around itself: its environment's versions and variables, its world, its source."""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from optagent.tools.simulator.scenario import Scenario, load, load_compiled, packaged

WORLD = "OPTAGENT_SIMULATION"
SOURCE = "OPTAGENT_SIMULATION_SOURCE"
SPEED = "OPTAGENT_SIMULATION_SPEED"
CLOCK = "OPTAGENT_SIMULATION_CLOCK"
LAUNCH = "OPTAGENT_LAUNCH"
REFERENCE_SCENARIO = "kimi-k2.5-8x-rtx-pro-6000"

SOURCE_FILES = {
    "communicator": "python/sglang/srt/distributed/communicator.py",
    "custom_all_reduce": "python/sglang/srt/distributed/device_communicators/custom_all_reduce.py",
    "eagle_worker": "python/sglang/srt/speculative/eagle_worker.py",
    "server_args": "python/sglang/srt/server_args.py",
}
"""The files of a checkout the simulator looks at."""


@dataclass(frozen=True)
class SourceSeen:
    """The constants of the checkout's files by name; `broken` is the first file that does not parse, and why."""

    constants: dict[str, Any] = field(default_factory=dict)
    broken: tuple[str, SyntaxError] | None = None

    def flag(self, name: str, default: bool) -> bool:
        return bool(self.constants.get(name, default))

    def number(self, name: str, default: int) -> int:
        value = self.constants.get(name, default)
        return value if isinstance(value, int) else default


@dataclass(frozen=True)
class Surroundings:
    scenario: Scenario
    world: Path | None
    versions: dict[str, str]
    env: dict[str, str]
    source: SourceSeen
    launch: str

    @property
    def cuda(self) -> tuple[int, int]:
        major, _, minor = self.versions["cuda"].partition(".")
        return int(major), int(minor or 0)


def look_around(env: Mapping[str, str]) -> Surroundings:
    """Read everything once, at the start of the process. Python has imported `sitecustomize` by then."""
    world = Path(env[WORLD]) if env.get(WORLD) else None
    scenario = load_compiled(world / "scenario.json") if world else load(packaged(REFERENCE_SCENARIO))
    checkout = env.get(SOURCE)
    return Surroundings(
        scenario=scenario,
        world=world,
        versions=find_versions(scenario, sys.path),
        env=dict(env),
        source=read_source(Path(checkout)) if checkout else SourceSeen(),
        launch=env.get(LAUNCH) or "0",
    )


def find_versions(scenario: Scenario, search: list[str]) -> dict[str, str]:
    """The environment's `versions.json`: the first on the search path, or the scenario's own for its baseline."""
    for folder in search:
        path = Path(folder) / "versions.json"
        if folder and path.is_file():
            return {str(key): str(value) for key, value in json.loads(path.read_text(encoding="utf-8")).items()}
    return dict(scenario.environments[scenario.environment])


def read_source(checkout: Path) -> SourceSeen:
    """The constants of the files that are there. Nothing of the checkout is executed."""
    constants: dict[str, Any] = {}
    for relative in SOURCE_FILES.values():
        path = checkout / relative
        if not path.is_file():
            continue
        try:
            constants |= module_constants(path.read_text(encoding="utf-8"), relative)
        except SyntaxError as error:
            return SourceSeen(constants, (relative, error))
    return SourceSeen(constants)


def module_constants(text: str, name: str = "<source>") -> dict[str, Any]:
    """The module-level assignments of plain values: literals, and arithmetic on numbers."""
    found: dict[str, Any] = {}
    for node in ast.parse(text, name).body:
        if isinstance(node, ast.Assign):
            targets, value = node.targets, node.value
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            targets, value = [node.target], node.value
        else:
            continue
        try:
            plain = plain_value(value)
        except ValueError:
            continue
        found |= {target.id: plain for target in targets if isinstance(target, ast.Name)}
    return found


def plain_value(node: ast.expr) -> Any:
    """The value of a literal or of +, -, *, // on integers. Raises ValueError for anything else."""
    if isinstance(node, ast.BinOp):
        left, right = plain_value(node.left), plain_value(node.right)
        if isinstance(left, int) and isinstance(right, int):
            if isinstance(node.op, ast.Mult):
                return left * right
            if isinstance(node.op, ast.Add):
                return left + right
            if isinstance(node.op, ast.Sub):
                return left - right
            if isinstance(node.op, ast.FloorDiv) and right:
                return left // right
        raise ValueError("not a plain value")
    return ast.literal_eval(node)
