"""Watching a launch until the server has proved that it serves, is dead, or stands still."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from optagent.tools import processes
from optagent.tools.calls.logs import LogReading
from optagent.tools.calls.server import Launched
from optagent.tools.commands import Command, Mark
from optagent.tools.deployment import Timeouts
from optagent.tools.gpus import LookAtGpus
from optagent.tools.logs import PIECE_BYTES, LogReader
from optagent.tools.logs.startup import read_bar
from optagent.tools.network import Address, listeners, port_holder
from optagent.tools.processes import Family, ProcessId
from optagent.tools.proving import Asked, unanswered, unproven

Report = Callable[[str], None]

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


class Watch:
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
