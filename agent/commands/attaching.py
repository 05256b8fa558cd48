"""`optagent attach`: the sitting of another terminal, or of none, shown here until it ends."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from optagent.agent.commands.narration import MARKS, LiveNarrator, narrator_for
from optagent.agent.commands.printable import clean, optagent_in
from optagent.agent.commands.sittings import Seen, end_line, exit_status_of, expected, look_at_sitting, present
from optagent.agent.errors import INTERRUPTED, BadInput
from optagent.tools.narration_log import HEAD, narration_of, set_aside
from optagent.tools.tail import Tail

EVERY_S = 0.3
TAIL_LINES = 30
LINE = re.compile(r"^ *\d+\.\ds (.) (.*)$")
WHAT = {mark: what for what, mark in MARKS.items()}
REMARK = "... "


def attach(root: Path) -> int:
    """The exit status of the sitting that is shown, 130 when it is left running. Raises BadInput before the first one."""
    optagent, root = optagent_in(root), root.resolve()
    seen = look_at_sitting(root)
    if seen.now is None:
        raise BadInput(str(root), f"there was no sitting yet; `{optagent} continue --detach` starts one")
    pid = seen.now["pid"]
    tail = Tail(narration_of(root), set_aside(narration_of(root)))
    try:
        with narrator_for(sys.stdout) if seen.at_work else nullcontext(None) as narrator:
            screen = Screen(narrator if isinstance(narrator, LiveNarrator) else None)
            for line in of_last_sitting(tail.last())[-TAIL_LINES:]:
                screen.line(line)
            seen = follow(root, tail, screen)
        _print(end_line(seen))
    except KeyboardInterrupt:
        _print(f"\nnot attached any more: pid {pid} goes on; `{optagent} stop` ends it")
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return INTERRUPTED
    return exit_status_of(seen)


class Screen:
    """Where lines of the log are shown: as a sitting shows them itself in a terminal, as they are everywhere else."""

    def __init__(self, live: LiveNarrator | None) -> None:
        self._live = live

    def line(self, line: str) -> None:
        if self._live is None:
            _print(clean(line))
        elif (told := LINE.match(line)) is None:
            self._live.line(line)
        elif not told[2].startswith(REMARK):  # what takes long stands in the last line
            self._live.tell(WHAT.get(told[1], "plain"), told[2].strip())

    def present(self, now: Mapping[str, Any]) -> None:
        if self._live is not None:
            seen = present(now)
            self._live.now(str(seen["doing"]), seen["elapsed_s"])
            self._live.detail("; ".join(filter(None, [str(seen["detail"]), expected(seen)])))


def follow(root: Path, tail: Tail, screen: Screen, each: Callable[[Seen], None] = lambda seen: None) -> Seen:
    """Show what comes until no sitting is at work; returns how the last one ended."""
    while True:
        seen = look_at_sitting(root)  # before the log is read, so that a dead one's last words are in
        for line in tail.new():
            screen.line(line)
        if not seen.at_work or seen.now is None:
            return seen
        screen.present(seen.now)
        each(seen)
        time.sleep(EVERY_S)


def of_last_sitting(lines: list[str]) -> list[str]:
    """The lines since the last sitting began."""
    began = max((n for n, line in enumerate(lines) if line.startswith(HEAD)), default=0)
    return lines[began:]


def _print(text: str) -> None:
    print(text, flush=True)
