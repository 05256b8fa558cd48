"""Which of the candidates is the cause, and what it is called where it happened."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from optagent.tools.calls.logs import Phase
from optagent.tools.logs.candidates import Finding
from optagent.tools.logs.launch_arguments import LaunchArguments
from optagent.tools.logs.signature import GPU_OOM, Signature, Weight

BEFORE_DEATH = timedelta(minutes=30)
"""What was reported longer before the end than this is another story; a collective operation waits 10 minutes."""

OOM_KINDS: dict[Phase, str] = {
    "memory-pool": "gpu-oom-pool",
    "graph-capture": "gpu-oom-graph-capture",
    "warmup": "gpu-oom-runtime",
    "serving": "gpu-oom-runtime",
}


@dataclass(frozen=True)
class FrameHint:
    """Frames that tell what an exception is about which itself says little. `applies` are the kinds that it refines."""

    frames: str
    applies: frozenset[str]
    kind: str
    action: str
    remedy: str


FRAME_HINTS: tuple[FrameHint, ...] = (
    FrameHint(
        r"all_?reduce|trtllm_ar|comm_fusion|mnnvl|flashinfer/comm|symm_mem", frozenset({"unknown", "unsupported-arch"}),
        "allreduce-unsupported", "disable-feature",
        "switch the custom or fused all-reduce off: NCCL takes over",
    ),
    FrameHint(
        r"deep_?ep|token_dispatcher|ep_moe|nvshmem", frozenset({"unknown"}),
        "expert-parallel", "disable-feature",
        "start without this expert-parallel dispatcher, or with another version of it",
    ),
    FrameHint(
        r"layers/attention|triton_ops/\w*attention|attention_backend|flash_attn|flashinfer/(?:prefill|decode|mla)|flash_mla",
        frozenset({"unsupported-arch@triton", "unknown@attention"}),
        "attention-backend-unsupported", "change-backend",
        "another attention backend",
    ),
    FrameHint(
        r"cpp_ext|torch/utils/cpp_extension|flashinfer/jit|tvm_ffi|run_ninja", frozenset({"unknown"}),
        "jit-toolchain", "fix-environment",
        "a kernel that is compiled at run time did not build: set CUDA_HOME and PATH to a complete toolkit",
    ),
    FrameHint(
        r"speculative/|_eagle3?\.py|eagle_worker|_nextn\.py|_mtp\.py", frozenset({"unknown"}),
        "speculative-config", "fix-argument",
        "it fell in the code of speculative decoding: other draft settings, or without it",
    ),
    FrameHint(
        r"layers/quantization/|quant_utils|process_weights_after_loading", frozenset({"unknown"}),
        "quantization-mismatch", "change-backend",
        "it fell in the code of this quantization: another kernel for it, or another split",
    ),
    FrameHint(
        r"_dynamo/|_inductor/|torch/cuda/graphs\.py", frozenset({"unknown"}),
        "graph-capture-incompatible", "disable-feature",
        "it fell while code was compiled or captured: without that option",
    ),
)  # fmt: skip
HOST_FRAMES = re.compile(r"pin_memory|offload|host_kv|memory_pool_host|hicache|uva\b|HostKV", re.IGNORECASE)
POOL_FRAMES = re.compile(r"memory_pool(?!_host)|init_memory_pool|_create_buffers|kv_cache_configurator|allocator\.py")
CAPTURE_FRAMES = re.compile(r"graph_runner|graph_backend|cuda_graph|:capture")
LOAD_FRAMES = re.compile(r":load_model|model_loader/|:create_weights|:load_weights|weight_utils")
RUN_FRAMES = re.compile(r":event_loop|:forward_batch_generation|:forward_thread_func|:run_batch")
OTHER_PROCESSES = re.compile(r"Process \d+ has [\d.]+ \w+ memory in use")
TRIED = re.compile(r"Try to allocate (\d{1,12}) tokens")
AVAILABLE = re.compile(r"Avail\w* tokens: (\d{1,12})|available_size\(\)=(\d{1,12})")
KILLED = re.compile(
    r"exit ?code[:= ]+-?9\b|SIGKILL|^Killed$|Killed +\S*python|exit(?:ed with)? code:? 137|terminated with -9\b"
)


@dataclass(frozen=True)
class Cause:
    """The finding that explains the most, as it is called where it happened."""

    finding: Finding
    kind: str
    action: str
    remedy: str
    hinted: bool = False

    explained: str = ""

    @property
    def signature(self) -> Signature:
        return self.finding.signature


def first_cause(findings: Sequence[Finding], arguments: LaunchArguments) -> Cause | None:
    """The earliest of those that explain the most, on whichever rank and wherever it is printed.

    What peers, wrappers and exit codes say counts only where nothing else does.
    """
    near = _near_the_end(findings)
    if not near:
        return None
    return name(min(near, key=lambda f: (_weight(f), f.line.number)), arguments)


def name(finding: Finding, arguments: LaunchArguments) -> Cause:
    """What the finding is called, given where its traceback was and how the server was started."""
    row = finding.signature
    plain = Cause(finding, row.kind, row.action, row.remedy, explained=row.proves)
    if row.kind == GPU_OOM:
        return _out_of_memory(plain, arguments)
    if row.kind == "kv-accounting":
        return _tokens_were_short(plain)
    if row.weight >= Weight.DEATH and KILLED.search(finding.text) and finding.phase != "serving":
        return replace(
            plain, kind="host-memory", action="fix-environment", hinted=True,
            explained="a process was killed while it loaded",
            remedy="killed while it loaded, mostly by the system for host memory: dmesg tells; give it more, offload less",
        )  # fmt: skip
    return _refined(plain)


def alike(findings: Sequence[Finding], cause: Cause) -> list[Finding]:
    """The other findings that say the same, each rank's first one."""
    seen = {cause.finding.sender}
    same = []
    for finding in findings:
        if finding.signature is cause.signature and finding.line != cause.finding.line and finding.sender not in seen:
            seen.add(finding.sender)
            same.append(finding)
    return same


def _weight(finding: Finding) -> tuple[int, int]:
    """An exception that a row knows half comes before one that none knows; a hint in the frames breaks a tie."""
    row = finding.signature
    hinted = row.weight is Weight.UNKNOWN and _hint(finding) is not None
    return (Weight.GENERAL if hinted else row.weight, 0)


def _near_the_end(findings: Sequence[Finding]) -> list[Finding]:
    stamps = [f.stamp for f in findings if f.stamp is not None]
    if not stamps:
        return list(findings)
    try:
        since = max(stamps) - BEFORE_DEATH
    except OverflowError:
        return list(findings)
    return [f for f in findings if f.stamp is None or f.stamp >= since]


def _out_of_memory(plain: Cause, arguments: LaunchArguments) -> Cause:
    finding = plain.finding
    bare = "CUDA error: out of memory" in finding.text
    if bare and (HOST_FRAMES.search(finding.frames) or _host_is_used(finding.phase, arguments)):
        return replace(
            plain, kind="host-memory", action="disable-feature", hinted=True,
            explained="the CUDA driver found no memory while host memory was being pinned",
            remedy="without a size in the message it is mostly pinned host memory: offload less, or give the host more",
        )  # fmt: skip
    return replace(plain, kind=_oom_kind(finding))


def _host_is_used(phase: Phase, arguments: LaunchArguments) -> bool:
    offloads = (arguments.number("cpu_offload_gb") or 0) > 0 or arguments.on("enable_hierarchical_cache")
    return offloads or phase == "weight-load"


def _oom_kind(finding: Finding) -> str:
    """By the frames where they tell, otherwise by the phase. A warm-up request is served like any other."""
    frames = finding.frames
    if finding.phase not in ("warmup", "serving"):
        if CAPTURE_FRAMES.search(frames):
            return "gpu-oom-graph-capture"
        if POOL_FRAMES.search(frames):
            return "gpu-oom-pool"
        if LOAD_FRAMES.search(frames):
            return "gpu-oom-weights"
    if RUN_FRAMES.search(frames):
        return "gpu-oom-runtime"
    return OOM_KINDS.get(finding.phase, "gpu-oom-weights")


def _tokens_were_short(plain: Cause) -> Cause:
    """The allocator's message means a shortage only when fewer tokens were there than were asked for."""
    tried, there = TRIED.search(plain.finding.text), AVAILABLE.search(plain.finding.text)
    if tried is None or there is None or int(there.group(1) or there.group(2)) >= int(tried.group(1)):
        return plain
    return replace(
        plain, kind="kv-pool-too-small", action="lower-memory", explained="the KV pool had fewer tokens left than were asked for",
        remedy="fewer tokens were left than were asked for: fewer requests at a time, or more room for the KV pool",
    )  # fmt: skip


def _refined(plain: Cause) -> Cause:
    hint = _hint(plain.finding)
    if hint is None:
        return plain
    return replace(
        plain, kind=hint.kind, action=hint.action, remedy=hint.remedy, hinted=True, explained=plain.explained
    )


def _hint(finding: Finding) -> FrameHint | None:
    """The hint for this exception, from the frames that are nearest to where it was raised."""
    row = finding.signature
    keys = {row.kind} if row.kind != "unknown" or row.weight is Weight.UNKNOWN else set()
    if "out of resource" in finding.text:
        keys.add("unsupported-arch@triton")
    inner = "\n".join(finding.frames.split("\n")[-6:])
    for hint in FRAME_HINTS:
        if keys & hint.applies and re.search(hint.frames, inner, re.IGNORECASE):
            return hint
    return None
