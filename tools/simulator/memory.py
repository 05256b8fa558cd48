"""Where a GPU's memory goes during a launch. Pure; GiB per GPU, as SGLang's log prints (it writes GB)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from optagent.tools.simulator import roofline
from optagent.tools.simulator.scenario import Costs, Faults, Hardware, Model
from optagent.tools.simulator.setup import Setup

GIB = 1024**3
CAPTURE_RESERVE_GB = 0.5
"""What a capture needs beside its graphs: workspaces of the first forward pass."""
SYMMETRIC_GB = 4.0
"""What NCCL sets aside for symmetric memory before it is used."""
LARGE_GPU_GB = 60
"""From this size on SGLang leaves 10 GB free at least."""


@dataclass(frozen=True)
class Shortage:
    """The first thing that did not fit. `needed_gb` is None when the static share does not even hold the weights."""

    phase: Literal["weight-load", "memory-pool", "graph-capture"]
    needed_gb: float | None
    free_gb: float


@dataclass(frozen=True)
class MemoryPlan:
    """Free memory after each phase, never negative; with `shortage` the later figures repeat the last that fitted."""

    at_start_gb: float
    after_weights_gb: float
    after_draft_gb: float
    after_pool_gb: float
    after_capture_gb: float
    weights_gb: float
    kv_tokens: int
    kv_gb: float
    graph_gb: float
    shortage: Shortage | None = None


def default_fraction(hardware: Hardware, setup_chunk: int, tp_size: int, graph_max_bs: int) -> float:
    """SGLang's own --mem-fraction-static: leaves room for activations, chunked prefill and graphs, 10 GB on large GPUs."""
    least_mib = 10 * 1024.0 if hardware.memory_gb > LARGE_GPU_GB else 0.0
    reserved_mib = max(least_mib, 512 + 1.5 * setup_chunk + 1024 * tp_size / 8 + 8 * graph_max_bs)
    return round(1.0 - reserved_mib / 1024 / hardware.memory_gb, 3)


def kv_bytes_per_token(model: Model, setup: Setup) -> float:
    """What one token of context takes on a GPU, the draft model's share included."""
    whole = float(model.kv_bytes_per_token)
    if model.shape is not None:
        whole = roofline.kv_bytes_per_token(model, model.shape, setup.tp_size, setup.attn_dp)
    target = whole * (0.5 if setup.kv_dtype.startswith("fp8") else 1.0)
    return target + (model.draft_kv_bytes_per_token if uses_draft(setup) else 0.0)


def uses_draft(setup: Setup) -> bool:
    return setup.speculation is not None and setup.speculation.algorithm != "NGRAM"


def graph_gb(costs: Costs, setup: Setup) -> float:
    """What the captured graphs take: it grows with the largest batch, and with the tokens of a verify step."""
    if setup.graph_max_bs == 0:
        return 0.0
    wider = 1.0 + 0.15 * (setup.speculation.verify_tokens - 1) if setup.speculation else 1.0
    return costs.graph_fixed_gb + costs.graph_gb_per_slot * setup.graph_max_bs * wider


def plan_memory(
    hardware: Hardware, model: Model, costs: Costs, faults: Faults, setup: Setup, taken_gb: float = 0.0
) -> MemoryPlan:
    """The memory of one GPU through a launch; `taken_gb` is what other processes hold there."""
    start = max(0.0, hardware.memory_gb - hardware.context_gb - taken_gb)
    weights = weights_gb(model, setup)
    draft = model.draft_weights_gb if uses_draft(setup) else 0.0
    graphs = graph_gb(costs, setup)
    if weights + draft > start:
        short = Shortage("weight-load", weights + draft, start)
        return MemoryPlan(start, start, start, start, start, weights, 0, 0.0, graphs, short)
    loaded = start - weights
    drafted = loaded - draft
    tokens = _kv_tokens(model, setup, drafted - start * (1 - setup.mem_fraction_static))
    if tokens <= 0:
        short = Shortage("memory-pool", None, drafted)
        return MemoryPlan(start, loaded, drafted, drafted, drafted, weights, 0, 0.0, graphs, short)
    kv = tokens * kv_bytes_per_token(model, setup) / GIB
    extra = (faults.all_to_all_gb if setup.all_to_all else 0.0) + symmetric_gb(setup)
    if kv + extra > drafted:
        short = Shortage("memory-pool", extra, max(0.0, drafted - kv))
        return MemoryPlan(start, loaded, drafted, drafted, drafted, weights, tokens, kv, graphs, short)
    pooled = drafted - kv - extra
    if graphs and graphs + CAPTURE_RESERVE_GB > pooled:
        short = Shortage("graph-capture", graphs, pooled)
        return MemoryPlan(start, loaded, drafted, pooled, pooled, weights, tokens, kv, graphs, short)
    return MemoryPlan(start, loaded, drafted, pooled, pooled - graphs, weights, tokens, kv, graphs)


def _kv_tokens(model: Model, setup: Setup, room_gb: float) -> int:
    tokens = int(room_gb * GIB / kv_bytes_per_token(model, setup))
    if setup.max_total_tokens is not None:
        tokens = min(tokens, setup.max_total_tokens)
    return tokens // setup.page_size * setup.page_size


def weights_gb(model: Model, setup: Setup) -> float:
    """The target's weights on a GPU. Groups that are parallel over attention's data each hold all of its weights."""
    share = model.weights_gb * 8 / setup.tp_size
    if model.shape is None or setup.attn_dp < 2:
        return share
    attention = roofline.attention_weights(model, model.shape) * model.layers * model.shape.bytes_per_weight / GIB
    return share + attention * (setup.attn_dp - 1) / setup.tp_size


def symmetric_gb(setup: Setup) -> float:
    return SYMMETRIC_GB if setup.all_reduce.algorithm == "symmetric" else 0.0


def most_prefill_tokens(costs: Costs, plan: MemoryPlan) -> int | None:
    """The largest prefill batch (in tokens of one replica) whose activations find room; None when any does."""
    if not costs.activation_gb_per_1k_tokens:
        return None
    return int(1024 * plan.after_capture_gb / costs.activation_gb_per_1k_tokens)
