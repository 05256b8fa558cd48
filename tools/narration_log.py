"""The file that keeps what a sitting told, for those who look later or from another terminal.

Telling must never end a sitting. A file that was deleted is made anew, one that grew large is set aside (one such is kept),
and what a full disk does not take is lost, with a line about it as soon as there is room.
"""

from __future__ import annotations

import io
import os
import threading
from contextlib import suppress
from os.path import samestat
from pathlib import Path

from optagent.tools.paths import STATE
from optagent.tools.redact import redact

LARGEST_BYTES = 1024 * 1024
HEAD = "--- sitting "
"""Begins the line with which a sitting begins."""


def narration_of(root: Path) -> Path:
    return root / STATE / "sitting.log"


def set_aside(path: Path) -> Path:
    """Where the earlier part of a log that grew large lies."""
    return path.with_name(f"{path.name}.1")


class NarrationLog(io.TextIOBase):
    """Appends whole lines. With `stdio` it stands for the process's own outputs too, which a detached one has no other."""

    def __init__(self, path: Path, *, stdio: bool = False, largest: int = LARGEST_BYTES) -> None:
        self._path, self._stdio, self._largest = path, stdio, largest
        self._fd: int | None = None
        self._pending = ""
        self._lost = False
        self._lock = threading.RLock()  # the handler of a signal may tell something while a line is written
        with suppress(OSError):
            self._open()

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        with self._lock:
            self._pending += text
            if text.endswith("\n"):
                self.flush()
        return len(text)

    def flush(self) -> None:
        """Hand whole lines to the kernel."""
        with self._lock:
            whole, end, self._pending = self._pending.rpartition("\n")
            if end:
                self._put(whole + end)

    def close(self) -> None:
        if self._fd is not None:
            if self._pending:
                self._put(self._pending + "\n")
                self._pending = ""
            if not self._stdio:
                os.close(self._fd)
            self._fd = None
        super().close()

    def _put(self, text: str) -> None:
        lost = "  (some lines are missing: the disk was full)\n" if self._lost else ""
        content = redact(lost + text).encode(errors="replace")
        try:
            self._look_after()
            assert self._fd is not None
            while content:
                content = content[os.write(self._fd, content) :]
            self._lost = False
        except OSError:
            self._lost = True

    def _look_after(self) -> None:
        """Open it anew where it is not there any more, and set it aside where it is large. Raises OSError."""
        try:
            there = self._path.stat()
        except FileNotFoundError:
            self._open()
            return
        if self._fd is None or not samestat(there, os.fstat(self._fd)):
            self._open()
        elif there.st_size >= self._largest:
            self._path.replace(set_aside(self._path))
            self._open()

    def _open(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        if self._fd is not None:
            os.close(self._fd)
        self._fd = fd
        if self._stdio:
            for output in (1, 2):
                os.dup2(fd, output)
