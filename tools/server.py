"""Starting a server until it really serves, and stopping it until nothing of it is left."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from optagent.tools import processes
from optagent.tools.calls.logs import LogReading
from optagent.tools.calls.server import Launched, Stopped
from optagent.tools.commands import Command, Mark
from optagent.tools.deployment import Timeouts
from optagent.tools.files import replace_file
from optagent.tools.logs import PIECE_BYTES, LogReader
from optagent.tools.network import Address, generates, healthy, listeners
from optagent.tools.processes import Family, ProcessId, command_line

Report = Callable[[str], None]

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 1.0
REPORT_EVERY_S = 0.3
HEALTH_TIMEOUT_S = 5.0
USUAL_SILENCE_S = 900.0
"""The setting `launch_silence_s` under which the phases are given the times that `tools/logs/silence.py` lists."""
DYING_S = 20.0
"""A server that printed its end is given this long to finish its traceback and go before it is stopped."""


@dataclass(frozen=True)
class Start:
    """Everything that one launch needs to know. `records` is a folder for notes on what runs."""

    command: Command
    mark: Mark
    address: Address
    log: Path
    records: Path
    timeouts: Timeouts
    simulated: bool = False
    dying_s: float = DYING_S


NOTHING_TO_DRAIN_S = 5.0
"""A server that never served has no requests to finish, and may not react to SIGTERM at all while it loads."""


def launch(start: Start, report: Report) -> Launched:
    """Start the server and wait until it serves, dies or stands still.

    Unless it serves in the end, everything that was started is gone again. What an interrupted attempt at the same
    launch left behind is stopped first, so that one launch never runs twice.
    """
    leftover = processes.stop(processes.marked(start.mark), start.timeouts.stop_s)
    if leftover:
        pids = ", ".join(str(p.id.pid) for p in leftover)
        return _nothing(start, "not-started", f"an earlier attempt at this launch cannot be stopped: pids {pids}")
    holder = port_holder(start.address)
    if holder is not None:
        return _nothing(start, "port-taken", holder)
    try:
        _set_aside(start.log)
        root = processes.start(start.command, start.log)
    except OSError as error:
        return _nothing(start, "not-started", f"{start.command.argv[0]}: {error.strerror or error}")
    family = Family(root, start.mark)
    try:
        _note(start.records, root, start.mark)
        launched = _Watch(start, root, family, report).until_settled()
    except BaseException:
        _stop_family(family, start.records, start.timeouts.stop_s)
        raise
    if launched.outcome != "ready":
        left = _stop_family(family, start.records, min(start.timeouts.stop_s, NOTHING_TO_DRAIN_S))
        launched = launched.model_copy(update={"exit_code": processes.exit_code(root)})
        if left:
            launched = launched.model_copy(update={"problem": left})
    return launched


def stop(process: ProcessId, address: Address | None, records: Path, timeouts: Timeouts) -> Stopped:
    """Stop a server that was launched earlier, perhaps by a process that is no more, and prove that it is gone.

    With `address`, `problem` also says who else listens on the port by now: that is no process of ours.
    """
    was_running = processes.is_alive(process)
    family = Family(process, _noted_mark(records, process))
    problem = _stop_family(family, records, timeouts.stop_s)
    gone = problem is None
    if gone and address is not None:
        problem = port_holder(address)
    return Stopped(gone=gone, was_running=was_running, problem=problem)


def port_holder(address: Address) -> str | None:
    """Who listens where the server should, in words; None when nobody does."""
    found = listeners(address)
    if not found:
        return None
    pid = found[0].pid
    who = f"pid {pid} ({command_line(pid)[:200]})" if pid is not None else "a process of another user"
    return f"port {address.port} is held by {who}"


class _Watch:
    """Watches one launch: process, log and health together, since each alone has been seen to lie."""

    def __init__(self, start: Start, root: ProcessId, family: Family, report: Report) -> None:
        self._start, self._root, self._family, self._report = start, root, family, report
        self._reader = LogReader()
        self._offset = 0
        self._began = self._moved = time.monotonic()
        self._said_ready = False
        self._reported, self._reported_at = "", 0.0

    def until_settled(self) -> Launched:
        """The outcome, whatever it is; nothing is stopped here."""
        pause_s = FIRST_PAUSE_S
        while (launched := self._settled()) is None:
            time.sleep(pause_s)
            pause_s = min(pause_s * 1.3, LONGEST_PAUSE_S)
        return launched

    def _settled(self) -> Launched | None:
        """The outcome when there is one by now."""
        alive = processes.is_alive(self._root)  # asked before the log is read, so that a dead one's last words are in
        self._read_on()
        reading = self._reader.reading(alive)
        self._tell(reading)
        if not alive:
            self._reader.finish()
            return self._outcome("crashed", self._reader.reading(alive=False))
        if self._reader.http_port_taken:
            return self._outcome("port-taken", reading, port_holder(self._start.address) or "its port was taken")
        still_s = time.monotonic() - self._moved
        if reading.status == "crashed" and still_s > self._start.dying_s:
            return self._outcome("crashed", reading)
        if reading.status == "ready" and self._serves():
            return self._outcome("ready", reading)
        if still_s > self._allowed_silence_s():
            hung = self._reader.reading(alive, silent_s=still_s)
            return self._outcome("hung", hung, self._hung_because(still_s))
        return None

    def _allowed_silence_s(self) -> float:
        """Each phase may be silent for as long as it explains; the setting stretches or shortens them all."""
        return self._reader.allowed_silence_s * self._start.timeouts.launch_silence_s / USUAL_SILENCE_S

    def _read_on(self) -> None:
        """Take what the log has got since the last look. Once it said that it is ready, new lines are no progress any
        more: they may be about our own questions."""
        with suppress(FileNotFoundError), self._start.log.open("rb") as file:
            file.seek(self._offset)
            while piece := file.read(PIECE_BYTES):
                self._offset += len(piece)
                self._reader.feed(piece)
                if not self._said_ready:
                    self._moved = time.monotonic()

    def _serves(self) -> bool:
        """Whether the server that answers there is ours, and answers with a token."""
        self._said_ready = True
        address, timeouts = self._start.address, self._start.timeouts
        return healthy(address, HEALTH_TIMEOUT_S) and self._listens() and generates(address, timeouts.request_s)

    def _listens(self) -> bool:
        ours = {p.id.pid for p in self._family.living()}
        return any(listener.pid in ours for listener in listeners(self._start.address))

    def _hung_because(self, still_s: float) -> str:
        if self._said_ready:
            return f"it said that it is ready, and has not answered for {still_s:.0f} s"
        return f"no new line in its log for {still_s:.0f} s"

    def _tell(self, reading: LogReading) -> None:
        now, text = time.monotonic(), f"{reading.phase}: {reading.last_progress}".rstrip(": ")
        if text != self._reported and now - self._reported_at >= REPORT_EVERY_S:
            self._reported, self._reported_at = text, now
            self._report(text)

    def _outcome(
        self,
        outcome: Literal["ready", "crashed", "hung", "port-taken"],
        reading: LogReading,
        problem: str | None = None,
    ) -> Launched:
        return Launched(
            outcome=outcome,
            pid=self._root.pid,
            start_time=self._root.start_time,
            url=self._start.address.url if outcome == "ready" else None,
            elapsed_s=round(time.monotonic() - self._began, 3),
            exit_code=processes.exit_code(self._root),
            reading=reading,
            problem=problem,
            simulated=self._start.simulated,
        )


def _nothing(start: Start, outcome: Literal["port-taken", "not-started"], problem: str) -> Launched:
    return Launched(outcome=outcome, problem=problem, simulated=start.simulated)


def _stop_family(family: Family, records: Path, grace_s: float) -> str | None:
    """Stop them all; what is still there afterwards in words, mostly None."""
    left = processes.stop(family, grace_s)
    if left:
        return "still there: " + ", ".join(f"pid {p.id.pid} ({command_line(p.id.pid)[:100]})" for p in left)
    if family.root is not None:
        _record(records, family.root).unlink(missing_ok=True)
    return None


def _set_aside(log: Path) -> None:
    """Move an earlier attempt's log out of the way: a log holds one launch."""
    number = 1
    while log.exists():
        earlier = log.with_name(f"{log.stem}.{number}{log.suffix}")
        if not earlier.exists():
            log.rename(earlier)
        number += 1


def _record(records: Path, process: ProcessId) -> Path:
    return records / f"{process.pid}-{process.start_time:.2f}.json"


def _note(records: Path, process: ProcessId, mark: Mark) -> None:
    """Remember which launch a process is, so that a later sitting finds those of it that left its session."""
    replace_file(_record(records, process), json.dumps(asdict(mark)).encode())


def _noted_mark(records: Path, process: ProcessId) -> Mark | None:
    try:
        noted = json.loads(_record(records, process).read_bytes())
        return Mark(str(noted["launch"]), str(noted["campaign"]))
    except (OSError, ValueError, KeyError, TypeError):
        return processes.mark_of(process.pid) if processes.is_alive(process) else None
