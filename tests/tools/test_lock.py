"""One holder at a time, among real processes that end in every way."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from optagent.tools.errors import LockUnusable
from optagent.tools.lock import UNKNOWN_HOLDER, Held, Holder, hold, holder

HOLDS = """
import subprocess, sys
from pathlib import Path
from optagent.tools.lock import hold
with hold(Path(sys.argv[1]), "continue"):
    if len(sys.argv) > 2:
        child = subprocess.Popen(["sleep", "60"], start_new_session=True, close_fds=False)
        print(child.pid, flush=True)
    else:
        print("held", flush=True)
    sys.stdin.read()
print("released", flush=True)
"""


@contextmanager
def other_holder(path: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", HOLDS, str(path), *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def line_from(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_one_holder_at_a_time_and_it_is_named(tmp_path: Path) -> None:
    path = tmp_path / "state" / "lock"
    assert holder(path) is None
    with other_holder(path) as other:
        assert line_from(other) == "held"
        with pytest.raises(Held, match=f"pid {other.pid} .*continue") as caught, hold(path, "second"):
            pass
        seen = holder(path)
        assert seen == caught.value.holder
        assert seen is not None
        assert (seen.pid, seen.purpose, seen.host) == (other.pid, "continue", os.uname().nodename)
        other.communicate("")
        assert holder(path) is None
        with hold(path, "third") as lease:
            assert (lease.previous, lease.note) == (None, None)
            assert holder(path) == lease.holder


def test_a_process_cannot_take_it_twice(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with hold(path, "outer") as lease:
        with pytest.raises(Held) as caught, hold(path, "inner"):
            pass
        assert caught.value.holder == lease.holder
        assert holder(path) == lease.holder


def test_it_is_released_when_the_block_fails(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with pytest.raises(ZeroDivisionError), hold(path, "fails"):
        raise ZeroDivisionError
    with hold(path, "next") as lease:
        assert lease.note is None


def test_a_killed_holder_frees_it_and_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with other_holder(path) as other:
        assert line_from(other) == "held"
        other.send_signal(signal.SIGKILL)
        other.wait()
        assert holder(path) is None
        with hold(path, "next") as lease:
            assert lease.previous is not None
            assert lease.previous.pid == other.pid
            assert lease.note is not None
            assert "without releasing" in lease.note


def test_a_child_that_survives_does_not_keep_it(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with other_holder(path, "with a child") as other:
        child = int(line_from(other))
        other.send_signal(signal.SIGKILL)
        other.wait()
        try:
            os.kill(child, 0)
            with hold(path, "next") as lease:
                assert lease.previous is not None
        finally:
            os.kill(child, signal.SIGKILL)


def left_behind(path: Path, change: Callable[[Holder], Holder]) -> Holder:
    """Describe a holder in a lock file that nobody has locked."""
    with hold(path, "before") as lease:
        left = change(lease.holder)
    path.write_text(json.dumps(asdict(left)) + "\n")
    return left


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda me: replace(me, start_ticks=me.start_ticks + 1), "without releasing"),
        (lambda me: replace(me, boot_id="another boot"), "without releasing"),
        (lambda me: replace(me, host="another-host"), "see that it ended"),
        (lambda me: replace(me, since="2199-01-01T00:00:00+00:00"), "without releasing"),
    ],
    ids=["pid was given to another process", "before a reboot", "another host", "the clock jumped"],
)
def test_a_free_lock_is_taken_whatever_was_left_in_it(
    tmp_path: Path, change: Callable[[Holder], Holder], said: str
) -> None:
    path = tmp_path / "lock"
    left = left_behind(path, change)
    assert holder(path) is None
    with hold(path, "next") as lease:
        assert lease.previous == left
        assert said in (lease.note or "")


@pytest.mark.parametrize("content", ["", "\n", "{", "[]", '{"pid": 1}\n', "\x00" * 100])
def test_nonsense_in_the_file_is_nobody(tmp_path: Path, content: str) -> None:
    path = tmp_path / "lock"
    path.write_text(content)
    assert holder(path) is None
    with hold(path, "next") as lease:
        assert lease.previous is None


def test_a_shorter_description_leaves_nothing_of_a_longer_one(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    left_behind(path, lambda me: replace(me, purpose="x" * 500))
    with hold(path, "short"):
        assert json.loads(path.read_text())["purpose"] == "short"
    assert path.read_text() == "\n"


def test_a_holder_that_says_nothing_is_still_a_holder(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with subprocess.Popen(["flock", str(path), "cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as cat:
        assert cat.stdin is not None
        cat.stdin.write("locked\n")
        cat.stdin.flush()
        assert line_from(cat) == "locked"
        assert holder(path) == UNKNOWN_HOLDER
        with pytest.raises(Held, match="unknown host"), hold(path, "second"):
            pass
        cat.communicate()


def test_a_lock_that_cannot_be_opened_says_so(tmp_path: Path) -> None:
    with pytest.raises(LockUnusable, match="cannot be opened"), hold(tmp_path, "a folder"):
        pass
    (tmp_path / "file").write_text("")
    with pytest.raises(LockUnusable), hold(tmp_path / "file" / "lock", "under a file"):
        pass


LOOKS = """
import sys
from pathlib import Path
from optagent.tools.lock import holder
while True:
    holder(Path(sys.argv[1]))
    print("looked", flush=True)
"""


def test_looking_never_makes_a_taker_fail(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.touch()
    command = [sys.executable, "-c", LOOKS, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as looker:
        try:
            for _ in range(300):
                assert line_from(looker) == "looked"
                with hold(path, "taker"):
                    pass
        finally:
            looker.kill()
