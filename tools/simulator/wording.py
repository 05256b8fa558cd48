"""SGLang's log lines in the words of two release families: up to 0.5.1x, and from 0.5.20 on."""

from __future__ import annotations

from dataclasses import dataclass

from optagent.tools.simulator.flags import CUDA_GRAPH_SPLIT, release


@dataclass(frozen=True)
class Wording:
    """Templates for `str.format`. Memory in GB as SGLang writes it, times in seconds."""

    new: bool
    import_warning: str
    attention_default: str
    init_begin: str
    init_end: tuple[str, ...]
    load_end: str
    kv_dtype: str | None
    kv_pool: str
    capture_begin: str
    capture_list: str | None
    capture_end: str
    draft_capture_begin: str
    draft_capture_end: str
    model_info: str
    freeze_gc: bool
    prefill_extra: str
    prefill_tail: str
    accept: str
    fusion_default: str
    hints: tuple[str, ...]


OLD = Wording(
    new=False,
    import_warning=(
        "/opt/serving/lib/python3.11/site-packages/torch/cuda/__init__.py:63: FutureWarning: The pynvml package is "
        "deprecated. Please install nvidia-ml-py instead.\n  import pynvml  # type: ignore[import]\n"
    ),
    attention_default="WARNING:sglang.srt.server_args:Attention backend not explicitly specified. Use {backend} backend "
    "by default.\n",
    init_begin="Init torch distributed begin.",
    init_end=("Init torch distributed ends. elapsed={elapsed:.2f} s, mem usage={used:.2f} GB",),
    load_end="Load weight end. type={type}, dtype=torch.bfloat16, avail mem={avail:.2f} GB, mem usage={used:.2f} GB.",
    kv_dtype="Using KV cache dtype: torch.{dtype}",
    kv_pool="KV Cache is allocated. #tokens: {tokens}, KV size: {size:.2f} GB",
    capture_begin="Capture cuda graph begin. This can take up to several minutes. avail mem={avail:.2f} GB",
    capture_list="Capture cuda graph bs {sizes}",
    capture_end="Capture cuda graph end. Time elapsed: {elapsed:.2f} s. mem usage={used:.2f} GB. "
    "avail mem={avail:.2f} GB.",
    draft_capture_begin="Capture draft cuda graph begin. This can take up to several minutes. avail mem={avail:.2f} GB",
    draft_capture_end="Capture draft cuda graph end. Time elapsed: {elapsed:.2f} s. mem usage={used:.2f} GB. "
    "avail mem={avail:.2f} GB.",
    model_info="/get_model_info",
    freeze_gc=False,
    prefill_extra="",
    prefill_tail="",
    accept="accept len: {length:.2f}, accept rate: {rate:.2f}, ",
    fusion_default="Auto enable FlashInfer AllReduce Fusion on SM90/SM100/SM120.",
    hints=(
        "1. set --mem-fraction-static to a smaller value (e.g., 0.8 or 0.7)",
        "2. set --cuda-graph-max-bs to a smaller value (e.g., 16)",
        "3. disable torch compile by not using --enable-torch-compile",
        "4. disable CUDA graph by --disable-cuda-graph. (Not recommended. Huge performance loss)",
    ),
)

NEW = Wording(
    new=True,
    import_warning=(
        "/opt/sglang/python/sglang/launch_server.py:71: UserWarning: 'python -m sglang.launch_server' is still "
        "supported, but 'sglang serve' is the recommended entrypoint.\n  warnings.warn(\n"
    ),
    attention_default="Attention backend not specified. Use {backend} backend by default.",
    init_begin="Init parallel begin.",
    init_end=("Init parallel ends. elapsed={elapsed:.2f} s", "Memory baseline taken. mem usage={used:.2f} GB"),
    load_end="Load weight end. elapsed={elapsed:.2f} s, type={type}, quant=compressed-tensors, "
    "avail mem={avail:.2f} GB, mem usage={used:.2f} GB.",
    kv_dtype=None,
    kv_pool="KV Cache is allocated. dtype: torch.{dtype}, #tokens: {tokens}, KV size: {size:.2f} GB",
    capture_begin="Capture target {what} CUDA graph begin. backend=full, num_tokens_per_req={per_request}, "
    "avail mem={avail:.2f} GB",
    capture_list=None,
    capture_end="Capture target {what} CUDA graph end. bs={sizes}, elapsed={elapsed:.2f} s, mem usage={used:.2f} GB, "
    "avail mem={avail:.2f} GB.",
    draft_capture_begin="Capture draft decode CUDA graph begin. backend=full, num_tokens_per_req=1, "
    "avail mem={avail:.2f} GB",
    draft_capture_end="Capture draft decode CUDA graph end. bs={sizes}, elapsed={elapsed:.2f} s, "
    "mem usage={used:.2f} GB, avail mem={avail:.2f} GB.",
    model_info="/model_info",
    freeze_gc=True,
    prefill_extra="#pending-token: {pending}, ",
    prefill_tail="cuda graph: False, ",
    accept="accept len: {length:.2f}, accept rate: {rate:.2f}, ",
    fusion_default="FlashInfer allreduce fusion is enabled by default.",
    hints=(
        "1. set --mem-fraction-static to a smaller value (e.g., 0.8 or 0.7)",
        "2. set --cuda-graph-max-bs-decode to a smaller value (e.g., 16)",
        "3. disable decode CUDA graph by --cuda-graph-backend-decode=disabled. "
        "(Not recommended. Huge performance loss)",
    ),
)


def wording(sglang_version: str) -> Wording:
    """The words of the release."""
    return NEW if release(sglang_version) >= CUDA_GRAPH_SPLIT else OLD
