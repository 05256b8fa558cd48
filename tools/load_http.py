"""Plain HTTP for the load generator: nothing between a request and its answer that takes time of its own."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

LONGEST_EVENT = 16 * 2**20
"""Bytes of one line of a stream, or of an answer: a native stream repeats the whole text in every event."""


class LoadError(RuntimeError):
    """No benchmark was possible: the server cannot be reached or used, or there are no prompts."""


class Connection(http.client.HTTPConnection):
    """Remembers its socket, which the library forgets when an answer is the last one on it."""

    opened: socket.socket | None = None

    def connect(self) -> None:
        super().connect()
        self.opened = self.sock

    def hang_up(self) -> None:
        """End what is under way, in whichever thread that waits."""
        if self.opened is not None:
            with suppress(OSError):
                self.opened.shutdown(socket.SHUT_RDWR)


class SecureConnection(Connection, http.client.HTTPSConnection):
    pass


def connect(url: str, timeout_s: float) -> Connection:
    parts = urlsplit(url)
    kind = SecureConnection if parts.scheme == "https" else Connection
    return kind(parts.hostname or "127.0.0.1", parts.port, timeout=timeout_s)


def post(
    connection: http.client.HTTPConnection, path: str, body: Mapping[str, Any], headers: Mapping[str, str]
) -> http.client.HTTPResponse:
    connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json", **headers})
    return connection.getresponse()


def call(url: str, method: str, path: str, timeout_s: float) -> tuple[int, bytes]:
    """Status and body of one request. Raises LoadError when the server cannot be reached."""
    connection = connect(url, timeout_s)
    try:
        connection.request(method, path, headers={"Content-Length": "0"})
        answer = connection.getresponse()
        return answer.status, answer.read(LONGEST_EVENT)
    except (OSError, http.client.HTTPException) as error:
        raise LoadError(f"{url}{path} cannot be reached: {error}") from error
    finally:
        connection.close()


def json_object(body: bytes) -> dict[str, Any]:
    """The JSON object of a body; empty when it is none."""
    try:
        parsed = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return parsed if isinstance(parsed, dict) else {}


def events(answer: http.client.HTTPResponse) -> Iterator[dict[str, Any]]:
    """The server-sent events of a stream as they come, without the closing "[DONE]". Raises ValueError when one is not a
    JSON object."""
    while line := answer.readline(LONGEST_EVENT):
        data = line.strip().removeprefix(b"data:").strip()
        if not line.startswith(b"data:") or data == b"[DONE]":
            continue
        event = json.loads(data)
        if not isinstance(event, dict):
            raise ValueError(f"an event that is no JSON object: {data[:100]!r}")
        yield event
