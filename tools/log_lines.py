"""Cutting a server's output into lines: by newline alone, cleaned of colours and of overwritten progress bars."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

LONGEST_LINE_BYTES = 64 * 1024
"""SGLang's longest line (its settings) is some 20 kB; of a longer one the beginning and the end are kept."""

ANSI = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[@-Z\\-_]")
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


@dataclass(frozen=True)
class Line:
    """`number` counts newlines from 1, as `grep -n` does."""

    number: int
    text: str


@dataclass
class LineCutter:
    """Takes the output piece by piece and gives back the lines that are complete, in constant memory."""

    number: int = 0
    _rest: bytearray = field(default_factory=bytearray)

    def feed(self, data: bytes) -> Iterator[Line]:
        """The lines that `data` completes."""
        *complete, rest = data.split(b"\n")
        for piece in complete:
            self._rest += piece
            yield self._line()
        self._rest += rest
        if len(self._rest) > 4 * LONGEST_LINE_BYTES:
            self._rest[LONGEST_LINE_BYTES:-LONGEST_LINE_BYTES] = b""

    def finish(self) -> Iterator[Line]:
        """The last line, when it has no newline yet."""
        if self._rest:
            yield self._line()

    def unfinished(self) -> str:
        """What stands behind the last newline: often a progress bar."""
        return clean(bytes(self._rest[-LONGEST_LINE_BYTES:]))

    def _line(self) -> Line:
        self.number += 1
        raw = bytes(self._rest)
        self._rest.clear()
        if len(raw) > 2 * LONGEST_LINE_BYTES:
            raw = raw[:LONGEST_LINE_BYTES] + b" ... " + raw[-LONGEST_LINE_BYTES:]
        return Line(self.number, clean(raw))


def clean(raw: bytes) -> str:
    """What a terminal would show last: the part behind the last carriage return that is not empty, without colours."""
    parts = [part for part in raw.split(b"\r") if part.strip()]
    text = parts[-1].decode("utf-8", errors="replace") if parts else ""
    return CONTROL.sub("", ANSI.sub("", text)).rstrip()
