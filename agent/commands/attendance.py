"""Who watches a sitting and may end it: a screen, a log, the file that says where it is, and signals."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from signal import SIGHUP, SIGTERM, Signals
from typing import Any, NoReturn

from optagent.agent.commands.interrupting import name_of
from optagent.agent.commands.narration import Audience, PlainNarrator
from optagent.agent.commands.workspace import Workspace
from optagent.agent.errors import INTERRUPTED, OptagentError
from optagent.agent.ids import next_id
from optagent.agent.ledger import Ledger
from optagent.agent.session import Narrator
from optagent.tools.attended import AttendedToolbox
from optagent.tools.errors import ReplayDiverged, ToolFailure
from optagent.tools.lock import myself
from optagent.tools.narration_log import HEAD, NarrationLog, narration_of
from optagent.tools.process_notes import kill_left, notes_of
from optagent.tools.stop_request import StopRequest
from optagent.tools.toolbox import Toolbox
from optagent.tools.whereabouts import Whereabouts, whereabouts_of

SELDOM_S = 60.0
"""So often the log says what is being done while nothing else is said."""


class Attendance:
    """Of the one sitting of this process. With `ready` the sitting is detached: it has no screen but its log, and `ready` is
    called when it holds the campaign."""

    def __init__(self, space: Workspace, screen: Narrator, ready: Callable[[], None] | None = None) -> None:
        self._space, self._ready = space, ready
        self.narrator = Audience(screen) if ready is None else Audience()
        self.stop = StopRequest()
        self._whereabouts = Whereabouts(whereabouts_of(space.root), myself("continue"), ready is not None)
        self._log: NarrationLog | None = None

    def toolbox(self, live: Toolbox) -> Toolbox:
        return AttendedToolbox(live, self._whereabouts, self.stop)

    @contextmanager
    def present(self, ledger: Ledger) -> Iterator[None]:
        """While the campaign is held: everything is written down that is told, and how the sitting ended."""
        sitting = next_id("S", len(ledger.sittings))
        with ExitStack() as stack:
            stack.enter_context(self._whereabouts)
            self._log = NarrationLog(narration_of(self._space.root), stdio=self._ready is not None)
            self.write([f"{HEAD}{sitting} began {_utc()}, pid {os.getpid()}"])
            narrator = stack.enter_context(PlainNarrator(self._log, SELDOM_S))
            self._whereabouts.remember(sitting, {"launch": ledger.launch_s, "bench": ledger.run_s})
            self.narrator.begin(narrator, self._whereabouts)
            if self._ready is not None:
                sys.stdout = sys.stderr = self._log
                self._ready()
            try:
                yield
            except BaseException as error:
                said = str(error) or type(error).__name__
                if self._ready is None:  # a detached one prints it there anyway
                    self.write([f"optagent: {said}"])
                self._whereabouts.ended({"exit_status": status_of(error), "reason": "failed", "because": said})
                raise

    def ended(self, lines: Sequence[str], how: Mapping[str, Any]) -> None:
        self.write(lines)
        self._whereabouts.ended(how)

    def write(self, lines: Sequence[str]) -> None:
        if self._log is not None:
            self._log.write("".join(f"{line}\n" for line in lines))

    def asked_to_end(self, number: Signals) -> None:
        """In the handler of the first signal."""
        self.narrator.tell("note", self._answer(number))
        self._whereabouts.asked_to_end(name_of(number))
        self.stop.ask(name_of(number))

    def _answer(self, number: Signals) -> str:
        name, doing = name_of(number), self._whereabouts.doing
        if self.stop.heeded_at_once:
            then = f"breaking off ({doing}), stopping the server, writing a handoff"
        elif self.stop.ends_by_itself:
            then = f"it is ending already ({doing})"
        else:
            then = f"ending as soon as this is finished: {doing}"
        again = {SIGHUP: "", SIGTERM: "; send it again to end at once"}.get(
            number, f"; press {name} again to end at once"
        )
        return f"{name}: {then}{again}"

    def end_at_once(self) -> NoReturn:
        """In the handler of the second signal: kill what runs and end, without waiting for anything."""
        said = left_in_words(kill_left(notes_of(self._space.root)))
        self.ended(
            [f"optagent: interrupted; {said}"],
            {"exit_status": INTERRUPTED, "reason": "ended-at-once", "because": f"somebody asked twice; {said}"},
        )
        if self._ready is None:
            os.write(2, f"\noptagent: interrupted; {said}\n".encode())
        os._exit(INTERRUPTED)


def left_in_words(pids: Sequence[int]) -> str:
    """What lives on although it was killed, and what to do."""
    if not pids:
        return "nothing is left running; `optagent continue` goes on from here"
    those, them = (f"pid {pids[0]}", "it") if len(pids) == 1 else (f"pids {', '.join(map(str, pids))}", "them")
    return f"{those} could not be killed at once; `optagent continue` stops {them} and goes on from here"


def status_of(error: BaseException) -> int:
    """What the command ends with after this error."""
    if isinstance(error, OptagentError):
        return error.exit_status
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED
    return 2 if isinstance(error, ToolFailure) and not isinstance(error, ReplayDiverged) else 1


def _utc() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
