"""SGLang's command line, as far as the simulated server takes it: names, kinds and which release knows which.

Parsing is argparse's own, as SGLang's is: unknown flags and ambiguous prefixes end with usage on stderr and exit status
2, unique prefixes are accepted.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

CUDA_GRAPH_SPLIT = (0, 5, 20)
"""From this release on graphs have separate prefill and decode flags, and the log has its newer wording."""


@dataclass(frozen=True)
class Flag:
    """`default` decides the type when it is not None; a False default is a switch."""

    name: str
    default: Any = None
    kind: type = str
    aliases: tuple[str, ...] = ()
    choices: tuple[str, ...] | None = None
    help: str = ""


ATTENTION = (
    "triton", "torch_native", "flex_attention", "nsa", "cutlass_mla", "fa3", "fa4", "flashinfer", "flashmla",
    "trtllm_mla", "trtllm_mha", "dual_chunk_flash_attn",
)  # fmt: skip
MOE_RUNNERS = (
    "auto", "deep_gemm", "triton", "triton_kernel", "flashinfer_trtllm", "flashinfer_cutlass", "flashinfer_mxfp4",
    "flashinfer_cutedsl", "cutlass", "marlin",
)  # fmt: skip
ALL_TO_ALL = ("none", "deepep", "mooncake", "mori", "flashinfer")
KV_DTYPES = ("auto", "fp8_e5m2", "fp8_e4m3", "bf16", "bfloat16", "fp4_e2m1")
ALGORITHMS = ("EAGLE", "EAGLE3", "NEXTN", "STANDALONE", "NGRAM")

COMMON = (
    Flag("model-path", aliases=("model",), help="the model's name or folder"),
    Flag("tokenizer-path"),
    Flag("tokenizer-mode", "auto", choices=("auto", "slow")),
    Flag("skip-tokenizer-init", False),
    Flag("load-format", "auto"),
    Flag("model-loader-extra-config", "{}"),
    Flag("trust-remote-code", False),
    Flag("context-length", kind=int),
    Flag("host", "127.0.0.1"),
    Flag("port", 30000),
    Flag("skip-server-warmup", False),
    Flag("dtype", "auto", choices=("auto", "half", "float16", "bfloat16", "float", "float32")),
    Flag("quantization"),
    Flag("kv-cache-dtype", "auto", choices=KV_DTYPES),
    Flag("mem-fraction-static", kind=float),
    Flag("max-running-requests", kind=int),
    Flag("max-queued-requests", kind=int),
    Flag("max-total-tokens", kind=int),
    Flag("chunked-prefill-size", 8192),
    Flag("max-prefill-tokens", 16384),
    Flag("schedule-policy", "fcfs", choices=("lpm", "random", "fcfs", "dfs-weight", "lof", "priority")),
    Flag("schedule-conservativeness", 1.0),
    Flag("page-size", 1),
    Flag("num-continuous-decode-steps", 1),
    Flag("scheduler-recv-interval", 1),
    Flag("enable-mixed-chunk", False),
    Flag("disable-radix-cache", False),
    Flag("disable-overlap-schedule", False),
    Flag("tensor-parallel-size", 1, aliases=("tp-size", "tp")),
    Flag("pipeline-parallel-size", 1, aliases=("pp-size",)),
    Flag("data-parallel-size", 1, aliases=("dp-size",)),
    Flag("expert-parallel-size", 1, aliases=("ep-size", "ep")),
    Flag("enable-dp-attention", False),
    Flag("enable-dp-lm-head", False),
    Flag("stream-interval", 1),
    Flag("random-seed", kind=int),
    Flag("watchdog-timeout", 300.0),
    Flag("dist-timeout", kind=int),
    Flag("log-level", "info"),
    Flag("log-requests", False),
    Flag("show-time-cost", False),
    Flag("enable-metrics", False),
    Flag("decode-log-interval", 40),
    Flag("api-key"),
    Flag("served-model-name"),
    Flag("chat-template"),
    Flag("reasoning-parser"),
    Flag("tool-call-parser"),
    Flag("attention-backend", choices=ATTENTION),
    Flag("decode-attention-backend", choices=ATTENTION),
    Flag("prefill-attention-backend", choices=ATTENTION),
    Flag("sampling-backend", choices=("flashinfer", "pytorch")),
    Flag("grammar-backend"),
    Flag("mm-attention-backend"),
    Flag("moe-runner-backend", "auto", choices=MOE_RUNNERS),
    Flag("moe-a2a-backend", "none", choices=ALL_TO_ALL),
    Flag("enable-eplb", False),
    Flag("disable-shared-experts-fusion", False),
    Flag("enable-two-batch-overlap", False),
    Flag("enable-single-batch-overlap", False),
    Flag("speculative-algorithm", choices=ALGORITHMS),
    Flag("speculative-draft-model-path", aliases=("speculative-draft-model",)),
    Flag("speculative-num-steps", kind=int),
    Flag("speculative-eagle-topk", kind=int),
    Flag("speculative-num-draft-tokens", kind=int),
    Flag("speculative-accept-threshold-single", 1.0),
    Flag("speculative-accept-threshold-acc", 1.0),
    Flag("speculative-token-map"),
    Flag("speculative-attention-mode", "prefill", choices=("prefill", "decode")),
    Flag("speculative-moe-runner-backend", choices=MOE_RUNNERS),
    Flag("speculative-ngram-max-bfs-breadth", 10),
    Flag("disable-cuda-graph", False),
    Flag("disable-cuda-graph-padding", False),
    Flag("enable-profile-cuda-graph", False),
    Flag("enable-nccl-nvls", False),
    Flag("enable-symm-mem", False),
    Flag("enable-torch-symm-mem", False),
    Flag("enable-mscclpp", False),
    Flag("enable-flashinfer-allreduce-fusion", False),
    Flag("disable-custom-all-reduce", False),
    Flag("enable-p2p-check", False),
    Flag("pre-warm-nccl", False),
    Flag("enable-torch-compile", False),
    Flag("torch-compile-max-bs", 32),
    Flag("enable-deterministic-inference", False),
    Flag("numa-node", kind=int),
    Flag("cpu-offload-gb", 0),
    Flag("allow-auto-truncate", False),
)
OLD_ONLY = (
    Flag("cuda-graph-max-bs", kind=int, help="the largest batch that is captured"),
    Flag("enable-piecewise-cuda-graph", False),
)
NEW_ONLY = (
    Flag("cuda-graph-max-bs-decode", kind=int, help="the largest decode batch that is captured"),
    Flag("cuda-graph-max-bs-prefill", kind=int),
    Flag("cuda-graph-backend-decode", "full", choices=("full", "breakable", "disabled")),
    Flag("cuda-graph-backend-prefill", "disabled", choices=("full", "breakable", "disabled")),
    Flag("flashinfer-allreduce-fusion-backend", choices=("auto", "trtllm", "mnnvl", "cutedsl")),
    Flag("attn-dp-size", 1),
)


def release(version: str) -> tuple[int, ...]:
    """The numbers of a version such as 0.5.23 or 0.5.9.post1."""
    numbers = []
    for part in version.split("."):
        if not part.isdigit():
            break
        numbers.append(int(part))
    return tuple(numbers)


@lru_cache(maxsize=8)
def parser(version: str) -> argparse.ArgumentParser:
    """The command line of the SGLang release `version`."""
    newer = release(version) >= CUDA_GRAPH_SPLIT
    words = argparse.ArgumentParser(prog="launch_server.py", description=f"Simulated SGLang {version} server.")
    for flag in (*COMMON, *(NEW_ONLY if newer else OLD_ONLY)):
        _add(words, flag)
    return words


def parse(arguments: Sequence[str], version: str) -> dict[str, Any]:
    """SGLang's arguments by field name (`tp_size`, `model_path`, ...). Exits with status 2 as argparse does."""
    fields = vars(parser(version).parse_args(list(arguments)))
    fields.setdefault("cuda_graph_max_bs", fields.get("cuda_graph_max_bs_decode"))
    if fields.get("cuda_graph_backend_decode") == "disabled":
        fields["disable_cuda_graph"] = True
    if fields.get("flashinfer_allreduce_fusion_backend"):
        fields["enable_flashinfer_allreduce_fusion"] = True
    return fields


FIELD_NAMES = {
    "tensor-parallel-size": "tp_size", "pipeline-parallel-size": "pp_size", "data-parallel-size": "dp_size",
    "expert-parallel-size": "ep_size",
}  # fmt: skip


def field_of(name: str) -> str:
    """The field that a flag sets, by its name on the command line without dashes in front."""
    for flag in (*COMMON, *OLD_ONLY, *NEW_ONLY):
        if name in (flag.name, *flag.aliases):
            return FIELD_NAMES.get(flag.name, flag.name.replace("-", "_"))
    return name.replace("-", "_")


def _add(words: argparse.ArgumentParser, flag: Flag) -> None:
    names = [f"--{name}" for name in (flag.name, *flag.aliases)]
    field = field_of(flag.name)
    if flag.default is False:
        words.add_argument(*names, dest=field, action="store_true", help=flag.help)
        return
    words.add_argument(
        *names,
        dest=field,
        type=flag.kind if flag.default is None else type(flag.default),
        default=flag.default,
        choices=flag.choices,
        required=flag.name == "model-path",
        help=flag.help,
    )
