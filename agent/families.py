"""Which part of the server a change works on: families of flags, variables, patches and environment files, by their names.

What helped or failed in one member of a family says something about the others. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from optagent.agent.canonical import flag_name
from optagent.agent.change import Change
from optagent.agent.principles import assignments
from optagent.tools.calls.configuration import Configuration

SPECULATIVE, GRAPH, ATTENTION, ALL_REDUCE = "speculative", "cuda graph", "attention backend", "all-reduce"
SCHEDULER, MEMORY, MOE, OVERLAP, QUANTISATION = "scheduler", "memory", "MoE", "overlap", "quantisation"

_NAMES = (
    (SPECULATIVE, r"specul|eagle|n-?gram|nextn|draft|verify|\bmtp\b|dflash"),
    (QUANTISATION, r"quant|fp8|fp4|int8|int4|w4a|w8a|dtype|gemm-(?:runner-)?backend"),
    (OVERLAP, r"overlap|two-batch|\btbo\b|\bsbo\b|multi-?stream|async"),
    (MOE, r"\bmoe\b|expert|\bep-size|deep-?ep|eplb|a2a|all-?to-?all"),
    (ALL_REDUCE, r"all-?reduce|nccl|symm|mscclpp|nvls|\bp2p\b|custom-ar\b|quick-?reduce"),
    (GRAPH, r"graph|torch-compile|piecewise"),
    (ATTENTION, r"attention|attn|flash-?mla|\bmla\b|\bfa[34]\b|flash-?infer|kv-splits"),
    (MEMORY, r"mem|kv-?cache|kv-?pool|radix|hicache|hierarchical|page-size|max-total-tokens|offload|swa|alloc-conf"),
    (
        SCHEDULER,
        r"schedul|chunk|max-running|prefill|decode-steps|conservative|retract|batch|queue|stream-interval|delayer|\bdp-size",
    ),
)
_PATTERNS = tuple((family, re.compile(names)) for family, names in _NAMES)
"""In order: of a name that several would take, the first one is told."""


def families_of(change: Change | None, base: Configuration | None = None) -> frozenset[str]:
    """The families that the change touches; empty when its names tell none. `base` as in `names_of`."""
    return frozenset(family for name in names_of(change, base) if (family := family_of(name)))


def names_of(change: Change | None, base: Configuration | None = None) -> list[str]:
    """The names of what the change sets: flags by their first names, variables, the patch's file. Of an environment file
    they are the variables that it sets otherwise than the base's file of the same name."""
    if change is None:
        return []
    names = [flag_name(n) for n in change.flags] + list(change.env)
    for path, text in change.files.items():
        there = set(assignments(base.files.get(path, ""))) if base is not None else set()
        names += [name for name, value in assignments(text) if (name, value) not in there]
    if change.patch:
        names.append(change.patch.rpartition("/")[2])
    return names


@lru_cache(maxsize=4096)
def family_of(name: str) -> str:
    """The family of a flag, variable or file by its name; "" when the name tells none."""
    words = name.lower().replace("_", "-")
    return next((family for family, pattern in _PATTERNS if pattern.search(words)), "")


_ATTENTION_KERNELS = r"attention-backend|attn-backend|flash-?mla|\bmla\b|\bfa[34]\b|dsa-\w+-backend"
_REDUCING_KERNELS = r"all-?reduce-fusion|symm-?mem|mscclpp|nvls|quick-?reduce"
_OTHER_KERNELS = (
    r"moe-runner-backend|gemm-(?:runner-)?backend|deep-?gemm|deep-?ep|cutlass|cutedsl|trt-?llm|flash-?infer"
)
_MORE_MEMORY = r"speculative-(?:algorithm|draft-model)|enable-lora|max-lora|ep-num-redundant-experts"
_BLOCKED_BY = {
    "attention-backend-unsupported": _ATTENTION_KERNELS,
    "allreduce-unsupported": _REDUCING_KERNELS,
    "unsupported-arch": f"{_ATTENTION_KERNELS}|{_REDUCING_KERNELS}|{_OTHER_KERNELS}",
    "jit-toolchain": f"{_ATTENTION_KERNELS}|{_OTHER_KERNELS}",
    "graph-capture-incompatible": r"cuda-graph|torch-compile|piecewise",
    "expert-parallel": r"\bep-size|deep-?ep|eplb|a2a|expert",
    "quantization-mismatch": r"quant|fp8|fp4|int8|int4",
    "gpu-oom-weights": _MORE_MEMORY,
    "gpu-oom-pool": _MORE_MEMORY,
    "gpu-oom-graph-capture": _MORE_MEMORY,
    "gpu-oom-runtime": _MORE_MEMORY,
}
BLOCKING = {kind: re.compile(names) for kind, names in _BLOCKED_BY.items()}
"""What kind of cause (docs/diagnosis.md) stands in the way of which settings, by their names: missing kernels of those that
bring their own, missing memory of those that bring more weights. NCCL's own settings need no kernels."""


_SUSPECTED = BLOCKING | {"hang": re.compile(f"{_REDUCING_KERNELS}|nccl|all-?reduce|deep-?ep|a2a|mooncake")}
"""The same, with what a hang usually comes from: ranks that wait for each other."""


def is_suspected(kind: str, names: Iterable[str]) -> bool:
    """Whether a change of these names is what a cause of this kind usually comes from."""
    return _meets(_SUSPECTED.get(kind), names)


def runs_into(kind: str, names: Iterable[str]) -> bool:
    """Whether a change of these names would probably meet a cause of this kind too."""
    return _meets(BLOCKING.get(kind), names)


def _meets(pattern: re.Pattern[str] | None, names: Iterable[str]) -> bool:
    return pattern is not None and any(pattern.search(n.lower().replace("_", "-")) for n in names)
