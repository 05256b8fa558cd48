"""Processes of this machine: who they are, whose children they are, and how a whole family of them is stopped.

A pid alone is no identity, it is given again. A pid with its start time is, for as long as the machine is up; times
count from the machine's start, because that clock is never set. Linux only: all of it is read from /proc (see proc(5)).
"""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from optagent.tools.commands import CAMPAIGN_VARIABLE, LAUNCH_VARIABLE, Command, Mark
from optagent.tools.errors import MachineExhausted
from optagent.tools.exhausted import stop_if_exhausted

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PAUSE_S = 0.05
KILL_WAIT_S = 10.0
"""A killed process is gone in milliseconds, unless the kernel holds it (a driver, a dead file system)."""

AT_ONCE_S = 0.5
"""Somebody waits for the prompt."""


@dataclass(frozen=True, order=True)
class ProcessId:
    """A process, and no other one that gets its pid later. `start_time` is in seconds since the machine's start."""

    pid: int
    start_time: float


@dataclass(frozen=True)
class Process:
    id: ProcessId
    parent: int
    group: int
    session: int
    zombie: bool


_children: dict[ProcessId, subprocess.Popen[bytes]] = {}
"""What this process has started. Kept, because a child that nobody waits for stays a zombie."""


def look_at(pid: int) -> Process | None:
    """The process that has this pid now, None when there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except (OSError, ValueError) as error:
        stop_if_exhausted(error)
        return None
    fields = stat[stat.rindex(b")") + 2 :].split()  # the name before may itself hold spaces and brackets
    start_time = int(fields[19]) / TICKS_PER_S
    # The state is the main thread's. While other threads still run or die, it has not ended and cannot be waited for.
    zombie = fields[0] in (b"Z", b"X") and int(fields[17]) <= 1
    return Process(ProcessId(pid, start_time), int(fields[1]), int(fields[2]), int(fields[3]), zombie)


def all_processes() -> dict[int, Process]:
    """Every process that is visible from here, by pid."""
    pids = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return {pid: process for pid in pids if (process := look_at(pid)) is not None}


def is_alive(process: ProcessId) -> bool:
    """Whether it still runs. A zombie does not: it holds nothing but its pid."""
    collect_children()
    seen = look_at(process.pid)
    return seen is not None and seen.id == process and not seen.zombie


def command_line(pid: int) -> str:
    """The words a process was started with, "" when they cannot be read."""
    return _words(pid).replace(b"\0", b" ").decode(errors="replace").strip()


def command_sha256(pid: int) -> str:
    """The hash of the words a process was started with, "" when they cannot be read. It stands in for the words where
    they are remembered, since those may hold a credential."""
    words = _words(pid)
    return hashlib.sha256(words).hexdigest() if words else ""


def _words(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def boot_id() -> str:
    """Which boot of the machine this is, "" when it does not tell. Pids and start times are of one boot."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def mark_of(pid: int) -> Mark | None:
    """The launch that a process belongs to by its environment, None when there is none or it cannot be read."""
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return None
    pairs = (variable.partition(b"=") for variable in environment.split(b"\0"))
    variables = {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}
    if LAUNCH_VARIABLE not in variables or CAMPAIGN_VARIABLE not in variables:
        return None
    return Mark(variables[LAUNCH_VARIABLE], variables[CAMPAIGN_VARIABLE])


@dataclass
class Family:
    """The processes of one launch, also those that left its process group, its session or their parents.

    They are found by descent from members that were seen before, by the session that `root` leads, and by the mark in
    their environment; never by name.
    """

    root: ProcessId | None
    mark: Mark | None
    seen: set[ProcessId] = field(default_factory=set)

    def living(self) -> list[Process]:
        """The members that run now, those that have just been born included."""
        collect_children()
        everyone = all_processes()
        members = {pid for pid, process in everyone.items() if self._is_known(process)}
        grown = True
        while grown:
            born = {pid for pid, p in everyone.items() if p.parent in members and pid not in members}
            members |= born
            grown = bool(born)
        self.seen |= {everyone[pid].id for pid in members}
        return [everyone[pid] for pid in sorted(members) if not everyone[pid].zombie]

    def had(self, pid: int) -> bool:
        """Whether this pid, which was met a moment ago, is a member's, or has gone by now."""
        process = look_at(pid)
        return process is None or process.zombie or self._is_known(process)

    def _is_known(self, process: Process) -> bool:
        if process.id.pid == os.getpid():
            return False
        if process.id == self.root or process.id in self.seen:
            return True
        if self._leads_session_of(process):
            return True
        return self.mark is not None and not process.zombie and mark_of(process.id.pid) == self.mark

    def _leads_session_of(self, process: Process) -> bool:
        """True while the session's number still means the session that `root` opened: its leader is `root` itself, or
        has gone. The kernel keeps the number until the last member has gone, so a session without a leader that we
        once saw is still that one; of another, the member must at least come from a launch."""
        if self.root is None or process.session != self.root.pid:
            return False
        leader = look_at(self.root.pid)
        if leader is not None:
            return leader.id == self.root
        return self.root in self.seen or mark_of(process.id.pid) is not None


def start(command: Command, log: Path) -> ProcessId:
    """Start `command` in a session of its own, with all its output appended to `log`. Raises OSError."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        child = subprocess.Popen(
            command.argv,
            env=command.env,
            cwd=command.cwd,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            close_fds=True,
        )
    try:
        process = look_at(child.pid)
    except MachineExhausted:
        _kill_unseen(child)  # without its start time nobody could tell later that it is ours
        raise
    assert process is not None, "a child stays visible until its exit status is collected"
    _children[process.id] = child
    return process.id


def kill_unseen(process: ProcessId) -> None:
    """Kill the group of a child of ours although nothing can be looked at, as when no more files can be opened. Nobody
    else can have its pid: its exit status has not been taken. Whoever left the group is not met."""
    if (child := _children.get(process)) is not None:
        _kill_unseen(child)


def _kill_unseen(child: subprocess.Popen[bytes]) -> None:
    if child.poll() is None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            child.wait(KILL_WAIT_S)


def exit_code(process: ProcessId) -> int | None:
    """How a process that we started ended: its exit status, or minus the signal's number; None while it runs or when
    it is not ours."""
    child = _children.get(process)
    return None if child is None else child.poll()


def collect_children() -> None:
    """Take the exit status of every child that has ended, so that none stays behind as a zombie."""
    for child in _children.values():
        child.poll()


def marked(mark: Mark) -> Family:
    """What there is of a launch of which nothing else is known."""
    return Family(None, mark)


def stop(family: Family, grace_s: float) -> list[Process]:
    """Stop the family: ask it, and after `grace_s` kill what is left. Returns what could not be killed, mostly nothing.

    SIGTERM goes to the root alone as long as it lives, since a server takes its own processes down in order; whoever
    outlives it is asked next.
    """

    def wait(timeout_s: float, done: Callable[[list[Process]], bool]) -> list[Process]:
        deadline = time.monotonic() + timeout_s
        while not done(left := family.living()) and time.monotonic() < deadline:
            time.sleep(PAUSE_S)
        return left

    began = time.monotonic()
    left = family.living()
    if any(p.id == family.root for p in left):
        _send(signal.SIGTERM, [p.id for p in left if p.id == family.root])
        left = wait(grace_s, lambda living: all(p.id != family.root for p in living))
    if left:
        _send(signal.SIGTERM, [p.id for p in left])
        left = wait(grace_s - (time.monotonic() - began), lambda living: not living)
    if left:
        left = _kill(family, wait)
    return left


def kill_at_once(families: Iterable[Family]) -> list[Process]:
    """Kill them all without asking. Returns whom the kernel has not let go after a moment, mostly nobody."""
    asked = list(families)
    deadline = time.monotonic() + AT_ONCE_S
    while (left := [p for family in asked for p in family.living()]) and time.monotonic() < deadline:
        _send(signal.SIGKILL, [p.id for p in left])
        time.sleep(PAUSE_S / 5)
    return left


def started() -> list[Family]:
    """What this process has started and what still runs, each with what came of it."""
    return [Family(child, None) for child in _children if is_alive(child)]


def _kill(family: Family, wait: Callable[[float, Callable[[list[Process]], bool]], list[Process]]) -> list[Process]:
    """Kill until nobody is left, since a member may have given birth in between."""
    deadline = time.monotonic() + KILL_WAIT_S
    while (left := family.living()) and time.monotonic() < deadline:
        _send(signal.SIGKILL, [p.id for p in left])
        left = wait(0.2, lambda living: not living)
    return left


def _send(number: signal.Signals, processes: Iterable[ProcessId]) -> None:
    for process in processes:
        seen = look_at(process.pid)
        if seen is not None and seen.id == process:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(process.pid, number)
