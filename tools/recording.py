"""Recording: intent before effect and result after into the journal, and every call into a recording file.

A recording is a file of JSON lines: a header (`optagent_recording`, the campaign's configuration, what its journal
held, how it was started), one line a tool call, and a last line that says how the session ended. `docs/recordings.md`
describes it for people who write one by hand.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from optagent import __version__
from optagent.tools.calls.base import EffectRequest, Request, Result
from optagent.tools.errors import RecordingBroken
from optagent.tools.journal_store import Entry, Journal
from optagent.tools.recording_history import CURRENT
from optagent.tools.redact import redact_json
from optagent.tools.routed import RoutedToolbox
from optagent.tools.toolbox import Toolbox

GZIP = b"\x1f\x8b"
R = TypeVar("R", bound=Result)
Sink = Callable[[dict[str, Any]], None]

_BULK = {"write_text": {"text"}, "examine": {"prompts", "texts"}}
"""What of a request is not copied into the journal: it lies in the file that is written."""


class RecordingToolbox(RoutedToolbox):
    """Wraps a toolbox. An effect whose result the journal already has is not done again: its result is given back."""

    def __init__(self, inner: Toolbox, journal: Journal, sink: Sink | None = None) -> None:
        self._inner, self._journal, self._sink = inner, journal, sink

    @property
    def unrecorded(self) -> Toolbox:
        """The toolbox below, for when nothing can be recorded any more and servers must still be stopped."""
        return self._inner

    def call(self, tool: str, request: Request, answers_with: type[R]) -> R:
        key = request.key if isinstance(request, EffectRequest) else None
        if key is not None and (done := self._journal.find("result", key)):
            return answers_with.model_validate(done.body["result"])  # a replay finds it in its journal too
        result = self._perform(tool, request, key, answers_with)
        if self._sink is not None:
            self._sink({"tool": tool, "request": as_json(request), "result": as_json(result)})
        return result

    def _perform(self, tool: str, request: Request, key: str | None, answers_with: type[R]) -> R:
        if key is not None:
            body = request.model_dump(mode="json", exclude=_BULK.get(tool), exclude_defaults=True)
            again = (
                self._journal.find("intent", key) is not None
            )  # begun before, interrupted, and perhaps reconciled since
            self._journal.append("intent", {"tool": tool, "request": body}, None if again else key)
        result: R = getattr(self._inner, tool)(request)
        if key is not None:
            self._journal.append("result", {"tool": tool, "result": as_json(result)}, key)
        return result


def as_json(model: Request | Result) -> dict[str, Any]:
    """A request or result as it stands in a recording: without what is at its default, and without credentials."""
    body: dict[str, Any] = redact_json(model.model_dump(mode="json", exclude_defaults=True))
    return body


def header(config: Mapping[str, Any], journal: list[Entry], started: Mapping[str, Any]) -> dict[str, Any]:
    """The first line of a recording."""
    entries = [{"at": e.at, "kind": e.kind, "key": e.key, "body": e.body} for e in journal]
    return {
        "optagent_recording": CURRENT,
        "made_by": f"optagent {__version__}",
        "config": dict(config),
        "journal": entries,
        "started": dict(started),
    }


class RecordingFile:
    """Appends lines to a recording as they come, so that a killed session leaves what it did. Made new, or not at all."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("x", encoding="utf-8")

    def write(self, line: Mapping[str, Any]) -> None:
        self._file.write(json.dumps(redact_json(line), separators=(",", ":"), ensure_ascii=False) + "\n")
        self._file.flush()

    def close(self) -> None:
        self._file.close()


def read_recording(path: Path) -> tuple[list[tuple[int, dict[str, Any]]], str]:
    """(line number, object) of every line of a recording, which may be compressed with gzip; and in words where the file
    was cut off ("": nowhere). What stands before is whole. Raises RecordingBroken with the line that is no JSON object."""
    try:
        data, cut = _unpacked(path.read_bytes())
    except (OSError, zlib.error) as error:
        raise RecordingBroken(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    whole, _, rest = data.rpartition(b"\n")
    lines = [(number, _parsed(path, number, line)) for number, line in _numbered(whole)]
    last = whole.count(b"\n") + (2 if whole or data[:1] == b"\n" else 1)
    if rest.strip():
        try:
            lines.append((last, _parsed(path, last, rest)))
        except RecordingBroken:
            if not lines:
                raise
            cut = f"its last line ({last}) is cut off"
    return lines, cut or ""


def _unpacked(raw: bytes) -> tuple[bytes, str]:
    """The bytes that were packed, and how the file was cut off. Raises zlib.error where it is damaged."""
    data, cut = raw, ""
    if raw[:2] == GZIP:
        data = b""
        while raw and not cut:
            unpack = zlib.decompressobj(wbits=31)
            data += unpack.decompress(raw)
            raw = unpack.unused_data.lstrip(b"\0")
            cut = "" if unpack.eof else "the compressed file is cut off"
        if cut and b"\n" not in data:
            raise zlib.error("cut off before the end of its first line")
    return data, cut


def _numbered(whole: bytes) -> list[tuple[int, bytes]]:
    return [(number, line) for number, line in enumerate(whole.split(b"\n"), 1) if line.strip()]


def _parsed(path: Path, number: int, text: bytes) -> dict[str, Any]:
    try:
        line = json.loads(text.decode())
    except (ValueError, RecursionError) as error:
        raise RecordingBroken(f"{path}:{number}: not a JSON object: {error}") from None
    if not isinstance(line, dict):
        raise RecordingBroken(f"{path}:{number}: not a JSON object")
    return line
