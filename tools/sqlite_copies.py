"""Looking into an SQLite file without touching it: a copy is opened, since even reading leaves files beside a database."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

WAL = "-wal"
BESIDE = (WAL, "-shm")
"""What SQLite keeps beside a database. The first holds commits that are not in the database yet."""


@contextmanager
def opened_copy(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection to a copy of the file and of its `-wal`, gone after the block. Raises sqlite3.Error and OSError.

    A file that is shorter than it says is opened all the same, so that what is there can be read.
    """
    with tempfile.TemporaryDirectory(prefix="optagent-") as folder:
        copy = copied(path, Path(folder))
        with closing(sqlite3.connect(copy, isolation_level=None)) as connection:
            connection.execute("PRAGMA writable_schema = ON")
            yield connection


def copied(path: Path, folder: Path) -> Path:
    """A copy of the database and of its `-wal` in the folder. Raises OSError."""
    copy = folder / "copy.db"
    shutil.copyfile(path, copy)
    wal = beside(path, WAL)
    if wal.exists():
        shutil.copyfile(wal, beside(copy, WAL))
    return copy


def beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def defect_of(connection: sqlite3.Connection) -> str:
    """The first thing that is wrong with the database, "" when it is sound."""
    try:
        found = [str(row[0]) for row in connection.execute("PRAGMA integrity_check(1)")]
    except sqlite3.DatabaseError as error:
        return str(error)
    return "" if found == ["ok"] else " ".join(found[0].split())[:200] if found else "no answer"


def set_aside(path: Path, mark: str) -> Path:
    """Rename a database, and what lies beside it, to `<name>.<mark>`; returns the new name. Raises OSError.

    The `-wal` file goes first: killed in between, this leaves a database that is known to lack its last entries.
    """
    aside = beside(path, f".{mark}")
    for suffix in BESIDE:
        if beside(path, suffix).exists():
            beside(path, suffix).rename(beside(aside, suffix))
    if path.exists():
        path.rename(aside)
    return aside
