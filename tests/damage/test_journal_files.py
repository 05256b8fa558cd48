"""Damaged journal files: what is told, what is saved, and what a migration leaves when it is killed."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from optagent.tools.errors import JournalBroken, JournalFailure, JournalLost, JournalTooNew
from optagent.tools.journal_mark import remembered
from optagent.tools.journal_salvage import health, salvage
from optagent.tools.journal_schema import SCHEMA, Schema
from optagent.tools.journal_store import Entry, JournalStore

ENTRIES = 120
PAGE = 4096
AT = "2026-01-02T03:04:05+00:00"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("journal") / "journal.db"
    with JournalStore.open(path, create=True) as store:
        for n in range(ENTRIES):
            store.append("step", {"n": n, "text": "x" * 700}, key=f"k{n}", at=AT)
    return path


@pytest.fixture
def journal(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made.parent, tmp_path / "copy")
    return tmp_path / "copy" / made.name


def entries(path: Path) -> list[Entry]:
    with JournalStore.open(path, create=False, read_only=True) as store:
        return list(store.entries())


def read_all_of(path: Path, whole: list[Entry]) -> None:
    """As a sitting reads it: one after the other, and by their keys."""
    with JournalStore.open(path, create=True) as store:
        assert list(store.entries()) == whole
        assert [store.find("step", str(entry.key)) for entry in whole] == whole


def overwrite(page: int, content: bytes = b"\xa5" * PAGE) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        with path.open("r+b") as file:
            file.seek((page - 1) * PAGE)
            file.write(content)

    return damage


def cut(share: float) -> Callable[[Path], None]:
    return lambda path: os.truncate(path, int(path.stat().st_size * share))


WITHOUT_WAL = """
import os, sys
from pathlib import Path
from optagent.tools.journal_store import JournalStore
store = JournalStore.open(Path(sys.argv[1]), create=False)
store.append("step", {"late": True})
os._exit(9)
"""


def killed_after_one_more(path: Path) -> Path:
    """The journal with one more entry, which lies in its `-wal` file alone."""
    subprocess.run([sys.executable, "-c", WITHOUT_WAL, str(path)], check=False)
    wal = path.with_name(path.name + "-wal")
    assert wal.stat().st_size > 0
    return wal


DAMAGES = [
    # name, damage, entries that are saved at least, at most
    ("cut to a half", cut(0.5), 20, 100),
    ("cut in a page", cut(0.333), 10, 80),
    ("a page in the middle", overwrite(15), 10, 110),
    ("the first page", overwrite(1), ENTRIES, ENTRIES),
    ("the first words", overwrite(1, b"hello, journal! "), ENTRIES, ENTRIES),
    ("an index", overwrite(3), ENTRIES, ENTRIES),
    ("empty", cut(0), 0, 0),
    ("no database", lambda path: path.write_bytes(b"once upon a time\n" * 999), 0, 0),
    ("zeros", lambda path: path.write_bytes(bytes(path.stat().st_size)), 0, 0),
    ("deleted", lambda path: path.unlink(), 0, 0),
]  # fmt: skip


@pytest.mark.parametrize(("damage", "least", "most"), [d[1:] for d in DAMAGES], ids=[d[0] for d in DAMAGES])
def test_what_is_damaged_is_told_and_what_can_be_read_is_saved(
    journal: Path, damage: Callable[[Path], object], least: int, most: int
) -> None:
    whole = entries(journal)
    damage(journal)
    with pytest.raises((JournalBroken, JournalLost)):
        read_all_of(journal, whole)
    untouched = {p.name: p.read_bytes() for p in journal.parent.iterdir() if not p.name.endswith(("-shm", "-wal"))}
    seen = health(journal)
    assert (seen.sound, seen.once) == (False, ENTRIES)
    assert untouched.items() <= {p.name: p.read_bytes() for p in journal.parent.iterdir()}.items()
    before, aside = salvage(journal, "damaged-now")
    assert before == seen
    assert least <= before.entries <= most
    assert before.lost == ENTRIES - before.entries
    assert entries(journal) == whole[: before.entries]
    assert health(journal).sound
    if journal.name in untouched:
        assert aside.read_bytes() == untouched[journal.name], "the damaged file is kept as it was"
    with JournalStore.open(journal, create=False) as store:
        assert store.append("step", {}).seq == before.entries + 1


def test_a_lost_wal_is_noticed_although_the_rest_is_sound(journal: Path) -> None:
    wal = killed_after_one_more(journal)
    assert entries(journal)[-1].body == {"late": True}
    for file in (wal, wal.with_name(journal.name + "-shm")):
        file.unlink(missing_ok=True)
    assert remembered(journal) == ENTRIES + 1
    for read_only in (True, False):
        with pytest.raises(JournalLost, match=rf"has {ENTRIES} of the {ENTRIES + 1} entries"):
            JournalStore.open(journal, create=True, read_only=read_only)
    assert salvage(journal, "older")[0].lost == 1
    assert len(entries(journal)) == ENTRIES


def test_a_wal_that_was_left_over_is_used_whatever_its_index_holds(journal: Path) -> None:
    killed_after_one_more(journal)
    shm = journal.with_name(journal.name + "-shm")
    shm.write_bytes(b"\x5a" * max(1, shm.stat().st_size))
    with JournalStore.open(journal, create=False) as store:
        assert store.last_seq() == ENTRIES + 1
        assert store.append("step", {}).seq == ENTRIES + 2


def test_a_wal_that_holds_nonsense_is_not_taken_for_nothing(journal: Path) -> None:
    wal = killed_after_one_more(journal)
    wal.write_bytes(b"\x11" * wal.stat().st_size)
    with pytest.raises(JournalLost):
        JournalStore.open(journal, create=False)


def test_an_older_copy_is_not_taken_for_the_journal(journal: Path, made: Path) -> None:
    with JournalStore.open(journal, create=False) as store:
        store.append("step", {})
    shutil.copy(made, journal)
    with pytest.raises(JournalLost):
        JournalStore.open(journal, create=False)


def test_nothing_of_a_newer_journal_is_touched(journal: Path) -> None:
    with contextlib.closing(sqlite3.connect(journal)) as connection:
        connection.execute("PRAGMA user_version = 99")
    content = journal.read_bytes()
    with pytest.raises(JournalTooNew):
        JournalStore.open(journal, create=False)
    assert health(journal).newer
    with pytest.raises(JournalFailure, match="newer optagent"):
        salvage(journal, "damaged-now")
    assert journal.read_bytes() == content


# Migrations

NEXT = Schema(
    SCHEMA.version + 1, SCHEMA.create, {SCHEMA.version: ("CREATE TABLE more (x)", "INSERT INTO more VALUES (1)")}
)


def tables(path: Path) -> set[str]:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return {name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}


def test_a_migration_leaves_a_copy_of_what_was(journal: Path) -> None:
    whole = entries(journal)
    with JournalStore.open(journal, create=False, schema=NEXT) as store:
        assert list(store.entries()) == whole
        assert store.append("step", {}).seq == ENTRIES + 1
    assert "more" in tables(journal)
    copy = journal.with_name(f"journal.db.v{SCHEMA.version}.bak")
    assert entries(copy) == whole, "the copy is a journal of the older version"
    with pytest.raises(JournalTooNew):
        JournalStore.open(journal, create=False)


def test_reading_an_older_journal_migrates_nothing_on_disk(journal: Path) -> None:
    content = journal.read_bytes()
    with JournalStore.open(journal, create=False, read_only=True, schema=NEXT) as store:
        assert store.last_seq() == ENTRIES
    assert journal.read_bytes() == content
    assert not list(journal.parent.glob("*.bak"))


MIGRATING = """
import sys
from pathlib import Path
from optagent.tools.journal_schema import SCHEMA, Schema
from optagent.tools.journal_store import JournalStore
slow = "INSERT INTO more WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c LIMIT 2000000) SELECT x FROM c"
schema = Schema(SCHEMA.version + 1, SCHEMA.create, {SCHEMA.version: ("CREATE TABLE more (x)", slow, slow, slow, slow)})
JournalStore.open(Path(sys.argv[1]), create=False, schema=schema)
"""


def test_a_migration_that_is_killed_leaves_the_older_journal_and_its_copy(journal: Path) -> None:
    whole = entries(journal)
    copy = journal.with_name(f"journal.db.v{SCHEMA.version}.bak")
    migration = subprocess.Popen([sys.executable, "-c", MIGRATING, str(journal)])
    while not copy.exists():
        assert migration.poll() is None
        time.sleep(0.01)
    migration.send_signal(signal.SIGKILL)
    migration.wait()
    assert entries(journal) == whole
    assert entries(copy) == whole
    assert "more" not in tables(journal)
    with JournalStore.open(journal, create=False, schema=NEXT) as store:
        assert list(store.entries()) == whole


def test_without_room_for_the_copy_nothing_is_migrated(journal: Path) -> None:
    copy = journal.with_name(f"journal.db.v{SCHEMA.version}.bak")
    copy.mkdir()
    with pytest.raises(JournalFailure):
        JournalStore.open(journal, create=False, schema=NEXT)
    assert "more" not in tables(journal)
    assert len(entries(journal)) == ENTRIES
