"""The journal keeps what it acknowledged, changes nothing, and says clearly when it cannot be used."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optagent.tools.errors import JournalBroken, JournalReadOnly, JournalTooNew, JournalUnavailable, ToolFailure
from optagent.tools.journal_store import Draft, Journal, JournalStore, MemoryJournal, View

AT = "2026-01-02T03:04:05+00:00"

keys = st.none() | st.sampled_from(["a", "b", "c"])
bodies = st.dictionaries(
    st.text(max_size=5),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
        lambda inner: st.lists(inner, max_size=3),
        max_leaves=4,
    ),
    max_size=3,
)
drafts = st.builds(Draft, st.sampled_from(["intent", "result"]), bodies, keys, st.just(AT))


def read(path: Path) -> JournalStore:
    return JournalStore.open(path, create=False, read_only=True)


@given(st.lists(st.none() | st.lists(drafts, max_size=4), max_size=8))
@settings(max_examples=40, deadline=None)
def test_any_history_reopened_is_the_same_as_in_memory(steps: list[list[Draft] | None]) -> None:
    """None stands for closing and opening the file again."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal.sqlite"
        memory = MemoryJournal()
        store = JournalStore.open(path, create=True)
        for step in steps:
            if step is None:
                store.close()
                store = JournalStore.open(path, create=False)
            else:
                assert store.append_all(step) == memory.append_all(step)
        store.close()
        with read(path) as again:
            assert_same(again, memory)


def assert_same(one: Journal, other: Journal) -> None:
    assert list(one.entries()) == list(other.entries())
    assert one.last_seq() == other.last_seq()
    assert list(one.entries(after=2, kind="intent", limit=3)) == list(other.entries(after=2, kind="intent", limit=3))
    for kind in ("intent", "result", "neither"):
        assert one.last(kind) == other.last(kind)
        assert [one.find(kind, key) for key in "abc"] == [other.find(kind, key) for key in "abc"]


WRITER = """
import sys
from pathlib import Path
from optagent.tools.journal_store import Draft, JournalStore
journal = JournalStore.open(Path(sys.argv[1]), create=True)
while True:
    entries = journal.append_all([Draft("step", {"text": "x" * 3000}), Draft("step", {"text": "y"})])
    print(entries[-1].seq, flush=True)
"""


@given(st.lists(st.integers(0, 25), min_size=1, max_size=3))
@settings(max_examples=4, deadline=None)
def test_kill_9_loses_nothing_that_was_acknowledged(kills: list[int]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal.sqlite"
        acknowledged = 0
        for count in kills:
            writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True)
            assert writer.stdout is not None
            for _ in range(count):
                acknowledged = int(writer.stdout.readline())
            writer.send_signal(signal.SIGKILL)
            acknowledged = max([acknowledged, *map(int, writer.communicate()[0].split())])
            with read(path) as journal:
                seqs = [entry.seq for entry in journal.entries()]
            assert seqs == list(range(1, len(seqs) + 1))
            assert len(seqs) >= acknowledged
            assert len(seqs) % 2 == 0, "a pair is written whole or not at all"


@pytest.fixture(params=["file", "memory"])
def journal(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Journal]:
    made: Journal = MemoryJournal()
    if request.param == "file":
        made = JournalStore.open(tmp_path / "deep" / "er" / "journal.sqlite", create=True)
    yield made
    made.close()


def test_a_key_is_recorded_once_for_its_kind(journal: Journal) -> None:
    first = journal.append("intent", {"n": 1}, key="launch-1", at=AT)
    assert journal.append("intent", {"n": 2}, key="launch-1") == first
    assert journal.append("result", {"n": 3}, key="launch-1").seq == 2
    assert journal.find("intent", "launch-1") == first
    assert journal.append("note", {}).seq == 3
    assert journal.append("note", {}).seq == 4


def test_what_is_returned_is_what_will_be_read(journal: Journal) -> None:
    entry = journal.append("launch", {"api_key": "s3cret", "lengths": (1, 2), "text": "HF_TOKEN=hf_1234 é \ud800"})
    assert entry.body == {"api_key": "[redacted]", "lengths": [1, 2], "text": "HF_TOKEN=[redacted] é \ud800"}
    assert list(journal.entries()) == [entry]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object()])
def test_what_is_not_json_is_refused_whole(journal: Journal, value: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        journal.append_all([Draft("good", {}), Draft("bad", {"value": value})])
    assert journal.last_seq() == 0


def test_entries_end_with_what_was_there_when_they_began(journal: Journal) -> None:
    journal.append_all([Draft("step", {"n": n}) for n in range(1200)])
    for entry in journal.entries():
        journal.append("echo", {"of": entry.seq}) if entry.seq % 100 == 0 else None
    assert journal.last_seq() == 1212
    assert [entry.seq for entry in journal.entries(after=1190, limit=15)] == list(range(1191, 1206))
    assert list(journal.entries(limit=0)) == []


def test_a_view_is_replaced_and_may_be_missing(journal: Journal) -> None:
    assert journal.load_view("plan") is None
    journal.save_view("plan", 3, {"items": [1]})
    journal.save_view("plan", 4, {"items": [2]})
    assert journal.load_view("plan") == View(4, {"items": [2]})


def test_threads_share_one_store(tmp_path: Path) -> None:
    with JournalStore.open(tmp_path / "journal.sqlite", create=True) as store:

        def write(name: str) -> None:
            for n in range(20):
                store.append("step", {"from": name}, key=f"{name}-{n}")

        threads = [threading.Thread(target=write, args=(name,)) for name in "abcd"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [entry.seq for entry in store.entries()] == list(range(1, 81))


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE entries SET body = '{}'",
        "DELETE FROM entries WHERE seq = 1",
        "INSERT OR REPLACE INTO entries VALUES (1, '', 'k', NULL, '{}')",
        "INSERT OR REPLACE INTO entries VALUES (NULL, '', 'kind', 'key', '{}')",
    ],
)
def test_no_entry_can_be_changed_or_removed(tmp_path: Path, statement: str) -> None:
    path = tmp_path / "journal.sqlite"
    with JournalStore.open(path, create=True) as store:
        entry = store.append("kind", {"n": 1}, key="key")
    connection = sqlite3.connect(path)
    with pytest.raises(sqlite3.IntegrityError, match="append-only"):
        connection.execute(statement)
    connection.close()
    with read(path) as store:
        assert list(store.entries()) == [entry]


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("content", [None, b""], ids=["missing", "killed while it was made"])
def test_no_journal_yet_reads_as_an_empty_one(tmp_path: Path, content: bytes | None, read_only: bool) -> None:
    path = tmp_path / "folder" / "journal.sqlite"
    if content is not None:
        path.parent.mkdir()
        path.write_bytes(content)
    with JournalStore.open(path, create=False, read_only=read_only) as store:
        assert store.last_seq() == 0
        assert list(store.entries()) == []
        store.save_view("plan", 0, {})
        assert store.load_view("plan") is None
        with pytest.raises(JournalReadOnly, match="opened for reading"):
            store.append("step", {})
    assert path.exists() is (content is not None)


def newer(path: Path) -> None:
    JournalStore.open(path, create=True).close()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 7")
    connection.close()


def other_database(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE recipes (name TEXT)")
    connection.close()


def damaged(path: Path) -> None:
    with JournalStore.open(path, create=True) as store:
        store.append_all([Draft("step", {"text": "x" * 500}) for _ in range(200)])
    content = bytearray(path.read_bytes())
    content[100:4096] = b"\xff" * (4096 - 100)
    path.write_bytes(bytes(content))


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize(
    ("make", "error"),
    [
        (newer, JournalTooNew),
        (other_database, JournalBroken),
        (damaged, JournalBroken),
        (lambda path: path.write_text("# Not a database\n" * 500), JournalBroken),
        (lambda path: path.mkdir(), JournalUnavailable),
    ],
    ids=["newer", "other database", "damaged", "text", "folder"],
)
def test_what_cannot_be_read_says_so_in_one_line(
    tmp_path: Path, make: Callable[[Path], object], error: type[ToolFailure], read_only: bool
) -> None:
    path = tmp_path / "journal.sqlite"
    make(path)
    with pytest.raises(error) as caught:
        JournalStore.open(path, create=True, read_only=read_only)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_entry_that_was_damaged_is_named(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    with JournalStore.open(path, create=True) as store:
        store.append("step", {"n": 1})
    connection = sqlite3.connect(path)
    connection.execute("DROP TRIGGER entries_stay")
    connection.execute("UPDATE entries SET body = '{'")
    connection.commit()
    connection.close()
    with read(path) as store, pytest.raises(JournalBroken, match="entry 1 is damaged"):
        list(store.entries())


def test_reading_while_a_writer_has_it_open(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    with JournalStore.open(path, create=True) as writer, read(path) as reader:
        assert reader.last_seq() == 0
        writer.append("step", {"n": 1})
        assert reader.last_seq() == 1
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        assert [entry.body for entry in reader.entries()] == [{"n": 1}]
        with read(path) as late:
            assert late.last_seq() == 1
        other.close()


READER = """
import json, os, sys
from pathlib import Path
from optagent.tools.errors import JournalFailure
from optagent.tools.journal_store import JournalStore
if os.geteuid() == 0:
    os.seteuid(65534)
journal = JournalStore.open(Path(sys.argv[1]), create=False, read_only=True)
print(json.dumps([entry.body for entry in journal.entries()]))
"""


@pytest.mark.parametrize("writer_lives", [False, True])
def test_reading_in_a_folder_that_cannot_be_written(writer_lives: bool) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = folder / "journal.sqlite"
        store = JournalStore.open(path, create=True)
        store.append("step", {"n": 1})
        if not writer_lives:
            store.close()
        folder.chmod(0o555)
        seen = subprocess.run([sys.executable, "-c", READER, str(path)], capture_output=True, text=True, check=False)
        folder.chmod(0o755)
        store.close()
        assert json.loads(seen.stdout or "null") == [{"n": 1}], seen.stderr
        assert {file.name for file in folder.iterdir()} == {"journal.sqlite", "journal.sqlite.seq"}
