"""From flags, environment variables and source to the setup the cost and memory models work on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from optagent.tools.simulator.flags import CUDA_GRAPH_SPLIT, release
from optagent.tools.simulator.memory import default_fraction
from optagent.tools.simulator.setup import AllReduce, AllReduceAlgorithm, Setup, Speculation
from optagent.tools.simulator.surroundings import Surroundings

SPECULATION_MAX_RUNNING = 48
"""SGLang's own choice of --max-running-requests with speculation."""

NGRAM_DRAFT_TOKENS = 12
NATIVE_CUDA = (13, 0)
"""The first CUDA that targets SM120 natively."""

PCIE_IPC_RELEASE = (0, 5, 23)
NVLS_FROM = (9, 0)
"""The first GPUs for which NVSwitch adds up."""
ONE_SHOT_BYTES, NVLINK_ONE_SHOT_BYTES = 512 * 1024, 8 * 1024 * 1024
"""The largest message that SGLang's own all-reduce takes."""
ATTN_DP_CONSERVATIVENESS = 0.3
"""By what SGLang multiplies --schedule-conservativeness when attention is parallel over data."""

Fields = Mapping[str, Any]


def resolve(fields: Fields, around: Surroundings) -> Setup:
    """The setup of a launch whose arguments are valid. Defaults that SGLang chooses itself are filled in."""
    speculation = speculation_of(fields, around)
    running = fields["max_running_requests"] or (SPECULATION_MAX_RUNNING if speculation else 2048)
    largest = fields["cuda_graph_max_bs"] or (512 if fields["tp_size"] >= 4 else 256)
    graphs = 0 if fields["disable_cuda_graph"] else min(largest, running)
    chunk = fields["chunked_prefill_size"]
    hardware, model = around.scenario.hardware, around.scenario.model
    fraction = fields["mem_fraction_static"]
    replicas, attn_dp = data_parallel_of(fields)
    return Setup(
        all_reduce=all_reduce_of(fields, around),
        speculation=speculation,
        tp_size=fields["tp_size"],
        ep_size=fields["ep_size"],
        attention_backend=attention_of(fields, around),
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
        capability=10 * hardware.capability[0] + hardware.capability[1],
        nvlink=hardware.nvlink,
        replicas=replicas,
        attn_dp=attn_dp,
        prefill_attention=prefill_attention_of(fields, around),
        moe_runner=moe_runner_of(fields, around),
        overlap=overlaps(fields, around, speculation),
        stream_interval=max(1, fields["stream_interval"]),
        mixed_chunk=fields["enable_mixed_chunk"] and speculation is None,
        max_prefill_tokens=max(1, fields["max_prefill_tokens"]),
        conservativeness=fields["schedule_conservativeness"] * (ATTN_DP_CONSERVATIVENESS if attn_dp > 1 else 1.0),
        graph_padding=not fields["disable_cuda_graph_padding"],
        compile_max_bs=fields["torch_compile_max_bs"],
    )


def data_parallel_of(fields: Fields) -> tuple[int, int]:
    """(whole replicas, groups that attention is parallel over within one)."""
    groups = fields.get("attn_dp_size") or 1
    if groups == 1 and fields["enable_dp_attention"]:
        return 1, max(1, fields["dp_size"])
    return max(1, fields["dp_size"]), max(1, groups)


def attention_of(fields: Fields, around: Surroundings) -> str:
    """The backend that decodes."""
    return str(fields["decode_attention_backend"] or fields["attention_backend"] or default_attention(around))


def prefill_attention_of(fields: Fields, around: Surroundings) -> str:
    return str(fields["prefill_attention_backend"] or fields["attention_backend"] or default_attention(around))


def default_attention(around: Surroundings) -> str:
    """SGLang's own choice: FlashAttention 3 on SM90, TensorRT-LLM's on SM100, elsewhere FlashInfer, or Triton for MLA."""
    shape, major = around.scenario.model.shape, around.scenario.hardware.capability[0]
    if shape is None:
        return "triton"
    if major == 9:
        return "fa3"
    if major == 10:
        return "trtllm_mla" if shape.mla_rank else "trtllm_mha"
    return "triton" if shape.mla_rank else "flashinfer"


def moe_runner_of(fields: Fields, around: Surroundings) -> str:
    """The MoE kernel: Marlin for 4-bit weights, else Triton, when nothing is asked for."""
    asked, shape = str(fields["moe_runner_backend"]), around.scenario.model.shape
    if asked != "auto":
        return asked
    return "marlin" if shape is not None and shape.bytes_per_weight < 1 else "triton"


def overlaps(fields: Fields, around: Surroundings, speculation: Speculation | None) -> bool:
    """Whether the scheduler prepares the next batch while the present one runs; with speculation newer releases do."""
    newer = release(around.versions["sglang"]) >= CUDA_GRAPH_SPLIT
    return not fields["disable_overlap_schedule"] and (speculation is None or newer)


def speculation_of(fields: Fields, around: Surroundings) -> Speculation | None:
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


def fusion_wanted(fields: Fields, around: Surroundings) -> bool:
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


def all_reduce_of(fields: Fields, around: Surroundings) -> AllReduce:
    """Which all-reduce the tensor-parallel group gets, with what NCCL was told in the environment."""
    env, hardware = around.env, around.scenario.hardware
    level = env.get("NCCL_P2P_LEVEL", "")
    largest = NVLINK_ONE_SHOT_BYTES if around.scenario.model.shape is not None and hardware.nvlink else ONE_SHOT_BYTES
    reachable = hardware.nvlink or hardware.peer_to_peer or level in ("SYS", "4", "5")
    return AllReduce(
        algorithm=algorithm_of(fields, around),
        max_bytes=around.source.number("CUSTOM_ALL_REDUCE_MAX_BYTES", largest),
        fused=fusion_wanted(fields, around),
        fused_max_bytes=around.source.number("FUSION_MAX_BYTES", 2 * 1024 * 1024),
        channels=_channels(env.get("NCCL_MAX_NCHANNELS", ""), 16),
        peer_to_peer=reachable and env.get("NCCL_P2P_DISABLE", "0") != "1",
        protocols=tuple(part for part in env.get("NCCL_PROTO", "").split(",") if part),
        gpus=fields["tp_size"],
        min_channels=_channels(env.get("NCCL_MIN_NCHANNELS", ""), 1),
        nvls=fields["enable_nccl_nvls"] and hardware.nvlink and hardware.multicast and hardware.capability >= NVLS_FROM,
        tree=env.get("NCCL_ALGO", "").lower().removeprefix("allreduce:") == "tree",
    )


def _channels(text: str, default: int) -> int:
    return max(1, int(text)) if text.isdigit() else default


def algorithm_of(fields: Fields, around: Surroundings) -> AllReduceAlgorithm:
    newer = release(around.versions["sglang"]) >= PCIE_IPC_RELEASE
    if newer and around.env.get("SGLANG_ENABLE_PCIE_IPC_ALLREDUCE") == "1" and fields["tp_size"] in (2, 4, 8):
        return "pcie-ipc"
    if around.scenario.model.shape is not None:
        if fields["enable_mscclpp"]:
            return "mscclpp"
        if fields["enable_torch_symm_mem"] or fields["enable_symm_mem"]:
            return "symmetric"
    if custom_all_reduce_disabled(fields, around):
        return "nccl"
    return "custom"


def custom_all_reduce_disabled(fields: Fields, around: Surroundings) -> bool:
    """SGLang's kernel turns itself off on more than two GPUs without NVLink, unless the source says otherwise."""
    if fields["disable_custom_all_reduce"] or fields["tp_size"] < 2:
        return True
    needs_nvlink = around.source.flag("CUSTOM_ALL_REDUCE_NEEDS_NVLINK", True)
    return fields["tp_size"] > 2 and needs_nvlink and not around.scenario.hardware.nvlink
