"""The HTTP endpoints of the simulated server."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from optagent.tools.simulator import answers
from optagent.tools.simulator.batching import OutOfRoom
from optagent.tools.simulator.loads import HEADER, LoadStalled
from optagent.tools.simulator.log import Log
from optagent.tools.simulator.serving import BadRequest, Generated, Prompt, Service


@dataclass
class Front:
    """What the handlers share. `ready` turns True when the warm-up is over; `die` ends the server, which ran out of memory."""

    service: Service
    log: Log
    speed: float
    die: Callable[[OutOfRoom], None]
    ready: bool = False

    @property
    def model(self) -> str:
        return str(self.service.fields["served_model_name"] or self.service.fields["model_path"])


class HttpServer(ThreadingHTTPServer):
    """One thread a connection; a burst of clients does not overflow the queue of new connections."""

    daemon_threads = True
    request_queue_size = 512
    front: Front


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1
    disable_nagle_algorithm = True
    server: HttpServer

    def do_GET(self) -> None:
        self._answer(GET)

    def do_POST(self) -> None:
        self._answer(POST)

    @property
    def front(self) -> Front:
        return self.server.front

    def body(self) -> dict[str, Any]:
        """The JSON body; raises BadRequest when it is none."""
        try:
            body = json.loads(self._raw or b"{}")
        except ValueError as error:
            raise BadRequest(f"the body is not JSON: {error}") from error
        if not isinstance(body, dict):
            raise BadRequest("the body is not a JSON object")
        return body

    def reply(self, body: Any, status: HTTPStatus = HTTPStatus.OK, kind: str = "application/json") -> None:
        data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        self.log_reply(status)
        self.send_response_only(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def stream(self, answer: Generated, chunks: Iterable[dict[str, Any]]) -> None:
        """Server-sent events, paced by the virtual time the answer took."""
        self.log_reply(HTTPStatus.OK)
        self.send_response_only(HTTPStatus.OK)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        events = [json.dumps(chunk) for chunk in chunks]
        pause_s = (answer.job.finished_s - answer.job.first_token_s) / self.front.speed / max(1, len(events))
        for event in (*events, "[DONE]"):
            data = f"data: {event}\n\n".encode()
            self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
            self.wfile.flush()
            if pause_s > 0.001:
                time.sleep(pause_s)
        self.wfile.write(b"0\r\n\r\n")

    def log_reply(self, status: HTTPStatus) -> None:
        host, port = self.client_address[:2]
        self.front.log.line(
            f'INFO:     {host}:{port} - "{self.command} {self.path} HTTP/1.1" {status.value} {status.phrase}'
        )

    def log_message(self, format: str, *args: Any) -> None:
        """SGLang's log has its own lines."""

    def _answer(self, routes: dict[str, Callable[[Handler], None]]) -> None:
        self._raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        route = routes.get(self.path.partition("?")[0])
        try:
            if route is None:
                self.reply({"detail": "Not Found"}, HTTPStatus.NOT_FOUND)
            else:
                route(self)
        except BadRequest as error:
            self.reply({"error": {"message": str(error), "type": "BadRequestError"}}, HTTPStatus.BAD_REQUEST)
        except OutOfRoom as error:
            self.front.die(error)
        except LoadStalled as error:
            self.reply({"error": {"message": str(error)}}, HTTPStatus.INTERNAL_SERVER_ERROR)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True


def health(handler: Handler) -> None:
    status = HTTPStatus.OK if handler.front.ready else HTTPStatus.SERVICE_UNAVAILABLE
    handler.reply("", status)


def generate(handler: Handler) -> None:
    body = handler.body()
    front = handler.front
    sampling = body.get("sampling_params") or {}
    prompts = answers.native_prompts(body)
    made = front.service.generate(
        prompts, sampling, handler.headers.get(HEADER), answers.scored_from(body, len(prompts))
    )
    if body.get("stream"):
        handler.stream(made[0], answers.native_chunks(made[0]))
    elif answers.is_batch(body):
        handler.reply([answers.native_answer(one) for one in made])
    else:
        handler.reply(answers.native_answer(made[0]))


def completions(handler: Handler) -> None:
    body = handler.body()
    front = handler.front
    made = front.service.generate(
        answers.completion_prompts(body), answers.sampling_of(body), handler.headers.get(HEADER)
    )
    if body.get("stream"):
        handler.stream(made[0], answers.openai_chunks(front.model, made[0], False, wants_usage(body)))
    else:
        handler.reply(answers.completion_answer(front.model, made))


def chat(handler: Handler) -> None:
    body = handler.body()
    front = handler.front
    (made,) = front.service.generate(
        [answers.chat_prompt(body)], answers.sampling_of(body), handler.headers.get(HEADER)
    )
    if body.get("stream"):
        handler.stream(made, answers.openai_chunks(front.model, made, True, wants_usage(body)))
    else:
        handler.reply(answers.chat_answer(front.model, made))


def wants_usage(body: dict[str, Any]) -> bool:
    return bool((body.get("stream_options") or {}).get("include_usage"))


def health_generate(handler: Handler) -> None:
    if handler.front.ready:
        handler.front.service.generate([Prompt("", (0,))], {"max_new_tokens": 1, "ignore_eos": True}, None)
    health(handler)


def flush_cache(handler: Handler) -> None:
    handler.front.service.flush()
    handler.reply("Cache flushed.\nPlease check backend logs for more details.\n", kind="text/plain")


def metrics(handler: Handler) -> None:
    if handler.front.service.fields["enable_metrics"]:
        handler.reply(answers.prometheus(handler.front.service), kind="text/plain; version=0.0.4")
    else:
        handler.reply({"detail": "Not Found"}, HTTPStatus.NOT_FOUND)


def server_info(handler: Handler) -> None:
    handler.reply(answers.server_info(handler.front.service))


def model_info(handler: Handler) -> None:
    handler.reply(answers.model_info(handler.front.service))


def models(handler: Handler) -> None:
    handler.reply(answers.models(handler.front.service))


GET: dict[str, Callable[[Handler], None]] = {
    "/health": health,
    "/health_generate": health_generate,
    "/server_info": server_info,
    "/get_server_info": server_info,
    "/model_info": model_info,
    "/get_model_info": model_info,
    "/v1/models": models,
    "/metrics": metrics,
    "/flush_cache": flush_cache,
}
POST: dict[str, Callable[[Handler], None]] = {
    "/generate": generate,
    "/v1/completions": completions,
    "/v1/chat/completions": chat,
    "/flush_cache": flush_cache,
}
