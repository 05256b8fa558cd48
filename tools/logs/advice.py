"""What to do about a cause: the table's remedy, made to fit this launch's own configuration."""

from __future__ import annotations

import re

from optagent.tools.calls.logs import Action
from optagent.tools.logs.causality import OTHER_PROCESSES, Cause
from optagent.tools.logs.launch_arguments import LaunchArguments
from optagent.tools.logs.run import Run

SMALL_GRAPH_BATCH = 16
LARGE_GRAPH_BATCH = 256
HIGH_FRACTION = 0.85
ROOM_GB = 8.0
"""SGLang's own advice: so much should be free after the start; what is beyond it can go to the KV pool."""

OPTIONS: tuple[tuple[str, str, str], ...] = (
    # what the evidence speaks of, the setting, the flag that switches it off
    (
        r"fusion|trtllm|mnnvl|multicast|SymmDevice|No supported CUDA arch",
        "enable_flashinfer_allreduce_fusion",
        "--enable-flashinfer-allreduce-fusion",
    ),
    (r"symm", "enable_torch_symm_mem", "--enable-torch-symm-mem"),
    (r"symm", "enable_symm_mem", "--enable-symm-mem"),
    (r"mscclpp", "enable_mscclpp", "--enable-mscclpp"),
    (r"dynamo|inductor|compile", "enable_torch_compile", "--enable-torch-compile"),
)


def advise(cause: Cause, run: Run) -> Action:
    """The action for a crash."""
    arguments = run.arguments
    if cause.kind in ("gpu-oom-weights", "gpu-oom-pool") and OTHER_PROCESSES.search(cause.finding.text):
        return _others_hold_it(arguments)
    if cause.kind == "gpu-oom-graph-capture":
        return _capture_ran_out(arguments)
    if cause.kind == "kv-pool-too-small" and cause.action == "raise-memory-fraction":
        return _pool_too_small(run)
    if cause.kind == "hang" and arguments.on("enable_torch_compile") and not run.ready:
        return Action(
            kind="fix-argument",
            summary="torch.compile may take longer than the watchdog waits: raise --watchdog-timeout, or start without it",
        )
    if cause.kind in ("allreduce-unsupported", "graph-capture-incompatible"):
        return _switch_off(cause, run)
    return Action(kind=cause.action, summary=cause.remedy)


def worth_a_retry(cause: Cause, action: Action) -> bool:
    """Whether the same launch may well go further the next time."""
    if OTHER_PROCESSES.search(cause.finding.text):
        return True
    if cause.kind == "hang":
        return action.kind == "restart"
    if cause.finding.phase in ("serving", "warmup") and cause.kind in (
        "gpu-oom-runtime",
        "kv-pool-too-small",
        "unknown",
    ):
        return cause.finding.phase == "serving"
    return cause.signature.retryable and (cause.kind != "illegal-memory-access" or cause.finding.phase == "serving")


def _others_hold_it(arguments: LaunchArguments) -> Action:
    visible = arguments.environment.get("CUDA_VISIBLE_DEVICES")
    which = f" (CUDA_VISIBLE_DEVICES={visible})" if visible else ""
    return Action(
        kind="fix-environment", summary=f"other processes hold that GPU{which}: stop them, or take another GPU"
    )


def _capture_ran_out(arguments: LaunchArguments) -> Action:
    batch, fraction = arguments.graph_batch, arguments.number("mem_fraction_static")
    if batch is not None and batch <= SMALL_GRAPH_BATCH:
        share = f" below {fraction:g}" if fraction else ""
        return Action(
            kind="lower-memory",
            summary=f"lower --mem-fraction-static{share}; the largest graph batch is {batch:.0f} already, that is not it",
        )
    if batch is not None and (
        batch >= LARGE_GRAPH_BATCH or (fraction is not None and fraction < HIGH_FRACTION and batch > 64)
    ):
        return Action(
            kind="lower-graph-batch",
            summary=f"the largest graph batch is {batch:.0f}: lower it to what is really served",
        )
    share = f" (it is {fraction:g})" if fraction else ""
    return Action(kind="lower-memory", summary=f"lower --mem-fraction-static{share}, or the largest graph batch")


def _pool_too_small(run: Run) -> Action:
    arguments = run.arguments
    if (limit := arguments.text("max_total_tokens")) is not None:
        return Action(
            kind="fix-argument", summary=f"--max-total-tokens {limit} limits the pool: raise it or leave it away"
        )
    fraction = arguments.number("mem_fraction_static")
    if (run.free_gpu_gb is not None and run.free_gpu_gb > ROOM_GB) or (
        fraction is not None and fraction < HIGH_FRACTION
    ):
        free = f": {run.free_gpu_gb:g} GB are free after the start" if run.free_gpu_gb is not None else ""
        return Action(kind="raise-memory-fraction", summary=f"raise --mem-fraction-static{free}")
    return Action(
        kind="lower-memory", summary="the GPU is full: shorter --context-length, fewer requests, or more GPUs"
    )


def _switch_off(cause: Cause, run: Run) -> Action:
    said = f"{cause.finding.text}\n{cause.finding.frames}"
    allocator = run.arguments.environment.get(
        "PYTORCH_CUDA_ALLOC_CONF", run.arguments.environment.get("PYTORCH_ALLOC_CONF", "")
    )
    if cause.kind == "allreduce-unsupported" and "expandable_segments" in f"{allocator}{said}":
        return Action(
            kind="fix-environment",
            summary="it does not work with expandable_segments: take that out of PYTORCH_CUDA_ALLOC_CONF",
        )
    for words, setting, flag in OPTIONS:
        if run.arguments.on(setting) and re.search(words, said, re.IGNORECASE):
            return Action(
                kind="disable-feature", summary=f"{flag} is on in this launch, perhaps by default: switch it off"
            )
    return Action(kind=cause.action, summary=cause.remedy)
