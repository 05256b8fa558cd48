"""One writer for a campaign: a lock that names its holder and ends with it, also when it is killed with -9.

The kernel's flock decides. The description in the lock file only tells who it is; it is left behind by a holder that
was killed, and recognised as such by pid and start time. The start time is in ticks since the boot that is named with
it, so a pid that was given to another process is not mistaken for the holder, and a clock that jumps changes nothing.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from optagent.tools.errors import LockFailure, LockUnusable

_TRIES = 25
_PAUSE_S = 0.02
"""`holder` takes the lock for an instant to look; whoever wants it then tries again for half a second."""


@dataclass(frozen=True)
class Holder:
    """Who holds a lock. `start_ticks` counts clock ticks since the boot `boot_id`, `since` is UTC, ISO 8601."""

    pid: int
    start_ticks: int
    boot_id: str
    host: str
    purpose: str
    since: str

    def __str__(self) -> str:
        return f"pid {self.pid} on {self.host} ({self.purpose}, since {self.since})"


@dataclass(frozen=True)
class Lease:
    """The lock while it is held. `note` says what the previous holder left behind, None when it ended in order."""

    holder: Holder
    previous: Holder | None = None
    note: str | None = None


UNKNOWN_HOLDER = Holder(0, 0, "", "an unknown host", "unknown purpose", "an unknown time")
"""Stands for a holder that has the lock and has not said who it is."""


class Held(LockFailure):
    """Another process holds the campaign: wait until it ends, or stop it."""

    def __init__(self, path: Path, holder: Holder) -> None:
        super().__init__(f"{path} is held by {holder}; wait until it ends, or stop it")
        self.holder = holder


@contextmanager
def hold(path: Path, purpose: str) -> Iterator[Lease]:
    """Hold the lock at `path` for the block; its folder is made when it is missing.

    Processes started in the block do not inherit it. Raises `Held` when another process has it (or this one has it
    already) and `LockUnusable` when the file cannot be locked at all.
    """
    fd = _open(path, os.O_RDWR | os.O_CREAT)
    try:
        _take(fd, path)
        previous = _described(fd)
        lease = Lease(myself(purpose), previous, _note(previous))
        _describe(fd, json.dumps(asdict(lease.holder)))
        try:
            yield lease
        finally:
            if os.getpid() == lease.holder.pid:
                _describe(fd, "")
                fcntl.flock(fd, fcntl.LOCK_UN)
    finally:
        os.close(fd)


def holder(path: Path) -> Holder | None:
    """Who holds the lock at `path` now, None when nobody does. Raises `LockUnusable`."""
    if not path.exists():
        return None
    fd = _open(path, os.O_RDONLY)
    try:
        for _ in range(_TRIES):
            if _try_lock(fd, fcntl.LOCK_SH, path):
                return None
            if (described := _described(fd)) and lives(described):
                return described
            time.sleep(_PAUSE_S)
        return _described(fd) or UNKNOWN_HOLDER
    finally:
        os.close(fd)


def left_behind(path: Path) -> Holder | None:
    """Who ended without releasing the lock at `path`; None when nobody did, or somebody holds it. Raises `LockUnusable`."""
    if not path.exists():
        return None
    fd = _open(path, os.O_RDONLY)
    try:
        return _described(fd) if _try_lock(fd, fcntl.LOCK_SH, path) else None
    except OSError as error:
        raise LockUnusable(f"{path} cannot be read: {error.strerror}; move it away and try again") from error
    finally:
        os.close(fd)


def _open(path: Path, flags: int) -> int:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, flags | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise LockUnusable(f"{path} cannot be opened: {error.strerror}; mend that and try again") from error


def _take(fd: int, path: Path) -> None:
    """Lock `fd`, or raise `Held`. A lock whose described holder is dead is being looked at, or just changing hands."""
    for _ in range(_TRIES):
        if _try_lock(fd, fcntl.LOCK_EX, path):
            return
        if (described := _described(fd)) and lives(described):
            break
        time.sleep(_PAUSE_S)
    raise Held(path, _described(fd) or UNKNOWN_HOLDER)


def _try_lock(fd: int, operation: int, path: Path) -> bool:
    try:
        fcntl.flock(fd, operation | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise LockUnusable(
            f"{path} cannot be locked: {error.strerror}; put the campaign on a file system that has flock"
        ) from error
    return True


def _describe(fd: int, text: str) -> None:
    """One write, then the rest cut off: a reader takes the first line, so it never sees half of two descriptions."""
    line = f"{text}\n".encode()
    os.pwrite(fd, line, 0)
    os.ftruncate(fd, len(line))


def _described(fd: int) -> Holder | None:
    line = os.pread(fd, 4096, 0).partition(b"\n")[0]
    try:
        return Holder(**json.loads(line))
    except (ValueError, TypeError):
        return None


def myself(purpose: str) -> Holder:
    """This process, as the holder of a lock."""
    pid = os.getpid()
    since = datetime.now(UTC).isoformat(timespec="seconds")
    return Holder(pid, _start_ticks(pid) or 0, this_boot(), os.uname().nodename, purpose, since)


def lives(described: Holder) -> bool:
    """Whether the process may still run; of a process on another host nobody here can say that it does not."""
    if described.host != os.uname().nodename:
        return True
    return described.boot_id == this_boot() and described.start_ticks == _start_ticks(described.pid)


def _note(previous: Holder | None) -> str | None:
    if previous is None:
        return None
    if previous.host == os.uname().nodename:
        return f"the previous holder, {previous}, ended without releasing the campaign"
    return f"{previous} did not release the campaign; locks do not reach across all shared disks, so see that it ended"


def _start_ticks(pid: int) -> int | None:
    """When the process started, field 22 of proc(5)'s stat: clock ticks since boot. None when there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    return int(stat.rpartition(")")[2].split()[19])


def this_boot() -> str:
    """Which boot of the machine this is."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
