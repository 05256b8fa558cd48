"""Reading SGLang's logs. See docs/diagnosis.md for how a reading comes about, and how to add a failure."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Protocol

from optagent.tools.calls.logs import LogReading
from optagent.tools.logs.reader import PIECE_BYTES, LogReader

__all__ = ["DAMAGED", "PIECE_BYTES", "LogReader", "diagnose", "diagnose_file", "opened", "read_log", "read_whole"]

GZIP = b"\x1f\x8b"
DAMAGED = (EOFError, gzip.BadGzipFile, zlib.error)


def read_log(path: Path, alive: bool | None) -> LogReading:
    """What the log at `path` says. Never raises for what stands in it; a log that cannot be opened does not exist."""
    try:
        with path.open("rb") as file:
            return diagnose(file, alive=alive)
    except OSError:
        return LogReading(exists=False)


def diagnose_file(path: Path, now: datetime | None = None, silent_s: float | None = None) -> LogReading:
    """The same for a file that may be compressed. Raises OSError when it cannot be read."""
    with opened(path) as file:
        return diagnose(file, now=now, silent_s=silent_s)


class Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


@contextmanager
def opened(path: Path) -> Iterator[Readable]:
    """A log that may be compressed. Raises OSError when it cannot be read."""
    with path.open("rb") as file:
        if file.peek(2)[:2] != GZIP:
            yield file
        else:
            with gzip.open(file, "rb") as unpacked:
                yield unpacked


def read_whole(file: Readable, into: LogReader) -> None:
    """Everything that `file` says. Raises one of DAMAGED for a compressed file that is cut short or damaged."""
    while piece := file.read(PIECE_BYTES):
        into.feed(piece)


def diagnose(
    file: Readable, alive: bool | None = None, now: datetime | None = None, silent_s: float | None = None
) -> LogReading:
    """What the rest of `file` says, in constant memory. A compressed file that is cut short is read as far as it goes."""
    reader = LogReader()
    with suppress(*DAMAGED):
        read_whole(file, reader)
    reader.finish()
    return reader.reading(alive, now, silent_s)
