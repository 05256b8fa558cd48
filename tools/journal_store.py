"""The journal: an append-only record in one SQLite file, and the one place where records are written.

Every decision and every effect is an entry. What `append` has returned is on disk and stays there, whatever kills the
process next; nothing can change or remove an entry, not even through this module. Whoever reads sees all of it while
the writer goes on. Credentials are taken out here, on the way in.

Only the standard library is imported: commands that read start with this module.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

from optagent.tools.errors import (
    JournalBroken,
    JournalFailure,
    JournalLost,
    JournalReadOnly,
    JournalTooNew,
    JournalUnavailable,
)
from optagent.tools.journal_mark import remember, remembered
from optagent.tools.journal_schema import SCHEMA, Schema, back_up, copy_in_memory, make, migrate
from optagent.tools.redact import redact_json

_PAGE = 500
_BUSY_TIMEOUT_S = 30.0

_COLUMNS = "seq, at, kind, key, body"


@dataclass(frozen=True)
class Entry:
    """One record. `seq` counts from 1 without gaps; `at` is UTC, ISO 8601; a `key` exists once for each kind."""

    seq: int
    at: str
    kind: str
    key: str | None
    body: dict[str, Any]


@dataclass(frozen=True)
class Draft:
    """An entry to be. Without `at` it gets the time of writing."""

    kind: str
    body: Mapping[str, Any]
    key: str | None = None
    at: str | None = None


@dataclass(frozen=True)
class View:
    """What was derived from the entries up to `seq`: a cache that may be dropped at any time."""

    seq: int
    body: dict[str, Any]


class Journal(Protocol):
    """What the campaign needs of a journal. All methods may raise `JournalFailure`."""

    def append(self, kind: str, body: Mapping[str, Any], key: str | None = None, at: str | None = None) -> Entry:
        """Record one entry. A key that its kind already has gives the entry that is there, and adds none."""
        ...

    def append_all(self, drafts: Sequence[Draft]) -> list[Entry]:
        """Record all of `drafts` or none."""
        ...

    def entries(self, after: int = 0, kind: str | None = None, limit: int | None = None) -> Iterator[Entry]:
        """Entries in their order, those with a `seq` above `after`, as of the moment the first is taken."""
        ...

    def find(self, kind: str, key: str) -> Entry | None: ...
    def last(self, kind: str) -> Entry | None: ...
    def last_seq(self) -> int:
        """The highest `seq`, 0 in an empty journal."""
        ...

    def save_view(self, name: str, seq: int, body: Mapping[str, Any]) -> None:
        """Keep a view. A journal opened for reading keeps none: it is only a cache."""
        ...

    def load_view(self, name: str) -> View | None: ...
    def close(self) -> None: ...


class JournalStore:
    """A `Journal` in a file. One object may be used by several threads."""

    def __init__(self, path: Path, connection: sqlite3.Connection, *, read_only: bool) -> None:
        self._path = path
        self._connection = connection
        self._read_only = read_only
        self._lock = threading.RLock()

    @classmethod
    def open(cls, path: Path, *, create: bool, read_only: bool = False, schema: Schema = SCHEMA) -> JournalStore:
        """Open the journal at `path`, for reading and writing unless `read_only`.

        When there is none it is made with `create`, otherwise the result is an empty journal that takes no entries. One of
        an older version is migrated, after a copy of it was made beside it; for reading, in memory alone.
        Raises `JournalTooNew`, `JournalBroken`, `JournalLost` or `JournalUnavailable`.
        """
        with _translated(path):
            once = remembered(path)  # before the entries are counted, since its writer may be adding some
            if not _has_content(path) and (read_only or not create):
                store = cls(path, _empty(path, schema), read_only=True)
            else:
                connection = _readable(path, schema) if read_only else _writable(path, schema, once)
                store = cls(path, connection, read_only=read_only)
            try:
                _check_complete(path, once, store.last_seq())
            except BaseException:
                store.close()
                raise
            return store

    @classmethod
    def open_copy(cls, path: Path, schema: Schema = SCHEMA) -> JournalStore:
        """A copy in memory of the journal at `path`, to which nobody may be writing. It leaves no trace on disk."""
        from optagent.tools.sqlite_copies import opened_copy

        with _translated(path), opened_copy(path) as connection:
            version = _check_schema(connection, path, schema)
            copy = copy_in_memory(connection, version, schema) if version else _empty(path, schema)
            return cls(path, copy, read_only=True)

    def append(self, kind: str, body: Mapping[str, Any], key: str | None = None, at: str | None = None) -> Entry:
        return self.append_all([Draft(kind, body, key, at)])[0]

    def append_all(self, drafts: Sequence[Draft]) -> list[Entry]:
        prepared = [(draft, _dump(draft.body)) for draft in drafts]
        with self._writing() as connection:
            return [self._insert(connection, draft, text) for draft, text in prepared]

    def entries(self, after: int = 0, kind: str | None = None, limit: int | None = None) -> Iterator[Entry]:
        until, left = self.last_seq(), limit
        wanted, values = ("AND kind = ?", (kind,)) if kind is not None else ("", ())
        while left is None or left > 0:
            size = _PAGE if left is None else min(_PAGE, left)
            page = self._select(
                f"WHERE seq > ? AND seq <= ? {wanted} ORDER BY seq LIMIT ?", (after, until, *values, size)
            )
            yield from page
            if len(page) < size:
                return
            after = page[-1].seq
            left = None if left is None else left - len(page)

    def find(self, kind: str, key: str) -> Entry | None:
        return next(iter(self._select("WHERE kind = ? AND key = ?", (kind, key))), None)

    def last(self, kind: str) -> Entry | None:
        return next(iter(self._select("WHERE kind = ? ORDER BY seq DESC LIMIT 1", (kind,))), None)

    def last_seq(self) -> int:
        with self._lock, _translated(self._path):
            return int(self._connection.execute("SELECT COALESCE(MAX(seq), 0) FROM entries").fetchone()[0])

    def save_view(self, name: str, seq: int, body: Mapping[str, Any]) -> None:
        if self._read_only:
            return
        with self._writing() as connection:
            connection.execute("INSERT OR REPLACE INTO views VALUES (?, ?, ?)", (name, seq, _dump(body)))

    def load_view(self, name: str) -> View | None:
        with self._lock, _translated(self._path):
            row = self._connection.execute("SELECT seq, body FROM views WHERE name = ?", (name,)).fetchone()
        try:
            return View(int(row[0]), json.loads(row[1])) if row else None
        except ValueError:
            return None

    def close(self) -> None:
        with self._lock, _translated(self._path):
            self._connection.close()

    def __enter__(self) -> JournalStore:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction: all of the block's statements are on disk when it ends, or none."""
        if self._read_only:
            raise JournalReadOnly(f"{self._path} was opened for reading; open it for writing to record anything")
        with self._lock, _translated(self._path):
            with _transaction(self._connection):
                yield self._connection
            remember(self._path, self.last_seq())

    def _insert(self, connection: sqlite3.Connection, draft: Draft, text: str) -> Entry:
        if draft.key is not None and (existing := self.find(draft.kind, draft.key)):
            return existing
        at = draft.at or _now()
        row = (at, draft.kind, draft.key, text)
        seq = connection.execute("INSERT INTO entries (at, kind, key, body) VALUES (?, ?, ?, ?)", row).lastrowid
        return Entry(int(seq or 0), at, draft.kind, draft.key, json.loads(text))

    def _select(self, condition: str, values: tuple[object, ...]) -> list[Entry]:
        with self._lock, _translated(self._path):
            rows = self._connection.execute(f"SELECT {_COLUMNS} FROM entries {condition}", values).fetchall()
        return [self._entry(row) for row in rows]

    def _entry(self, row: tuple[int, str, str, str | None, str]) -> Entry:
        seq, at, kind, key, text = row
        try:
            body = json.loads(text)
        except ValueError as error:
            raise JournalBroken(
                f"{self._path}: entry {seq} is damaged ({error}); restore the file from a copy, or see `optagent doctor`"
            ) from error
        return Entry(seq, at, kind, key, body)


class MemoryJournal:
    """A `Journal` that lives as long as the object, for replays and tests. It behaves as the file does."""

    def __init__(self) -> None:
        self._entries: list[Entry] = []
        self._keyed: dict[tuple[str, str], Entry] = {}
        self._views: dict[str, View] = {}

    def append(self, kind: str, body: Mapping[str, Any], key: str | None = None, at: str | None = None) -> Entry:
        return self.append_all([Draft(kind, body, key, at)])[0]

    def append_all(self, drafts: Sequence[Draft]) -> list[Entry]:
        prepared = [(draft, json.loads(_dump(draft.body))) for draft in drafts]
        return [self._insert(draft, body) for draft, body in prepared]

    def entries(self, after: int = 0, kind: str | None = None, limit: int | None = None) -> Iterator[Entry]:
        wanted = [entry for entry in self._entries[max(after, 0) :] if kind is None or entry.kind == kind]
        yield from wanted if limit is None else wanted[: max(limit, 0)]

    def find(self, kind: str, key: str) -> Entry | None:
        return self._keyed.get((kind, key))

    def last(self, kind: str) -> Entry | None:
        return next((entry for entry in reversed(self._entries) if entry.kind == kind), None)

    def last_seq(self) -> int:
        return len(self._entries)

    def save_view(self, name: str, seq: int, body: Mapping[str, Any]) -> None:
        self._views[name] = View(seq, json.loads(_dump(body)))

    def load_view(self, name: str) -> View | None:
        return self._views.get(name)

    def close(self) -> None:
        """Nothing to do: the entries stay."""

    def _insert(self, draft: Draft, body: dict[str, Any]) -> Entry:
        if draft.key is not None and (existing := self.find(draft.kind, draft.key)):
            return existing
        entry = Entry(len(self._entries) + 1, draft.at or _now(), draft.kind, draft.key, body)
        self._entries.append(entry)
        if draft.key is not None:
            self._keyed[draft.kind, draft.key] = entry
        return entry


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _dump(body: Mapping[str, Any]) -> str:
    """The body as it is stored: without credentials, in ASCII. NaN and infinities are refused with ValueError."""
    return json.dumps(redact_json(body), allow_nan=False, separators=(",", ":"))


def _has_content(path: Path) -> bool:
    try:
        return path.stat().st_size > 0
    except FileNotFoundError:
        return False


def _empty(path: Path, schema: Schema) -> sqlite3.Connection:
    connection = _connect(":memory:")
    _ensure_schema(connection, path, schema)
    return connection


def _writable(path: Path, schema: Schema, once: int) -> sqlite3.Connection:
    """Raises JournalLost where a new journal would take the place of one that has gone."""
    if once and not _has_content(path):
        _check_complete(path, once, 0)
    connection = _connect_writable(path)
    try:
        _ensure_schema(connection, path, schema)
    except BaseException:
        connection.close()
        raise
    return connection


def _readable(path: Path, schema: Schema) -> sqlite3.Connection:
    connection = _connect_read_only(path)
    try:
        version = _check_schema(connection, path, schema)
        if version == schema.version:
            return connection
        # Without a version its writer is just making it.
        copy = copy_in_memory(connection, version, schema) if version else _empty(path, schema)
    except BaseException:
        connection.close()
        raise
    connection.close()
    return copy


def _check_complete(path: Path, once: int, found: int) -> None:
    if found < once:
        raise JournalLost(
            f"{path} has {found} of the {once} entries that were recorded: its -wal file was lost, or it is an older copy;"
            f" put the latest files back, or let `optagent doctor --repair` go on with what is there"
        )


def _connect(name: str) -> sqlite3.Connection:
    return sqlite3.connect(
        name, uri=name.startswith("file:"), timeout=_BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
    )


def _connect_writable(path: Path) -> sqlite3.Connection:
    path.parent.mkdir(parents=True, exist_ok=True)
    connection = _connect(str(path))
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    return connection


def _connect_read_only(path: Path) -> sqlite3.Connection:
    """A connection that cannot write. In a folder where SQLite may not make its `-shm` file the journal is read as it
    lies there, which is all of it as long as no `-wal` file with content lies beside it."""
    address = f"file:{quote(str(path.absolute()))}?mode=ro"
    connection = _connect(address)
    try:
        connection.execute("PRAGMA user_version").fetchone()
    except sqlite3.OperationalError:
        connection.close()
        if _has_content(path.with_name(path.name + "-wal")):
            raise
        connection = _connect(address + "&immutable=1")
    return connection


def _check_schema(connection: sqlite3.Connection, path: Path, schema: Schema) -> int:
    """The schema version of the file, 0 when nothing was ever written to it."""
    with _snapshot(connection):  # its writer may be making it between two looks
        version = int(connection.execute("PRAGMA user_version").fetchone()[0])
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    if version > schema.version:
        raise JournalTooNew(
            f"{path} has journal version {version} and this optagent knows up to {schema.version}:"
            f" use the optagent that wrote it, or a newer one"
        )
    if not {"entries", "views"} <= tables if version else tables:
        raise JournalBroken(f"{path} is a database but not a journal; move it away or restore the journal from a copy")
    return version


def _ensure_schema(connection: sqlite3.Connection, path: Path, schema: Schema) -> None:
    version = _check_schema(connection, path, schema)
    if version == schema.version:
        return
    if version:
        back_up(path, version)
    with _transaction(connection):
        version = _check_schema(connection, path, schema)
        if version == 0:
            make(connection, schema)
        elif version < schema.version:
            migrate(connection, version, schema)


@contextmanager
def _snapshot(connection: sqlite3.Connection) -> Iterator[None]:
    """Everything that is read inside is of one moment."""
    if connection.in_transaction:
        yield
        return
    connection.execute("BEGIN")
    try:
        yield
    finally:
        if connection.in_transaction:
            connection.execute("COMMIT")


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


@contextmanager
def _translated(path: Path) -> Iterator[None]:
    """SQLite's and the system's errors as `JournalFailure`s that say what to do."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        raise _failure(path, error) from error
    except OSError as error:
        raise JournalUnavailable(f"{path} cannot be used: {error.strerror or error}") from error


def _failure(path: Path, error: sqlite3.DatabaseError) -> JournalFailure:
    code = getattr(error, "sqlite_errorcode", None)
    primary = code & 0xFF if isinstance(code, int) else None
    if primary in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return JournalBroken(
            f"{path} is damaged or not a journal ({error}); restore it from a copy, or see `optagent doctor`"
        )
    if primary == sqlite3.SQLITE_READONLY:
        return JournalReadOnly(f"{path} cannot be written ({error}); check its permissions and those of its folder")
    return JournalUnavailable(f"{path} cannot be used now ({error}); mend that and try again")
