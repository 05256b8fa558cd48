"""One question to a server, and its reply: by SGLang's own endpoint, or by OpenAI's where the server has no other."""

from __future__ import annotations

import json
import threading
import time
from contextlib import suppress
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from optagent.tools.examining import replies
from optagent.tools.examining.examination import Answer, Reading
from optagent.tools.examining.replies import LONGEST_ERROR
from optagent.tools.exhausted import stop_if_exhausted

if TYPE_CHECKING:
    import httpx

NO_SUCH_PATH = (HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED)
GIVE_UP_AFTER = 3
"""Questions in a row that reached nobody: the server is gone or hangs, and each further one may cost a whole timeout."""

LARGEST_REPLY_BYTES = 32 * 1024 * 1024
"""Log-probabilities of 1,000 tokens are 50 kB."""

IDLE_WITHIN_S = 5


class NoAnswer(Exception):
    """The message says why."""


class Conversation:
    """Asks one server; several threads may ask at once. A question that is not answered is an answer with an error."""

    def __init__(self, http: httpx.Client, timeout_s: float) -> None:
        self.simulated = False
        self._http = http
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._unreached = 0
        self._native: bool | None = None  # whether it has /generate, once that is known
        self._model: str | None = None

    def answer(self, prompt: str, max_tokens: int, temperature: float) -> Answer:
        began = time.monotonic()
        sampling = {"temperature": temperature, "max_new_tokens": max_tokens}
        try:
            reply = self._generate(prompt, {"sampling_params": sampling, "return_logprob": True})
            if reply is not None:
                return replies.generated(reply, time.monotonic() - began)
            reply = self._complete(prompt, {"temperature": temperature, "max_tokens": max_tokens})
            return replies.completed(reply, time.monotonic() - began)
        except NoAnswer as error:
            return Answer(error=str(error))

    def read(self, text: str) -> Reading:
        """The text's tokens and their log-probabilities."""
        sampling = {"temperature": 0, "max_new_tokens": 1}
        body = {"sampling_params": sampling, "return_logprob": True, "logprob_start_len": 0}
        try:
            reply = self._generate(text, body)
        except NoAnswer as error:
            return Reading(error=str(error))
        return Reading(error="the server has no /generate") if reply is None else replies.read(reply)

    def empty_cache(self) -> None:
        """Waits a moment for the server to be idle. One that has no cache to empty is fine too."""
        with suppress(NoAnswer):
            self._ask("POST", f"/flush_cache?timeout={IDLE_WITHIN_S}")

    def accept_length(self) -> float | None:
        """The server's own mean since its cache was emptied, or since its start; None without speculation."""
        for path in ("/server_info", "/get_server_info"):
            with suppress(NoAnswer):
                status, content = self._ask("GET", path)
                if status == HTTPStatus.OK:
                    return replies.accept_length(_json(content))
        return None

    def _generate(self, text: str, body: dict[str, Any]) -> object | None:
        """The reply of /generate, None when the server has none. Raises NoAnswer."""
        if not text:
            raise NoAnswer("an empty prompt is not asked: it ends SGLang")
        if self._native is False:
            return None
        status, content = self._ask("POST", "/generate", {"text": text, **body})
        if status in NO_SUCH_PATH and self._native is None:
            self._native = False
            return None
        reply = _accepted(status, content)
        self._native = True
        self.simulated |= replies.says_simulated(reply)
        return reply

    def _complete(self, prompt: str, body: dict[str, Any]) -> object:
        return _accepted(
            *self._ask("POST", "/v1/completions", {"model": self._served_model(), "prompt": prompt, **body})
        )

    def _served_model(self) -> str:
        if self._model is None:
            status, content = self._ask("GET", "/v1/models")
            self._model = replies.first_model(_json(content) if status == HTTPStatus.OK else None)
        return self._model

    def _ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> tuple[int, bytes]:
        """Status and content. Raises NoAnswer, at once when the server was not reached several times in a row."""
        import httpx

        if self._unreached >= GIVE_UP_AFTER:
            raise NoAnswer(f"not asked: {GIVE_UP_AFTER} questions in a row had reached nobody")
        try:
            reply = self._exchange(method, path, body)
        except httpx.TransportError as error:
            stop_if_exhausted(error, str(self._http.base_url))
            with self._lock:
                self._unreached += 1
            raise NoAnswer(f"{type(error).__name__}: {error}"[:LONGEST_ERROR]) from None
        except (httpx.HTTPError, ValueError) as error:
            raise NoAnswer(f"{type(error).__name__}: {error}"[:LONGEST_ERROR]) from None
        self._unreached = 0
        return reply

    def _exchange(self, method: str, path: str, body: dict[str, Any] | None) -> tuple[int, bytes]:
        """A reply in time and of a bounded size; httpx alone would wait the timeout for each piece of it."""
        import httpx

        deadline = time.monotonic() + self._timeout_s
        content = bytearray()
        with self._http.stream(method, path, json=body) as response:
            for piece in response.iter_bytes():
                content += piece
                if len(content) > LARGEST_REPLY_BYTES:
                    raise ValueError(f"the reply is larger than {LARGEST_REPLY_BYTES // 1024**2} MiB")
                if time.monotonic() > deadline:
                    raise httpx.ReadTimeout(f"the reply was not whole after {self._timeout_s:.0f} s")
            return response.status_code, bytes(content)


def _accepted(status: int, content: bytes) -> object:
    if status != HTTPStatus.OK:
        raise NoAnswer(f"HTTP {status}: {content[:LONGEST_ERROR].decode(errors='replace')}")
    return _json(content)


def _json(content: bytes) -> object:
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise NoAnswer(f"the reply is not JSON: {error}"[:LONGEST_ERROR]) from None
