"""What is known about SGLang's flags beyond the help of a release: new names, names the help hides, flags that nothing
reads, what hardware a flag wants, and which flags set precision.

Everything here was looked up in SGLang's own source, 0.5.23 unless a row says otherwise. A row that depends on the
release carries the releases it was looked up for and says nothing about others.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

LOOKED_UP = ">=0.5.23,<0.5.24"
"""The releases whose source was read for the rows below and for the rules of `flag_lint`."""


@dataclass(frozen=True)
class Renamed:
    """`old` was retired in favour of `new`, which may need a certain value (`instead` says how it is written)."""

    old: str
    new: str
    instead: str = ""


RENAMED: tuple[Renamed, ...] = (
    Renamed("cuda-graph-max-bs", "cuda-graph-max-bs-decode"),
    Renamed("cuda-graph-bs", "cuda-graph-bs-decode"),
    Renamed("enable-breakable-cuda-graph", "cuda-graph-backend-prefill", "cuda-graph-backend-prefill breakable"),
    Renamed("disable-piecewise-cuda-graph", "cuda-graph-backend-prefill", "cuda-graph-backend-prefill disabled"),
    Renamed("enforce-piecewise-cuda-graph", "cuda-graph-backend-prefill", "cuda-graph-backend-prefill tc_piecewise"),
    Renamed("piecewise-cuda-graph-tokens", "cuda-graph-bs-prefill"),
    Renamed("piecewise-cuda-graph-max-tokens", "cuda-graph-max-bs-prefill"),
    Renamed("enable-ep-moe", "ep-size", "ep-size with the value of tp-size"),
    Renamed("enable-deepep-moe", "moe-a2a-backend", "moe-a2a-backend deepep"),
    Renamed("enable-triton-kernel-moe", "moe-runner-backend", "moe-runner-backend triton_kernel"),
    Renamed("enable-flashinfer-cutlass-moe", "moe-runner-backend", "moe-runner-backend flashinfer_cutlass"),
    Renamed("enable-flashinfer-cutedsl-moe", "moe-runner-backend", "moe-runner-backend flashinfer_cutedsl"),
    Renamed("enable-flashinfer-trtllm-moe", "moe-runner-backend", "moe-runner-backend flashinfer_trtllm"),
    Renamed("enable-flashinfer-mxfp4-moe", "moe-runner-backend", "moe-runner-backend flashinfer_mxfp4"),
    Renamed("nsa-prefill-backend", "dsa-prefill-backend"),
    Renamed("nsa-decode-backend", "dsa-decode-backend"),
    Renamed("enable-prefill-context-parallel", "enable-prefill-cp"),
    Renamed("enable-nsa-prefill-context-parallel", "enable-prefill-cp"),
    Renamed("enable-dsa-prefill-context-parallel", "enable-prefill-cp"),
    Renamed("prefill-cp-mode", "cp-strategy", "cp-strategy zigzag"),
    Renamed("nsa-prefill-cp-mode", "cp-strategy", "cp-strategy zigzag or interleave"),
    Renamed("dsa-prefill-cp-mode", "cp-strategy", "cp-strategy zigzag or interleave"),
    Renamed("mamba-scheduler-strategy", "mamba-radix-cache-strategy"),
    Renamed("speculative-dflash-draft-window-size", "speculative-draft-window-size"),
    Renamed("enable-gdn-replayssm-spec", "enable-linear-replayssm-spec"),
    Renamed("stream-output", "incremental-streaming-output"),
    Renamed("enable-expert-distribution-metrics", "expert-balancedness-report-mode"),
    Renamed("enable-dp-attention", "attn-dp-size", "attn-dp-size with the value of dp-size, and no dp-size"),
)
"""Retired flags of releases before 0.5.23, and the ones 0.5.23 still takes. Which of two names a server takes is asked
of its help, so the rows need no release and serve both ways."""

HIDDEN = frozenset({"forward-pass-metrics-worker-id", "forward-pass-metrics-ipc-name"})
"""Flags a server takes although its help does not print them (argparse.SUPPRESS)."""

VALUE_OPTIONAL = frozenset(
    {
        "uvicorn-access-log-exclude-prefixes", "lora-target-modules", "lora-paths", "custom-weight-loader",
        "model-checksum",
    }
)  # fmt: skip
"""Flags that take a value or stand alone (nargs ? and *)."""


@dataclass(frozen=True)
class Unread:
    """A flag of the releases `of` that the server takes and then ignores."""

    flag: str
    of: str = LOOKED_UP


UNREAD: tuple[Unread, ...] = (
    Unread("num-continuous-decode-steps"),
    Unread("triton-attention-reduce-in-fp32"),
    Unread("spec-trace-dir"),
)
"""Found by looking for the field's name outside its definition: it is nowhere."""


@dataclass(frozen=True)
class Hardware:
    """What a flag, set to one of `values` (empty: any), comes to on hardware that `when` describes (a condition on
    facts). `without_nvlink`: only on cards that have none."""

    flag: str
    says: str
    when: str
    values: frozenset[str] = frozenset()
    without_nvlink: bool = False


HARDWARE: tuple[Hardware, ...] = (
    Hardware(
        "disable-custom-all-reduce",
        "the custom all-reduce switches itself off for more than two GPUs without NVLink, so this changes nothing "
        "unless the source was patched",
        "gpu.count>2", without_nvlink=True,
    ),
    Hardware(
        "enable-nccl-nvls", "NVLink SHARP needs an NVSwitch, which these cards cannot have", "gpu.count>1",
        without_nvlink=True,
    ),
    Hardware(
        "enable-torch-symm-mem", "symmetric memory wants NVLink's multicast", "gpu.count>1", without_nvlink=True,
    ),
    Hardware(
        "moe-a2a-backend", "exchanging experts' tokens this way wants NVLink or RDMA", "gpu.count>1",
        frozenset({"deepep", "deepep_v2", "mooncake", "nixl", "mori", "megamoe", "pplx"}), without_nvlink=True,
    ),
    Hardware(
        "enable-mscclpp", "MSCCL++ wants cards that reach each other's memory over NVLink", "gpu.count>1", without_nvlink=True,
    ),
    Hardware(
        "enable-torch-symm-mem", "torch's symmetric memory all-reduce knows SM90 and SM100 only",
        "compute_capability>=12",
    ),
    Hardware(
        "flashinfer-allreduce-fusion-backend", "FlashInfer's all-reduce fusion requires SM90 or SM10x",
        "compute_capability>=12",
    ),
    Hardware(
        "enable-flashinfer-allreduce-fusion", "FlashInfer's all-reduce fusion requires SM90 or SM10x",
        "compute_capability>=12",
    ),
    Hardware(
        "attention-backend", "these kernels are built for SM90 or SM100", "compute_capability>=12",
        frozenset({"flashmla", "cutlass_mla", "cutedsl_mla"}),
    ),
    Hardware(
        "attention-backend", "the check lets SM12x pass, but there are no kernels for it", "compute_capability>=12",
        frozenset({"trtllm_mla"}),
    ),
    Hardware(
        "moe-runner-backend", "these kernels are built for SM100", "compute_capability>=12",
        frozenset({"flashinfer_trtllm", "flashinfer_trtllm_routed", "flashinfer_megamoe"}),
    ),
    Hardware(
        "moe-runner-backend", "DeepGEMM has no kernels for SM12x before 0.5.23 and crashes there",
        "compute_capability>=12 and sglang<0.5.23", frozenset({"deep_gemm"}),
    ),
    Hardware(
        "enable-nccl-nvls", "NVLink SHARP needs the NVSwitch of Hopper cards or later ones", "compute_capability<9",
    ),
    Hardware(
        "enable-torch-symm-mem", "torch's symmetric memory all-reduce knows SM90 and later ones only", "compute_capability<9",
    ),
    Hardware(
        "flashinfer-allreduce-fusion-backend", "FlashInfer's all-reduce fusion requires SM90 or SM10x",
        "compute_capability<9",
    ),
    Hardware(
        "enable-flashinfer-allreduce-fusion", "FlashInfer's all-reduce fusion requires SM90 or SM10x",
        "compute_capability<9",
    ),
    Hardware(
        "attention-backend", "FlashAttention 3 runs on SM8x and SM90 only", "compute_capability>=10", frozenset({"fa3"}),
    ),
    Hardware(
        "attention-backend", "these kernels are built for SM90 or later", "compute_capability<9",
        frozenset({"fa4", "flashmla", "cutlass_mla", "cutedsl_mla", "trtllm_mla", "trtllm_mha"}),
    ),
    Hardware(
        "attention-backend", "these kernels are built for SM100", "compute_capability>=9 and compute_capability<10",
        frozenset({"cutedsl_mla", "trtllm_mla"}),
    ),
    Hardware(
        "attention-backend", "FlashAttention 3 runs on SM8x and SM90 only", "compute_capability<8", frozenset({"fa3"}),
    ),
    Hardware(
        "moe-runner-backend", "these kernels are built for SM100", "compute_capability<10",
        frozenset({"flashinfer_trtllm", "flashinfer_trtllm_routed", "flashinfer_megamoe"}),
    ),
    Hardware("moe-runner-backend", "DeepGEMM is built for SM90 or later", "compute_capability<9", frozenset({"deep_gemm"})),
)  # fmt: skip
"""Only warnings: a patch may lift a guard, and the next release may bring the kernels."""

MLA_ONLY: Mapping[str, frozenset[str]] = {
    "attention-backend": frozenset({"flashmla", "cutlass_mla", "cutedsl_mla", "trtllm_mla"}),
}
"""Values that are kernels for multi-head latent attention alone."""
_WITHOUT_MLA = re.compile(
    r"llama|qwen|mixtral|mistral-(?:7b|nemo|small)|gemma|gpt-oss|(?:\A|[/_-])phi-?\d|command-r|olmo", re.IGNORECASE
)

_WITHOUT_NVLINK = re.compile(
    r"RTX PRO \d|RTX [56]000 Ada|RTX [45]0[5-9]0|\b(?:L2|L4|L20|L40S?|T4|A2|A10G?|A16)\b", re.ASCII
)
"""In NVML's names of cards that have no NVLink connector."""

ALIASES: Mapping[str, str] = {
    "model": "model-path",
    "tensor-parallel-size": "tp-size", "tp": "tp-size",
    "pipeline-parallel-size": "pp-size", "pp": "pp-size",
    "data-parallel-size": "dp-size", "dp": "dp-size",
    "expert-parallel-size": "ep-size", "ep": "ep-size",
    "decode-context-parallel-size": "dcp-size",
    "attention-data-parallel-size": "attn-dp-size",
    "attention-context-parallel-size": "attn-cp-size",
    "moe-data-parallel-size": "moe-dp-size",
    "speculative-draft-model": "speculative-draft-model-path",
    "enable-hicache": "enable-hierarchical-cache",
}  # fmt: skip
"""Second names of flags, and what the rules call them."""

DTYPE_16 = frozenset({"auto", "bf16", "bfloat16", "half", "float16", "fp16", "float32", "float", "fp32"})

PRECISION: Mapping[str, frozenset[str]] = {
    "quantization": frozenset({"unquant"}),
    "kv-cache-dtype": DTYPE_16,
    "dtype": DTYPE_16,
    "quantize-and-serve": frozenset(),
    "modelopt-quant": frozenset(),
    "torchao-config": frozenset(),  # of older releases
    "rl-quant-profile": frozenset(),
    "fp8-gemm-backend": frozenset({"auto"}),
    "fp4-gemm-backend": frozenset({"auto"}),
    "fp8-gemm-runner-backend": frozenset({"auto"}),  # of older releases
    "fp4-gemm-runner-backend": frozenset({"auto"}),  # of older releases
    "flashinfer-mxfp4-moe-precision": frozenset({"default", "bf16"}),
    "deepep-dispatcher-output-dtype": frozenset({"auto", "bf16"}),
    "flashinfer-a2a-dispatch-type": frozenset({"auto", "bf16"}),
    "prefill-kv-cache-dequant-dtype": frozenset({"auto"}),
    "qsa-indexer-dtype": frozenset({"auto", "bfloat16"}),
    "mamba-ssm-dtype": frozenset({"float32"}),
    "enable-tf32-matmul": frozenset(),
    "enable-quant-communications": frozenset(),
    "enable-w4a4-mxfp4-megamoe": frozenset(),
    "enable-deepseek-v4-fp4-indexer": frozenset(),
    "enable-int8-mamba-checkpoint": frozenset(),
    "enable-double-sparsity": frozenset(),  # of older releases
}
"""Flags that set the precision of weights, activations, the KV cache or what travels between GPUs, each with the values
that leave it as the model has it. A draft model's own precision is not among them: it decides what is proposed, not
what is said."""

RAISING = frozenset({"enable-fp32-lm-head", "triton-attention-reduce-in-fp32"})
"""Switches that raise precision: taking one away lowers it."""

LOSSY_LOADS: Mapping[str, str] = {
    "dummy": "serves random weights",
    "bitsandbytes": "quantises the weights while loading them",
    "flash_rl": "quantises the weights while loading them",
}
OTHER_MODEL: Mapping[str, str] = {
    "model-path": "serves another model",
    "revision": "serves another version of the model",
    "json-model-override-args": "changes the model's own configuration",
}


def canonical(name: str) -> str:
    """The name that rules know a flag by: dashes, none in front, and its first name where it has several."""
    plain = name.lstrip("-").replace("_", "-")
    return ALIASES.get(plain, plain)


def related(name: str) -> list[str]:
    """The other names that a retired or renamed flag may go by."""
    return [r.new for r in RENAMED if r.old == name] + [r.old for r in RENAMED if r.new == name]


def has_no_nvlink(gpu_name: str) -> bool:
    """Whether NVML's name is that of a card without NVLink; False when it is not known."""
    return _WITHOUT_NVLINK.search(gpu_name) is not None


def has_no_mla(model: str) -> bool:
    """Whether the path is that of a model without multi-head latent attention; False when it is not known."""
    return "deepseek" not in model.lower() and _WITHOUT_MLA.search(model) is not None
