"""Cutting a server's output into lines: by newline alone, as `grep -n` counts them, in constant memory."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

LONGEST_LINE_BYTES = 64 * 1024
"""SGLang's longest line (its settings) is some 20 kB; of a longer one the beginning and the end are kept."""

ANSI = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[@-Z\\-_]")
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class Line:
    """`number` counts newlines from 1, as `grep -n` does. `text` is cleaned for reading."""

    number: int
    text: str


@dataclass
class LineCutter:
    """Takes the output piece by piece and gives back the lines that are complete, many in one block.

    A block is lines without the newline of the last one. Nothing is counted here: who looks at the lines counts them.
    """

    _rest: bytearray = field(default_factory=bytearray)

    def feed(self, data: bytes) -> Iterator[bytes]:
        """What `data` completes: the line that was begun before, and then all the others in one block."""
        end = data.find(b"\n") if self._rest else -1
        if end >= 0:
            self._rest += data[:end]
            data = data[end + 1 :]
            yield self._begun()
        last = -1 if self._rest else data.rfind(b"\n")
        if last >= 0:
            yield data[:last]
            data = data[last + 1 :]
        self._rest += data
        if len(self._rest) > 4 * LONGEST_LINE_BYTES:
            self._rest[LONGEST_LINE_BYTES:-LONGEST_LINE_BYTES] = b""

    def finish(self) -> Iterator[bytes]:
        """The last line, when it has no newline yet."""
        if self._rest:
            yield self._begun()

    def unfinished(self) -> bytes:
        """What stands behind the last newline: often a progress bar."""
        return bytes(self._rest[-LONGEST_LINE_BYTES:])

    def _begun(self) -> bytes:
        raw = bytes(self._rest)
        self._rest.clear()
        return raw


def clean(raw: bytes) -> str:
    """What a terminal would show last: the part behind the last carriage return that is not empty, without colours."""
    if len(raw) > 2 * LONGEST_LINE_BYTES:
        raw = raw[:LONGEST_LINE_BYTES] + b" ... " + raw[-LONGEST_LINE_BYTES:]
    text = raw.decode("utf-8", errors="replace")
    if "\x1b" in text:
        text = ANSI.sub("", text)
    if "\r" in text:
        text = next((part for part in reversed(text.split("\r")) if part.strip()), "")
    return CONTROL.sub("", text).rstrip()
