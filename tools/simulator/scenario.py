"""A scenario: the hardware, software, model, costs, noise and faults a simulated deployment has.

`scenarios/README.md` describes every key. A scenario is written as YAML and compiled to JSON when a world is laid out,
so that the server process reads it without a YAML parser.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, TypeVar

Value = TypeVar("Value")

PHASES_BEFORE_SERVING = ("arguments", "distributed-init", "weight-load", "memory-pool", "graph-capture", "warmup")


class ScenarioError(ValueError):
    """The scenario file cannot be used; the message names the key."""


@dataclass(frozen=True)
class Hardware:
    """`peer_to_peer`: GPUs reach each other without NCCL_P2P_LEVEL; with NVLink they always do."""

    gpu: str
    count: int
    compute_capability: str
    memory_gb: float
    context_gb: float
    nvlink: bool = False
    multicast: bool = False
    peer_to_peer: bool = False

    @property
    def capability(self) -> tuple[int, int]:
        major, minor = self.compute_capability.split(".")
        return int(major), int(minor)


@dataclass(frozen=True)
class Shape:
    """A model whose kernels have no measured tables, by its sizes: those of the whole model, not of a GPU's share.

    `mla_rank` is the elements of a token's latent in each layer (0: keys and values of `kv_heads`). Layers that are no MoE
    layers have an MLP of `intermediate`; MoE layers have `experts` of `expert_intermediate`, of which each token takes
    `experts_per_token`, and a shared expert of `shared_intermediate`.
    """

    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocabulary: int
    bytes_per_weight: float = 2.0
    mla_rank: int = 0
    experts: int = 0
    experts_per_token: int = 0
    expert_intermediate: int = 0
    shared_intermediate: int = 0


@dataclass(frozen=True)
class Model:
    """Sizes are per GPU under tensor parallelism 8, in GiB; `kv_bytes_per_token` is what one token of context takes on
    every GPU. With a `shape` it is not given, but follows from that."""

    name: str
    architecture: str
    context_len: int
    hidden_size: int
    layers: int
    moe_layers: int
    weights_gb: float
    shards: int
    load_gb_per_s: float
    kv_bytes_per_token: int = 0
    draft_weights_gb: float = 0.0
    draft_kv_bytes_per_token: int = 0
    shape: Shape | None = None


@dataclass(frozen=True)
class Link:
    """NCCL's all-reduce over `gpus` of these GPUs: the latency of a small message, and the bus bandwidth of a large one
    (NCCL's own busbw: bytes times 2 (n - 1) / n over the time)."""

    gpus: int
    latency_us: float
    gb_s: float


@dataclass(frozen=True)
class Speeds:
    """What kernels reach on a GPU, which is less than the data sheet says.

    `moe_triton_factor` is how much longer Triton's MoE kernel takes where it has no tuned configuration for the GPU.
    `channels_gain` is the share of a large message's time that NCCL saves with 8 channels at least.
    """

    memory_gb_s: float
    tflops: float
    links: tuple[Link, ...] = ()
    moe_triton_factor: float = 1.0
    channels_gain: float = 0.0


@dataclass(frozen=True)
class Costs:
    """What the cost model cannot read from a table. Times per decode step in microseconds where the name says us."""

    launch_gap_us: float
    eager_us: float
    graph_slot_us: float
    prefill_fixed_s: float
    graph_fixed_gb: float
    graph_gb_per_slot: float
    native_kernel_factor: float = 1.0
    gemm_us: float = 0.0
    draft_step_us: float = 0.0
    host_sync_us: float = 0.0
    host_us: float = 0.0
    prefill_us_per_token: float = 0.0
    accept_real: float = 0.0
    accept_random: float = 0.0
    accept_ngram_real: float = 0.0
    accept_ngram_random: float = 0.0
    schedule_us: float = 0.0
    request_us: float = 0.0
    stream_us: float = 0.0
    attention_plan_us: float = 0.0
    activation_gb_per_1k_tokens: float = 0.0
    capture_s_per_graph: float = 1.2
    compile_s_per_graph: float = 0.0
    speeds: Speeds | None = None


@dataclass(frozen=True)
class Noise:
    """Standard deviations of the logarithm of a launch's and of a run's durations."""

    launch_sd: float = 0.0
    run_sd: float = 0.0


@dataclass(frozen=True)
class Scheduling:
    """How requests are admitted.

    `reserve` "all": a request is admitted when the KV cache holds everything that it and those that run may still
    produce. "estimated": as SGLang does it, by an estimate of what those that run will produce, and when that was too
    little, requests are put back. With `prefix_sharing` a prompt need not be prefilled as far as an earlier one began
    alike; without, only a prompt that is the same as a whole.
    """

    reserve: Literal["all", "estimated"] = "all"
    prefix_sharing: bool = False


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
class Conflict:
    """A fault of every launch that has all of these `flags` and environment variables (`env`), beside what the model of
    the server knows by itself.

    `kind` is "hang" or "killed" in `phase`, or "error": a rank dies in `phase` with the exception `error`. Flags are
    named as on the command line, without dashes in front; a switch has the value true.
    """

    kind: Literal["hang", "killed", "error"]
    phase: str
    flags: dict[str, bool | int | float | str] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    error: str = ""

    def __post_init__(self) -> None:
        if self.phase not in PHASES_BEFORE_SERVING:
            known = ", ".join(PHASES_BEFORE_SERVING)
            raise ScenarioError(f"faults.conflicts: phase must be one of {known}, not {self.phase!r}")
        if self.kind == "error" and ": " not in self.error:
            raise ScenarioError(
                "faults.conflicts: error must be an exception as Python prints it, such as 'OSError: no room'"
            )


@dataclass(frozen=True)
class Faults:
    fusion_needs_cuda: str = "13.0"
    tree_breaks_capture: bool = True
    all_to_all_gb: float = 10.5
    injected: tuple[Injected, ...] = ()
    conflicts: tuple[Conflict, ...] = ()


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
    scheduling: Scheduling = Scheduling()
    faults: Faults = Faults()
    last_session: LastSession | None = None


NEEDED_WITHOUT_SHAPE = (
    "native_kernel_factor", "gemm_us", "draft_step_us", "host_sync_us", "host_us", "prefill_us_per_token", "accept_real",
    "accept_random", "accept_ngram_real", "accept_ngram_random",
)  # fmt: skip
"""Costs that are measured together with the tables, and mean nothing where times are computed from a shape."""


def scenario_from(body: Mapping[str, Any]) -> Scenario:
    """The scenario a parsed file describes. Raises ScenarioError for a key that is unknown or missing."""
    top = dict(body)
    faults = dict(top.get("faults") or {})
    faults["injected"] = tuple(_build(Injected, one, "faults.injected") for one in faults.get("injected") or ())
    faults["conflicts"] = tuple(_build(Conflict, one, "faults.conflicts") for one in faults.get("conflicts") or ())
    top["faults"] = _build(Faults, faults, "faults")
    for key, kind in (("hardware", Hardware), ("noise", Noise), ("scheduling", Scheduling)):
        if key in top:
            top[key] = _build(kind, top[key] or {}, key)
    if "model" in top and "costs" in top:
        top["model"], top["costs"] = _model_and_costs(top["model"], top["costs"])
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


def _model_and_costs(model: Any, costs: Any) -> tuple[Model, Costs]:
    """Times come from measured tables, or from the model's shape and the GPU's speeds, which go together."""
    model, costs = _mapping(model, "model"), _mapping(costs, "costs")
    shaped, speedy = model.get("shape") is not None, costs.get("speeds") is not None
    if shaped != speedy:
        raise ScenarioError("model.shape and costs.speeds go together: one of them is missing")
    if shaped:
        model["shape"] = _build(Shape, model["shape"], "model.shape")
        speeds = _mapping(costs["speeds"], "costs.speeds")
        speeds["links"] = tuple(_build(Link, one, "costs.speeds.links") for one in speeds.get("links") or ())
        costs["speeds"] = _build(Speeds, speeds, "costs.speeds")
    else:
        _demand(model, ("kv_bytes_per_token", "draft_weights_gb", "draft_kv_bytes_per_token"), "model")
        _demand(costs, NEEDED_WITHOUT_SHAPE, "costs")
    return _build(Model, model, "model"), _build(Costs, costs, "costs")


def _demand(body: Mapping[str, Any], keys: tuple[str, ...], where: str) -> None:
    if missing := [key for key in keys if key not in body]:
        raise ScenarioError(f"{where}: {missing[0]!r} is missing (it is needed without model.shape)")


def _mapping(body: Any, where: str) -> dict[str, Any]:
    if not isinstance(body, Mapping):
        raise ScenarioError(f"{where}: expected keys and values, found {type(body).__name__}")
    return dict(body)


def _build(kind: type[Value], body: Any, where: str) -> Value:
    body = _mapping(body, where)
    known = {one.name for one in fields(kind)}  # type: ignore[arg-type]
    unknown = sorted(set(body) - known)
    if unknown:
        raise ScenarioError(f"{where}: unknown key {unknown[0]!r}")
    try:
        return kind(**body)
    except TypeError as error:
        raise ScenarioError(f"{where}: {error}") from error
