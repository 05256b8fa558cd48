"""The load generator against servers that are neither the simulator nor whole: stubs of OpenAI's dialect and of SGLang's,
over real sockets."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from optagent.tools.bench_judging import cached_share, judge
from optagent.tools.calls.bench import Bench, Workload
from optagent.tools.deployment import Deployment
from optagent.tools.live import LiveToolbox
from optagent.tools.load_http import LoadError
from optagent.tools.loadgen import answers, generate_load, server_accept_length, serves

WORKLOAD = Workload(input_len=20, output_len=8, num_prompts=6, max_concurrency=3, warmup_requests=2, flush_cache=False)


@dataclass
class Behaviour:
    """What the stub does, and what it was asked. `info` makes it an SGLang."""

    usage: bool = True
    cached: int | None = None
    tokens: int = 8
    chunk: str = "word "
    event: str | None = None
    status: int = 200
    health: int = 404
    models: Any = field(default_factory=lambda: {"data": [{"id": "tiny"}]})
    info: Any = None
    flush: dict[str, list[int]] = field(default_factory=dict)
    hang: threading.Event | None = None
    asked: list[tuple[str, dict[str, Any]]] = field(default_factory=list)


class Stub(BaseHTTPRequestHandler):
    """A stub of an inference server: it streams the same word a number of times, whatever it is asked."""

    protocol_version = "HTTP/1.1"
    behaviour: Behaviour

    def do_GET(self) -> None:
        if self.path == "/v1/models":
            self._reply(self.behaviour.models)
        elif self.path == "/server_info" and self.behaviour.info is not None:
            self._reply(self.behaviour.info)
        else:
            self._reply({"detail": "Not Found"}, self.behaviour.health if self.path == "/health" else 404)

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = json.loads(raw or b"{}")
        path = self.path.partition("?")[0]
        self.behaviour.asked.append((path, body))
        if path == "/v1/completions" and self.behaviour.status == 200:
            self._stream(body)
        elif path == "/v1/completions":
            self._reply({"error": {"message": "no"}}, self.behaviour.status)
        else:
            left = self.behaviour.flush.get(path, [])
            self._reply({}, left.pop(0) if len(left) > 1 else (left or [404])[0])

    def _stream(self, body: dict[str, Any]) -> None:
        said = self.behaviour
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(b": a comment\n\n")
        for _ in range(said.tokens):
            self._event({"choices": [{"index": 0, "text": said.chunk}], "usage": None})
        if said.hang is not None:
            said.hang.wait(30)
        if said.event is not None:
            self.wfile.write(said.event.encode())
        if said.usage:
            usage: dict[str, Any] = {"prompt_tokens": len(body["prompt"]), "completion_tokens": said.tokens}
            if said.cached is not None:
                usage["prompt_tokens_details"] = {"cached_tokens": said.cached}
            self._event({"choices": [], "usage": usage})
        self.wfile.write(b"data: [DONE]\n\n")
        self.close_connection = True

    def _event(self, event: dict[str, Any]) -> None:
        self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())
        self.wfile.flush()

    def _reply(self, body: Any, status: int = 200) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def handle(self) -> None:
        with suppress(ConnectionError):  # a client that has given up
            super().handle()

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def served(behaviour: Behaviour) -> Iterator[str]:
    handler = type("StubOfThisTest", (Stub,), {"behaviour": behaviour})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            if behaviour.hang is not None:
                behaviour.hang.set()
            server.shutdown()


def line_of(behaviour: Behaviour, workload: Workload = WORKLOAD, **more: Any) -> dict[str, Any]:
    with served(behaviour) as url:
        return generate_load(url, workload, 1, **more)


def test_a_load_in_openai_s_dialect() -> None:
    behaviour = Behaviour(cached=5)
    line = line_of(behaviour)
    assert judge(line, WORKLOAD) == []
    assert (line["backend"], line["completed"], line["simulated"]) == ("openai", 6, False)
    assert (line["total_input_tokens"], line["total_output_tokens"]) == (120, 48)
    assert line["output_throughput"] == pytest.approx(48 / line["duration"])
    assert 0 < line["median_ttft_ms"] <= line["median_e2e_latency_ms"]
    assert line["generated_texts"] == ["word " * 8] * 6
    assert cached_share(line) == 0.25
    assert line["accept_length"] is None
    bodies = [body for path, body in behaviour.asked if path == "/v1/completions"]
    assert len(bodies) == 6 + 2  # the warm-ups too
    first = bodies[0]
    assert (first["model"], first["max_tokens"], first["temperature"], first["ignore_eos"]) == ("tiny", 8, 0.0, True)
    assert (first["stream"], first["stream_options"]) == (True, {"include_usage": True})
    assert len(first["prompt"]) == 20
    assert len({json.dumps(body["prompt"]) for body in bodies}) == 6
    ids = [token for body in bodies for token in body["prompt"]]
    assert 100 <= min(ids) <= max(ids) < 1000, "an id beyond the vocabulary takes a real SGLang down"


def test_prompts_of_a_file_go_as_text(tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").write_text('{"prompt": "What is a tensor?"}\n')
    behaviour = Behaviour()
    custom = WORKLOAD.model_copy(update={"dataset": "custom", "prompts": "p.jsonl"})
    assert judge(line_of(behaviour, custom, root=tmp_path), custom) == []
    assert {body["prompt"] for _, body in behaviour.asked} == {"What is a tensor?"}


@pytest.mark.parametrize(
    ("behaviour", "error"),
    [
        (Behaviour(usage=False), "the stream ended without its usage"),
        (Behaviour(tokens=0), "the stream ended without any text"),
        (Behaviour(chunk=""), "the stream ended without any text"),
        (Behaviour(status=400), "HTTP 400: "),
        (Behaviour(event='data: {"error": {"message": "out of memory"}}\n\n'), "out of memory"),
        (Behaviour(event="data: nonsense\n\n"), "JSONDecodeError"),
        (Behaviour(event="data: [1]\n\n"), "no JSON object"),
        (Behaviour(event='data: {"error": "' + "x" * 5000 + '"}\n\n'), "xxx"),
    ],
    ids=["no usage", "no token", "no text", "refused", "error", "not JSON", "no object", "long error"],
)
def test_requests_that_fail_say_why(behaviour: Behaviour, error: str) -> None:
    line = line_of(behaviour)
    assert line["completed"] == 0
    assert all(error in one and len(one) <= 500 for one in line["errors"])
    assert judge(line, WORKLOAD)


def test_what_a_server_does_not_tell_is_not_known() -> None:
    line = line_of(Behaviour(cached=None))
    assert line["cached_tokens"] == [None] * 6
    assert cached_share(line) is None
    for info in ({}, {"internal_states": []}, {"internal_states": ["x"]}, {"internal_states": [{}]}):
        assert server_accept_length(info) is None
    assert server_accept_length({"internal_states": [{"avg_spec_accept_length": 2.5}]}) == 2.5


def test_answers_shorter_than_asked_do_not_count() -> None:
    [reason] = judge(line_of(Behaviour(tokens=5)), WORKLOAD)
    assert reason == "6 answers are shorter than the 8 tokens asked for, the shortest has 5"


@pytest.mark.parametrize(
    ("info", "flush", "asked"),
    [
        (None, {"/reset_prefix_cache": [200]}, ["/reset_prefix_cache"]),
        (None, {"/flush_cache": [200]}, ["/reset_prefix_cache", "/flush_cache"]),
        ({"version": "1"}, {"/flush_cache": [400, 200]}, ["/flush_cache", "/flush_cache"]),
    ],
    ids=["vLLM", "another", "SGLang, still busy"],
)
def test_the_prefix_cache_is_flushed(info: Any, flush: dict[str, list[int]], asked: list[str]) -> None:
    """The stub has no /generate, so that an SGLang's requests fail; here only the flush matters."""
    behaviour = Behaviour(info=info, flush=flush)
    line_of(behaviour, WORKLOAD.model_copy(update={"flush_cache": True}))
    assert [path for path, _ in behaviour.asked if "cache" in path] == asked
    before = [path for path, _ in behaviour.asked][:2]
    assert not any("cache" in path for path in before), "the warm-up comes first"


@pytest.mark.parametrize(
    ("info", "says"), [(None, "HTTP 404.*set workload.flush_cache = false"), ({"version": "1"}, r"HTTP 404\)$")]
)
def test_a_cache_that_cannot_be_flushed_is_no_result(info: Any, says: str) -> None:
    with pytest.raises(LoadError, match=says):
        line_of(Behaviour(info=info), WORKLOAD.model_copy(update={"flush_cache": True}))


@pytest.mark.parametrize("models", [{"data": []}, {"data": "x"}, [], b"<html>", {"data": [{"id": 3}]}, {"data": [3]}])
def test_a_server_of_another_kind(models: Any) -> None:
    with pytest.raises(LoadError, match="neither SGLang"):
        line_of(Behaviour(models=models))


def test_a_server_that_never_ends_is_given_up() -> None:
    behaviour = Behaviour(hang=threading.Event())
    workload = WORKLOAD.model_copy(update={"warmup_requests": 0})
    began = time.monotonic()
    with pytest.raises(LoadError, match="longer than 1 s"):
        line_of(behaviour, workload, timeout_s=1.0)
    assert time.monotonic() - began < 25, "the requests under way are not waited for"
    assert len(behaviour.asked) == workload.max_concurrency


def test_whether_anybody_answers() -> None:
    with served(Behaviour()) as url:
        assert answers(url, 5.0)
        assert serves(url), "it does not know /health, and says so"
    assert not answers(url, 5.0)
    assert not serves(url)


def test_a_server_that_says_it_is_ill_does_not_serve() -> None:
    with served(Behaviour(health=503)) as url:
        assert not serves(url)


def test_a_server_that_has_died_is_named_before_its_client_s_words(tmp_path: Path) -> None:
    with served(Behaviour()) as url:
        pass
    toolbox = LiveToolbox(tmp_path, Deployment(kind="sglang"), lambda text: None)
    run = toolbox.bench(Bench(key="k", run="r", url=url, workload=WORKLOAD, seed=1, result_file="r.jsonl"))
    [because] = run.invalid_because
    assert because.startswith("the server died while it was measured: ")


def test_a_deployment_without_an_interpreter_is_measured_by_our_own_client(tmp_path: Path) -> None:
    said: list[str] = []
    toolbox = LiveToolbox(tmp_path, Deployment(kind="sglang", host="192.0.2.1"), said.append)
    with served(Behaviour(cached=0)) as url:
        run = toolbox.bench(
            Bench(key="k", run="r", url=url, workload=WORKLOAD, seed=1, result_file="runs/r.jsonl", discard_first=True)
        )
    assert run.valid, run.invalid_because
    assert (run.simulated, run.cache, run.cached_share) == (False, "kept", 0.0)
    assert run.metrics["total_output_tokens"] == 48
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["r.first.jsonl", "r.jsonl"]
    assert said
    assert said[0].startswith("benchmark, first load (discarded): ")
