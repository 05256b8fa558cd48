"""What can be read of a damaged journal, and a fresh one made of it. The damaged file is kept.

Entries build on those before them, so what is saved ends at the first one that cannot be read.
"""

from __future__ import annotations

import json
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from optagent.tools.errors import JournalFailure, MachineExhausted
from optagent.tools.journal_mark import mark_file, remember, remembered
from optagent.tools.journal_schema import SCHEMA, Schema, make
from optagent.tools.journal_store import JournalStore
from optagent.tools.sqlite_copies import copied, defect_of, opened_copy, set_aside
from optagent.tools.syncing import sync

Row = tuple[int, str, str, str | None, str]
_PAGE_BYTES = 4096
_COLUMNS = "seq, at, kind, key, body"


@dataclass(frozen=True)
class Health:
    """How a journal is. `entries` can be read one after the other, `once` were recorded as far as is known, `version` is
    None where it cannot be told. `defect` is "" for a sound one, `newer` one that only a newer optagent may touch."""

    exists: bool
    version: int | None = None
    entries: int = 0
    once: int = 0
    defect: str = ""
    newer: bool = False

    @property
    def lost(self) -> int:
        return max(0, self.once - self.entries)

    @property
    def sound(self) -> bool:
        return not self.defect and not self.lost and not self.newer


def health(path: Path, schema: Schema = SCHEMA) -> Health:
    """How the journal at `path` is; nothing is changed on disk. Nobody may be writing to it. Raises OSError."""
    once = remembered(path)
    if not path.exists():
        return Health(False, once=once)
    if path.stat().st_size == 0:
        return Health(True, once=once, defect="it is empty" if once else "")
    version, defect = _looked_at(path)
    if version is not None and version > schema.version:
        return Health(True, version, once=once, newer=True)
    rows, highest = _readable(path, schema)
    if not defect and len(rows) < highest:
        defect = f"entry {len(rows) + 1} cannot be read"
    return Health(True, version, len(rows), max(once, highest), defect)


def salvage(path: Path, mark: str, schema: Schema = SCHEMA) -> tuple[Health, Path]:
    """Put a fresh journal with what can be read in the place of this one, which is renamed to `<name>.<mark>`.

    Returns what there was, and where it is now. Killed at any moment, it leaves a journal that is known to lack entries.
    Raises JournalFailure for a newer journal, MachineExhausted where there is no room.
    """
    try:
        before = health(path, schema)
        if before.newer:
            raise JournalFailure(f"{path} was written by a newer optagent: only that can repair it")
        rows, _ = _readable(path, schema) if path.exists() else ([], 0)
        part = path.with_name(f".{path.name}.salvaged.part")
        _write(part, rows, schema)
        aside = set_aside(path, mark)
        part.replace(path)
        sync(path.parent)
        mark_file(path).unlink(missing_ok=True)
        remember(path, len(rows))
    except (OSError, sqlite3.OperationalError) as error:
        raise MachineExhausted(f"{path} cannot be salvaged: {error}; make room and try again") from error
    JournalStore.open(path, create=False).close()
    return before, aside


def _looked_at(path: Path) -> tuple[int | None, str]:
    try:
        with opened_copy(path) as connection:
            version = int(connection.execute("PRAGMA user_version").fetchone()[0])
            return version, defect_of(connection)
    except sqlite3.DatabaseError as error:
        return None, str(error)


def _readable(path: Path, schema: Schema) -> tuple[list[Row], int]:
    """The entries from the first on without a gap, and the highest number that can be seen at all."""
    rows, highest = _read(path)
    if not rows and path.exists() and path.stat().st_size > _PAGE_BYTES:
        rows, highest = _with_another_head(path, schema)
    return rows, highest


def _read(path: Path) -> tuple[list[Row], int]:
    rows: list[Row] = []
    highest = 0
    with suppress(sqlite3.DatabaseError), opened_copy(path) as connection:
        rows = list(_unbroken(connection))
        highest = len(rows)
        highest = int(connection.execute("SELECT COALESCE(MAX(seq), 0) FROM entries").fetchone()[0])
    return rows, max(highest, len(rows))


def _unbroken(connection: sqlite3.Connection) -> Iterator[Row]:
    with suppress(sqlite3.DatabaseError):
        for number, row in enumerate(connection.execute(f"SELECT {_COLUMNS} FROM entries ORDER BY seq"), 1):
            if row[0] != number or not _is_entry(row):
                return
            yield row


def _is_entry(row: tuple[object, ...]) -> bool:
    _, at, kind, key, body = row
    if not (
        isinstance(at, str)
        and isinstance(kind, str)
        and isinstance(body, str)
        and (key is None or isinstance(key, str))
    ):
        return False
    try:
        return isinstance(json.loads(body), dict)
    except (ValueError, RecursionError):
        return False


def _with_another_head(path: Path, schema: Schema) -> tuple[list[Row], int]:
    """Read it with the first page of a new journal, whose tables begin on the same pages."""
    with tempfile.TemporaryDirectory(prefix="optagent-") as name:
        folder = Path(name)
        fresh = folder / "fresh.db"
        _write(fresh, [], schema)
        copy = copied(path, folder)
        head = bytearray(fresh.read_bytes()[:_PAGE_BYTES])
        pages = copy.stat().st_size // _PAGE_BYTES
        head[28:32] = pages.to_bytes(4, "big")
        head[92:96] = head[24:28]  # the number of pages counts only where these two agree
        with copy.open("r+b") as file:
            file.write(head)
        return _read(copy)


def _write(path: Path, rows: list[Row], schema: Schema) -> None:
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN")
        make(connection, schema)
        connection.executemany(f"INSERT INTO entries ({_COLUMNS}) VALUES (?, ?, ?, ?, ?)", rows)
        connection.execute("COMMIT")
    sync(path)
