"""The server as a process: what it looks at, what it answers, how it ends."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from conftest import Server, Start

GRAPHS = ("--cuda-graph-max-bs", "128")
SOURCE = "python/sglang/srt/distributed/device_communicators/custom_all_reduce.py"


def events(text: str) -> list[Any]:
    data = [line.removeprefix("data: ") for line in text.splitlines() if line]
    assert data[-1] == "[DONE]"
    return [json.loads(one) for one in data[:-1]]


def test_first_line_says_simulated(served: Server) -> None:
    assert "simulated" in served.log.splitlines()[0]


def test_log_stamps_never_go_back(served: Server) -> None:
    stamps = re.findall(r"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)", served.log)
    assert stamps == sorted(stamps)


def test_server_info(served: Server) -> None:
    info = served.asked("/server_info")
    assert info["simulated"] is True
    assert info["tp_size"] == 8
    assert info["version"] == "0.5.8"
    assert info["internal_states"][0]["memory_usage"]["token_capacity"] == info["max_total_num_tokens"] > 100_000
    assert served.asked("/get_server_info")["scenario"] == info["scenario"]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/model_info", '"model_path": "moonshotai/Kimi-K2.5"'),
        ("/get_model_info", '"simulated": true'),
        ("/v1/models", '"id": "moonshotai/Kimi-K2.5"'),
        ("/metrics", "sglang:generation_tokens_total{"),
        ("/health", ""),
        ("/health_generate", ""),
        ("/flush_cache", "Cache flushed."),
    ],
)
def test_endpoints(served: Server, path: str, expected: str) -> None:
    status, text = served.ask(path)
    assert status == 200
    assert expected in text


def test_unknown_path(served: Server) -> None:
    assert served.ask("/nothing")[0] == 404


def test_generate_is_deterministic_and_counts(served: Server) -> None:
    body = {"text": "Why is the sky blue?", "sampling_params": {"max_new_tokens": 24, "temperature": 0}}
    first, second = (served.asked("/generate", body) for _ in range(2))
    assert first["text"] == second["text"]
    assert first["meta_info"]["completion_tokens"] == 24 == len(first["text"].split())
    assert first["meta_info"]["prompt_tokens"] == 5
    assert first["meta_info"]["finish_reason"]["type"] == "length"
    assert first["meta_info"]["simulated"] is True
    assert first["text"] != served.asked("/generate", body | {"text": "And the grass?"})["text"]


def test_generate_stops_by_itself_unless_told_otherwise(served: Server) -> None:
    body = {"text": "Tell me all.", "sampling_params": {"max_new_tokens": 2000}}
    assert served.asked("/generate", body)["meta_info"]["finish_reason"]["type"] == "stop"
    body["sampling_params"]["ignore_eos"] = True  # type: ignore[index]
    assert served.asked("/generate", body)["meta_info"]["completion_tokens"] == 2000


def test_generate_takes_ids_and_batches(served: Server) -> None:
    sampling = {"max_new_tokens": 4}
    one = served.asked("/generate", {"input_ids": [1, 2, 3], "sampling_params": sampling})
    assert one["meta_info"]["prompt_tokens"] == 3
    many = served.asked("/generate", {"text": ["a", "b"], "sampling_params": sampling})
    assert [len(answer["output_ids"]) for answer in many] == [4, 4]
    rows = served.asked("/generate", {"input_ids": [[1], [2, 3]], "sampling_params": sampling})
    assert [answer["meta_info"]["prompt_tokens"] for answer in rows] == [1, 2]


def test_generate_streams_text_so_far(served: Server) -> None:
    body = {"text": "Count.", "sampling_params": {"max_new_tokens": 6}, "stream": True}
    chunks = events(served.ask("/generate", body)[1])
    assert [chunk["meta_info"]["completion_tokens"] for chunk in chunks] == [1, 2, 3, 4, 5, 6]
    assert chunks[-1]["text"].startswith(chunks[0]["text"])
    assert chunks[-1]["meta_info"]["finish_reason"]["type"] == "length"


def test_completions(served: Server) -> None:
    answer = served.asked("/v1/completions", {"prompt": "Once", "max_tokens": 5, "temperature": 0})
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["completion_tokens"] == 5
    told = {"temperature": 0, "stream": True, "stream_options": {"include_usage": True}}
    chunks = events(served.ask("/v1/completions", {"prompt": "Once", "max_tokens": 5} | told)[1])
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks[:-1]) == answer["choices"][0]["text"]
    assert chunks[-1]["usage"]["completion_tokens"] == 5


def test_chat_completions(served: Server) -> None:
    body: dict[str, Any] = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 7, "temperature": 0}
    answer = served.asked("/v1/chat/completions", body)
    said = answer["choices"][0]["message"]["content"]
    assert len(said.split()) == 7
    chunks = events(served.ask("/v1/chat/completions", body | {"stream": True})[1])
    assert "".join(chunk["choices"][0]["delta"]["content"] for chunk in chunks) == said


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "should be provided"),
        ({"text": "x", "sampling_params": {"max_new_tokens": 10**7}}, "exceeds the model's maximum context length"),
        ([1], "not a JSON object"),
    ],
)
def test_bad_requests(served: Server, body: Any, message: str) -> None:
    status, text = served.ask("/generate", body)
    assert status == 400
    assert message in text


def test_flush_cache_forgets_prompts(served: Server) -> None:
    body = {"text": "the same prompt " * 40, "sampling_params": {"max_new_tokens": 2}}
    served.ask("/flush_cache", {})
    cached = [served.asked("/generate", body)["meta_info"]["cached_tokens"] for _ in range(2)]
    assert cached[0] == 0 < cached[1]
    served.ask("/flush_cache", {})
    assert served.asked("/generate", body)["meta_info"]["cached_tokens"] == 0


def test_health_is_503_until_warm(known_good: Path, start: Start) -> None:
    server = start(known_good, *GRAPHS, OPTAGENT_SIMULATION_SPEED="600", launch="slow-warm-up")
    server.wait_for("Uvicorn running on")
    assert server.ask("/health")[0] == 503 or "ready to roll" in server.log
    server.wait_ready()


def test_environment_is_really_imported(changeable: Path, start: Start) -> None:
    site = changeable / "environments/cu128/sitecustomize.py"
    site.write_text('import os\nos.environ["NCCL_ALGO"] = "Tree"\n')
    server = start(changeable)
    assert server.wait_dead() == -signal.SIGKILL
    assert "NCCL_ALGO was set to Tree" in server.log


def test_source_is_really_read(changeable: Path, start: Start) -> None:
    path = changeable / "checkout" / SOURCE
    path.write_text(path.read_text().replace("NEEDS_NVLINK = True", "NEEDS_NVLINK = False"))
    server = start(changeable)
    server.wait_ready()
    assert server.asked("/server_info")["setup"]["all_reduce"]["algorithm"] == "custom"
    assert "Custom allreduce is disabled" not in server.log


def test_fusion_needs_cuda_13(known_good: Path, start: Start) -> None:
    flag = "--enable-flashinfer-allreduce-fusion"
    dead = start(known_good, *GRAPHS, flag)
    assert dead.wait_dead() != 0
    assert "Capture cuda graph failed: FlashInfer trtllm_allreduce_fusion" in dead.log
    ready = start(known_good, *GRAPHS, flag, environment="cu13")
    ready.wait_ready()
    assert ready.asked("/server_info")["setup"]["all_reduce"]["fused"] is True


def test_unknown_flag_exits_with_2(known_good: Path, start: Start) -> None:
    server = start(known_good, "--no-such-flag", "1")
    assert server.wait_dead() == 2
    assert "usage: launch_server.py" in server.log
    assert "unrecognized arguments: --no-such-flag 1" in server.log


def test_help_is_on_stdout() -> None:
    command = [sys.executable, "-m", "optagent.tools.simulator", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "--speculative-num-draft-tokens" in done.stdout
    assert done.stderr == ""


def test_sigterm_while_serving(known_good: Path, start: Start) -> None:
    server = start(known_good)
    server.wait_ready()
    server.process.terminate()
    assert server.wait_dead() == -signal.SIGKILL
    assert "SIGTERM received." in server.log
    assert "Gracefully exiting... Remaining number of requests 0." in server.log


def test_sigterm_while_loading(known_good: Path, start: Start) -> None:
    server = start(known_good, OPTAGENT_SIMULATION_SPEED="1")
    server.wait_for("server_args=")
    server.process.terminate()
    server.wait_dead()
    assert "fired up" not in server.log


def test_port_taken_is_alive_and_serves_nothing(known_good: Path, start: Start) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        server = start(known_good, port=holder.getsockname()[1])
        server.wait_for("Application shutdown complete.")
        assert "[Errno 98] error while attempting to bind on address ('127.0.0.1'" in server.log
        assert "address already in use" in server.log
        assert server.process.poll() is None
        assert "fired up" not in server.log
        server.process.terminate()
        server.wait_dead()
