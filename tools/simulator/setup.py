"""What a launch comes down to for the cost and memory models, once flags, environment and source are resolved."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

AllReduceAlgorithm = Literal["nccl", "custom", "pcie-ipc"]


@dataclass(frozen=True)
class AllReduce:
    """How the tensor-parallel group reduces. `channels` is the most NCCL may use; sizes in bytes."""

    algorithm: AllReduceAlgorithm = "nccl"
    max_bytes: int = 512 * 1024
    fused: bool = False
    fused_max_bytes: int = 2 * 1024 * 1024
    channels: int = 16
    peer_to_peer: bool = True
    protocols: tuple[str, ...] = ()


@dataclass(frozen=True)
class Speculation:
    """`verify_tokens` per request go through the target in one verify step after `steps` draft steps."""

    algorithm: Literal["EAGLE", "EAGLE3", "NEXTN", "NGRAM"]
    steps: int
    topk: int
    verify_tokens: int
    attention_mode: Literal["prefill", "decode"] = "prefill"
    sync_host: bool = True


@dataclass(frozen=True)
class Setup:
    all_reduce: AllReduce = AllReduce()
    speculation: Speculation | None = None
    tp_size: int = 8
    ep_size: int = 1
    attention_backend: str = "triton"
    kv_dtype: str = "bfloat16"
    graph_max_bs: int = 128
    max_running_requests: int = 2048
    chunked_prefill_size: int = 8192
    mem_fraction_static: float = 0.9
    max_total_tokens: int | None = None
    page_size: int = 1
    context_len: int = 262144
    radix_cache: bool = True
    all_to_all: bool = False
    torch_compile: bool = False
    native_kernels: bool = False

    @property
    def graph_sizes(self) -> list[int]:
        """The batch sizes that are captured, ascending; empty without CUDA graphs."""
        sizes = [1, 2, 4, 8, 12, *range(16, 257, 8), *range(272, 513, 16), *range(544, 4097, 32)]
        kept = [size for size in sizes if size <= self.graph_max_bs]
        if self.graph_max_bs > 0 and self.graph_max_bs not in kept:
            kept.append(self.graph_max_bs)
        return kept
