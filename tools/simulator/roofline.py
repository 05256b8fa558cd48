"""What the kernels of a model without measured tables cost, by its shape and the speeds of GPU and links. Pure.

Every kernel takes the larger of the time its bytes take and the time its arithmetic takes, with a soft corner between the
two (the roofline of Williams, Waterman and Patterson, 2009), and never less than a few microseconds. Speeds are those that
kernels reach. Times in microseconds. What a constant below says is assumed, not measured, unless it names its source.
"""

from __future__ import annotations

import math

from optagent.tools.simulator.scenario import Link, Model, Shape, Speeds
from optagent.tools.simulator.setup import AllReduce, Setup

BYTES_PER_ELEMENT = 2
KERNEL_US = 2.0
"""Least time of a kernel that a captured graph replays."""
GEMMS_A_LAYER = 4
ATTENTION_KERNEL_US = 5.0

ATTENTION_FACTOR = {
    "fa3": 0.88, "fa4": 0.80, "flashinfer": 1.0, "triton": 1.15, "trtllm_mha": 0.80, "trtllm_mla": 0.75, "flashmla": 0.80,
    "cutlass_mla": 0.85, "flex_attention": 1.8, "torch_native": 6.0,
}  # fmt: skip
"""Decode attention over what FlashInfer takes, where the backend runs at all."""
PREFILL_FACTOR = {
    "fa3": 0.75, "fa4": 0.65, "flashinfer": 1.0, "triton": 1.35, "trtllm_mha": 0.75, "trtllm_mla": 0.75, "flashmla": 0.9,
    "cutlass_mla": 0.9, "flex_attention": 2.0, "torch_native": 8.0,
}  # fmt: skip
PLAN_FACTOR = {"flashinfer": 1.0, "triton": 0.35, "fa3": 0.2, "fa4": 0.2, "trtllm_mha": 0.15, "trtllm_mla": 0.15}
"""What of the scenario's `attention_plan_us` a backend needs on the host before each step."""

MLA_QUERY_RANK, MLA_NOPE, MLA_ROPE, MLA_VALUE = 1536, 128, 64, 128
"""Widths of DeepSeek-V3's latent attention (its configuration): query latent, and a head's parts."""

MOE_RUNNERS = {
    "triton": (1.0, 1.0), "flashinfer_cutlass": (0.97, 0.80), "cutlass": (1.0, 0.85), "deep_gemm": (1.15, 0.72),
    "flashinfer_trtllm": (0.90, 0.70), "marlin": (0.90, 1.15), "triton_kernel": (0.95, 0.90),
}  # fmt: skip
"""Time of a MoE kernel bound by memory and by arithmetic, over Triton's with a tuned configuration."""
EXPERT_TILE = 128
"""A slice of an expert narrower than a few tiles of this width wastes part of each: arithmetic, and half as much of what is
read."""
EXPERT_IMBALANCE = 1.15
"""With whole experts on a GPU, the busiest has this much more to do than the mean."""
ALL_TO_ALL_US = 25.0
"""Sending a MoE layer's tokens to their experts and back, over NVLink."""

COMPILED_GEMM, COMPILED_GAPS = 0.97, 0.75
"""What torch.compile leaves of GEMMs, and of the gaps and small kernels between them."""

NO_PEER_TO_PEER_US = 54.0
"""Extra latency over 8 GPUs through host memory: an untuned host gave about 40 tok/s instead of 65 and more."""
NO_PEER_TO_PEER_TRANSFER = 1.6
FUSION_FACTOR = 0.80
MSCCLPP_BYTES = 1 << 20
LL_BYTES = 256 * 1024
"""NCCL's LL protocol carries half its bytes as flags, which counts from about this size on."""

ALGORITHMS: dict[str, tuple[float, float]] = {
    "nccl": (1.0, 1.0), "custom": (0.50, 1.0), "pcie-ipc": (0.30, 1.10), "mscclpp": (0.45, 1.0), "symmetric": (0.70, 0.9),
}  # fmt: skip
"""Latency and transfer time over NCCL's. PCIe IPC: 12 KiB in 5.3 us where NCCL needs 24 and more."""


def roofline_us(size_bytes: float, flops: float, speeds: Speeds) -> float:
    """The time of a kernel that moves so many bytes and does so many floating-point operations."""
    memory, arithmetic = size_bytes / (speeds.memory_gb_s * 1e3), flops / (speeds.tflops * 1e6)
    return float((memory**3 + arithmetic**3) ** (1 / 3))


def attention_weights(model: Model, shape: Shape) -> float:
    """Parameters of one layer's attention."""
    if shape.mla_rank:
        per_head = MLA_NOPE + MLA_ROPE
        latent = shape.mla_rank - MLA_ROPE
        return (
            model.hidden_size * (MLA_QUERY_RANK + shape.mla_rank)
            + MLA_QUERY_RANK * shape.heads * per_head
            + latent * shape.heads * (MLA_NOPE + MLA_VALUE)
            + shape.heads * MLA_VALUE * model.hidden_size
        )
    return model.hidden_size * shape.head_dim * (2 * shape.heads + 2 * shape.kv_heads)


def kv_bytes_per_token(model: Model, shape: Shape, tp_size: int, attn_dp: int) -> float:
    """What one token of context takes on a GPU with 16-bit keys and values: a GPU has one KV head at least."""
    if shape.mla_rank:
        return float(shape.mla_rank * BYTES_PER_ELEMENT * model.layers)
    heads = max(1.0, shape.kv_heads * attn_dp / tp_size)
    return 2 * heads * shape.head_dim * BYTES_PER_ELEMENT * model.layers


def gemms_us(model: Model, shape: Shape, speeds: Speeds, setup: Setup, tokens: float) -> float:
    """Attention's projections, dense MLPs, shared experts and the output head for `tokens` of one replica."""
    group = tokens / setup.attn_dp
    attention = attention_weights(model, shape) * setup.attn_dp / setup.tp_size
    total = model.layers * _gemm_us(shape, speeds, attention, group, GEMMS_A_LAYER / 2)
    dense = 3 * model.hidden_size * shape.intermediate / setup.tp_size
    total += (model.layers - model.moe_layers) * _gemm_us(shape, speeds, dense, tokens, GEMMS_A_LAYER / 2)
    if shape.shared_intermediate:
        shared = 3 * model.hidden_size * shape.shared_intermediate / setup.tp_size
        total += model.moe_layers * _gemm_us(shape, speeds, shared, tokens, GEMMS_A_LAYER / 2)
    head = model.hidden_size * shape.vocabulary / setup.tp_size
    return total + roofline_us(head * BYTES_PER_ELEMENT, 2 * head * tokens, speeds)


def _gemm_us(shape: Shape, speeds: Speeds, weights: float, tokens: float, kernels: float) -> float:
    return max(kernels * KERNEL_US, roofline_us(weights * shape.bytes_per_weight, 2 * weights * tokens, speeds))


def moe_us(model: Model, shape: Shape, speeds: Speeds, setup: Setup, tokens: float) -> float:
    """All MoE layers for `tokens` of one replica. Only the experts that some token has chosen are read."""
    if not model.moe_layers or not shape.experts:
        return 0.0
    touched = shape.experts * (1 - (1 - shape.experts_per_token / shape.experts) ** tokens)
    expert = 3 * model.hidden_size * shape.expert_intermediate
    width = shape.expert_intermediate * setup.ep_size / setup.tp_size
    memory, arithmetic = MOE_RUNNERS.get(setup.moe_runner, (1.0, 1.0))
    if setup.moe_runner == "triton":
        memory, arithmetic = memory * speeds.moe_triton_factor, arithmetic * speeds.moe_triton_factor
    imbalance = EXPERT_IMBALANCE if setup.ep_size > 1 else 1.0
    wasted = EXPERT_TILE / width
    one = roofline_us(
        touched * expert * shape.bytes_per_weight / setup.tp_size * memory * imbalance * (1 + wasted / 2),
        2 * tokens * shape.experts_per_token * expert / setup.tp_size * arithmetic * imbalance * (1 + wasted),
        speeds,
    )
    return model.moe_layers * (max(3 * KERNEL_US, one) + (ALL_TO_ALL_US if setup.all_to_all else 0.0))


def attention_us(
    model: Model, shape: Shape, speeds: Speeds, setup: Setup, batch: float, context: float, per_request: int
) -> float:
    """One layer's attention of a decode or verify step for `batch` requests of one replica."""
    requests = math.ceil(batch / setup.attn_dp)
    heads = shape.heads * setup.attn_dp / setup.tp_size
    kv_bytes = kv_bytes_per_token(model, shape, setup.tp_size, setup.attn_dp) / model.layers
    if setup.kv_dtype.startswith("fp8"):
        kv_bytes /= 2
    width = 2 * shape.mla_rank if shape.mla_rank else 2 * shape.head_dim
    flops = 2 * requests * per_request * context * heads * width
    factor = ATTENTION_FACTOR.get(setup.attention_backend, 1.0)
    return ATTENTION_KERNEL_US + roofline_us(requests * context * kv_bytes, flops, speeds) * factor


def prefill_attention_us(
    model: Model, shape: Shape, speeds: Speeds, setup: Setup, tokens: float, context: float
) -> float:
    """All layers' attention of `tokens` new tokens behind `context` others: arithmetic alone counts."""
    heads = shape.heads * setup.attn_dp / setup.tp_size
    width = (MLA_NOPE + MLA_ROPE + MLA_VALUE) if shape.mla_rank else 2 * shape.head_dim
    flops = 2 * tokens / setup.attn_dp * (context + tokens / 2) * heads * width
    factor = PREFILL_FACTOR.get(setup.prefill_attention, 1.0)
    return model.layers * roofline_us(0.0, flops, speeds) * factor


def all_reduces_us(model: Model, speeds: Speeds, setup: Setup, tokens: float) -> float:
    """All layers' all-reduces for `tokens` of one replica.

    Two a layer. With attention parallel over data, what is left of attention's is within smaller groups, or none, and the
    MLP's is a gather before and a scatter after it: as much as one all-reduce, and a fifth more for its two launches.
    """
    if setup.tp_size < 2:
        return 0.0
    a_layer = 2.0
    if setup.attn_dp > 1:
        a_layer = 1.2 if setup.attn_dp >= setup.tp_size else 1.7
    count = a_layer * model.layers
    if setup.all_to_all:
        count -= model.moe_layers  # the exchange of tokens takes the place of one
    return count * all_reduce_us(speeds, tokens * model.hidden_size, setup.all_reduce, nvlink=setup.nvlink)


def all_reduce_us(speeds: Speeds, elements: float, how: AllReduce, *, nvlink: bool) -> float:
    """One all-reduce of `elements` 16-bit values."""
    size = elements * BYTES_PER_ELEMENT
    link = link_of(speeds, how.gpus)
    transfer = 2 * (how.gpus - 1) / how.gpus * size / (link.gb_s * 1e3)
    limit = MSCCLPP_BYTES if how.algorithm == "mscclpp" else how.max_bytes
    if how.algorithm not in ("nccl", "symmetric") and size <= limit:
        lower, carried = ALGORITHMS[how.algorithm]
        total = link.latency_us * lower + transfer * carried
    else:
        total = _nccl_us(speeds, link.latency_us, transfer, size, how, nvlink=nvlink)
    return total * (FUSION_FACTOR if how.fused and size <= how.fused_max_bytes else 1.0)


def link_of(speeds: Speeds, gpus: int) -> Link:
    """What the scenario says about groups of this size; of the next larger one it knows, else of the largest."""
    known = sorted(speeds.links, key=lambda link: link.gpus)
    if not known:
        return Link(gpus, 10.0, 20.0)
    return next((link for link in known if link.gpus >= gpus), known[-1])


def _nccl_us(speeds: Speeds, latency: float, transfer: float, size: float, how: AllReduce, *, nvlink: bool) -> float:
    """NCCL with what it was told: channels and protocols matter to large messages, where it chooses badly over PCIe."""
    if how.algorithm == "symmetric":
        latency, transfer = latency * ALGORITHMS["symmetric"][0], transfer * ALGORITHMS["symmetric"][1]
    if how.channels < 8:
        transfer *= 1.0 + 0.15 * (8 / how.channels - 1.0)
    if how.min_channels >= 8:
        transfer *= 1.0 - speeds.channels_gain
    if how.protocols:
        if how.protocols == ("LL",):
            transfer *= 2.0 if size > LL_BYTES else 1.0
        elif "LL" not in how.protocols:
            latency *= 1.15
        if not nvlink and ("LL128" in how.protocols or "Simple" in how.protocols):
            transfer *= 1.0 - 0.22 * min(1.0, max(0.0, (size - 2 * 65536) / (2 * 131072)))
    if how.nvls:
        transfer *= 0.65
    if how.tree:
        latency, transfer = latency * 0.8, transfer * 1.3
    if not how.peer_to_peer:
        latency += NO_PEER_TO_PEER_US * (how.gpus - 1) / 7
        transfer *= NO_PEER_TO_PEER_TRANSFER
    return latency + transfer
