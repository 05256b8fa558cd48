"""How far a journal has come, noted outside of it: whoever opens one that has fewer entries knows that some were lost.

SQLite cannot tell by itself that its `-wal` file was lost, or that the file is an older copy: it is a sound database of
some time ago. The mark is written after every commit, is never ahead of the journal, and may be removed with it.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

_WIDTH = 20
"""A number of fixed width is overwritten in place, also where the disk is full."""


def mark_file(journal: Path) -> Path:
    return journal.with_name(journal.name + ".seq")


def remember(journal: Path, seq: int) -> None:
    """Note that entries up to `seq` are on disk. Where that cannot be noted, an earlier note is true as well."""
    with suppress(OSError):
        fd = os.open(mark_file(journal), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            os.pwrite(fd, f"{seq:{_WIDTH}d}\n".encode(), 0)
        finally:
            os.close(fd)


def remembered(journal: Path) -> int:
    """So many entries were on disk once, 0 when nobody noted any."""
    try:
        return int(mark_file(journal).read_text())
    except (OSError, ValueError):
        return 0
