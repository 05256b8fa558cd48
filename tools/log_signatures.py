"""What lines of a failing SGLang server mean: families of messages, each with its kind and what helps.

Kinds and actions are those of the diagnosis contract. Order matters: the first signature that fits a line wins, so
the narrow ones stand before the wide ones.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum

from optagent.tools.calls.logs import Phase

GPU_OOM = "gpu-oom"
"""Stands for one of the gpu-oom kinds: which one follows from the phase, see `oom_kind`."""


class Weight(IntEnum):
    """How much a line explains. A cause is the earliest line of the lowest number."""

    SPECIFIC = 0
    GENERAL = 1
    WRAPPER = 2
    PEER = 3
    DEATH = 4


@dataclass(frozen=True)
class Signature:
    """`anywhere`: it tells also outside of an exception, on a line of its own."""

    pattern: re.Pattern[str]
    kind: str
    action: str
    remedy: str
    weight: Weight = Weight.SPECIFIC
    anywhere: bool = False
    retryable: bool = False


def _s(
    pattern: str,
    kind: str,
    action: str,
    remedy: str,
    weight: Weight = Weight.SPECIFIC,
    anywhere: bool = False,
    retryable: bool = False,
) -> Signature:
    return Signature(re.compile(pattern), kind, action, remedy, weight, anywhere, retryable)


SIGNATURES: tuple[Signature, ...] = (
    _s(
        r"leave no GPU memory for the KV cache|Please try to increase --mem-fraction-static",
        "memory-fraction-too-low", "raise-memory-fraction", "raise --mem-fraction-static above what the weights take",
    ),
    _s(
        r"No space left for only one request|KV cache pool .*cannot hold",
        "kv-pool-too-small", "lower-memory", "give the KV pool more room, or ask for shorter contexts",
    ),
    _s(
        r"(?:Prefill|Decode) out of memory\. Try to lower|memory leak detected",
        "kv-accounting", "report-bug", "the KV pool's books are wrong: another release or page size may be right",
        anywhere=True,
    ),
    _s(
        r"CUDA out of memory|HIP out of memory|torch\.(?:cuda\.)?OutOfMemoryError|NVML_ERROR_NO_MEMORY",
        GPU_OOM, "lower-memory", "claim less GPU memory: smaller static share, fewer tokens, smaller chunk or batch",
    ),
    _s(
        r"^.*(?:CUDA error: out of memory|cudaHostRegister|cudaMallocHost|DefaultCPUAllocator: can't allocate)"
        r"|std::bad_alloc|MemoryError|\b[Oo]ut of memory: Killed process",
        "host-memory", "fix-environment", "give the host more memory, or pin and offload less of it", anywhere=True,
    ),
    _s(
        r"\[[Ee]rrno 98\].*[Aa]ddress already in use",
        "port-in-use", "fix-argument", "the HTTP port is taken: stop what holds it, or take another", anywhere=True,
    ),
    _s(
        r"EADDRINUSE|failed to listen on any local network address",
        "port-in-use", "retry", "an internal port was taken, another try gets another one", retryable=True,
    ),
    _s(
        r"^(?:sglang serve|\S+): error: ",
        "config-error", "fix-argument", "the arguments are refused: correct the one that is named", anywhere=True,
    ),
    _s(
        r"Repo id must (?:be in the form|use alphanumeric)",
        "config-error", "fix-argument", "the model path is no folder of this machine: correct it",
    ),
    _s(
        r"NVIDIA driver on your system is too old|CUDA driver version is insufficient|fabric manager"
        r"|system not yet initialized|[Ff]ound no NVIDIA driver",
        "driver", "install-or-upgrade", "the GPU driver or the fabric manager does not fit", anywhere=True,
    ),
    _s(
        r"DeepEP|deep_ep|num_rc_per_pe|ibgda|nvshmem|\bGIN: ",
        "expert-parallel", "install-or-upgrade", "the expert-parallel dispatcher failed on this network or these GPUs",
        anywhere=False,
    ),
    _s(
        r"Assertion failed: .*(?:DeepEP|deep_ep|ibgda)",
        "expert-parallel", "fix-argument", "the expert-parallel dispatcher's buffers do not fit its settings",
        anywhere=True,
    ),
    _s(
        r"does not support multicast|No supported CUDA architectures found for major versions"
        r"|allreduce fusion requires|custom_all_reduce|CustomAllreduce|[Ss]ymm(?:etric)?[_ ]?[Mm]em(?:ory)?.*not supported"
        r"|expandable_segments",
        "allreduce-unsupported", "disable-feature", "custom or fused all-reduce does not work on these GPUs or links",
    ),
    _s(
        r"no kernel image is available|not compiled for this GPU|does not support backend .* with capability"
        r"|[Uu]nsupported (?:GPU )?(?:architecture|compute capability)|requires SM\d+ .*(?:kernel|GEMM)",
        "unsupported-arch", "change-backend", "the installed kernels have no code for this GPU: take another backend",
    ),
    _s(
        r"FlashAttention v?\d? ?Backend requires|backend is not supported on|backends are supported on"
        r"|[Aa]ttention[ _]backend.*not (?:support|compat)|not support(?:ed)? .*attention[ _]backend",
        "attention-backend-unsupported", "change-backend", "take an attention backend that supports this GPU and model",
    ),
    _s(
        r"has no attribute 'set_embed|[Ss]peculative|draft model|(?:EAGLE3?|NGRAM|ngram).*(?:not support|require)",
        "speculative-config", "fix-argument", "draft model, algorithm or combination of speculative decoding is wrong",
    ),
    _s(
        r"is not divisible by weight quantization|[Qq]uantization (?:method|scheme|config).*(?:not|mismatch)"
        r"|(?:group_size|block_[nk]|weight_scale).*(?:not divisible|mismatch|must)",
        "quantization-mismatch", "fix-argument", "the quantization does not fit this split: change tp or the method",
    ),
    _s(
        r"not supported for now\. Supported architectures|does not recognize this architecture"
        r"|[Mm]odel (?:architecture|type).*not (?:supported|recognized)",
        "model-unsupported", "install-or-upgrade", "this release does not know the model: a newer one may",
    ),
    _s(
        r"(?:401|403) Client Error|gated repo|Repository Not Found|RepositoryNotFoundError|Invalid username",
        "download-failed", "fix-environment", "the model may not be read with this token, or has another name",
    ),
    _s(
        r"5\d\d Server Error|429 Client Error|Too Many Requests|IncompleteRead|Consistency check failed|ChunkedEncoding"
        r"|LocalEntryNotFoundError|couldn't connect to|Read timed out",
        "download-failed", "retry", "the download broke off: try again, or fetch the model beforehand", retryable=True,
    ),
    _s(
        r"SafetensorError|invalid header|HeaderTooLarge|MetadataIncompleteBuffer|does not appear to have a file named",
        "download-failed", "fix-environment", "the model's files are incomplete: fetch them again",
    ),
    _s(
        r"[Nn]inja (?:build failed|exited)|nvcc|Could not find CUDA|CUDA_HOME|Error building extension"
        r"|JIT (?:compilation|build) failed|fatal error: .*\.h",
        "jit-toolchain", "fix-environment", "a kernel cannot be compiled here: compiler, headers or paths do not fit",
    ),
    _s(
        r"undefined symbol|cannot open shared object file|version `\S+' not found|common_ops library"
        r"|ModuleNotFoundError|ImportError|PackageNotFoundError|is (?:not )?installed.*(?:but|version)"
        r"|operator \S+::\S+ does not exist",
        "package-mismatch", "install-or-upgrade", "the installed packages do not fit each other",
    ),
    _s(
        r"probability tensor contains|contains (?:either )?`?(?:inf|nan)|NaN (?:detected|in)",
        "wrong-output", "disable-feature", "the numbers went wrong: take back what changed them last", anywhere=True,
    ),
    _s(
        r"illegal memory access|misaligned address|unspecified launch failure|device-side assert",
        "illegal-memory-access", "disable-feature", "a kernel touched memory it must not: switch off what is new",
    ),
    _s(
        r"_dynamo|torch\.compile|[Ii]nductor|Data-dependent|operation not permitted when stream is capturing"
        r"|cudaErrorStreamCapture|cannot be captured|graph break|has no attribute 'init_\w*graph_state'",
        "graph-capture-incompatible", "disable-feature", "this code cannot be compiled or captured into a graph",
    ),
    _s(
        r"NCCL WARN .*(?:No space left|posix_fallocate|shared memory)",
        "collective-error", "fix-environment", "NCCL has too little shared memory: give /dev/shm more", anywhere=True,
    ),
    _s(
        r"connectFullMesh failed|Gloo.*(?:no route|unable to find|Connect timeout)",
        "collective-error", "fix-network", "the ranks cannot reach each other: check interfaces and routes",
        anywhere=True,
    ),
    _s(
        r"Watchdog caught collective operation timeout",
        "collective-error", "restart", "a collective operation stood still: start again, and see which rank stopped",
        Weight.GENERAL, anywhere=True, retryable=True,
    ),
    _s(
        r"Connection closed by peer|Connection reset by peer|remote process exited|Broken pipe|recvValue failed"
        r"|should dump|Socket Timeout",
        "peer-died", "ask", "only the loss of another rank shows here: look at its log", Weight.PEER, retryable=True,
    ),
    _s(
        r"NCCL error|ncclSystemError|ncclInternalError|ncclUnhandledCudaError|DistBackendError",
        "collective-error", "fix-environment", "NCCL failed: run again with NCCL_DEBUG=INFO", Weight.GENERAL,
    ),
    _s(
        r"<Response \[50\d\]>",
        "config-error", "fix-environment", "a proxy answered instead of the server: except its address from it",
    ),
    _s(
        r"is not divisible by|must be (?:divisible|a multiple)|is not a valid|not supported|does not support|should be"
        r"|must be|cannot be used",
        "config-error", "fix-argument", "these settings are refused together", Weight.GENERAL,
    ),
    _s(
        r"[Ww]atchdog timeout \(self\.watchdog_timeout=[\d.]+(?:, self\.soft=False)?\)",
        "hang", "restart", "a forward pass did not end: start again", Weight.GENERAL, anywhere=True, retryable=True,
    ),
    _s(
        r"(?:crashed with|died during initialization|is dead).*|^Exit code: |^Killed$|^Bus error|^Segmentation fault"
        r"|^terminate called|Fatal Python error",
        "unknown", "restart", "a process died without saying why", Weight.DEATH, anywhere=True,
    ),
)  # fmt: skip

UNKNOWN = _s(r"", "unknown", "ask", "the log does not tell: read the lines before the first error", Weight.GENERAL)
"""For an exception that no signature knows."""

WRAPPERS = re.compile(
    r"Capture cuda graph failed|Fail when using backend|Scheduler hit an exception|Initialization failed"
    r"|Subprocess \S+ .*failed|EngineCore|warmup error"
)
"""Exceptions that carry another one's text; alone they explain nothing."""

DEATH = re.compile(
    r"hit an exception|[Rr]eceived sigquit|SIGQUIT received|died during initialization|scheduler is dead"
    r"|crashed with exit code|Initialization failed|Fatal Python error|^terminate called|^Killed$|^Bus error"
    r"|^Segmentation fault|^(?:sglang serve|\S+): error: |\[Errno 98\]"
    r"|[Ww]atchdog timeout \(self\.watchdog_timeout=[\d.]+(?!.*soft=True)"
    r"|caught collective operation timeout"
)
"""Lines after which the server cannot go on."""

STOP = re.compile(r"SIGTERM received|Gracefully exiting|Shutting down$")

PHASE_MARKS: tuple[tuple[str, Phase], ...] = (
    ("server_args=", "arguments"),
    ("Init parallel begin", "distributed-init"),
    ("Init torch distributed begin", "distributed-init"),
    ("Load weight begin", "weight-load"),
    ("Load weight end", "memory-pool"),
    ("KV Cache is allocated", "memory-pool"),
    ("Memory pool end", "memory-pool"),
    ("CUDA graph begin", "graph-capture"),
    ("cuda graph begin", "graph-capture"),
    ("CPU graph begin", "graph-capture"),
    ("Capture cuda graph bs", "graph-capture"),
    ("Capturing batches", "graph-capture"),
    ("FlashInfer autotune", "graph-capture"),
    ("DeepGEMM", "graph-capture"),
    ("Started server process", "warmup"),
    ("Application startup complete", "warmup"),
    ("Uvicorn running on", "warmup"),
    ("fired up and ready to roll", "serving"),
)
"""Which phase a line of the start-up opens, in the wordings of 0.5.6 and 0.5.23."""

BAR = re.compile(r"\d+%(?: Completed)?[ |]|\d+/\d+ \[")

_OOM: dict[Phase, tuple[str, str]] = {
    "memory-pool": ("gpu-oom-pool", "lower-memory"),
    "graph-capture": ("gpu-oom-graph-capture", "lower-memory"),
    "warmup": ("gpu-oom-runtime", "lower-memory"),
    "serving": ("gpu-oom-runtime", "lower-memory"),
}


def oom_kind(phase: Phase) -> str:
    """What running out of GPU memory in `phase` is called."""
    return _OOM.get(phase, ("gpu-oom-weights", ""))[0]
