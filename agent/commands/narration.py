"""Telling people what happens: a calm live display in a terminal, plain lines everywhere else."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from optagent.agent.commands.printable import clean, clip

if TYPE_CHECKING:
    from optagent.agent.session import Narrator

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


QUIET_S = 10.0
"""Plain output says what is being done only when nothing else was said for this long."""
LINE_WIDTH = 110
TICK_S = 0.5


class Output(Protocol):
    """What lines can be printed to."""

    def write(self, text: str, /) -> object: ...
    def flush(self) -> object: ...


class PlainNarrator(AbstractContextManager["PlainNarrator"]):
    """Lines with the seconds since the start, for files and pipes; what takes long says from time to time how far it is."""

    def __init__(self, out: Output | None = None, quiet_s: float = QUIET_S) -> None:
        self._out: Output = out or sys.stdout
        self._quiet_s = quiet_s
        self._began = self._said = self._since = time.monotonic()
        self._doing, self._detail = "", ""
        self._lock = threading.RLock()  # the handler of a signal may have something to tell while a line is printed
        self._ticker = _Ticker(self._remark)

    def __enter__(self) -> PlainNarrator:
        self._ticker.start()
        return self

    def tell(self, what: str, text: str) -> None:
        # The stream itself does not let a handler in while it writes; and a reader that has gone ends nothing.
        with self._lock, suppress(RuntimeError, OSError, ValueError):
            self._said = time.monotonic()
            print(f"{self._said - self._began:7.1f}s {MARKS.get(what, ' ')} {clean(text)}", file=self._out, flush=True)

    def now(self, text: str) -> None:
        with self._lock:
            self._doing, self._detail, self._since = text, "", time.monotonic()

    def detail(self, text: str) -> None:
        with self._lock:
            self._detail = text

    def _remark(self) -> None:
        with self._lock:
            if self._doing and time.monotonic() - self._said >= self._quiet_s:
                elapsed = f", {duration(time.monotonic() - self._since)}"
                detail = f": {self._detail}" if self._detail else ""
                self.tell("plain", clip(f"... {self._doing}{detail}", LINE_WIDTH - len(elapsed)) + elapsed)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ticker.stop()


class LiveNarrator(AbstractContextManager["LiveNarrator"]):
    """Lines that stay above one line that says what is being done and for how long."""

    def __init__(self, console: Any) -> None:
        from rich.status import Status

        self._console = console
        self._status: Any = Status("", console=console, spinner="dots", refresh_per_second=4)
        self._doing, self._detail, self._since = "starting", "", time.monotonic()
        self._ticker = _Ticker(self._show)

    def __enter__(self) -> LiveNarrator:
        self._show()
        self._status.start()
        self._ticker.start()
        return self

    def tell(self, what: str, text: str) -> None:
        """A line that is longer than the terminal is wide goes on below its beginning, beside the mark."""
        from rich.padding import Padding
        from rich.table import Table
        from rich.text import Text

        style = STYLES.get(what, "")
        line = Table.grid(padding=(0, 1))
        line.add_column(width=1)
        line.add_column(overflow="fold")
        line.add_row(Text(MARKS.get(what, " "), style), Text(clean(text), style))
        with suppress(OSError):  # a terminal that was closed ends nothing
            self._console.print(Padding(line, (0, 0, 0, 2), expand=False) if what in ("plain", "why") else line)

    def line(self, text: str) -> None:
        """A line as it is."""
        from rich.text import Text

        with suppress(OSError):
            self._console.print(Text(clean(text)))

    def now(self, text: str, elapsed_s: float = 0.0) -> None:
        """`elapsed_s` is for how long it has been done already."""
        self._doing, self._detail, self._since = clean(text), "", time.monotonic() - elapsed_s
        self._show()

    def detail(self, text: str) -> None:
        self._detail = clean(text)
        self._show()

    def _show(self) -> None:
        from rich.text import Text

        elapsed = duration(time.monotonic() - self._since)
        room = self._console.width - len(elapsed) - SPINNER_WIDTH
        doing = clip(self._doing, max(room, 1))
        room -= len(doing) + 2
        detail = clip(self._detail, room) if room >= LEAST_DETAIL else ""
        with suppress(OSError):
            self._status.update(
                Text.assemble((doing, "cyan"), (f"  {detail}" if detail else "", "dim"), (f"  {elapsed}", "dim"))
            )

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ticker.stop()
        with suppress(OSError):
            self._status.stop()


SPINNER_WIDTH = 5
"""The spinner, the spaces about the time, and a column at the end that stays free."""
LEAST_DETAIL = 12


class _Ticker:
    """Calls again and again, in a thread of its own, until it is stopped or the output is gone."""

    def __init__(self, call: Callable[[], None]) -> None:
        self._call = call
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._tick, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._done.set()
        self._thread.join()

    def _tick(self) -> None:
        with suppress(OSError, ValueError):
            while not self._done.wait(TICK_S):
                self._call()


def duration(seconds: float) -> str:
    """A time that has passed, as people say it."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {seconds} s"


def narrator_for(out: TextIO, *, quiet: bool = False) -> PlainNarrator | LiveNarrator:
    """The narrator that fits where the output goes. With `quiet` the lines go to standard error."""
    if quiet:
        return PlainNarrator(sys.stderr)
    if not out.isatty():
        return PlainNarrator(out)
    from rich.console import Console

    console = Console(file=out, highlight=False)
    return PlainNarrator(out) if console.is_dumb_terminal else LiveNarrator(console)


class Audience:
    """Several narrators at once."""

    def __init__(self, *first: Narrator) -> None:
        self._all = list(first)
        self._earlier: list[tuple[str, str]] | None = []

    def begin(self, *others: Narrator) -> None:
        """The others come in. They are told what was told before."""
        for what, text in self._earlier or []:
            for narrator in others:
                narrator.tell(what, text)
        self._earlier = None
        self._all += others

    def tell(self, what: str, text: str) -> None:
        if self._earlier is not None:
            self._earlier.append((what, text))
        for narrator in self._all:
            narrator.tell(what, text)

    def now(self, text: str) -> None:
        for narrator in self._all:
            narrator.now(text)

    def detail(self, text: str) -> None:
        for narrator in self._all:
            narrator.detail(text)
