"""Launching and stopping, with real processes that behave well and badly."""

from __future__ import annotations

import os
import re
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from optagent.tools import process_notes, processes
from optagent.tools.calls.world import Gpu
from optagent.tools.commands import Command, Mark
from optagent.tools.deployment import Timeouts
from optagent.tools.errors import MachineExhausted
from optagent.tools.gpus import still_held
from optagent.tools.launch_watch import Start
from optagent.tools.network import Address, Listener, port_holder
from optagent.tools.process_notes import Note
from optagent.tools.processes import Family, ProcessId
from optagent.tools.server import launch, others_on_port, stop

if TYPE_CHECKING:
    from conftest import Stubs

FAKES = Path(__file__).parent / "fakes"
Quiet = Callable[[str], None]


def eventually(true: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not true():
        assert time.monotonic() < deadline, "did not happen"
        time.sleep(0.02)


def no_gpus() -> None:
    """There is no way to know the GPUs."""


def test_a_healthy_server_is_ready_and_can_be_stopped(stubs: Stubs) -> None:
    start, told = stubs.start("healthy"), list[str]()
    launched = launch(start, told.append)
    assert launched.outcome == "ready"
    assert launched.url == f"http://127.0.0.1:{stubs.port}"
    assert launched.reading is not None
    assert launched.reading.status == "ready"
    assert (launched.reading.kv_tokens, launched.reading.context_len) == (4096, 2048)
    assert "proving: 8 requests at once" in told
    assert launched.pid is not None
    assert launched.start_time is not None
    stopped = stop(ProcessId(launched.pid, launched.start_time), start.address, start.records, start.timeouts, no_gpus)
    assert (stopped.gone, stopped.was_running, stopped.problem) == (True, True, None)
    assert stubs.running(start.mark) == []
    assert list(start.records.iterdir()) == []


def test_stopping_again_is_no_error(stubs: Stubs, quiet: Quiet) -> None:
    start = stubs.start("healthy")
    launched = launch(start, quiet)
    process = ProcessId(launched.pid or 0, launched.start_time or 0)
    assert stop(process, start.address, start.records, start.timeouts, no_gpus).was_running
    again = stop(process, start.address, start.records, start.timeouts, no_gpus)
    assert (again.gone, again.was_running) == (True, False)


def test_a_crash_is_read_at_once(stubs: Stubs, quiet: Quiet) -> None:
    launched = launch(stubs.start("crashes", silence_s=600), quiet)
    assert (launched.outcome, launched.exit_code) == ("crashed", 1)
    assert launched.reading is not None
    assert launched.reading.cause is not None
    assert launched.reading.cause.kind == "gpu-oom-weights"
    assert "CUDA out of memory" in launched.reading.cause.evidence[0].text


def test_an_end_without_a_word_is_unknown(stubs: Stubs, quiet: Quiet) -> None:
    launched = launch(stubs.start("dies-silently"), quiet)
    assert (launched.outcome, launched.exit_code) == ("crashed", 3)
    assert launched.reading is not None
    assert launched.reading.cause is not None
    assert launched.reading.cause.kind == "unknown"


def test_a_parent_that_outlives_its_dead_rank_is_no_reason_to_wait(stubs: Stubs, quiet: Quiet) -> None:
    start = replace(stubs.start("crashed-but-alive", silence_s=600), dying_s=0.2)
    launched = launch(start, quiet)
    assert launched.outcome == "crashed"
    assert stubs.running(start.mark) == []


@pytest.mark.parametrize("behaviour", ["stands-still", "never-answers"])
def test_a_server_that_stands_still_is_hung_and_stopped(stubs: Stubs, quiet: Quiet, behaviour: str) -> None:
    start = stubs.start(behaviour, silence_s=0.8)
    launched = launch(start, quiet)
    assert launched.outcome == "hung"
    assert launched.problem
    assert stubs.running(start.mark) == []


@pytest.mark.parametrize("behaviour", ["only-at-once", "fails-at-first"])
def test_a_burst_of_requests_at_once_makes_a_server_ready(stubs: Stubs, quiet: Quiet, behaviour: str) -> None:
    assert launch(stubs.start(behaviour, silence_s=600), quiet).outcome == "ready"


@pytest.mark.parametrize(
    ("behaviour", "error"),
    [
        ("hangs-under-load", "no answer within 2 s|ReadTimeout: timed out"),
        ("answers-short", "3 tokens instead of 16"),
    ],
)
def test_a_server_that_does_not_bear_a_burst_is_hung(stubs: Stubs, quiet: Quiet, behaviour: str, error: str) -> None:
    start = stubs.start(behaviour, silence_s=0.8, request_s=2.0)
    launched = launch(start, quiet)
    assert launched.outcome == "hung"
    said = rf"it said that it is ready, but \d of 8 requests at once were not answered: ({error})"
    assert re.fullmatch(said, launched.problem or "")
    assert stubs.running(start.mark) == []


def test_a_server_that_dies_in_the_burst_has_crashed_for_its_log_s_reason(stubs: Stubs, quiet: Quiet) -> None:
    launched = launch(stubs.start("dies-under-load", silence_s=600), quiet)
    assert (launched.outcome, launched.exit_code) == ("crashed", 1)
    assert launched.reading is not None
    assert launched.reading.cause is not None
    assert "CUDA out of memory" in launched.reading.cause.evidence[0].text


@pytest.mark.parametrize("free", [0, 1, 3, 6])
def test_a_limit_on_open_files_is_never_the_server_s_fault(stubs: Stubs, free: int) -> None:
    """With few more files than are open, eight requests at once cannot be asked: that ends the launch, and the server too."""
    start = stubs.start("only-at-once", silence_s=600, request_s=2.0)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)

    def lower(doing: str) -> None:
        if doing.startswith("proving"):
            with Path(os.devnull).open() as lowest_free:
                few = lowest_free.fileno() + free
            resource.setrlimit(resource.RLIMIT_NOFILE, (few, hard))

    try:
        with pytest.raises(MachineExhausted, match=r"the limit on open files .* is reached; mend that"):
            launch(start, lower)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert stubs.running(start.mark) == []


def test_a_taken_port_is_refused_before_anything_starts(stubs: Stubs, quiet: Quiet) -> None:
    start = stubs.start("healthy")
    with socket.create_server(("127.0.0.1", stubs.port)):
        launched = launch(start, quiet)
    assert (launched.outcome, launched.pid) == ("port-taken", None)
    assert str(os.getpid()) in (launched.problem or "")
    assert not start.log.exists()


def test_a_wildcard_listener_takes_the_port_as_well(stubs: Stubs) -> None:
    with socket.create_server(("0.0.0.0", stubs.port)):
        assert port_holder(Address("127.0.0.1", stubs.port)) is not None
    assert port_holder(Address("127.0.0.1", stubs.port)) is None


def test_a_port_lost_meanwhile_ends_the_launch_although_the_process_lives(stubs: Stubs, quiet: Quiet) -> None:
    start = stubs.start("loses-port", silence_s=600)
    launched = launch(start, quiet)
    assert launched.outcome == "port-taken"
    assert launched.pid is not None
    assert stubs.running(start.mark) == []


def test_an_answer_from_another_program_does_not_count(stubs: Stubs, quiet: Quiet) -> None:
    class Agreeable(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()

        do_POST = do_GET

        def log_message(self, *args: object) -> None:
            pass

    start = stubs.start("impostor", silence_s=1.5)
    foreign: list[HTTPServer] = []

    def answer_for_it() -> None:
        eventually(start.log.exists)
        foreign.append(HTTPServer(("127.0.0.1", stubs.port), Agreeable))
        foreign[0].serve_forever()

    thread = threading.Thread(target=answer_for_it)
    thread.start()
    try:
        assert launch(start, quiet).outcome == "hung"
    finally:
        foreign[0].shutdown()
        foreign[0].server_close()
        thread.join()


def test_sigterm_ignored_ends_in_a_kill(stubs: Stubs, quiet: Quiet) -> None:
    start = stubs.start("ignores-sigterm", stop_s=0.3)
    launched = launch(start, quiet)
    process = ProcessId(launched.pid or 0, launched.start_time or 0)
    assert stop(process, start.address, start.records, start.timeouts, no_gpus).gone
    assert processes.exit_code(process) == -signal.SIGKILL


def test_a_grandchild_that_left_the_session_is_found(stubs: Stubs, quiet: Quiet) -> None:
    start = stubs.start("leaves-orphan", stop_s=0.5)
    launched = launch(start, quiet)
    assert len(stubs.running(start.mark)) == 2
    process = ProcessId(launched.pid or 0, launched.start_time or 0)
    os.kill(process.pid, signal.SIGKILL)
    eventually(lambda: not processes.is_alive(process))
    stopped = stop(process, start.address, start.records, start.timeouts, no_gpus)
    assert (stopped.gone, stopped.was_running) == (True, False)
    assert stubs.running(start.mark) == []


def test_a_child_that_nothing_but_its_parent_tells_of_is_remembered(stubs: Stubs, quiet: Quiet) -> None:
    start = stubs.start("leaves-unmarked", stop_s=0.5)
    launched = launch(start, quiet)
    process = ProcessId(launched.pid or 0, launched.start_time or 0)
    noted = process_notes.read(start.records, process)
    assert noted is not None
    (child,) = noted.members - {process}
    assert processes.mark_of(child.pid) is None
    os.kill(process.pid, signal.SIGKILL)
    eventually(lambda: not processes.is_alive(process))
    assert processes.is_alive(child)
    assert process_notes.left_running(start.records) == [child.pid]
    assert stop(process, start.address, start.records, start.timeouts, no_gpus).gone
    assert not processes.is_alive(child)
    assert process_notes.left_running(start.records) == []


def test_a_stop_that_is_killed_leaves_a_note_of_children_born_since_the_launch(stubs: Stubs, quiet: Quiet) -> None:
    start = stubs.start("ignores-sigterm", stop_s=0.5)
    launched = launch(start, quiet)
    process = ProcessId(launched.pid or 0, launched.start_time or 0)
    urllib.request.urlopen(f"{start.address.url}/leave-unmarked").close()
    with subprocess.Popen(
        [sys.executable, "-c", STOPPER, str(process.pid), str(process.start_time), str(start.records)]
    ) as stopper:
        eventually(lambda: len(members_noted(start, process)) == 2)
        stopper.kill()
    (child,) = members_noted(start, process) - {process}
    os.kill(process.pid, signal.SIGKILL)
    eventually(lambda: not processes.is_alive(process))
    assert stop(process, start.address, start.records, start.timeouts, no_gpus).gone
    assert not processes.is_alive(child)


STOPPER = """
import sys
from pathlib import Path
from optagent.tools.deployment import Timeouts
from optagent.tools.processes import ProcessId
from optagent.tools.server import stop
process = ProcessId(int(sys.argv[1]), float(sys.argv[2]))
stop(process, None, Path(sys.argv[3]), Timeouts(stop_s=600), lambda: None)
"""


def members_noted(start: Start, process: ProcessId) -> frozenset[ProcessId]:
    note = process_notes.read(start.records, process)
    return note.members if note else frozenset()


def test_what_ran_before_a_restart_of_the_machine_is_gone(stubs: Stubs, quiet: Quiet) -> None:
    start = stubs.start("healthy")
    launched = launch(start, quiet)
    process = ProcessId(launched.pid or 0, launched.start_time or 0)
    process_notes.write(start.records, Note(process, start.mark, "another boot"))
    stopped = stop(process, start.address, start.records, start.timeouts, no_gpus)
    assert (stopped.gone, stopped.was_running) == (True, False)
    assert processes.is_alive(process), "this one only has the same pid and start time"
    assert process_notes.left_running(start.records) == []


def test_half_a_note_that_a_kill_left_goes_with_the_next_launch_or_stop(stubs: Stubs, quiet: Quiet) -> None:
    start = stubs.start("healthy")
    start.records.mkdir(parents=True)
    half = start.records / ".4711-12.34.json.0123abcd.part"
    half.write_text("{")
    launched = launch(start, quiet)
    assert not half.exists()
    half.write_text("{")
    process = ProcessId(launched.pid or 0, launched.start_time or 0)
    assert stop(process, start.address, start.records, start.timeouts, no_gpus).gone
    assert list(start.records.iterdir()) == []


def test_a_note_that_cannot_be_read_is_none(tmp_path: Path) -> None:
    process = ProcessId(1, 2.0)
    process_notes.write(tmp_path, Note(process, Mark("L", "/campaign"), processes.boot_id(), gpu_gb={0: 1.5}))
    assert process_notes.read(tmp_path, process) == Note(
        process, Mark("L", "/campaign"), processes.boot_id(), gpu_gb={0: 1.5}
    )
    (path,) = tmp_path.iterdir()
    for damaged in ("", "[]", "{}", path.read_text()[:-9], path.read_text().replace('"0"', '"x"')):
        path.write_text(damaged)
        assert process_notes.read(tmp_path, process) is None
        assert process_notes.left_running(tmp_path) == []


# The memory of the GPUs


def gpu(index: int, used_gb: float, *holders: int) -> Gpu:
    return Gpu(index=index, name="GPU", memory_total_gb=80, memory_used_gb=used_gb, holders=list(holders))


HELD = "pid 5 still holds memory on GPU 1, of which 70.0 GB are in use"


@pytest.mark.parametrize(
    ("gpus", "pids", "before", "held"),
    [
        ([], {5}, {}, None),
        ([gpu(0, 0.5), gpu(1, 0.5)], {5}, {0: 0.5, 1: 0.5}, None),
        ([gpu(0, 0.5), gpu(1, 70.0, 5)], {5, 6}, {0: 0.5, 1: 0.5}, HELD),
        ([gpu(0, 70.0, 9)], {5}, {}, None),  # somebody else's, and nobody looked before
        ([gpu(0, 70.0, 9)], {5}, {0: 70.0}, None),  # somebody else's, as before
        ([gpu(0, 70.0, 9)], {5}, {0: 0.5}, "70.0 GB are still in use on GPU 0 by pid 9, 0.5 GB before the launch"),
        ([gpu(0, 70.0)], {5}, {0: 0.5}, "70.0 GB are still in use on GPU 0, 0.5 GB before the launch"),
        ([gpu(0, 0.9)], {5}, {0: 0.5}, None),  # a desktop may have opened a window
    ],
)
def test_whether_gpus_have_got_their_memory_back(
    gpus: list[Gpu], pids: set[int], before: dict[int, float], held: str | None
) -> None:
    assert still_held(gpus, pids, before) == held


def test_stopping_waits_until_the_gpus_are_free(stubs: Stubs, quiet: Quiet) -> None:
    start = replace(stubs.start("healthy"), gpus=lambda: [gpu(0, 0.5)])
    launched = launch(start, quiet)
    process = ProcessId(launched.pid or 0, launched.start_time or 0)
    frees_slowly = iter([[gpu(0, 70.0, process.pid)], [gpu(0, 70.0)], [gpu(0, 0.5)]])
    stopped = stop(process, start.address, start.records, start.timeouts, lambda: next(frees_slowly))
    assert (stopped.gone, stopped.problem) == (True, None)
    assert next(frees_slowly, None) is None, "it looked until they were free"


def test_a_gpu_that_does_not_get_its_memory_back_is_named(stubs: Stubs, quiet: Quiet) -> None:
    start = replace(stubs.start("healthy"), gpus=lambda: [gpu(0, 0.5)])
    launched = launch(start, quiet)
    process = ProcessId(launched.pid or 0, launched.start_time or 0)
    for_ever = [gpu(0, 70.0, process.pid)]
    stopped = stop(process, start.address, start.records, start.timeouts, lambda: for_ever, gpu_free_s=0.2)
    assert stopped.gone
    assert stopped.problem == f"pid {process.pid} still holds memory on GPU 0, of which 70.0 GB are in use"


def test_a_pid_with_another_start_time_is_left_alone(stubs: Stubs, quiet: Quiet) -> None:
    start = stubs.start("healthy")
    launched = launch(start, quiet)
    process = ProcessId(launched.pid or 0, launched.start_time or 0)
    stopped = stop(ProcessId(process.pid, process.start_time - 1), None, start.records, start.timeouts, no_gpus)
    assert (stopped.gone, stopped.was_running) == (True, False)
    assert processes.is_alive(process)


def test_stop_tells_who_else_holds_the_port(stubs: Stubs) -> None:
    with socket.create_server(("127.0.0.1", stubs.port)):
        address = Address("127.0.0.1", stubs.port)
        stopped = stop(ProcessId(2**22 + 1, 1.0), address, stubs.folder, Timeouts(), no_gpus)
    assert stopped.gone, "what listens there is none of ours"
    assert f"port {stubs.port}" in (stopped.problem or "")


def test_a_member_that_is_still_met_on_the_port_is_waited_for(tmp_path: Path) -> None:
    address = Address("127.0.0.1", 1)
    member = processes.start(
        Command((sys.executable, "-c", "import time; time.sleep(60)"), {}, tmp_path), tmp_path / "log"
    )
    family = Family(member, None)

    def look(at: Address) -> list[Listener]:
        return [Listener("127.0.0.1", member.pid)] if processes.is_alive(member) else []

    assert others_on_port(address, family, look) is None
    assert not processes.is_alive(member)
    gone = iter([[Listener("127.0.0.1", member.pid)]])  # looked up just before it went
    assert others_on_port(address, family, lambda at: next(gone, [])) is None


@pytest.mark.parametrize(("pid", "says"), [(os.getpid(), f"held by pid {os.getpid()} "), (None, "another user")])
def test_somebody_else_on_the_port_is_named_at_once(pid: int | None, says: str) -> None:
    family = Family(ProcessId(2**22 + 1, 1.0), None)
    looks = iter([[Listener("127.0.0.1", 2**22 + 1), Listener("127.0.0.1", pid)]])
    assert says in (others_on_port(Address("127.0.0.1", 1), family, lambda at: next(looks, [])) or "")


def test_whoever_cannot_wait_kills_the_children_of_a_dead_server_too(stubs: Stubs, quiet: Quiet) -> None:
    start = stubs.start("leaves-orphan")
    launched = launch(start, quiet)
    assert len(stubs.running(start.mark)) > 1
    os.kill(launched.pid or 0, signal.SIGKILL)
    left = process_notes.kill_left(start.records)
    eventually(lambda: stubs.running(start.mark) == [])
    eventually(lambda: process_notes.kill_left(start.records) == [])
    assert launched.pid not in left


def test_a_missing_program_is_not_started(stubs: Stubs, quiet: Quiet) -> None:
    start = stubs.start("healthy")
    command = replace(start.command, argv=("/nowhere/python",))
    launched = launch(replace(start, command=command), quiet)
    assert (launched.outcome, launched.pid) == ("not-started", None)
    assert "/nowhere/python" in (launched.problem or "")


def test_after_kill_9_the_same_launch_leaves_one_server(stubs: Stubs, quiet: Quiet) -> None:
    mark = stubs.new_mark()
    with _launcher(stubs, mark, "stands-still") as launcher:
        eventually(lambda: len(stubs.running(mark)) == 1)
        launcher.kill()
    (first,) = stubs.running(mark)
    launched = launch(stubs.start("healthy", mark=mark), quiet)
    assert launched.outcome == "ready"
    assert stubs.running(mark) == [launched.pid]
    assert launched.pid != first
    assert (stubs.folder / "server.1.log").exists()  # the first attempt's log is kept


def test_a_launch_of_the_same_name_in_another_campaign_is_left_alone(stubs: Stubs, quiet: Quiet) -> None:
    theirs = launch(stubs.start("healthy"), quiet)
    launch(stubs.start("healthy", mark=Mark("L0", "/another/campaign")), quiet)
    assert stubs.running(stubs.marks[0]) == [theirs.pid]


def test_an_interrupted_launch_takes_its_server_down(stubs: Stubs) -> None:
    mark = stubs.new_mark()
    with _launcher(stubs, mark, "stands-still") as launcher:
        eventually(lambda: (stubs.folder / "server.log").exists() and b"begin" in _log(stubs))
        launcher.send_signal(signal.SIGINT)
        _, said = launcher.communicate()
    assert "KeyboardInterrupt" in said
    assert stubs.running(mark) == []


def test_a_family_grows_with_the_children_of_its_members(tmp_path: Path) -> None:
    script = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(60)'])"
    with subprocess.Popen([sys.executable, "-c", script]) as parent:
        seen = processes.look_at(parent.pid)
        assert seen is not None
        family = Family(seen.id, None)
        eventually(lambda: len(family.living()) == 2)
        parent.kill()
        parent.wait()
        assert len(family.living()) == 1  # remembered, although its parent has gone
        assert processes.stop(family, grace_s=5.0) == []


def _launcher(stubs: Stubs, mark: Mark, behaviour: str) -> subprocess.Popen[str]:
    argv = [sys.executable, str(FAKES / "launcher.py"), str(stubs.folder), str(stubs.port), mark.launch, behaviour]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _log(stubs: Stubs) -> bytes:
    return (stubs.folder / "server.log").read_bytes()
