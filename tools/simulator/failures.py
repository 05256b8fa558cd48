"""Why a launch dies: each check looks at flags, hardware, versions, environment and memory for one reason."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from typing import Any

from optagent.tools.simulator.flags import field_of
from optagent.tools.simulator.memory import MemoryPlan
from optagent.tools.simulator.resolve import attention_of, data_parallel_of, fusion_wanted, prefill_attention_of
from optagent.tools.simulator.scenario import Conflict, Shape
from optagent.tools.simulator.surroundings import Surroundings
from optagent.tools.simulator.tracebacks import Frame, flashinfer_frames, forward_frames, init_frames

PHASES = ("arguments", "distributed-init", "weight-load", "memory-pool", "graph-capture", "warmup", "serving")
"""The order in which a launch can die."""

TORCH_SYMM_MEM_ARCHITECTURES = {12: ("9.0", "10.0"), 13: ("9.0", "10.0", "12.0")}
"""Compute capabilities in PyTorch's table of symmetric-memory sizes, by CUDA major version."""

CUDA13_DRIVER = 580

ATTENTION_MAJORS = {
    "fa4": (10,), "flashmla": (9, 10), "cutlass_mla": (10,), "nsa": (9, 10), "trtllm_mha": (10,), "trtllm_mla": (10,),
}  # fmt: skip
"""Major compute capabilities that a backend has kernels for, where those are not all."""
MLA_ONLY = ("flashmla", "cutlass_mla", "trtllm_mla", "nsa")
MOE_MAJORS = {
    "flashinfer_trtllm": (10,), "flashinfer_cutlass": (9, 10, 12), "flashinfer_mxfp4": (9, 10), "flashinfer_cutedsl": (10,),
}  # fmt: skip
FP8_ONLY = ("deep_gemm", "cutlass")


@dataclass(frozen=True)
class Failure:
    """`error` is the exception as Python prints it; `rank` None means the parent. A `kind` names it for tests.

    `silent` failures print no traceback: "hang" stops making progress, "killed" ends with signal 9.
    """

    kind: str
    phase: str
    error: str = ""
    frames: tuple[Frame, ...] = ()
    rank: int | None = 0
    warning: str | None = None
    silent: str | None = None


@dataclass(frozen=True)
class Launch:
    """What the checks look at."""

    fields: Mapping[str, Any]
    around: Surroundings
    memory: MemoryPlan


Check = Callable[[Launch], Failure | None]


def first_failure(launch: Launch) -> Failure | None:
    """The failure that a launch meets first, in the order of its phases; within a phase in the order of CHECKS."""
    found = [failure for check in CHECKS if (failure := check(launch)) is not None]
    return min(found, key=lambda failure: PHASES.index(failure.phase), default=None)


def broken_source(launch: Launch) -> Failure | None:
    broken = launch.around.source.broken
    if broken is None:
        return None
    path, error = broken
    where = Frame(f"/opt/sglang/{path}", error.lineno or 1, "<module>", (error.text or "").strip())
    return Failure("syntax-error", "arguments", f"SyntaxError: {error.msg}", (where,), rank=None)


def speculation_arguments(launch: Launch) -> Failure | None:
    fields = launch.fields
    algorithm = fields["speculative_algorithm"]
    if algorithm is None:
        return None
    chosen = [fields[f"speculative_{name}"] for name in ("num_steps", "eagle_topk", "num_draft_tokens")]
    if algorithm != "NGRAM" and len({one is None for one in chosen}) == 2:
        return Failure(
            "speculation-partly-set", "arguments", "AssertionError", rank=None, frames=init_frames("arguments")
        )
    if algorithm in ("EAGLE3", "STANDALONE") and not fields["speculative_draft_model_path"]:
        error = f"ValueError: Speculative algorithm {algorithm} requires --speculative-draft-model-path."
        return Failure("no-draft-model", "arguments", error, init_frames("arguments"), rank=None)
    return None


def context_length(launch: Launch) -> Failure | None:
    asked, derived = launch.fields["context_length"], launch.around.scenario.model.context_len
    if asked is None or asked <= derived:
        return None
    error = (
        f"ValueError: User-specified context_length ({asked}) is greater than the derived context_length ({derived}). "
        "This may lead to incorrect model outputs or CUDA errors."
    )
    return Failure("context-too-long", "arguments", error, init_frames("arguments"), rank=None)


def group_size(launch: Launch) -> Failure | None:
    fields, gpus = launch.fields, launch.around.scenario.hardware.count
    shape = launch.around.scenario.model.shape
    replicas = fields["dp_size"] if shape is None else data_parallel_of(fields)[0]
    wanted = fields["tp_size"] * fields["pp_size"] * replicas
    if wanted > gpus:
        error = f"torch.AcceleratorError: CUDA error: invalid device ordinal (GPU {gpus} of {wanted} asked for)"
        return Failure("too-few-gpus", "distributed-init", error, init_frames("distributed-init"), rank=gpus % wanted)
    if fields["tp_size"] % fields["ep_size"]:
        error = f"AssertionError: tp_size {fields['tp_size']} is not divisible by ep_size {fields['ep_size']}"
        return Failure("ep-not-dividing", "arguments", error, init_frames("arguments"), rank=None)
    return None


def split(launch: Launch) -> Failure | None:
    """What does not divide: heads among ranks, ranks among the groups of attention."""
    fields, shape = launch.fields, launch.around.scenario.model.shape
    if shape is None:
        return None
    groups = data_parallel_of(fields)[1]
    if fields["tp_size"] % groups:
        error = f"AssertionError: tp_size {fields['tp_size']} must be divisible by dp_size {groups}"
    elif shape.heads % fields["tp_size"]:
        error = f"AssertionError: {shape.heads} attention heads are not divisible by tp_size {fields['tp_size']}"
    else:
        return None
    return Failure("not-divisible", "arguments", error, init_frames("arguments"), rank=None)


def driver(launch: Launch) -> Failure | None:
    around = launch.around
    version = around.versions.get("driver", "")
    if around.cuda[0] < 13 or not version or int(version.split(".")[0]) >= CUDA13_DRIVER:
        return None
    error = (
        "RuntimeError: The NVIDIA driver on your system is too old (found version 12080). Please update your GPU driver "
        f"(installed: {version}; CUDA {around.versions['cuda']} needs {CUDA13_DRIVER} or newer)"
    )
    return Failure("driver-too-old", "distributed-init", error, init_frames("distributed-init"))


def attention_backend(launch: Launch) -> Failure | None:
    decoding = attention_of(launch.fields, launch.around)
    prefilling = prefill_attention_of(launch.fields, launch.around)
    named = [decoding] if launch.around.scenario.model.shape is None else dict.fromkeys((decoding, prefilling))
    return next((failure for backend in named if (failure := _attention_backend(launch, backend))), None)


def _attention_backend(launch: Launch, backend: str) -> Failure | None:
    major, minor = launch.around.scenario.hardware.capability
    shape, frames = launch.around.scenario.model.shape, init_frames("attention")
    if backend == "fa3" and (major, minor) > (9, 0):
        error = (
            "AssertionError: FlashAttention v3 Backend requires SM>=80 and SM<=90. Please use `--attention-backend "
            "flashinfer`."
        )
        return Failure("fa3", "memory-pool", error, frames)
    if backend == "trtllm_mla" and major == 12:
        error = "RuntimeError: TllmGenFmhaRunner: Unsupported architecture: no cubin for sm_120 (trtllm-gen MLA decode)"
        return Failure("trtllm-mla", "graph-capture", error, forward_frames("attention"))
    if major not in ATTENTION_MAJORS.get(backend, (major,)):
        error = f"ValueError: The '{backend}' attention backend does not support compute capability {major}.{minor}."
        return Failure("attention-unsupported", "memory-pool", error, frames)
    if backend in MLA_ONLY and shape is not None and not shape.mla_rank:
        error = f"ValueError: The '{backend}' attention backend supports only models with MLA."
        return Failure("attention-unsupported", "memory-pool", error, frames)
    return None


def torch_symm_mem(launch: Launch) -> Failure | None:
    """Explicitly asked for, it ends the launch here: a real server warns and falls back, which an experiment would
    measure as "no change". Two causes: PyTorch's table has no entry for the GPU (CUDA 12), or there is no multicast."""
    if not launch.fields["enable_torch_symm_mem"]:
        return None
    hardware, around = launch.around.scenario.hardware, launch.around
    table = TORCH_SYMM_MEM_ARCHITECTURES[13 if around.cuda[0] >= 13 else 12]
    if hardware.compute_capability not in table:
        error = (
            f"RuntimeError: TorchSymmMemCommunicator: Device capability {hardware.compute_capability} not supported, "
            "communicator is not available."
        )
    elif not hardware.multicast:
        error = (
            "RuntimeError: TorchSymmMemCommunicator: torch symmetric memory multicast operations are not supported "
            "(CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED is 0: the GPUs are connected over PCIe without NVSwitch)."
        )
    else:
        return None
    return Failure("symmetric-memory", "distributed-init", error, init_frames("symm-mem"), rank=_rank(launch, 3))


def moe_runner(launch: Launch) -> Failure | None:
    backend, shape = launch.fields["moe_runner_backend"], launch.around.scenario.model.shape
    if shape is not None:
        return _moe_runner_of_shape(launch, backend, shape)
    if backend in ("auto", "marlin", "triton"):
        return None
    if backend == "flashinfer_trtllm":
        error = "AssertionError: flashinfer_trtllm MoE runner requires SM100 (compute capability 10.x)"
    else:
        error = f"NotImplementedError: moe_runner_backend={backend} does not support compressed-tensors INT4 weights"
    return Failure("moe-runner", "weight-load", error, init_frames("weights"), rank=2)


def _moe_runner_of_shape(launch: Launch, backend: str, shape: Shape) -> Failure | None:
    """A runner wants GPUs it has kernels for, and weights of its kind. A model without experts never asks for one."""
    major, minor = launch.around.scenario.hardware.capability
    if not shape.experts or backend in ("auto", "triton", "triton_kernel"):
        return None
    if major not in MOE_MAJORS.get(backend, (major,)):
        error = f"AssertionError: {backend} MoE runner does not support compute capability {major}.{minor}"
    elif backend in FP8_ONLY and shape.bytes_per_weight != 1:
        error = f"NotImplementedError: moe_runner_backend={backend} supports FP8 weights only"
    elif backend == "marlin" and shape.bytes_per_weight >= 1:
        error = "NotImplementedError: moe_runner_backend=marlin supports 4-bit weights only"
    else:
        return None
    return Failure("moe-runner", "weight-load", error, init_frames("weights"), rank=0)


def all_to_all(launch: Launch) -> Failure | None:
    fields = launch.fields
    backend = fields["moe_a2a_backend"]
    if backend == "none":
        return None
    if backend == "flashinfer":
        if fields["ep_size"] != fields["tp_size"]:
            error = "AssertionError: flashinfer all-to-all requires ep_size == tp_size"
            return Failure(
                "all-to-all-assertion", "weight-load", error, init_frames("moe-dispatch"), rank=_rank(launch, 5)
            )
        return None
    if launch.around.scenario.model.shape is not None and launch.around.scenario.hardware.nvlink:
        if fields["ep_size"] == fields["tp_size"]:
            return None
        error = f"AssertionError: {backend} all-to-all requires ep_size == tp_size"
        return Failure("all-to-all-assertion", "weight-load", error, init_frames("moe-dispatch"), rank=0)
    error = f"RuntimeError: {backend}: no NVLink or RDMA transport between the GPUs of this node (PCIe only)"
    return Failure("all-to-all-transport", "weight-load", error, init_frames("moe-dispatch"), rank=_rank(launch, 5))


def memory(launch: Launch) -> Failure | None:
    shortage = launch.memory.shortage
    if shortage is None:
        return None
    total = launch.around.scenario.hardware.memory_gb
    if shortage.needed_gb is None:
        error = "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static."
        return Failure("fraction-too-low", "memory-pool", error, init_frames("pool"))
    tried = max(0.02, min(shortage.needed_gb, shortage.needed_gb - shortage.free_gb + 0.4))
    error = out_of_memory(_rank(launch, 6), total, tried, min(tried * 0.9, shortage.free_gb))
    frames = {"weight-load": init_frames("weights"), "memory-pool": init_frames("pool")}
    where = frames.get(shortage.phase) or forward_frames("memory")
    return Failure(f"oom-{shortage.phase}", shortage.phase, error, where, rank=_rank(launch, 6))


def out_of_memory(gpu: int, total_gb: float, tried_gb: float, free_gb: float) -> str:
    """PyTorch's own words."""
    return (
        f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {tried_gb:.2f} GiB. GPU {gpu} has a total capacity of "
        f"{total_gb:.2f} GiB of which {free_gb:.2f} GiB is free. Including non-PyTorch memory, "
        f"this process has {total_gb - free_gb:.2f} GiB memory in use."
    )


def nccl_tree(launch: Launch) -> Failure | None:
    around = launch.around
    algorithm = around.env.get("NCCL_ALGO", "").lower().removeprefix("allreduce:")
    if algorithm != "tree" or not around.scenario.faults.tree_breaks_capture or not _captures(launch):
        return None
    error = (
        "RuntimeError: NCCL error: invalid usage (run with NCCL_DEBUG=WARN for details): no algorithm/protocol available "
        "for function AllReduce with datatype ncclBfloat16. NCCL_ALGO was set to Tree."
    )
    return Failure("nccl-tree", "graph-capture", error, forward_frames("nccl"), rank=_rank(launch, 4))


def flashinfer_fusion(launch: Launch) -> Failure | None:
    around = launch.around
    major, minor = around.scenario.hardware.capability
    needed = tuple(int(part) for part in around.scenario.faults.fusion_needs_cuda.split("."))
    if major in (9, 10) or not fusion_wanted(launch.fields, around) or (major == 12 and around.cuda >= needed):
        return None
    error = (
        "RuntimeError: FlashInfer trtllm_allreduce_fusion: No supported CUDA architectures found for major versions "
        f"[9, 10]. (unsupported compute capability {major}.{minor} on CUDA {around.versions['cuda']})"
    )
    phase = "graph-capture" if _captures(launch) else "warmup"
    return Failure("fusion-unsupported", phase, error, flashinfer_frames(), rank=_rank(launch, 1))


def injected(launch: Launch) -> Failure | None:
    for fault in launch.around.scenario.faults.injected:
        if fault.kind in ("hang", "killed") and fnmatch(launch.around.launch, fault.launch):
            return Failure(f"injected-{fault.kind}", fault.phase, silent=fault.kind)
    return None


def conflicts(launch: Launch) -> Failure | None:
    """The first of the scenario's own faults whose flags and variables the launch has."""
    found = next((one for one in launch.around.scenario.faults.conflicts if _has_all(launch, one)), None)
    if found is None:
        return None
    if found.kind != "error":
        return Failure(f"conflict-{found.kind}", found.phase, silent=found.kind)
    frames = (
        forward_frames("memory") if found.phase in ("graph-capture", "warmup") else init_frames(_PLACES[found.phase])
    )
    rank = None if found.phase == "arguments" else 0
    return Failure("conflict-error", found.phase, found.error, frames, rank=rank)


_PLACES = {
    "arguments": "arguments", "distributed-init": "distributed-init", "weight-load": "weights", "memory-pool": "pool",
}  # fmt: skip


def _has_all(launch: Launch, conflict: Conflict) -> bool:
    flags = ((field_of(name), value) for name, value in conflict.flags.items())
    return all(str(launch.fields.get(name)) == str(value) for name, value in flags) and all(
        launch.around.env.get(name) == value for name, value in conflict.env.items()
    )


CHECKS: tuple[Check, ...] = (
    injected, broken_source, speculation_arguments, context_length, group_size, split, driver, torch_symm_mem, moe_runner,
    all_to_all, memory, attention_backend, nccl_tree, flashinfer_fusion, conflicts,
)  # fmt: skip


def _rank(launch: Launch, rank: int) -> int:
    """The rank that fails first, where there are so many."""
    return rank if launch.around.scenario.model.shape is None or rank < launch.fields["tp_size"] else 0


def _captures(launch: Launch) -> bool:
    return not launch.fields["disable_cuda_graph"]
