"""Measured latencies the cost model interpolates, in microseconds, 8 x RTX PRO 6000 Blackwell over PCIe.

Source: AIConfigurator's silicon database for the RTX PRO 6000 Server (8 GPUs; NCCL 2.29.2, SGLang 0.5.14), kernels per
layer and rank. Three corrections, each made so that a larger job never takes less time:

- all-reduce: the dip between 262144 and 524288 elements is a change of protocol; the lower value is taken for both, as
  the right choice of protocol reaches it;
- MoE of 2 and 4 tokens: the database's rows are L2-hot (their experts fit into 128 MB); the cold values, which a step
  with changing tokens sees, are taken (4 tokens: 65-80 us);
- MLA: the running maximum over the batch, since the split heuristics make a batch of 4 look faster than one of 1.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

Curve = Sequence[tuple[float, float]]

ALL_REDUCE_NCCL_US: Curve = (
    (512, 24.2), (4096, 26.7), (8192, 27.0), (16384, 29.4), (32768, 34.2), (65536, 47.8), (131072, 84.8),
    (262144, 132.0), (524288, 132.0), (1048576, 221.0), (4194304, 661.0), (16777216, 2494.0),
)  # fmt: skip
"""NCCL all-reduce by message size in bf16 elements."""

MOE_TP_US: Curve = (
    (1, 22), (2, 36), (4, 68), (8, 151), (16, 259), (32, 377), (64, 561), (128, 669), (1024, 1271), (4096, 2535),
)  # fmt: skip
"""INT4 Marlin MoE of Kimi's shape (384 experts, top 8, 7168 x 2048), experts split over 8 ranks, by tokens."""

MOE_EP_US: Curve = (
    (1, 28), (2, 42), (4, 72), (8, 209), (16, 335), (32, 436), (64, 675), (128, 708), (1024, 1350), (4096, 2690),
)  # fmt: skip
"""The same with whole experts on each rank (expert parallelism 8)."""

MLA_CONTEXTS = (128, 2048, 8192, 16384, 32768, 65536, 131072)
MLA_TRITON_US: dict[int, tuple[float, ...]] = {
    1: (17, 30, 72, 77, 88, 105, 190),
    4: (19, 30, 72, 77, 164, 283, 497),
    8: (19, 30, 72, 136, 290, 485, 890),
    32: (29, 60, 240, 540, 950, 1760, 3310),
}
"""MLA decode attention, Triton kernel, bf16 KV, 8 heads a rank: batch to one value per context length."""


def interpolate(curve: Curve, x: float) -> float:
    """The curve at `x`: linear between points, flat below the first, in proportion to `x` above the last."""
    if x <= curve[0][0]:
        return curve[0][1]
    last_x, last_y = curve[-1]
    if x >= last_x:
        return last_y * x / last_x
    at = bisect_right(curve, x, key=lambda point: point[0])
    (x0, y0), (x1, y1) = curve[at - 1], curve[at]
    return y0 + (y1 - y0) * (x - x0) / (x1 - x0)


def mla_us(batch: float, context: float) -> float:
    """One layer's decode attention for `batch` requests of `context` tokens each, in microseconds."""
    return interpolate(
        [
            (size, interpolate(list(zip(MLA_CONTEXTS, row, strict=True)), context))
            for size, row in MLA_TRITON_US.items()
        ],
        batch,
    )
