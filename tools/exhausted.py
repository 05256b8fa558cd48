"""What a machine runs out of: room, open files, the right to write. That is never the fault of what was being tried, so it
must not become a result; whoever meets it stops instead."""

from __future__ import annotations

import errno
import os
import re
import resource
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from optagent.tools.errors import MachineExhausted

_MEANS = {
    errno.ENOSPC: "there is no space left on the disk",
    errno.EDQUOT: "the disk quota is used up",
    errno.EFBIG: "the limit on the size of files (ulimit -f) is reached",
    errno.EROFS: "the file system can only be read",
    errno.EMFILE: "the limit on open files (ulimit -n) is reached",
    errno.ENFILE: "the machine's limit on open files is reached",
    errno.EIO: "the disk does not answer properly",
}
_SQLITE_MEANS = {
    sqlite3.SQLITE_FULL: "there is no space left on the disk",
    sqlite3.SQLITE_IOERR: "the disk does not answer properly, or is full",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened (a limit on open files, a full disk, or missing rights)",
    sqlite3.SQLITE_READONLY: "it cannot be written",
}
_WORDS = re.compile(
    r"no space left on device|disk quota exceeded|too many open files|read-only file system|\[errno 28\]",
    re.IGNORECASE,
)
_MOST_FILES = 65536
"""As bench_serving raises it to; more makes programs slow that close every number there may be."""
_ROOM_BYTES = 256 * 1024
"""With less than this a log that a server wrote may lack its end."""


def stop_if_exhausted(error: Exception, where: str | Path = "") -> None:
    """Raises MachineExhausted where the error, or one that led to it, says that the machine has no more of something;
    otherwise does nothing. A library often hides what the system said behind an error of its own."""
    for cause in _led_to(error):
        if (means := _meaning(cause)) is not None:
            what = getattr(cause, "filename", None) or where or "a file"
            raise MachineExhausted(f"{what}: {means}; mend that, then `optagent continue` goes on") from error


def _led_to(error: BaseException) -> Iterator[BaseException]:
    """The error, then what led to it, each once."""
    met: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in met:
        yield cause
        met.add(id(cause))
        cause = cause.__cause__ or cause.__context__


def _meaning(error: BaseException) -> str | None:
    if isinstance(error, OSError):
        return _MEANS.get(error.errno or 0)
    if isinstance(error, sqlite3.Error):
        return _SQLITE_MEANS.get((getattr(error, "sqlite_errorcode", None) or 0) & 0xFF)
    return None


def stop_if_told(text: str, where: str | Path) -> None:
    """The same for what another program said."""
    if (found := _WORDS.search(text)) is not None:
        raise MachineExhausted(f"{where}: {found[0].lower()}; mend that, then `optagent continue` goes on")


def stop_if_full(log: Path) -> None:
    """Raises MachineExhausted where a log may lack its end, because there was no room for it."""
    try:
        free, size = shutil.disk_usage(log.parent).free, log.stat().st_size
    except OSError:
        return
    limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    if free < _ROOM_BYTES:
        stop_if_exhausted(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(log)))
    if limit != resource.RLIM_INFINITY and size + 1 >= limit:
        stop_if_exhausted(OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(log)))


def free_bytes(folder: Path) -> int | None:
    """What is free where the folder lies, None where that cannot be told."""
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return None


def raised_file_limit() -> int:
    """Raise the limit on open files as far as this process may, and return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return _MOST_FILES if soft == resource.RLIM_INFINITY else soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError):
        return soft
    return wanted


def file_size_limit() -> int | None:
    """The largest file in bytes that this process may write, None without a limit."""
    soft, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    return None if soft == resource.RLIM_INFINITY else soft
