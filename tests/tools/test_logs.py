"""Reading logs: SGLang's wording in small made-up logs, and any bytes at all."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optagent.tools.calls.logs import LogReading
from optagent.tools.logs import LogReader, read_log

STAMP = "[2026-05-01 10:00:00"
SETTINGS = f"{STAMP}] server_args={{'model_path': 'm'}}"
LOADING = [SETTINGS, f"{STAMP} TP0] Load weight begin. avail mem=79.1 GB", f"{STAMP} TP1] Load weight begin."]
LOADED = [*LOADING, f"{STAMP} TP0] Load weight end. avail mem=40 GB", f"{STAMP} TP1] Load weight end. avail mem=40 GB"]
CAPTURING = [
    *LOADED,
    f"{STAMP} TP0] KV Cache is allocated. dtype: bf16, #tokens: 9000, K size: 1 GB",
    f"{STAMP} TP0] Capture target decode CUDA graph begin. backend=full",
    f"{STAMP} TP1] Capture target decode CUDA graph begin. backend=full",
]
SERVING = [
    *CAPTURING,
    f"{STAMP} TP0] max_total_num_tokens=9000, context_len=4096, available_gpu_mem=5 GB",
    f"{STAMP}] INFO:     Uvicorn running on http://0.0.0.0:30000",
    f"{STAMP}] The server is fired up and ready to roll!",
]
WORDS = [
    *SERVING,
    "Traceback (most recent call last):",
    "RuntimeError: x",
    "\r50%|##| 1/2 [",
    "\x1b[31m",
    "",
    "error: ",
    "terminate called after throwing",
    "During handling of the above exception, another exception occurred:",
    "Possible solutions:",
    "[rank1]:[E0101 10:00:00.1 x.cpp:1] CUDA error: out of memory",
    f"{STAMP} TP0] Decode batch, #running-req: 9, accept len: 1.00, cuda graph: False, #queue-req: 3",
    f"{STAMP}] Health check failed.",
    f"{STAMP}] Scheduler hit an exception: Traceback (most recent call last):",
    '{"log": "' + STAMP + "] x",
    f"{STAMP}] SIGTERM received.",
]


def traceback(error: str, rank: str = " TP1") -> list[str]:
    return [
        f"{STAMP}] Received sigquit from a child process. It usually means the child failed.",
        f"{STAMP}{rank}] Scheduler hit an exception: Traceback (most recent call last):",
        '  File "x.py", line 1, in f',
        "    run()",
        error,
        "",
    ]


def read(lines: list[str], alive: bool | None = None) -> LogReading:
    reader = LogReader()
    reader.feed("\n".join(lines).encode() + b"\n")
    return reader.reading(alive)


@pytest.mark.parametrize(
    ("lines", "phase"),
    [
        ([], "arguments"),
        ([SETTINGS], "arguments"),
        (LOADING, "weight-load"),
        ([*LOADING, LOADED[-1]], "weight-load"),  # one of two ranks is further
        (LOADED, "memory-pool"),
        (CAPTURING, "graph-capture"),
        (SERVING[:-1], "warmup"),
    ],
)
def test_a_launch_is_as_far_as_its_slowest_rank(lines: list[str], phase: str) -> None:
    reading = read(lines)
    assert (reading.status, reading.phase, reading.cause) == ("starting", phase, None)
    assert reading.action is not None
    assert reading.action.kind == "wait"


@pytest.mark.parametrize(
    ("pool", "kv_gb"),
    [
        ("KV Cache is allocated. dtype: torch.bfloat16, #tokens: 17920, K size: 0.74 GB, V size: 0.75 GB", 1.49),
        ("KV Cache is allocated. #tokens: 17920, KV size: 12.30 GB", 12.3),
        ("KV Cache is allocated. #tokens: 17920", None),
    ],
)
def test_how_weights_and_kv_cache_divide_the_memory(pool: str, kv_gb: float | None) -> None:
    load = "Load weight end. elapsed=43.94 s, type=LlamaForCausalLM, avail mem=7.70 GB, mem usage={} GB."
    said = [
        f"[2026-04-20 07:50:19 TP{rank}] {text}"
        for rank, gb in ((1, "70.50"), (0, "70.25"))
        for text in (load.format(gb), pool)
    ]
    reading = read([*SERVING[:1], *said])
    assert (reading.weights_gb, reading.kv_gb, reading.kv_tokens) == (70.5, pytest.approx(kv_gb), 17920)


def test_a_server_that_serves() -> None:
    reading = read(SERVING)
    assert (reading.status, reading.phase, reading.cause) == ("ready", "serving", None)
    assert (reading.kv_tokens, reading.context_len) == (9000, 4096)


@pytest.mark.parametrize(
    ("lines", "kind"),
    [(LOADING, "gpu-oom-weights"), (LOADED, "gpu-oom-pool"), (CAPTURING, "gpu-oom-graph-capture"),
     (SERVING, "gpu-oom-runtime")],
)  # fmt: skip
def test_out_of_memory_means_another_thing_in_each_phase(lines: list[str], kind: str) -> None:
    reading = read([*lines, *traceback("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1 GiB")])
    assert reading.status == "crashed"
    assert reading.cause is not None
    assert (reading.cause.kind, reading.cause.rank) == (kind, 1)
    assert reading.cause.evidence[0].line == len(lines) + 5


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ("ValueError: Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static=0.7",
         "memory-fraction-too-low"),
        ("RuntimeError: FlashInfer allreduce fusion requires SM90 or SM10X NVIDIA GPUs.", "allreduce-unsupported"),
        ("AssertionError: FlashAttention v3 Backend requires SM>=80 and SM<=90.", "attention-backend-unsupported"),
        ("RuntimeError: CUDA error: no kernel image is available for execution on the device", "unsupported-arch"),
        ("ImportError: x.so: undefined symbol: _ZN5torch", "package-mismatch"),
        ("ModuleNotFoundError: No module named 'sgl_kernel'", "package-mismatch"),
        ("ValueError: output_size = 192 is not divisible by weight quantization block_n = 128.",
         "quantization-mismatch"),
        ("torch._dynamo.exc.Unsupported: Data-dependent branching", "graph-capture-incompatible"),
        ("AttributeError: 'TorchNativeAttnBackend' object has no attribute 'init_cpu_graph_state'",
         "graph-capture-incompatible"),
        ("torch.AcceleratorError: CUDA error: an illegal memory access was encountered", "illegal-memory-access"),
        ("torch.distributed.DistBackendError: NCCL error in: NCCLUtils.cpp:94", "collective-error"),
        ("RuntimeError: [pair.cc:534] Connection closed by peer [192.0.2.1]:1", "peer-died"),
        ("requests.exceptions.HTTPError: 401 Client Error: Unauthorized for url", "download-failed"),
        ("ValueError: Model architectures ['X'] are not supported for now. Supported architectures: y",
         "model-unsupported"),
        ("RuntimeError: DeepEP error: timeout", "expert-parallel"),
        ("RuntimeError: nobody has seen this before", "unknown"),
        ("OSError: [Errno 28] No space left on device", "download-failed"),
        ("RuntimeError: unable to write to file </torch_12_34_0>: No space left on device (28)", "host-memory"),
        ("OSError: [Errno 12] Cannot allocate memory", "host-memory"),
        ("RuntimeError: out of resource: shared memory, Required: 3, Hardware limit: 2.", "unsupported-arch"),
        ("ImportError: libcuda.so.1: cannot open shared object file: No such file or directory", "driver"),
        ("ImportError: libnuma.so.1: cannot open shared object file: No such file or directory", "package-mismatch"),
        ("ConnectionRefusedError: [Errno 111] Connection refused", "peer-died"),
        ("zmq.error.ZMQError: Address already in use (addr='tcp://127.0.0.1:9')", "port-in-use"),
        ("torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 1/2 clients joined.",
         "collective-error"),
        ("requests.exceptions.HTTPError: 503 Server Error: Service Unavailable for url: https://x", "download-failed"),
        ("RuntimeError: The size of tensor a (3) must match the size of tensor b (4)", "unknown"),
    ],
)  # fmt: skip
def test_kinds_of_failures(error: str, kind: str) -> None:
    reading = read([*CAPTURING, *traceback(error)])
    assert reading.cause is not None
    assert reading.cause.kind == kind


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("Subprocess scheduler_1 (pid=7) crashed with exit code -7. Triggering SIGQUIT for cleanup...", "host-memory"),
        ("Subprocess scheduler_1 (pid=7) crashed with exit code -11. Triggering SIGQUIT for cleanup...", "unknown"),
        ("Child process unexpectedly failed with an exit code 9. pid=7", "host-memory"),
        ("Rank 1 scheduler died during initialization (exit code: -9).", "host-memory"),
    ],
)
def test_deaths_without_a_traceback(line: str, kind: str) -> None:
    reading = read([*LOADING, f"{STAMP}] {line}", f"{STAMP}] Received sigquit from a child process."])
    assert reading.cause is not None
    assert (reading.status, reading.cause.kind, reading.cause.evidence[0].line) == ("crashed", kind, len(LOADING) + 1)


def test_a_killed_server_that_served_does_not_prove_a_lack_of_memory() -> None:
    cause = read([*SERVING, f"{STAMP}] Subprocess scheduler_0 (pid=7) crashed with exit code -9."]).cause
    assert cause is not None
    assert (cause.kind, cause.rank) == ("unknown", 0)


@pytest.mark.parametrize(
    "lines",
    [
        ["terminate called after throwing an instance of 'c10::AcceleratorError'",
         "  what():  CUDA error: an illegal memory access was encountered"],
        ["[rank1]:[E1205 10:00:00.1 ProcessGroupNCCL.cpp:2] Process group watchdog thread terminated with exception: "
         "CUDA error: an illegal memory access was encountered", "terminate called after throwing an instance of 'X'"],
    ],
)  # fmt: skip
def test_what_kills_cplusplus_is_read_as_well(lines: list[str]) -> None:
    cause = read([*SERVING, *lines]).cause
    assert cause is not None
    assert cause.kind == "illegal-memory-access"


WRAPPED = [
    "sglang-1  | {}",
    "[pod/llm-0/server] {}",
    "2026-05-01T10:00:00.123456789Z stdout F {}",
    "(Worker pid=7, ip=192.0.2.1) {}",
    "May 01 10:00:00 node-1 sglang[77]: {}",
    "2026-05-01 10:00:00,531 - __main__ - INFO - {}",
    "llm-7f-x2 server {}",  # known to none, learnt from stamped lines
    "\x1b[36m{}\x1b[0m",
    "{}\r",
]


@pytest.mark.parametrize("wrapper", WRAPPED)
def test_collectors_do_not_hide_a_cause(wrapper: str) -> None:
    lines = [*CAPTURING, *traceback("ImportError: x.so: undefined symbol: _ZN5torch")]
    plain, wrapped = read(lines), read([wrapper.format(line) for line in lines])
    assert wrapped == plain


def test_an_unknown_collector_is_learnt_from_a_traceback() -> None:
    lines = [
        "Traceback (most recent call last):",
        '  File "x.py", line 1, in f',
        "    import y",
        "ImportError: y.so: undefined symbol: z",
    ]
    wrapped = [f"server 17 stderr | {line}" for line in lines]
    assert read(wrapped) == read(lines)


def test_json_lines() -> None:
    lines = [*CAPTURING, *traceback("ImportError: x.so: undefined symbol: _ZN5torch")]
    wrapped = [json.dumps({"log": line + "\n", "stream": "stderr"}) for line in lines]
    assert read([*wrapped[:-1], wrapped[-1][:-9]]) == read(lines)


def test_a_rank_that_goes_on_was_not_at_its_end() -> None:
    caught = [
        f"{STAMP} TP0] Setup of something optional failed: Traceback (most recent call last):",
        "ValueError: x must be y",
    ]
    reading = read([*LOADING, *caught, *LOADED[-2:]])
    assert (reading.status, reading.cause) == ("starting", None)


def test_what_the_parent_survived_was_not_its_end() -> None:
    optional = [
        "Traceback (most recent call last):",
        '  File "x.py", line 1, in f',
        "    import y",
        "ImportError: No module named y",
    ]
    assert read([SETTINGS, *optional, *LOADING[1:]]).status == "starting"
    assert read([SETTINGS, *optional]).status == "crashed"


def test_a_death_before_the_settings_belongs_to_the_next_run() -> None:
    died = [*LOADING, *traceback("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1 GiB")]
    again = ["+ exec python3 -m sglang.launch_server --tp 2", "launch_server.py: error: unrecognized arguments: --x"]
    cause = read([*died, *again]).cause
    assert cause is not None
    assert (cause.kind, cause.evidence[0].line) == ("config-error", len(died) + 2)


def test_ranks_write_into_each_other() -> None:
    lines = [*LOADED, *traceback("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1 GiB")]
    at = len(lines) - 3
    others = [
        f"{STAMP} TP0] Memory pool end. avail mem=9 GB",
        f'{STAMP}] INFO:     1.2.3.4:5 - "GET /health HTTP/1.1" 503',
        "x 5%| 1/9 [",
    ]
    cause = read([*lines[:at], *others, *lines[at:]]).cause
    assert cause is not None
    assert (cause.kind, cause.rank, cause.evidence[0].line) == ("gpu-oom-pool", 1, len(lines) + 2)


def test_hints_for_every_cause_are_no_evidence() -> None:
    lines = [
        *CAPTURING,
        *traceback("RuntimeError: nobody knows")[:-1],
        "Possible solutions:",
        "1. disable torch.compile",
    ]
    cause = read(lines).cause
    assert cause is not None
    assert cause.kind == "unknown"


NASTY = [
    b"1" * 60_000,
    b"1%" * 30_000,
    b"a." * 30_000,
    b"\x1b[" * 30_000,
    b'{"log": "' * 7_000,
    b"[2026-01-01 10:00:00" * 3_000,
]


@pytest.mark.parametrize("line", NASTY, ids=lambda n: n[:8].decode())
def test_no_line_takes_more_than_linear_time(line: bytes) -> None:
    began = time.monotonic()
    reader = LogReader()
    reader.feed(b"Traceback (most recent call last):\n" + (line + b"\n") * 16)
    reader.reading(None)
    assert time.monotonic() - began < 5  # a megabyte; quadratic would be minutes


def test_a_wrapper_is_not_the_cause() -> None:
    inner = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1 GiB"
    chained = [
        *traceback(inner),
        "During handling of the above exception, another exception occurred:",
        "",
        "Traceback (most recent call last):",
        '  File "y.py", line 2, in g',
        f"Exception: Capture cuda graph failed: {inner}",
        "Possible solutions:",
        "1. set --mem-fraction-static to a smaller value (e.g., 0.8 or 0.7)",
    ]
    cause = read([*CAPTURING, *chained]).cause
    assert cause is not None
    assert cause.evidence[0].line == len(CAPTURING) + 5


def test_the_loss_of_a_peer_explains_less_than_what_killed_it() -> None:
    peer = traceback("RuntimeError: Connection closed by peer [192.0.2.1]:1", rank=" TP0")
    cause = read([*CAPTURING, *peer, *traceback("RuntimeError: an illegal memory access was encountered")]).cause
    assert cause is not None
    assert (cause.kind, cause.rank) == ("illegal-memory-access", 1)


@pytest.mark.parametrize("program", ["launch_server.py", "sglang serve"])
def test_refused_arguments(program: str) -> None:
    reading = read(["usage: launch_server.py [-h]", f"{program}: error: unrecognized arguments: --nope"])
    assert (reading.status, reading.phase) == ("crashed", "arguments")
    assert reading.cause is not None
    assert reading.cause.kind == "config-error"


def test_a_taken_http_port() -> None:
    reader = LogReader()
    reader.feed(f"{STAMP}] ERROR:    [Errno 98] error while attempting to bind: address already in use\n".encode())
    assert reader.http_port_taken
    cause = reader.reading(alive=True).cause
    assert cause is not None
    assert cause.kind == "port-in-use"


def test_a_dead_process_without_a_word() -> None:
    reading = read(LOADING, alive=False)
    assert reading.status == "crashed"
    assert reading.cause is not None
    assert (reading.cause.kind, reading.confidence) == ("unknown", "low")
    assert reading.cause.evidence[0].line == len(LOADING)


def test_a_server_that_was_asked_to_stop() -> None:
    lines = [*SERVING, f"{STAMP}] SIGTERM received. signum=15", f"{STAMP}] Gracefully exiting... Remaining number 0."]
    assert read(lines, alive=False).status == "stopped"


def test_a_request_that_failed_is_no_crash() -> None:
    lines = [*SERVING, "ERROR:    Exception in ASGI application", "Traceback (most recent call last):", "KeyError: 'x'"]
    assert read(lines).status == "ready"


def test_the_last_run_of_the_file_counts() -> None:
    crashed = [*CAPTURING, *traceback("RuntimeError: illegal memory access")]
    reading = read([*crashed, *LOADING])
    assert (reading.status, reading.phase, reading.cause) == ("starting", "weight-load", None)


def test_a_second_load_is_the_draft_model() -> None:
    reading = read([*CAPTURING, *LOADING[1:]])
    assert (reading.status, reading.phase) == ("starting", "weight-load")


def test_a_bar_is_progress_before_its_line_ends() -> None:
    reader = LogReader()
    reader.feed("\n".join(LOADING).encode() + b"\n\rLoading shards:  10% Completed | 1/10 [00:01")
    assert "10% Completed" in reader.reading(alive=True).last_progress
    reader.feed(b"\rLoading shards:  20% Completed | 2/10 [00:02")
    assert reader.reading(alive=True).last_progress.startswith("Loading shards:  20%")


def test_colours_and_bars_do_not_hide_a_message(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    bar = b"\rCapturing batches: 50%|# | 1/2 [00:01\r"
    log.write_bytes(b"\x1b[32m" + SETTINGS.encode() + b"\x1b[0m\r\n" + bar + CAPTURING[-1].encode() + b"\r\n")
    assert read_log(log, alive=True).phase == "graph-capture"


def test_no_such_log(tmp_path: Path) -> None:
    assert not read_log(tmp_path / "none.log", None).exists
    assert not read_log(tmp_path, None).exists


@given(st.binary(max_size=2000), st.sampled_from([True, False, None]))
def test_any_bytes_give_a_reading(data: bytes, alive: bool | None) -> None:
    reader = LogReader()
    reader.feed(data)
    reader.reading(alive)
    reader.finish()
    reader.reading(alive)


@given(st.lists(st.sampled_from(WORDS) | st.text(max_size=80), max_size=30), st.data())
def test_pieces_read_like_the_whole(lines: list[str], data: st.DataObject) -> None:
    whole = "\n".join(lines).encode("utf-8", errors="surrogatepass")
    at = data.draw(st.integers(0, len(whole)))
    one, two = LogReader(), LogReader()
    one.feed(whole)
    two.feed(whole[:at])
    two.feed(whole[at:])
    for reader in (one, two):
        reader.finish()
    assert one.reading(None) == two.reading(None)


def test_a_line_without_end_takes_constant_memory() -> None:
    reader = LogReader()
    for _ in range(64):
        reader.feed(b"x" * 1024 * 1024)
    reader.feed(b"\n" + SETTINGS.encode() + b"\n")
    assert reader.reading(None).status == "starting"
