"""Starting a server until it really serves, and stopping it until nothing of it is left."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from optagent.tools import process_notes, processes
from optagent.tools.calls.logs import LogReading
from optagent.tools.calls.server import Launched, Stopped
from optagent.tools.calls.world import Gpu
from optagent.tools.commands import Command, Mark
from optagent.tools.deployment import Timeouts
from optagent.tools.logs import PIECE_BYTES, LogReader
from optagent.tools.logs.startup import read_bar
from optagent.tools.network import Address, listeners
from optagent.tools.process_notes import Note
from optagent.tools.processes import Family, ProcessId, command_line
from optagent.tools.proving import Asked, unanswered, unproven

Report = Callable[[str], None]
LookAtGpus = Callable[[], list[Gpu] | None]

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 1.0
REPORT_EVERY_S = 0.3
FAMILY_EVERY_S = 2.0
"""A look at every process of a busy machine takes some 100 ms."""
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
    gpus: LookAtGpus
    burst: int
    simulated: bool = False
    dying_s: float = DYING_S


NOTHING_TO_DRAIN_S = 5.0
"""A server that never served has no requests to finish, and may not react to SIGTERM at all while it loads."""
GPU_FREE_S = 20.0
"""A driver takes seconds to free the memory of a process that was killed."""
GPU_SLACK_GB = 0.5
"""What other programs' use of a GPU may vary by."""


def launch(start: Start, report: Report) -> Launched:
    """Start the server and wait until it serves, dies or stands still.

    Unless it serves in the end, everything that was started is gone again. What an interrupted attempt at the same
    launch left behind is stopped first, so that one launch never runs twice.
    """
    soon_s = min(start.timeouts.stop_s, NOTHING_TO_DRAIN_S)
    if left := _stop_earlier(start):
        return _nothing(start, "not-started", f"an earlier attempt at this launch cannot be stopped: {left}")
    holder = port_holder(start.address)
    if holder is not None:
        return _nothing(start, "port-taken", holder)
    before = _in_use(start.gpus())
    family = processes.marked(start.mark)
    try:
        _set_aside(start.log)
        root = processes.start(start.command, start.log)
        family = Family(root, start.mark)
        note = Note(root, start.mark, processes.boot_id(), gpu_gb=before)
        process_notes.write(start.records, note)
        launched = _Watch(start, root, family, report).until_settled()
    except OSError as error:
        problem = f"{error.filename or start.command.argv[0]}: {error.strerror or error}"
        left = _stop_family(family, start.records, soon_s)
        return _nothing(start, "not-started", _joined(problem, left))
    except BaseException:
        _stop_family(family, start.records, soon_s)
        raise
    if launched.outcome == "ready":
        _remember(start.records, note, family)
        return launched
    left = _stop_family(family, start.records, soon_s)
    left = left or _held(start.gpus, family, before, GPU_FREE_S)
    problem_and_left = _joined(launched.problem, left)
    return launched.model_copy(update={"exit_code": processes.exit_code(root), "problem": problem_and_left})


def stop(
    process: ProcessId,
    address: Address | None,
    records: Path,
    timeouts: Timeouts,
    gpus: LookAtGpus,
    gpu_free_s: float = GPU_FREE_S,
) -> Stopped:
    """Stop a server that was launched earlier, perhaps by a process that is no more, and prove that it is gone.

    With `address`, `problem` also says who else listens on the port by now: that is no process of ours. It says as well
    which GPU has not got its memory back within `gpu_free_s`.
    """
    note = process_notes.read(records, process) or process_notes.note_of(process)
    if note is not None and note.outdated:
        process_notes.forget(records, process)
        return Stopped(gone=True, was_running=False)
    was_running = processes.is_alive(process)
    family = note.family() if note is not None else Family(process, None)
    if note is not None and family.living():
        _remember(records, note, family)
    problem = _stop_family(family, records, timeouts.stop_s)
    gone = problem is None
    if gone and address is not None:
        problem = port_holder(address)
    if gone:
        problem = _joined(problem, _held(gpus, family, note.gpu_gb if note is not None else {}, gpu_free_s))
    return Stopped(gone=gone, was_running=was_running, problem=problem)


def still_held(gpus: Sequence[Gpu], pids: Collection[int], before: Mapping[int, float]) -> str | None:
    """Which GPU has not got back what a server held, in words; None when all have.

    `pids` are the server's processes, which have ended. Drivers tell other pids inside a container, or none at all, so
    what is in use is held against `before` as well: GB by the GPU's index, of those that were looked at.
    """
    for gpu in gpus:
        ours = sorted(set(gpu.holders) & set(pids))
        if ours:
            return (
                f"pid {ours[0]} still holds memory on GPU {gpu.index}, of which {gpu.memory_used_gb:.1f} GB are in use"
            )
        if gpu.index in before and gpu.memory_used_gb > before[gpu.index] + GPU_SLACK_GB:
            by = f" by pid {', '.join(map(str, gpu.holders))}" if gpu.holders else ""
            was = f"{before[gpu.index]:.1f} GB before the launch"
            return f"{gpu.memory_used_gb:.1f} GB are still in use on GPU {gpu.index}{by}, {was}"
    return None


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
        self._asked: Asked | None = None
        self._said_ready = self._answered = False
        self._unproven = ""
        self._reported, self._reported_at, self._looked_at = "", 0.0, 0.0

    def until_settled(self) -> Launched:
        """The outcome, whatever it is; nothing is stopped here."""
        pause_s = FIRST_PAUSE_S
        while (launched := self._settled()) is None:
            if self._asked is None:
                time.sleep(pause_s)
            else:
                self._asked.over_within(pause_s)
            pause_s = min(pause_s * 1.3, LONGEST_PAUSE_S)
        self._family.living()
        return launched

    def _settled(self) -> Launched | None:
        """The outcome when there is one by now."""
        alive = processes.is_alive(self._root)  # asked before the log is read, so that a dead one's last words are in
        self._look_at_family()
        self._read_on()
        reading = self._reader.reading(alive)
        self._tell(self._doing(reading))
        if not alive:
            self._reader.finish()
            return self._outcome("crashed", self._reader.reading(alive=False))
        if self._reader.http_port_taken:
            return self._outcome("port-taken", reading, port_holder(self._start.address) or "its port was taken")
        still_s = time.monotonic() - self._moved
        if reading.status == "crashed" and still_s > self._start.dying_s:
            return self._outcome("crashed", reading)
        if reading.status == "ready" and self._proven():
            return self._outcome("ready", reading)
        if self._waits_for_nothing() and still_s > self._allowed_silence_s():
            hung = self._reader.reading(alive, silent_s=still_s)
            return self._outcome("hung", hung, self._hung_because(still_s))
        return None

    def _look_at_family(self) -> None:
        """See children while they still have their parents, by which alone some are known."""
        if time.monotonic() - self._looked_at >= FAMILY_EVERY_S:
            self._family.living()
            self._looked_at = time.monotonic()

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

    def _proven(self) -> bool:
        """Whether it has shown by now that it serves: one answer, then a burst of them. Never waits for an answer."""
        self._said_ready = True
        address, timeout_s, burst = self._start.address, self._start.timeouts.request_s, self._start.burst
        if self._asked is not None:
            if not self._waits_for_nothing():
                return False
            problem, self._asked = self._asked.problem, None
            self._unproven = problem or ""
            if problem is not None:
                return False
            if self._answered:
                return True
            self._answered = True
            self._tell(self._proving, at_once=True)
        if not self._listens():
            self._unproven = f"none of its processes listens on port {address.port}"
        elif not self._answered:
            self._asked = Asked(lambda: unanswered(address, timeout_s))
        else:
            self._asked = Asked(lambda: unproven(address, burst, timeout_s))
        return False

    def _waits_for_nothing(self) -> bool:
        return self._asked is None or self._asked.over_within(0)

    def _listens(self) -> bool:
        """Whether whoever listens there is ours."""
        ours = {p.id.pid for p in self._family.living()}
        return any(listener.pid in ours for listener in listeners(self._start.address))

    def _hung_because(self, still_s: float) -> str:
        if self._answered:
            return f"it said that it is ready, but {self._unproven}"
        if self._said_ready:
            return f"it said that it is ready, and has not answered for {still_s:.0f} s: {self._unproven}"
        return f"no new line in its log for {still_s:.0f} s"

    def _doing(self, reading: LogReading) -> str:
        """How far it is, in a few words: a bar by its percentage, everything else by the line itself."""
        if self._answered:
            return self._proving
        bar = read_bar(reading.last_progress)
        if bar is not None:
            return f"{reading.phase} {bar.percent} %"
        return f"{reading.phase}: {reading.last_progress}".rstrip(": ")

    @property
    def _proving(self) -> str:
        return f"proving: {self._start.burst} requests at once"

    def _tell(self, text: str, at_once: bool = False) -> None:
        now = time.monotonic()
        if text != self._reported and (at_once or now - self._reported_at >= REPORT_EVERY_S):
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
            command_sha256=processes.command_sha256(self._root.pid) if outcome == "ready" else "",
            reading=reading,
            problem=problem,
            simulated=self._start.simulated,
        )


def _nothing(start: Start, outcome: Literal["port-taken", "not-started"], problem: str | None) -> Launched:
    return Launched(outcome=outcome, problem=problem, simulated=start.simulated)


def _stop_earlier(start: Start) -> str | None:
    """Stop what an interrupted attempt at the same launch left behind; what is still there afterwards in words."""
    noted = [note for note in process_notes.read_all(start.records) if note.mark == start.mark]
    families = [*(note.family() for note in noted), processes.marked(start.mark)]
    return _joined(*(_stop_family(family, start.records, start.timeouts.stop_s) for family in families))


def _remember(records: Path, note: Note, family: Family) -> None:
    """Note whom the family has now, for those who have to find it without us; without a note they know less."""
    with suppress(OSError):
        process_notes.write(records, replace(note, members=note.members | family.seen))


def _held(gpus: LookAtGpus, family: Family, before: Mapping[int, float], timeout_s: float) -> str | None:
    """Wait until the GPUs have got back what the family held; what is still held after `timeout_s`."""
    pids = {process.pid for process in family.seen}
    deadline = time.monotonic() + timeout_s
    while (held := still_held(gpus() or [], pids, before)) and time.monotonic() < deadline:
        time.sleep(min(LONGEST_PAUSE_S, timeout_s / 10))
    return held


def _in_use(gpus: list[Gpu] | None) -> dict[int, float]:
    return {gpu.index: gpu.memory_used_gb for gpu in gpus or []}


def _joined(*problems: str | None) -> str | None:
    return "; ".join(problem for problem in problems if problem) or None


def _stop_family(family: Family, records: Path, grace_s: float) -> str | None:
    """Stop them all; what is still there afterwards in words, mostly None."""
    left = processes.stop(family, grace_s)
    if left:
        return "still there: " + ", ".join(f"pid {p.id.pid} ({command_line(p.id.pid)[:100]})" for p in left)
    if family.root is not None:
        process_notes.forget(records, family.root)
    return None


def _set_aside(log: Path) -> None:
    """Move an earlier attempt's log out of the way: a log holds one launch."""
    number = 1
    while log.exists():
        earlier = log.with_name(f"{log.stem}.{number}{log.suffix}")
        if not earlier.exists():
            log.rename(earlier)
        number += 1
