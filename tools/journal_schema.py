"""The tables of the journal's file, and how a file of an older version becomes one of this.

Before a migration the file is copied beside itself, whole and synced; the migration is one transaction. So a crash at any
moment leaves the old journal or the new one, and the copy.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from optagent.tools.syncing import sync

_REFUSE = "BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END"


@dataclass(frozen=True)
class Schema:
    """`create` makes an empty file of this version, `steps` has the statements that lead from a version to the next."""

    version: int
    create: Sequence[str]
    steps: Mapping[int, Sequence[str]] = field(default_factory=dict)


SCHEMA = Schema(
    version=1,
    create=(
        "CREATE TABLE entries"
        " (seq INTEGER PRIMARY KEY, at TEXT NOT NULL, kind TEXT NOT NULL, key TEXT, body TEXT NOT NULL)",
        "CREATE UNIQUE INDEX entries_key ON entries (kind, key) WHERE key IS NOT NULL",
        "CREATE INDEX entries_kind ON entries (kind, seq)",
        f"CREATE TRIGGER entries_stay BEFORE UPDATE ON entries {_REFUSE}",
        f"CREATE TRIGGER entries_remain BEFORE DELETE ON entries {_REFUSE}",
        "CREATE TRIGGER entries_are_new BEFORE INSERT ON entries"
        " WHEN EXISTS (SELECT 1 FROM entries WHERE seq = NEW.seq)"
        " OR EXISTS (SELECT 1 FROM entries WHERE kind = NEW.kind AND key = NEW.key)"
        f" {_REFUSE}",
        "CREATE TABLE views (name TEXT PRIMARY KEY, seq INTEGER NOT NULL, body TEXT NOT NULL)",
    ),
)


def make(connection: sqlite3.Connection, schema: Schema) -> None:
    """The tables, in a transaction of the caller."""
    for statement in schema.create:
        connection.execute(statement)
    _set_version(connection, schema.version)


def migrate(connection: sqlite3.Connection, version: int, schema: Schema) -> None:
    """From `version` to the schema's, in a transaction of the caller."""
    for number in range(version, schema.version):
        for statement in schema.steps[number]:
            connection.execute(statement)
    _set_version(connection, schema.version)


def back_up(path: Path, version: int) -> Path:
    """Copy the journal at `path` to `<name>.v<version>.bak`, whole or not at all, and return the copy's path.

    A copy that is there is of an attempt that was interrupted, and is replaced. Raises sqlite3.Error and OSError.
    """
    copy = path.with_name(f"{path.name}.v{version}.bak")
    part = copy.with_name(f".{copy.name}.part")
    part.unlink(missing_ok=True)
    try:
        with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(part)) as target:
            source.backup(target)
        sync(part)
        part.replace(copy)
        sync(copy.parent)
    finally:
        part.unlink(missing_ok=True)
    return copy


def copy_in_memory(connection: sqlite3.Connection, version: int, schema: Schema) -> sqlite3.Connection:
    """What the file of an older version will be, for those who only read."""
    copy = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    connection.backup(copy)
    migrate(copy, version, schema)
    return copy


def _set_version(connection: sqlite3.Connection, version: int) -> None:
    connection.execute(f"PRAGMA user_version = {version}")
