"""Which trial of a search goes on to the sequential test, and which changes have to prove themselves under full load."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from optagent.agent.change import Change
from optagent.agent.flag_facts import canonical
from optagent.agent.noise import Noise
from optagent.agent.search.feasible import takes_memory
from optagent.agent.search.space import Axis, Point, Space, apart, key, place_of
from optagent.agent.verdict import gain

MEMORY_FLAGS = frozenset(
    {
        "cuda-graph-bs", "cuda-graph-bs-decode", "cuda-graph-bs-prefill", "cuda-graph-config",
        "cuda-graph-backend-decode", "cuda-graph-backend-prefill", "disable-cuda-graph", "disable-cuda-graph-padding",
        "kv-cache-dtype", "page-size", "cpu-offload-gb", "enable-symm-mem", "enable-memory-saver",
        "mamba-full-memory-ratio", "swa-full-tokens-ratio", "speculative-algorithm", "speculative-draft-model-path",
    }
)  # fmt: skip
MEMORY_VARIABLES = frozenset({"PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"})
"""Beside the settings that simply grow (`feasible`): what shares GPU memory out differently."""


@dataclass(frozen=True)
class Trial:
    """One launch with one run of a point. A screen and no verdict; `value` is in the objective's unit, above zero."""

    point: Point
    value: float


def best(
    trials: Sequence[Trial], noise: Noise | None, direction: str, space: Space, own: Point | None = None
) -> Trial | None:
    """The trial to put to the sequential test; None when there is none but the baseline's own point.

    Of those that the noise of a pair cannot tell from the best value, the simplest: the one that takes the least on the
    axes of memory and is nearest to what the baseline has on the others. Without `noise` the best value alone counts.
    """
    mine = key(own) if own is not None else None
    measured = [t for t in trials if t.value > 0 and key(t.point) != mine]
    if not measured:
        return None
    top = (max if direction == "max" else min)(measured, key=lambda t: t.value)
    within = noise.pair_sd if noise is not None else 0.0
    alike = [t for t in measured if gain(t.value, top.value, direction) <= within]
    return min(alike, key=lambda t: (round(_cost(space, t.point, own), 9), gain(t.value, top.value, direction)))


def _cost(space: Space, point: Point, own: Point | None) -> float:
    """How far the point is from the simplest one, each axis from 0 to 1."""
    return sum(_step_from_simple(axis, point, own) for axis in space)


def _step_from_simple(axis: Axis, point: Point, own: Point | None) -> float:
    value = point.get(axis.name)
    if takes_memory(axis.name) and axis.ordered:
        return place_of(axis, value) or 0.0
    return 0.0 if own is None else apart(axis, value, own.get(axis.name))


def is_memory_setting(change: Change) -> bool:
    """Whether the change touches how GPU memory is shared out, so that a start alone proves nothing: it passes only
    after the largest shape at full concurrency."""
    flags = {canonical(name) for name in change.flags}
    return (
        bool(flags & MEMORY_FLAGS)
        or bool(change.env.keys() & MEMORY_VARIABLES)
        or any(takes_memory(name) for name in (*flags, *change.env))
    )
