"""What a step of the simulated server costs. Pure functions; microseconds where a name ends in `_us`.

A decode step of a mixture-of-experts model with MLA attention under tensor parallelism is the sum of its MoE kernels,
its attention, two all-reduces a layer, and a rest (other GEMMs, output head, norms, sampling, gaps between launches).
Bottom-up from measured kernels this gives 10.3-11.3 ms for one stream at 2k context; 82-92 tok/s were measured end to
end. The scenario's `launch_gap_us` closes what is left between the two.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass, replace

from optagent.tools.simulator import roofline
from optagent.tools.simulator.scenario import Costs, Model, Shape, Speeds
from optagent.tools.simulator.setup import AllReduce, Setup, Speculation
from optagent.tools.simulator.tables import ALL_REDUCE_NCCL_US, MOE_EP_US, MOE_TP_US, interpolate, mla_us

BYTES_PER_ELEMENT = 2
NO_PEER_TO_PEER_US = 54.0
"""Extra latency of an all-reduce through host memory: an untuned host gives about 40 tok/s instead of 65 and more."""

FUSION_FACTOR = 0.80
"""What is left of an all-reduce fused with residual add and RMSNorm (assumed: one launch, one pass over memory less)."""

ATTENTION_FACTOR = {"triton": 1.0, "flashinfer": 0.95, "torch_native": 6.0}
VERIFY_IN_PREFILL_KERNEL = 1.4
"""A verify step through the prefill kernel against the decode kernel, for the few tokens a request has (assumed)."""

FP8_KV_US = 820.0
"""Extra per layer and step with an fp8 KV cache under INT4 weights: a slow path, 16 tok/s were reported."""


ALL_TO_ALL_US = 70.0
"""Extra of a MoE layer whose tokens are sent to their experts and back over PCIe (assumed: two small exchanges)."""

HIDDEN_HOST = 0.75
"""The part of the scheduler's work on the host that runs beside the GPU's at best (assumed)."""
PREFILL_KERNELS_A_LAYER = 12
RADIX_SHARE = 0.15
"""What keeping the prefix tree adds to the scheduler's work (assumed)."""


@dataclass(frozen=True)
class StepCost:
    """One step's parts, in microseconds."""

    moe_us: float
    attention_us: float
    all_reduce_us: float
    gemm_us: float
    launch_us: float
    graph_us: float
    draft_us: float = 0.0
    host_us: float = 0.0

    @property
    def total_us(self) -> float:
        return (
            self.moe_us + self.attention_us + self.all_reduce_us + self.gemm_us
            + self.launch_us + self.graph_us + self.draft_us + self.host_us
        )  # fmt: skip


def all_reduce_us(elements: float, how: AllReduce) -> float:
    """One all-reduce of `elements` bf16 values over the 8 GPUs."""
    size = elements * BYTES_PER_ELEMENT
    if how.algorithm != "nccl" and size <= how.max_bytes:
        latency = peer_memory_us(size, how)
    else:
        latency = nccl_us(elements, how)
    if how.fused and size <= how.fused_max_bytes:
        latency *= FUSION_FACTOR
    return latency


def peer_memory_us(size_bytes: float, how: AllReduce) -> float:
    """A one-shot kernel over peer-to-peer memory on PCIe: small messages fast, large ones slow.

    Measured points on 8 GPUs: 14 KB 11.8 us, 172 KB 59 us, 458 KB 147 us for a one-stage kernel with an add, to which a
    cross-NUMA penalty of some 2 us is added here; 12 KB 5.3 us and 96 KB 15.3 us for SGLang's tuned PCIe IPC kernel.
    """
    kib = size_bytes / 1024
    if how.algorithm == "pcie-ipc":
        return 7.0 + 0.12 * kib
    return 10.0 + 0.33 * min(kib, 128.0) + 0.27 * max(0.0, kib - 128.0)


def nccl_us(elements: float, how: AllReduce) -> float:
    """NCCL's all-reduce. Channels only matter to messages that are limited by bandwidth, protocols likewise.

    LL128 gave +12 % at 32 streams over the default, and no gain at one.
    """
    latency = interpolate(ALL_REDUCE_NCCL_US, elements)
    bandwidth_bound = min(1.0, max(0.0, (elements - 65536) / 983040))
    if how.channels < 8:
        latency *= 1.0 + 0.15 * bandwidth_bound * (8 / how.channels - 1.0)
    if how.protocols and "LL" not in how.protocols:
        latency += 3.0
    if "LL128" in how.protocols or "Simple" in how.protocols:
        latency *= 1.0 - 0.22 * min(1.0, max(0.0, (elements - 65536) / 131072))
    if not how.peer_to_peer:
        latency += NO_PEER_TO_PEER_US
    return latency


def padded_batch(setup: Setup, batch: int) -> tuple[int, bool]:
    """The batch a step is run with, and whether a captured graph serves it (a graph pads up to its own batch)."""
    sizes = setup.graph_sizes
    if not sizes or batch > sizes[-1]:
        return batch, False
    return sizes[bisect_left(sizes, batch)], True


def target_step(model: Model, costs: Costs, setup: Setup, batch: int, context: float, per_request: int = 1) -> StepCost:
    """One forward pass of the target for `batch` requests of `context` tokens, `per_request` new tokens each.

    `graph_us` grows with the largest captured batch. That it does is measured (512 -> 128 gave 82 -> 89.5 tok/s in one
    stream); the mechanism is an **assumption** here: every replay refreshes static input, page-table and output buffers
    sized for the largest captured batch, and the allocator's remaining room shrinks with them. The campaign that
    measured it put it down to freed memory.
    """
    if model.shape is not None and costs.speeds is not None:
        return _computed_step(model, model.shape, costs, costs.speeds, setup, batch, context, per_request)
    size, in_graph = padded_batch(setup, batch)
    tokens = size * per_request
    moe = MOE_EP_US if setup.ep_size > 1 else MOE_TP_US
    attention = mla_us(size, context) * ATTENTION_FACTOR.get(setup.attention_backend, 1.0)
    if per_request > 1 and setup.speculation and setup.speculation.attention_mode == "prefill":
        attention *= VERIFY_IN_PREFILL_KERNEL
    if setup.kv_dtype.startswith("fp8"):
        attention += FP8_KV_US
    native = costs.native_kernel_factor if setup.native_kernels else 1.0
    compiled = native * (0.97 if setup.torch_compile else 1.0)
    return StepCost(
        moe_us=model.moe_layers * (interpolate(moe, tokens) * native + (ALL_TO_ALL_US if setup.all_to_all else 0.0)),
        attention_us=model.layers * attention,
        all_reduce_us=2 * model.layers * all_reduce_us(tokens * model.hidden_size, setup.all_reduce),
        gemm_us=costs.gemm_us * (1 + tokens / 400) * compiled,
        launch_us=costs.launch_gap_us + 4.0 * batch + (0.0 if in_graph else costs.eager_us),
        graph_us=costs.graph_slot_us * setup.graph_max_bs,
    )


def decode_step(model: Model, costs: Costs, setup: Setup, batch: int, context: float) -> StepCost:
    """One decode iteration: a plain step, or drafting and verifying with speculation."""
    how = setup.speculation
    if how is None:
        return target_step(model, costs, setup, batch, context)
    verify = target_step(model, costs, setup, batch, context, how.verify_tokens)
    return StepCost(
        moe_us=verify.moe_us,
        attention_us=verify.attention_us,
        all_reduce_us=verify.all_reduce_us,
        gemm_us=verify.gemm_us,
        launch_us=verify.launch_us,
        graph_us=verify.graph_us,
        draft_us=draft_us(model, costs, setup, how, batch, context),
        host_us=verify.host_us
        + costs.host_us
        + (costs.host_sync_us if how.sync_host or how.algorithm == "NGRAM" else 0.0),
    )


def draft_us(model: Model, costs: Costs, setup: Setup, how: Speculation, batch: int, context: float) -> float:
    """The draft steps of one iteration: a one-layer model each, with its own two all-reduces. None for n-grams."""
    if how.algorithm == "NGRAM":
        return 0.0
    if model.shape is not None and costs.speeds is not None:
        share = math.ceil(batch / setup.replicas)
        layer = replace(model, layers=1, moe_layers=0)
        attention = roofline.attention_us(model, model.shape, costs.speeds, setup, share, context, 1)
        reduce = roofline.all_reduces_us(layer, costs.speeds, setup, share * how.topk)
        return how.steps * (costs.draft_step_us + attention + reduce + 2.0 * share * how.topk)
    tokens = batch * how.topk
    reduces = 2 * all_reduce_us(tokens * model.hidden_size, setup.all_reduce)
    return how.steps * (costs.draft_step_us + mla_us(batch, context) + reduces + 2.0 * tokens)


def prefill_s(model: Model, costs: Costs, setup: Setup, new_tokens: int, context: float) -> float:
    """A prefill forward pass over `new_tokens` behind `context` cached ones, in seconds.

    Fits 7.3k tok/s at 8k and 4.8k tok/s at 128k. Three fifths of the per-token cost are all-reduces of long messages.
    """
    if model.shape is not None and costs.speeds is not None:
        return _computed_prefill_s(model, model.shape, costs, costs.speeds, setup, new_tokens, context)
    elements = float(min(new_tokens, setup.chunked_prefill_size) * model.hidden_size)
    slower = all_reduce_us(elements, setup.all_reduce) / all_reduce_us(elements, AllReduce())
    per_token = costs.prefill_us_per_token * (0.4 + 0.6 * slower)
    attention = new_tokens * (context + new_tokens / 2) * 1.12e-9
    return costs.prefill_fixed_s + new_tokens * per_token * 1e-6 + attention


def _computed_step(
    model: Model,
    shape: Shape,
    costs: Costs,
    speeds: Speeds,
    setup: Setup,
    batch: int,
    context: float,
    per_request: int,
) -> StepCost:
    """A forward pass of a model with a shape: the fullest replica's, whose time is that of all."""
    share = math.ceil(batch / setup.replicas)
    size, in_graph = padded_batch(setup, share)
    if in_graph and not setup.graph_padding:
        size, in_graph = share, size == share
    tokens = size * per_request
    attention = roofline.attention_us(model, shape, speeds, setup, size, context, per_request)
    if per_request > 1 and setup.speculation and setup.speculation.attention_mode == "prefill":
        attention *= VERIFY_IN_PREFILL_KERNEL
    compiled = in_graph and size in setup.compiled_sizes
    gaps = costs.launch_gap_us * (roofline.COMPILED_GAPS if compiled else 1.0)
    step = StepCost(
        moe_us=roofline.moe_us(model, shape, speeds, setup, tokens),
        attention_us=model.layers * attention,
        all_reduce_us=roofline.all_reduces_us(model, speeds, setup, tokens),
        gemm_us=roofline.gemms_us(model, shape, speeds, setup, tokens) * (roofline.COMPILED_GEMM if compiled else 1.0),
        launch_us=gaps + (0.0 if in_graph else costs.eager_us),
        graph_us=costs.graph_slot_us * setup.graph_max_bs,
    )
    return replace(step, host_us=_seen_host_us(costs, setup, share, step.total_us))


def _seen_host_us(costs: Costs, setup: Setup, batch: int, gpu_us: float) -> float:
    """What of the host's work before and after a step is not hidden behind the GPU's: scheduling, attention's plan, and
    sending out tokens, which is done once in `stream_interval` steps."""
    work = costs.schedule_us + batch * (costs.request_us + costs.stream_us / setup.stream_interval)
    work += costs.attention_plan_us * roofline.PLAN_FACTOR.get(setup.attention_backend, 0.5)
    if setup.radix_cache:
        work += RADIX_SHARE * costs.schedule_us
    return max(work - gpu_us, work * (1 - HIDDEN_HOST)) if setup.overlap else work


def _computed_prefill_s(
    model: Model, shape: Shape, costs: Costs, speeds: Speeds, setup: Setup, new_tokens: int, context: float
) -> float:
    """A prefill pass of a model with a shape over `new_tokens`, which the replicas share."""
    tokens = new_tokens / setup.replicas
    us = roofline.gemms_us(model, shape, speeds, setup, tokens) + roofline.moe_us(model, shape, speeds, setup, tokens)
    us += roofline.prefill_attention_us(model, shape, speeds, setup, tokens, context)
    us += roofline.all_reduces_us(model, speeds, setup, tokens)
    us += model.layers * PREFILL_KERNELS_A_LAYER * roofline.KERNEL_US
    return costs.prefill_fixed_s + us * 1e-6
