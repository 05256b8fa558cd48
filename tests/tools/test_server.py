"""Launching and stopping, with real processes that behave well and badly."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from optagent.tools import processes
from optagent.tools.commands import Mark
from optagent.tools.deployment import Timeouts
from optagent.tools.network import Address
from optagent.tools.processes import Family, ProcessId
from optagent.tools.server import launch, port_holder, stop

if TYPE_CHECKING:
    from conftest import Stubs

FAKES = Path(__file__).parent / "fakes"
Quiet = Callable[[str], None]


def eventually(true: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not true():
        assert time.monotonic() < deadline, "did not happen"
        time.sleep(0.02)


def test_a_healthy_server_is_ready_and_can_be_stopped(stubs: Stubs) -> None:
    start, told = stubs.start("healthy"), list[str]()
    launched = launch(start, told.append)
    assert launched.outcome == "ready"
    assert launched.url == f"http://127.0.0.1:{stubs.port}"
    assert launched.reading is not None
    assert launched.reading.status == "ready"
    assert (launched.reading.kv_tokens, launched.reading.context_len) == (4096, 2048)
    assert told
    assert launched.pid is not None
    assert launched.start_time is not None
    stopped = stop(ProcessId(launched.pid, launched.start_time), start.address, start.records, start.timeouts)
    assert (stopped.gone, stopped.was_running, stopped.problem) == (True, True, None)
    assert stubs.running(start.mark) == []
    assert list(start.records.iterdir()) == []


def test_stopping_again_is_no_error(stubs: Stubs, quiet: Quiet) -> None:
    start = stubs.start("healthy")
    launched = launch(start, quiet)
    process = ProcessId(launched.pid or 0, launched.start_time or 0)
    assert stop(process, start.address, start.records, start.timeouts).was_running
    again = stop(process, start.address, start.records, start.timeouts)
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
    assert stop(process, start.address, start.records, start.timeouts).gone
    assert processes.exit_code(process) == -signal.SIGKILL


def test_a_grandchild_that_left_the_session_is_found(stubs: Stubs, quiet: Quiet) -> None:
    start = stubs.start("leaves-orphan", stop_s=0.5)
    launched = launch(start, quiet)
    assert len(stubs.running(start.mark)) == 2
    process = ProcessId(launched.pid or 0, launched.start_time or 0)
    os.kill(process.pid, signal.SIGKILL)
    eventually(lambda: not processes.is_alive(process))
    stopped = stop(process, start.address, start.records, start.timeouts)
    assert (stopped.gone, stopped.was_running) == (True, False)
    assert stubs.running(start.mark) == []


def test_a_pid_with_another_start_time_is_left_alone(stubs: Stubs, quiet: Quiet) -> None:
    start = stubs.start("healthy")
    launched = launch(start, quiet)
    process = ProcessId(launched.pid or 0, launched.start_time or 0)
    stopped = stop(ProcessId(process.pid, process.start_time - 1), None, start.records, start.timeouts)
    assert (stopped.gone, stopped.was_running) == (True, False)
    assert processes.is_alive(process)


def test_stop_tells_who_else_holds_the_port(stubs: Stubs) -> None:
    with socket.create_server(("127.0.0.1", stubs.port)):
        address = Address("127.0.0.1", stubs.port)
        stopped = stop(ProcessId(2**22 + 1, 1.0), address, stubs.folder, Timeouts())
    assert stopped.gone, "what listens there is none of ours"
    assert f"port {stubs.port}" in (stopped.problem or "")


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
