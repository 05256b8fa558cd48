"""From flags, environment variables and source to the setup the cost and memory models work on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from optagent.tools.simulator.flags import release
from optagent.tools.simulator.memory import default_fraction
from optagent.tools.simulator.setup import AllReduce, AllReduceAlgorithm, Setup, Speculation
from optagent.tools.simulator.surroundings import Surroundings

SPECULATION_MAX_RUNNING = 48
"""SGLang's own choice of --max-running-requests with speculation."""

NGRAM_DRAFT_TOKENS = 12
NATIVE_CUDA = (13, 0)
"""The first CUDA that targets SM120 natively."""

PCIE_IPC_RELEASE = (0, 5, 23)


def resolve(fields: Mapping[str, Any], around: Surroundings) -> Setup:
    """The setup of a launch whose arguments are valid. Defaults that SGLang chooses itself are filled in."""
    speculation = speculation_of(fields, around)
    running = fields["max_running_requests"] or (SPECULATION_MAX_RUNNING if speculation else 2048)
    largest = fields["cuda_graph_max_bs"] or (512 if fields["tp_size"] >= 4 else 256)
    graphs = 0 if fields["disable_cuda_graph"] else min(largest, running)
    chunk = fields["chunked_prefill_size"]
    hardware, model = around.scenario.hardware, around.scenario.model
    fraction = fields["mem_fraction_static"]
    return Setup(
        all_reduce=all_reduce_of(fields, around),
        speculation=speculation,
        tp_size=fields["tp_size"],
        ep_size=fields["ep_size"],
        attention_backend=attention_of(fields),
        kv_dtype="bfloat16" if fields["kv_cache_dtype"] in ("auto", "bf16") else fields["kv_cache_dtype"],
        graph_max_bs=graphs,
        max_running_requests=running,
        chunked_prefill_size=chunk if chunk > 0 else 1 << 30,
        mem_fraction_static=fraction or default_fraction(hardware, max(chunk, 0), fields["tp_size"], graphs),
        max_total_tokens=fields["max_total_tokens"],
        page_size=max(1, fields["page_size"]),
        context_len=fields["context_length"] or model.context_len,
        radix_cache=not fields["disable_radix_cache"],
        all_to_all=fields["moe_a2a_backend"] != "none",
        torch_compile=fields["enable_torch_compile"],
        native_kernels=around.cuda >= NATIVE_CUDA,
    )


def attention_of(fields: Mapping[str, Any]) -> str:
    """The backend that decodes: MLA models get Triton on SM120 when nothing is asked for."""
    return str(fields["decode_attention_backend"] or fields["attention_backend"] or "triton")


def speculation_of(fields: Mapping[str, Any], around: Surroundings) -> Speculation | None:
    algorithm = fields["speculative_algorithm"]
    if algorithm is None:
        return None
    mode: Literal["prefill", "decode"] = fields["speculative_attention_mode"]
    if algorithm == "NGRAM":
        tokens = fields["speculative_num_draft_tokens"] or NGRAM_DRAFT_TOKENS
        return Speculation("NGRAM", 0, 1, tokens, mode)
    steps, topk = fields["speculative_num_steps"] or 3, fields["speculative_eagle_topk"] or 1
    tokens = fields["speculative_num_draft_tokens"] or 4
    return Speculation(
        algorithm="EAGLE3" if algorithm == "STANDALONE" else algorithm,
        steps=steps,
        topk=topk,
        verify_tokens=steps + 1 if topk == 1 else tokens,
        attention_mode=mode,
        sync_host=around.source.flag("SYNC_HOST_AFTER_VERIFY", True),
    )


def fusion_wanted(fields: Mapping[str, Any], around: Surroundings) -> bool:
    """Whether the fused all-reduce is used: asked for by flag, or by a default of the source on GPUs it allows."""
    if fields["enable_flashinfer_allreduce_fusion"]:
        return True
    if not around.source.flag("FLASHINFER_ALLREDUCE_FUSION_BY_DEFAULT", False):
        return False
    capability = around.scenario.hardware.capability
    if capability[0] == 12 and around.source.flag("EXPERIMENTAL_FUSION_ON_SM120", False):
        return True
    allowed = around.source.constants.get("FUSION_CAPABILITIES", ((9, 0), (10, 0), (10, 3)))
    return any(tuple(one) == capability for one in allowed)


def all_reduce_of(fields: Mapping[str, Any], around: Surroundings) -> AllReduce:
    """Which all-reduce the tensor-parallel group gets, with what NCCL was told in the environment."""
    env = around.env
    channels = env.get("NCCL_MAX_NCHANNELS", "16")
    level = env.get("NCCL_P2P_LEVEL", "")
    return AllReduce(
        algorithm=algorithm_of(fields, around),
        max_bytes=around.source.number("CUSTOM_ALL_REDUCE_MAX_BYTES", 512 * 1024),
        fused=fusion_wanted(fields, around),
        fused_max_bytes=around.source.number("FUSION_MAX_BYTES", 2 * 1024 * 1024),
        channels=max(1, int(channels)) if channels.isdigit() else 16,
        peer_to_peer=level in ("SYS", "4", "5") and env.get("NCCL_P2P_DISABLE", "0") != "1",
        protocols=tuple(part for part in env.get("NCCL_PROTO", "").split(",") if part),
    )


def algorithm_of(fields: Mapping[str, Any], around: Surroundings) -> AllReduceAlgorithm:
    newer = release(around.versions["sglang"]) >= PCIE_IPC_RELEASE
    if newer and around.env.get("SGLANG_ENABLE_PCIE_IPC_ALLREDUCE") == "1" and fields["tp_size"] in (2, 4, 8):
        return "pcie-ipc"
    if custom_all_reduce_disabled(fields, around):
        return "nccl"
    return "custom"


def custom_all_reduce_disabled(fields: Mapping[str, Any], around: Surroundings) -> bool:
    """SGLang's kernel turns itself off on more than two GPUs without NVLink, unless the source says otherwise."""
    if fields["disable_custom_all_reduce"] or fields["tp_size"] < 2:
        return True
    needs_nvlink = around.source.flag("CUSTOM_ALL_REDUCE_NEEDS_NVLINK", True)
    return fields["tp_size"] > 2 and needs_nvlink and not around.scenario.hardware.nvlink
