"""A sitting that is watched and asked to end: the request, where it is published, and the log that is read elsewhere."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optagent.tools.attended import AttendedToolbox
from optagent.tools.calls.base import Request, Result
from optagent.tools.calls.configuration import Configuration
from optagent.tools.calls.patch import PatchApplied
from optagent.tools.calls.server import Launch, Launched
from optagent.tools.lock import myself
from optagent.tools.narration_log import NarrationLog, set_aside
from optagent.tools.routed import RoutedToolbox
from optagent.tools.stop_request import Interrupted, StopRequest
from optagent.tools.tail import Tail
from optagent.tools.whereabouts import LONGEST, Whereabouts, elapsed_s, is_of, left_s, read_whereabouts

ME = myself("continue")
R = TypeVar("R", bound=Result)


def launch() -> Launch:
    return Launch(key="k", launch="E0001-baseline-1", configuration=Configuration("default"), log="logs/a.log")


# The request


def test_what_waits_is_interrupted_at_once_and_once_only() -> None:
    stop = StopRequest()
    with pytest.raises(Interrupted) as found, stop.waiting("launch"):
        stop.ask("SIGTERM")
    assert (found.value.by, found.value.during) == ("SIGTERM", "launch")
    stop.heed()
    with stop.waiting("probe"):  # the handoff that follows has its own look around
        stop.ask("SIGTERM")


def test_what_takes_moments_is_finished_first() -> None:
    stop = StopRequest()
    stop.ask("Ctrl-C")
    with pytest.raises(Interrupted) as found:
        stop.heed()
    assert (found.value.by, found.value.during) == ("Ctrl-C", "")


def test_nothing_is_begun_any_more_that_would_be_waited_for() -> None:
    stop, begun = StopRequest(), []
    stop.ask("Ctrl-C")
    with pytest.raises(Interrupted), stop.waiting("bench"):
        begun.append("bench")
    assert begun == []


def test_a_sitting_that_ends_by_itself_is_not_interrupted() -> None:
    stop = StopRequest()
    with stop.put_off():
        stop.ask("Ctrl-C")
        stop.heed()
        with stop.waiting("probe"):
            assert not stop.heeded_at_once
    with pytest.raises(Interrupted):
        stop.heed()


# Where a sitting is


def published(path: Path) -> dict[str, object]:
    found = read_whereabouts(path)
    assert found is not None
    return found


def eventually_says(path: Path, **what: object) -> dict[str, object]:
    deadline = time.monotonic() + 30
    while not (now := published(path)).items() >= what.items():
        assert time.monotonic() < deadline, now
        time.sleep(0.02)
    return now


def test_it_says_what_is_waited_for_and_for_how_long_that_usually_takes(tmp_path: Path) -> None:
    path = tmp_path / "now.json"
    with Whereabouts(path, ME, detached=True) as here:
        here.remember("S003", {"launch": [100.0, 110.0, 300.0]})
        here.tell("step", "step 2: fewer channels")
        here.now("launching candidate (screen)")
        with here.calling("launch", "launch", "logs/a.log"):
            here.detail("weight-load 40 %")
            now = eventually_says(path, detail="weight-load 40 %")
        assert now.items() >= {
            "state": "waits", "phase": "launch", "doing": "launching candidate (screen)", "log": "logs/a.log",
            "usual_s": 110.0, "sitting": "S003", "step": "step 2: fewer channels", "detached": True, "ended": None,
        }.items()  # fmt: skip
        left = left_s(now)
        assert left is not None
        assert left == pytest.approx(110.0 - elapsed_s(now), abs=1.0)
        eventually_says(path, phase="decide", log=None, usual_s=None)
        here.ended({"exit_status": 3})
        here.now("something else")
    ended = published(path)
    assert (ended["state"], ended["ended"]) == ("ended", {"at": ended["ended"]["at"], "exit_status": 3})  # type: ignore[index]
    assert [p.name for p in tmp_path.iterdir()] == ["now.json"]


def test_a_benchmark_with_a_discarded_load_takes_twice_as_long(tmp_path: Path) -> None:
    path = tmp_path / "now.json"
    with Whereabouts(path, ME, detached=False) as here:
        here.remember("S001", {"bench": [30.0]})
        with here.calling("bench", "bench, twice", None):
            eventually_says(path, usual_s=60.0)
        here.took("bench, twice", 50.0)
        with here.calling("bench", "bench, twice", None):
            eventually_says(path, usual_s=50.0)
        with here.calling("examine", "examine", None):
            eventually_says(path, phase="gate", usual_s=None)


def test_credentials_and_long_texts_stay_out_of_it(tmp_path: Path) -> None:
    path = tmp_path / "now.json"
    secret = "hf_" + "a1B2" * 8
    with Whereabouts(path, ME, detached=False) as here:
        here.now(f"launching with {secret}")
        here.detail("x" * 5000)
        now = eventually_says(path, detail="x" * (LONGEST - 1) + "…")
    assert secret not in path.read_text()
    assert now["doing"] == "launching with [redacted]"


def test_a_folder_that_cannot_be_written_ends_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    path = tmp_path / "file" / "now.json"
    with Whereabouts(path, ME, detached=False) as here:
        here.now("launching")
        here.ended({"exit_status": 0})
    assert read_whereabouts(path) is None


@pytest.mark.parametrize("text", ["", "[]", "{", '{"pid": "x"}', '{"doing": "x"}'])
def test_what_cannot_be_read_says_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "now.json").write_text(text)
    assert read_whereabouts(tmp_path / "now.json") is None


def test_a_pid_that_was_given_again_is_another_process(tmp_path: Path) -> None:
    with Whereabouts(tmp_path / "now.json", ME, detached=False):
        now = published(tmp_path / "now.json")
    assert is_of(now, ME)
    assert not is_of(now, replace(ME, start_ticks=ME.start_ticks + 1))
    assert not is_of(now, replace(ME, boot_id="another"))
    assert not is_of(now, None)


# The toolbox


class Asking(RoutedToolbox):
    """Somebody asks to end while it is at work, which it remembers when it comes to its end."""

    def __init__(self, stop: StopRequest) -> None:
        self.done: list[str] = []
        self._stop = stop

    def call(self, tool: str, request: Request, answers_with: type[R]) -> R:
        self._stop.ask("SIGTERM")
        self.done.append(tool)
        return answers_with.model_validate({"gone": True} if tool == "stop" else {})


@pytest.mark.parametrize("tool", ["launch", "bench", "examine", "evaluate", "probe", "read_log", "list_flags"])
def test_a_tool_that_waits_is_broken_off(tmp_path: Path, tool: str) -> None:
    stop = StopRequest()
    inner, here = Asking(stop), Whereabouts(tmp_path / "now.json", ME, detached=False)
    with pytest.raises(Interrupted) as found:
        AttendedToolbox(inner, here, stop).call(tool, launch(), Launched)
    assert (found.value.during, inner.done) == (tool, [])


@pytest.mark.parametrize(
    "tool", ["apply_patch", "keep_patch", "drop_patch", "restore_checkout", "install_files", "write_text", "stop"]
)
def test_a_tool_that_takes_moments_is_not(tmp_path: Path, tool: str) -> None:
    stop = StopRequest()
    inner, here = Asking(stop), Whereabouts(tmp_path / "now.json", ME, detached=False)
    AttendedToolbox(inner, here, stop).call(tool, launch(), PatchApplied)
    assert inner.done == [tool]
    with pytest.raises(Interrupted):
        stop.heed()


# The log


@pytest.mark.parametrize("where", ["deleted", "its folder deleted"])
def test_a_log_that_was_deleted_is_made_anew(tmp_path: Path, where: str) -> None:
    path = tmp_path / "state" / "sitting.log"
    log = NarrationLog(path)
    print("one", file=log, flush=True)
    path.unlink()
    if where != "deleted":
        path.parent.rmdir()
    print("two", file=log, flush=True)
    assert path.read_text() == "two\n"


def test_a_log_that_grew_large_is_set_aside_once(tmp_path: Path) -> None:
    path = tmp_path / "sitting.log"
    log = NarrationLog(path, largest=50)
    for number in range(100):
        print(f"line {number:02}", file=log, flush=True)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["sitting.log", "sitting.log.1"]
    kept = (set_aside(path).read_text() + path.read_text()).splitlines()
    assert kept == [f"line {number:02}" for number in range(100 - len(kept), 100)]
    assert all(p.stat().st_size <= 60 for p in tmp_path.iterdir())


def test_a_full_disk_loses_lines_and_says_so_later(tmp_path: Path) -> None:
    path = tmp_path / "sitting.log"
    path.symlink_to("/dev/full")
    log = NarrationLog(path)
    print("lost", file=log, flush=True)
    path.unlink()
    print("kept", file=log, flush=True)
    assert path.read_text() == "  (some lines are missing: the disk was full)\nkept\n"


def test_credentials_stay_out_of_the_log(tmp_path: Path) -> None:
    secret = "hf_" + "a1B2" * 8
    log = NarrationLog(tmp_path / "sitting.log")
    log.write(f"token is {secret[:10]}")
    log.write(f"{secret[10:]}\n")
    assert (tmp_path / "sitting.log").read_text() == "token is [redacted]\n"


@given(st.lists(st.sampled_from(["line", "half", "look", "set aside", "delete"]), max_size=40))
def test_whoever_reads_on_sees_each_line_once_and_in_order(done: list[str]) -> None:
    """Whatever becomes of the file, as long as somebody looks between two changes of it."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "sitting.log"
        path.touch()
        tail = Tail(path, set_aside(path))
        written, half = [], ""
        seen = tail.last()
        for number, what in enumerate(done):
            if what in ("line", "half"):
                text = f"{number} "
                half += text
                with path.open("a") as file:
                    file.write(text + ("\n" if what == "line" else ""))
                if what == "line":
                    written.append(half)
                    half = ""
            elif what == "look":
                seen += tail.new()
            elif not half:
                seen += tail.new()
                path.replace(set_aside(path)) if what == "set aside" else path.unlink()
                path.touch()
        assert [*seen, *tail.new()] == written


def test_the_last_lines_reach_into_what_was_set_aside(tmp_path: Path) -> None:
    path = tmp_path / "sitting.log"
    set_aside(path).write_text("one\ntwo\n")
    path.write_text("three\nfo")
    tail = Tail(path, set_aside(path))
    assert tail.last() == ["one", "two", "three"]
    with path.open("a") as file:
        file.write("ur\n")
    assert tail.new() == ["four"]


def test_a_log_that_is_not_there_has_no_lines_until_it_is(tmp_path: Path) -> None:
    path = tmp_path / "sitting.log"
    tail = Tail(path, set_aside(path))
    assert tail.last() == tail.new() == []
    path.write_text("one\n")
    assert tail.new() == ["one"]


def test_a_log_that_was_cut_is_read_from_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "sitting.log"
    path.write_text("one\ntwo\n")
    tail = Tail(path, set_aside(path))
    assert tail.last() == ["one", "two"]
    path.write_text("a\n")
    assert tail.new() == ["a"]
