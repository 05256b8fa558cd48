"""How far a change may move the numbers that a model computes, told from what it changes. Pure.

Even a correct change may move them: another order of adding up rounds differently, and a token that was nearly tied is
then another one. How much of that is to be expected decides which differences from the baseline prove something wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum

from optagent.agent.flag_facts import LOSSY_LOADS, OTHER_MODEL, PRECISION, canonical
from optagent.agent.principles import LOSSY_THRESHOLDS
from optagent.tools.calls.configuration import Configuration, FlagValue


class Numerics(IntEnum):
    """From least to most. A change with several parts moves as much as the part that moves most.

    NONE: only when and where things happen. BATCHING: which requests are computed together; a request alone is computed
    as before. ORDER: the order in which the same numbers are added up. UNKNOWN: perhaps other kernels or code; the
    output must be as close as after ORDER, and tasks are to prove it. LAW: precision, or the law of what is drawn; a
    principle stands against it, so it runs only when the owner allowed it.
    """

    NONE = 0
    BATCHING = 1
    ORDER = 2
    UNKNOWN = 3
    LAW = 4


_NONE = frozenset(
    {
        "batch-notify-size", "crash-dump-folder", "decode-log-interval", "dist-timeout", "download-dir",
        "enable-cache-report", "enable-metrics", "enable-metrics-for-all-schedulers", "enable-mfu-metrics",
        "enable-request-time-stats-logging", "enable-trace", "gc-threshold", "gc-warning-threshold-secs", "host",
        "incremental-streaming-output", "load-format", "log-level", "log-level-http", "log-requests",
        "log-requests-level", "nccl-port", "numa-node", "port", "pre-warm-nccl", "served-model-name", "show-time-cost",
        "skip-server-warmup", "sleep-on-idle", "soft-watchdog-timeout", "stream-interval", "tokenizer-worker-num",
        "trust-remote-code", "uvicorn-access-log-exclude-prefixes", "warmups", "watchdog-timeout",
        "weight-loader-disable-mmap", "weight-loader-drop-cache-after-load", "weight-loader-prefetch-checkpoints",
        "weight-loader-prefetch-num-threads",
    }
)  # fmt: skip

_BATCHING = frozenset(
    {
        "cuda-graph-max-bs", "cuda-graph-max-bs-decode", "cuda-graph-max-bs-prefill", "disable-overlap-schedule",
        "disable-radix-cache", "dp-size", "enable-dp-lm-head", "enable-prefill-delayer", "enable-priority-scheduling",
        "load-balance-method", "max-queued-requests", "max-running-requests", "max-total-tokens", "mem-fraction-static",
        "num-continuous-decode-steps", "page-size", "prefill-decode-interval", "prefill-max-requests",
        "radix-eviction-policy", "retraction-policy", "schedule-conservativeness", "schedule-policy",
        "scheduler-recv-interval",
    }
)  # fmt: skip

_ORDER = frozenset(
    {
        "attn-cp-size", "attn-dp-size", "chunked-prefill-size", "cuda-graph-backend-decode",
        "cuda-graph-backend-prefill", "cuda-graph-bs", "cuda-graph-bs-decode", "cuda-graph-bs-prefill",
        "cuda-graph-config", "dcp-comm-backend", "dcp-size", "disable-cuda-graph", "disable-cuda-graph-padding",
        "disable-custom-all-reduce", "disable-decode-cuda-graph", "disable-prefill-cuda-graph",
        "disable-shared-experts-fusion", "enable-dp-attention", "enable-dynamic-chunking", "enable-eplb",
        "enable-flashinfer-allreduce-fusion", "enable-mixed-chunk", "enable-mscclpp", "enable-nccl-nvls",
        "enable-single-batch-overlap", "enable-symm-mem", "enable-torch-compile", "enable-torch-symm-mem",
        "enable-two-batch-overlap", "enforce-disable-flashinfer-allreduce-fusion", "ep-num-redundant-experts", "ep-size",
        "flashinfer-allreduce-fusion-backend", "max-prefill-tokens", "moe-a2a-backend", "moe-dense-tp-size",
        "moe-dp-size", "pp-size", "speculative-adaptive", "speculative-algorithm",
        "speculative-draft-attention-backend", "speculative-draft-kv-cache-dtype", "speculative-draft-model-path",
        "speculative-draft-model-quantization", "speculative-eagle-topk", "speculative-moe-runner-backend",
        "speculative-num-draft-tokens", "speculative-num-steps", "speculative-token-map",
        "speculative-use-block-verification", "speculative-use-rejection-sampling", "torch-compile-max-bs", "tp-size",
    }
)  # fmt: skip
"""Speculation leaves the law of the output as it is, but verifies several tokens at once, in other shapes."""

_FLAGS = {
    **dict.fromkeys(_NONE, Numerics.NONE),
    **dict.fromkeys(_BATCHING, Numerics.BATCHING),
    **dict.fromkeys(_ORDER, Numerics.ORDER),
}

_ORDER_VARIABLES = ("NCCL_", "SGLANG_PCIE_IPC_")
_VARIABLES = {"OMP_NUM_THREADS": Numerics.ORDER, "SGLANG_ENABLE_PCIE_IPC_ALLREDUCE": Numerics.ORDER}


def between(before: Configuration, after: Configuration) -> Numerics:
    """How far the numbers of the second configuration may lie from those of the first."""
    return max(_moves(before, after), default=Numerics.NONE)


def _moves(before: Configuration, after: Configuration) -> Iterator[Numerics]:
    """Of each part in which the two differ."""
    if (before.environment, before.files, before.revision) != (after.environment, after.files, after.revision):
        yield Numerics.UNKNOWN
    flags = _given(before), _given(after)
    for name in flags[0].keys() | flags[1].keys():
        if (old := flags[0].get(name)) != (new := flags[1].get(name)):
            yield _of_flag(name, old, new)
    for name in before.env.keys() | after.env.keys():
        if before.env.get(name) != after.env.get(name):
            yield _of_variable(name)


def _given(configuration: Configuration) -> dict[str, FlagValue]:
    """By first name, without switches that are off."""
    return {canonical(name): value for name, value in configuration.flags.items() if value is not False}


def _of_flag(name: str, before: FlagValue | None, after: FlagValue | None) -> Numerics:
    values = [str(value).lower() for value in (before, after) if value is not None]
    if name in PRECISION:
        return Numerics.UNKNOWN if all(value in PRECISION[name] for value in values) else Numerics.LAW
    if name in OTHER_MODEL or name in LOSSY_THRESHOLDS:
        return Numerics.LAW
    if name == "load-format" and any(value in LOSSY_LOADS for value in values):
        return Numerics.LAW
    return _FLAGS.get(name, Numerics.UNKNOWN)


def _of_variable(name: str) -> Numerics:
    if name.startswith(_ORDER_VARIABLES):
        return Numerics.ORDER
    return _VARIABLES.get(name, Numerics.UNKNOWN)
