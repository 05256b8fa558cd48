"""Reading on in a file that somebody else writes, and may delete, cut or set aside meanwhile."""

from __future__ import annotations

import os
from contextlib import suppress
from os.path import samestat
from pathlib import Path
from typing import BinaryIO

LAST_BYTES = 64 * 1024


class Tail:
    """Whole lines of the file at `path`, of whichever file lies there; `earlier` is where it is set aside."""

    def __init__(self, path: Path, earlier: Path) -> None:
        self._path, self._earlier = path, earlier
        self._file: BinaryIO | None = None
        self._rest = b""

    def last(self) -> list[str]:
        """The last lines that are there now, those that were set aside included. `new` goes on behind them."""
        return [*_last_lines(self._earlier), *self._last_here()]

    def new(self) -> list[str]:
        """The lines that came since."""
        lines = self._read()
        if self._moved():
            self._open()
            lines += self._read()
        return lines

    def _last_here(self) -> list[str]:
        self._open()
        if self._file is None:
            return []
        end = self._file.seek(0, os.SEEK_END)
        begin = max(0, end - LAST_BYTES)
        self._file.seek(begin)
        lines = self._read()
        return lines[1:] if begin else lines

    def _open(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
        self._rest = b""
        with suppress(OSError):
            self._file = self._path.open("rb")

    def _moved(self) -> bool:
        """Whether another file lies there now, or the same one with less in it."""
        try:
            there = self._path.stat()
        except OSError:
            return False
        if self._file is None or not samestat(there, os.fstat(self._file.fileno())):
            return True
        return there.st_size < self._file.tell()

    def _read(self) -> list[str]:
        if self._file is None:
            return []
        *whole, self._rest = (self._rest + self._file.read()).split(b"\n")
        return [line.decode(errors="replace") for line in whole]


def _last_lines(path: Path) -> list[str]:
    try:
        with path.open("rb") as file:
            begin = max(0, file.seek(0, os.SEEK_END) - LAST_BYTES)
            file.seek(begin)
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return []
    return lines[1:] if begin else lines
