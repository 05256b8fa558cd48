"""A scenario: the hardware, software, model, costs, noise and faults a simulated deployment has.

`scenarios/README.md` describes every key. A scenario is written as YAML and compiled to JSON when a world is laid out,
so that the server process reads it without a YAML parser.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

Value = TypeVar("Value")


class ScenarioError(ValueError):
    """The scenario file cannot be used; the message names the key."""


@dataclass(frozen=True)
class Hardware:
    gpu: str
    count: int
    compute_capability: str
    memory_gb: float
    context_gb: float
    nvlink: bool = False
    multicast: bool = False

    @property
    def capability(self) -> tuple[int, int]:
        major, minor = self.compute_capability.split(".")
        return int(major), int(minor)


@dataclass(frozen=True)
class Model:
    """Sizes are per GPU, in GiB; `kv_bytes_per_token` is what one token of context takes on every GPU."""

    name: str
    architecture: str
    context_len: int
    hidden_size: int
    layers: int
    moe_layers: int
    weights_gb: float
    kv_bytes_per_token: int
    draft_weights_gb: float
    draft_kv_bytes_per_token: int
    shards: int
    load_gb_per_s: float


@dataclass(frozen=True)
class Costs:
    """What the cost model cannot read from a table. Times per decode step in microseconds where the name says us."""

    native_kernel_factor: float
    gemm_us: float
    launch_gap_us: float
    eager_us: float
    graph_slot_us: float
    draft_step_us: float
    host_sync_us: float
    host_us: float
    prefill_fixed_s: float
    prefill_us_per_token: float
    graph_fixed_gb: float
    graph_gb_per_slot: float
    accept_real: float
    accept_random: float
    accept_ngram_real: float
    accept_ngram_random: float


@dataclass(frozen=True)
class Noise:
    """Standard deviations of the logarithm of a launch's and of a run's durations."""

    launch_sd: float = 0.0
    run_sd: float = 0.0


@dataclass(frozen=True)
class Injected:
    """A fault that hits launches whose key matches `launch` (a shell pattern) for no reason of their configuration.

    `kind` is "hang" or "killed" in `phase`, "slow" (all durations times `factor`), or "corrupt": it serves, and what it
    says is wrong.
    """

    launch: str
    kind: str
    phase: str = "weight-load"
    factor: float = 1.0


@dataclass(frozen=True)
class Faults:
    fusion_needs_cuda: str = "13.0"
    tree_breaks_capture: bool = True
    all_to_all_gb: float = 10.5
    injected: tuple[Injected, ...] = ()


@dataclass(frozen=True)
class LastSession:
    """What the last session left behind: when and with which flags its pending launch was started."""

    at: str
    environment: str
    launch: str
    flags: dict[str, bool | int | float | str] = field(default_factory=dict)


@dataclass(frozen=True)
class Scenario:
    name: str
    seed: int
    speed: float
    hardware: Hardware
    environments: dict[str, dict[str, str]]
    environment: str
    environments_at_first: tuple[str, ...]
    model: Model
    costs: Costs
    cold_first_cell: float = 1.0
    noise: Noise = Noise()
    faults: Faults = Faults()
    last_session: LastSession | None = None


def scenario_from(body: Mapping[str, Any]) -> Scenario:
    """The scenario a parsed file describes. Raises ScenarioError for a key that is unknown or missing."""
    top = dict(body)
    faults = dict(top.get("faults") or {})
    faults["injected"] = tuple(_build(Injected, one, "faults.injected") for one in faults.get("injected") or ())
    top["faults"] = _build(Faults, faults, "faults")
    for key, kind in (("hardware", Hardware), ("model", Model), ("costs", Costs), ("noise", Noise)):
        if key in top:
            top[key] = _build(kind, top[key], key)
    if top.get("last_session"):
        top["last_session"] = _build(LastSession, top["last_session"], "last_session")
    top["environments_at_first"] = tuple(top.get("environments_at_first") or (top.get("environment", ""),))
    return _build(Scenario, top, "scenario")


def load_compiled(path: Path) -> Scenario:
    """The scenario in a JSON file that `world.lay_out` wrote."""
    return scenario_from(json.loads(path.read_text(encoding="utf-8")))


def packaged(name: str) -> Path:
    """The folder of a scenario that ships with optagent. Raises ScenarioError when there is none of this name."""
    folder = Path(__file__).parent / "scenarios" / name
    if not (folder / "scenario.yaml").is_file():
        raise ScenarioError(f"no packaged scenario is called {name!r}")
    return folder


def load(folder: Path) -> Scenario:
    """The scenario of a folder with a `scenario.yaml`."""
    import yaml  # only where a scenario is compiled, never in the server process

    return scenario_from(yaml.safe_load((folder / "scenario.yaml").read_text(encoding="utf-8")))


def _build(kind: type[Value], body: Any, where: str) -> Value:
    if not isinstance(body, Mapping):
        raise ScenarioError(f"{where}: expected keys and values, found {type(body).__name__}")
    known = {one.name for one in fields(kind)}  # type: ignore[arg-type]
    unknown = sorted(set(body) - known)
    if unknown:
        raise ScenarioError(f"{where}: unknown key {unknown[0]!r}")
    try:
        return kind(**body)
    except TypeError as error:
        raise ScenarioError(f"{where}: {error}") from error
