"""The owner's principles, held against a change before anything is launched."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Protocol

from optagent.agent.change import Change
from optagent.tools.calls.configuration import FlagValue

FULL_PRECISION = {"auto", "bf16", "bfloat16", "half", "float16", "fp16", "float32"}
PRECISION_FLAGS = frozenset(
    {"quantization", "kv-cache-dtype", "dtype", "quantize-and-serve", "torchao-config", "rl-quant-profile"}
)
"""Flags that set the precision of weights, activations or the KV cache."""
LOSSY_THRESHOLDS = ("speculative-accept-threshold-single", "speculative-accept-threshold-acc")
"""Below 1 these accept drafts that the target would not have produced, which changes the law of the output."""


class PrinciplesLike(Protocol):
    @property
    def preserve_precision(self) -> bool: ...
    @property
    def allow_code_changes(self) -> bool: ...
    @property
    def forbidden_flags(self) -> list[str]: ...


def conflicts(change: Change, principles: PrinciplesLike) -> list[str]:
    """What in the change breaks a principle, one line each; empty when nothing does."""
    found: list[str] = []
    if principles.preserve_precision:
        found += [f"precision is to be preserved: {why}" for rule in _PRECISION_RULES for why in rule(change)]
    if change.patch and not principles.allow_code_changes:
        found.append(f"code changes are not allowed: patch {change.patch}")
    forbidden = {name.lstrip("-").replace("_", "-") for name in principles.forbidden_flags}
    found += [
        f"--{name} is forbidden" for name, value in change.flags.items() if name in forbidden and value is not None
    ]
    return found


def _precision_flags(change: Change) -> list[str]:
    return [
        f"--{name} {value}"
        for name, value in change.flags.items()
        if name in PRECISION_FLAGS and value is not None and str(value).lower() not in FULL_PRECISION
    ]


def _lossy_acceptance(change: Change) -> list[str]:
    return [
        f"--{name} {value} accepts what the model would not have said"
        for name in LOSSY_THRESHOLDS
        if (value := change.flags.get(name)) is not None and not _is_one(value)
    ]


def _is_one(value: FlagValue) -> bool:
    try:
        return float(value) >= 1
    except ValueError:
        return False


def _dummy_weights(change: Change) -> list[str]:
    return ["--load-format dummy serves random weights"] if change.flags.get("load-format") == "dummy" else []


def _precision_variables(change: Change) -> list[str]:
    pattern = re.compile(r"(FP8|FP4|INT8|INT4|QUANT)")
    return [
        f"{k}={v}" for k, v in change.env.items() if v not in (None, "", "0", "false") and pattern.search(k.upper())
    ]


_PRECISION_RULES: tuple[Callable[[Change], list[str]], ...] = (
    _precision_flags,
    _lossy_acceptance,
    _dummy_weights,
    _precision_variables,
)
