"""Telling people what happens: a calm live display in a terminal, plain lines everywhere else."""

from __future__ import annotations

import sys
import threading
import time
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, TextIO

from optagent.agent.commands.printable import clean, clip

MARKS = {"step": "▶", "why": "·", "good": "✓", "bad": "✗", "note": "!", "ask": "?", "plain": " "}
STYLES = {
    "step": "bold cyan",
    "why": "dim",
    "good": "green",
    "bad": "red",
    "note": "yellow",
    "ask": "bold magenta",
    "plain": "dim",
}


QUIET_S = 5.0
"""Plain output says what is being done only when nothing else was said for this long."""


class PlainNarrator(AbstractContextManager["PlainNarrator"]):
    """Lines with the seconds since the start, for files and pipes."""

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = out or sys.stdout
        self._began = self._said = time.monotonic()
        self._doing = ""

    def tell(self, what: str, text: str) -> None:
        self._said = time.monotonic()
        print(f"{self._said - self._began:7.1f}s {MARKS.get(what, ' ')} {clean(text)}", file=self._out, flush=True)

    def now(self, text: str) -> None:
        self._doing = text
        self._remark("")

    def detail(self, text: str) -> None:
        self._remark(f": {text}")

    def _remark(self, detail: str) -> None:
        if time.monotonic() - self._said >= QUIET_S:
            self.tell("plain", clip(f"... {self._doing}{detail}", 110))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None


class LiveNarrator(AbstractContextManager["LiveNarrator"]):
    """Lines that stay above one line that says what is being done and for how long."""

    def __init__(self, console: Any) -> None:
        from rich.status import Status

        self._console = console
        self._status: Any = Status("", console=console, spinner="dots", refresh_per_second=4)
        self._doing, self._detail, self._since = "starting", "", time.monotonic()
        self._done = threading.Event()
        self._ticker = threading.Thread(target=self._tick, daemon=True)

    def __enter__(self) -> LiveNarrator:
        self._status.start()
        self._ticker.start()
        return self

    def tell(self, what: str, text: str) -> None:
        from rich.text import Text

        line = Text(f"{MARKS.get(what, ' ')} {clean(text)}", style=STYLES.get(what, ""))
        if what in ("plain", "why"):
            line.pad_left(2)
        self._console.print(line)

    def now(self, text: str) -> None:
        self._doing, self._detail, self._since = clean(text), "", time.monotonic()
        self._show()

    def detail(self, text: str) -> None:
        self._detail = clean(text)
        self._show()

    def _show(self) -> None:
        from rich.text import Text

        seconds = time.monotonic() - self._since
        room = max(20, self._console.width - len(self._doing) - 16)
        detail = f"  {clip(self._detail, room)}" if self._detail else ""
        self._status.update(Text.assemble((self._doing, "cyan"), (detail, "dim"), (f"  {seconds:.0f} s", "dim")))

    def _tick(self) -> None:
        while not self._done.wait(0.5):
            self._show()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._ticker.join()
        self._status.stop()


def narrator_for(out: TextIO, *, quiet: bool = False) -> PlainNarrator | LiveNarrator:
    """The narrator that fits where the output goes. With `quiet` the lines go to standard error."""
    if quiet:
        return PlainNarrator(sys.stderr)
    if not out.isatty():
        return PlainNarrator(out)
    from rich.console import Console

    console = Console(file=out, highlight=False)
    return PlainNarrator(out) if console.is_dumb_terminal else LiveNarrator(console)
