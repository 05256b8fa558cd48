"""Sampling answers from a server over a real socket."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from optagent.tools.calls.bench import Sample
from optagent.tools.sample import sample
from optagent.tools.server import launch

if TYPE_CHECKING:
    from conftest import Stubs


class OpenAIStyle(BaseHTTPRequestHandler):
    """A stub that knows only the OpenAI endpoints, and refuses one prompt."""

    def do_GET(self) -> None:
        self._answer(200, {"data": [{"id": "m"}]}) if self.path == "/v1/models" else self._answer(404, {})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path != "/v1/completions":
            return self._answer(404, {})
        if body["prompt"] == "bad":
            return self._answer(500, {"error": "no"})
        choice = {"text": f"{body['model']}:{body['prompt']}", "finish_reason": "stop"}
        return self._answer(200, {"choices": [choice], "usage": {"completion_tokens": 3}})

    def _answer(self, status: int, body: Any) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def openai_url() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), OpenAIStyle)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_answers_come_in_the_order_of_the_prompts(stubs: Stubs, quiet: Callable[[str], None]) -> None:
    launched = launch(stubs.start("healthy"), quiet)
    prompts = [f"p{i}" for i in range(20)]
    sampled = sample(Sample(key="k", url=launched.url or "", prompts=prompts, max_tokens=7, concurrency=4), 10, False)
    assert [answer.text for answer in sampled.answers] == [f"after {prompt}" for prompt in prompts]
    assert {answer.tokens for answer in sampled.answers} == {7}
    assert {answer.finish_reason for answer in sampled.answers} == {"length"}
    assert (sampled.accept_length, sampled.problem) == (2.5, None)


def test_a_server_that_speaks_openai_only(openai_url: str) -> None:
    sampled = sample(Sample(key="k", url=openai_url, prompts=["a", "bad"], max_tokens=7), 10, False)
    assert (sampled.answers[0].text, sampled.answers[0].tokens) == ("m:a", 3)
    assert "HTTP 500" in (sampled.answers[1].error or "")
    assert (sampled.accept_length, sampled.problem) == (None, None)


def test_nobody_answers(free_port: int) -> None:
    sampled = sample(Sample(key="k", url=f"http://127.0.0.1:{free_port}", prompts=["a"], max_tokens=1), 10, False)
    assert sampled.answers[0].error
    assert sampled.problem
