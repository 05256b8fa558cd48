"""What failures rule out: a point that failed, and for want of memory every point that is sure to want more.

Failures speak of one base configuration and one item. Those of another base, or of other axes, prove nothing here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from optagent.agent.dead_ends import PASSING
from optagent.agent.flag_facts import canonical
from optagent.agent.search.space import Kind, Point, Value, canonical_value, key, number_in, shown, written_name

GPU_FLAGS = frozenset(
    {
        "mem-fraction-static", "max-total-tokens", "max-running-requests", "context-length", "chunked-prefill-size",
        "max-prefill-tokens", "cuda-graph-max-bs", "cuda-graph-max-bs-decode", "cuda-graph-max-bs-prefill",
        "cuda-graph-prefill-max-context", "piecewise-cuda-graph-max-tokens", "speculative-num-steps",
        "speculative-eagle-topk", "speculative-num-draft-tokens", "max-mamba-cache-size", "max-loras-per-batch",
        "max-lora-rank", "ep-num-redundant-experts",
    }
)  # fmt: skip
GPU_VARIABLES = frozenset(
    {
        "SGLANG_SYMM_MEM_PREALLOC_GB_SIZE", "SGLANG_PCIE_IPC_MAX_NUMEL", "NCCL_BUFFSIZE", "NCCL_MIN_NCHANNELS",
        "NCCL_MAX_NCHANNELS",
    }
)  # fmt: skip
"""Settings that never take less GPU memory when they are larger. SGLang 0.5.23: arg_groups/memory_hook,
mem_cache/memory_pool, lora/mem_pool, device_communicators; NCCL's buffers grow with their size and their number.
Settings that only divide a pool (mamba-full-memory-ratio, swa-full-tokens-ratio) are not among them."""
HOST_FLAGS = frozenset({"hicache-ratio", "hicache-size", "cpu-offload-gb"})
POOL_FLAGS = frozenset({"mem-fraction-static", "max-total-tokens"})
"""A smaller value leaves the KV pool no more room."""

GPU_OUT_OF_MEMORY: Mapping[str, str] = {
    "gpu-oom-weights": "ran out of memory while the weights were loaded",
    "gpu-oom-pool": "ran out of memory when the KV pool was made",
    "gpu-oom-graph-capture": "ran out of memory in graph capture",
    "gpu-oom-runtime": "ran out of memory while it served",
}
HOST_OUT_OF_MEMORY: Mapping[str, str] = {"host-memory": "ran out of host memory"}
TOO_LITTLE: Mapping[str, str] = {
    "memory-fraction-too-low": "left no room beside the weights",
    "kv-pool-too-small": "made too small a KV pool",
}


@dataclass(frozen=True)
class FailedTrial:
    """A point whose launch or gate failed, with the kind of the cause (docs/diagnosis.md)."""

    point: Point
    kind: str


def ruled_out(point: Point, failures: Sequence[FailedTrial]) -> str | None:
    """Why the point need not be launched, in words; None when nothing is known against it.

    A point is ruled out when it failed itself (twice in the same way, where the failure may pass by itself), and for
    want of memory also when it takes at least as much of every setting that takes memory, and equals in all others.
    """
    here = key(point)
    same = [f.kind for f in failures if key(f.point) == here]
    for kind in dict.fromkeys(same):
        if kind not in PASSING:
            return f"{_written(point)} {_how(kind)} before"
        if same.count(kind) > 1:
            return f"{_written(point)} failed twice in the same way ({kind})"
    return next((why for failure in failures if (why := _implied(point, failure))), None)


def takes_memory(name: str) -> bool:
    """Whether a larger value of the flag or variable may take more GPU memory, and never takes less."""
    return canonical(name) in GPU_FLAGS or name in GPU_VARIABLES


def amount(value: Value) -> float | None:
    """How much a setting asks for; None where that is left to the server, as with zero and less."""
    number = number_in(value)
    return number if number is not None and number > 0 else None


class _Region(NamedTuple):
    """After a failure of one of `kinds`, whatever has more (`sign` 1) or less (-1) of the settings `moves` fails too."""

    kinds: Collection[str]
    moves: Callable[[str], bool]
    sign: int
    says: str


_REGIONS = (
    _Region(GPU_OUT_OF_MEMORY, takes_memory, 1, "more"),
    _Region(HOST_OUT_OF_MEMORY, lambda name: canonical(name) in HOST_FLAGS, 1, "more"),
    _Region({"memory-fraction-too-low"}, lambda name: canonical(name) == "mem-fraction-static", -1, "less"),
    _Region({"kv-pool-too-small"}, lambda name: canonical(name) in POOL_FLAGS, -1, "less"),
)


def _implied(point: Point, failure: FailedTrial) -> str | None:
    """Why what failed there is bound to fail here too."""
    region = next((r for r in _REGIONS if failure.kind in r.kinds), None)
    further = _beyond(point, failure.point, region) if region else []
    if not region or not further:
        return None
    there = _written({name: failure.point[name] for name in further})
    rest = {name: value for name, value in failure.point.items() if name not in further}
    beside = f" (with {_written(rest)})" if rest else ""
    here = " and ".join(shown(point[name]) for name in further)
    verb = "need" if region.sign > 0 else "leave"
    return f"{there}{beside} {_how(failure.kind)}, {here} {verb}{'s' if len(further) == 1 else ''} {region.says}"


def _beyond(point: Point, failed: Point, region: _Region) -> list[str]:
    """The axes on which `point` goes further into the region than `failed`; none when it does not on all of those that
    differ, or when an axis that does not count differs."""
    if point.keys() != failed.keys():
        return []
    further = [name for name in failed if canonical_value(point[name]) != canonical_value(failed[name])]
    for name in further:
        here, there = amount(point[name]), amount(failed[name])
        if not region.moves(name) or here is None or there is None or region.sign * (here - there) <= 0:
            return []
    return further


def _how(kind: str) -> str:
    known = GPU_OUT_OF_MEMORY.get(kind) or HOST_OUT_OF_MEMORY.get(kind) or TOO_LITTLE.get(kind)
    return known or f"failed ({kind})"


def _written(point: Point) -> str:
    return " ".join(_one(name, value) for name, value in point.items())


def _one(name: str, value: Value) -> str:
    kind: Kind = "env" if name.isupper() and "-" not in name else "flag"
    if value is None or value is False:
        return f"(without {written_name(name, kind)})"
    if value is True:
        return written_name(name, kind)
    return f"{written_name(name, kind)}{'=' if kind == 'env' else ' '}{shown(value)}"
