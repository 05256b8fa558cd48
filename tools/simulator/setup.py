"""What a launch comes down to for the cost and memory models, once flags, environment and source are resolved."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

AllReduceAlgorithm = Literal["nccl", "custom", "pcie-ipc", "mscclpp", "symmetric"]


@dataclass(frozen=True)
class AllReduce:
    """How the tensor-parallel group of `gpus` reduces. `channels` is the most NCCL may use, `min_channels` the fewest;
    sizes in bytes. `nvls`: NVSwitch adds up; `tree`: NCCL's tree instead of its ring."""

    algorithm: AllReduceAlgorithm = "nccl"
    max_bytes: int = 512 * 1024
    fused: bool = False
    fused_max_bytes: int = 2 * 1024 * 1024
    channels: int = 16
    peer_to_peer: bool = True
    protocols: tuple[str, ...] = ()
    gpus: int = 8
    min_channels: int = 1
    nvls: bool = False
    tree: bool = False


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
    """`replicas` are whole copies of the model, each on `tp_size` GPUs; attention may be parallel over the data of
    `attn_dp` groups within one. What follows `native_kernels` concerns models with a shape only."""

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
    capability: int = 120
    nvlink: bool = False
    replicas: int = 1
    attn_dp: int = 1
    prefill_attention: str = "triton"
    moe_runner: str = "triton"
    overlap: bool = True
    stream_interval: int = 1
    mixed_chunk: bool = False
    max_prefill_tokens: int = 1 << 30
    conservativeness: float = 1.0
    graph_padding: bool = True
    compile_max_bs: int = 0

    @property
    def graph_sizes(self) -> list[int]:
        """The batch sizes that are captured, ascending; empty without CUDA graphs."""
        sizes = [1, 2, 4, 8, 12, *range(16, 257, 8), *range(272, 513, 16), *range(544, 4097, 32)]
        kept = [size for size in sizes if size <= self.graph_max_bs]
        if self.graph_max_bs > 0 and self.graph_max_bs not in kept:
            kept.append(self.graph_max_bs)
        return kept

    @property
    def kv_pools(self) -> int:
        """How many KV pools of a GPU's size hold different requests."""
        return self.replicas * self.attn_dp

    @property
    def compiled_sizes(self) -> list[int]:
        """The captured batch sizes that torch.compile works on."""
        return [size for size in self.graph_sizes if size <= self.compile_max_bs] if self.torch_compile else []
