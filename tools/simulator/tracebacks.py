"""Tracebacks as the ranks of a failing launch print them. Paths and line numbers are illustrative."""

from __future__ import annotations

from dataclasses import dataclass

SGLANG = "/opt/sglang/python/sglang/srt"
PACKAGES = "/opt/serving/lib/python3.11/site-packages"


@dataclass(frozen=True)
class Frame:
    file: str
    line: int
    function: str
    code: str


def sglang(file: str, line: int, function: str, code: str) -> Frame:
    return Frame(f"{SGLANG}/{file}", line, function, code)


SCHEDULER = (
    sglang("managers/scheduler.py", 2774, "run_scheduler_process", "scheduler = Scheduler("),
    sglang("managers/scheduler.py", 311, "__init__", "self.init_model_worker()"),
    sglang("managers/tp_worker.py", 237, "__init__", "self._model_runner = ModelRunner("),
    sglang("model_executor/model_runner.py", 345, "__init__", "self.initialize(min_per_gpu_memory)"),
)
CAPTURE_OUTER = (
    *SCHEDULER,
    sglang("model_executor/model_runner.py", 535, "initialize", "self.init_device_graphs()"),
    sglang("model_executor/model_runner.py", 2442, "init_device_graphs", "graph_runners[self.device](self)"),
    sglang("model_executor/cuda_graph_runner.py", 368, "__init__", "raise Exception("),
)
CAPTURE_INNER = (
    sglang("model_executor/cuda_graph_runner.py", 366, "__init__", "self.capture()"),
    sglang("model_executor/cuda_graph_runner.py", 485, "capture", "self.capture_one_batch_size(bs, forward)"),
    sglang("model_executor/cuda_graph_runner.py", 657, "run_once", "logits_output_or_pp_proxy_tensors = forward("),
    sglang("models/deepseek_v2.py", 2711, "forward", "hidden_states, residual = layer("),
    Frame(f"{PACKAGES}/torch/nn/modules/module.py", 1786, "_call_impl", "return forward_call(*args, **kwargs)"),
)
INIT = {
    "arguments": (
        sglang("launch_server.py", 36, "<module>", "server_args = prepare_server_args(sys.argv[1:])"),
        sglang("server_args.py", 4711, "__post_init__", "self.check_server_args()"),
    ),
    "distributed-init": (
        *SCHEDULER,
        sglang(
            "model_executor/model_runner.py", 618, "init_torch_distributed", "torch.get_device_module().set_device("
        ),
    ),
    "symm-mem": (
        *SCHEDULER,
        sglang(
            "distributed/parallel_state.py", 388, "__init__", "self.torch_symm_mem_comm = TorchSymmMemCommunicator("
        ),
        sglang("distributed/device_communicators/torch_symm_mem.py", 71, "__init__", "raise RuntimeError("),
    ),
    "weights": (
        *SCHEDULER,
        sglang("model_executor/model_runner.py", 890, "load_model", "self.model = get_model("),
        sglang("layers/moe/fused_moe_triton/layer.py", 214, "__init__", "self.quant_method.create_weights("),
    ),
    "moe-dispatch": (
        *SCHEDULER,
        sglang("model_executor/model_runner.py", 890, "load_model", "self.model = get_model("),
        sglang("layers/moe/token_dispatcher/flashinfer.py", 96, "__init__", "self.workspace = MoeAlltoAll("),
    ),
    "pool": (
        *SCHEDULER,
        sglang("model_executor/model_runner.py", 1720, "init_memory_pool", "self.token_to_kv_pool = MLATokenToKVPool("),
    ),
    "attention": (
        *SCHEDULER,
        sglang("model_executor/model_runner.py", 1905, "init_attention_backend", "self._get_attention_backend()"),
        sglang("layers/attention/attention_registry.py", 121, "wrapper", "return fn(runner)"),
    ),
}
FORWARD = {
    "attention": sglang("layers/attention/trtllm_mla_backend.py", 611, "forward_decode", "raw_out = mla_decode("),
    "memory": sglang("layers/logits_processor.py", 884, "_get_logits", "logits = torch.matmul(hidden, lm_head.T)"),
    "nccl": sglang("distributed/device_communicators/pynccl_wrapper.py", 401, "NCCL_CHECK", "raise RuntimeError("),
}


def init_frames(what: str) -> tuple[Frame, ...]:
    return INIT[what]


def forward_frames(what: str) -> tuple[Frame, ...]:
    return (FORWARD[what],)


def flashinfer_frames() -> tuple[Frame, ...]:
    """From the layer's communicator down into the run-time compilation of FlashInfer's all-reduce."""
    package = f"{PACKAGES}/flashinfer"
    return (
        sglang("layers/communicator.py", 612, "prepare_mlp", "layernorm.forward_with_allreduce_fusion("),
        sglang("layers/flashinfer_comm_fusion.py", 181, "flashinfer_allreduce_residual_rmsnorm", "ensure_workspace("),
        Frame(
            f"{package}/comm/trtllm_ar.py", 451, "trtllm_create_ipc_workspace_for_all_reduce_fusion", "comm_module ="
        ),
        Frame(
            f"{package}/comm/trtllm_ar.py", 98, "get_trtllm_comm_module", "gen_trtllm_comm_module().build_and_load()"
        ),
        Frame(f"{package}/compilation_context.py", 68, "get_nvcc_flags_list", "raise RuntimeError("),
    )


def traceback_text(frames: tuple[Frame, ...], error: str) -> str:
    """A traceback as Python prints it, with a newline at the end."""
    lines = ["Traceback (most recent call last):"]
    for frame in frames:
        lines += [f'  File "{frame.file}", line {frame.line}, in {frame.function}', f"    {frame.code}"]
    return "\n".join([*lines, error, ""])


def capture_text(frames: tuple[Frame, ...], error: str, hints: tuple[str, ...]) -> str:
    """A failure inside graph capture: the cause, and the wrapper with the hints SGLang prints for every cause."""
    message = error.split(": ", 1)[1]
    wrapped = "\n".join([f"Exception: Capture cuda graph failed: {message}", "Possible solutions:", *hints])
    link = "Open an issue on GitHub https://github.com/sgl-project/sglang/issues/new/choose "
    return (
        traceback_text((*CAPTURE_INNER, *frames), error)
        + "\nDuring handling of the above exception, another exception occurred:\n\n"
        + traceback_text(CAPTURE_OUTER, f"{wrapped}\n{link}")
    )
