"""What people see while something takes long."""

from __future__ import annotations

import io
import re
import time
from collections.abc import Callable

import pytest
from rich.console import Console

from optagent.agent.commands.narration import LiveNarrator, PlainNarrator, duration


class Gone(io.StringIO):
    """A pipe whose reader has gone."""

    def write(self, text: str) -> int:
        raise BrokenPipeError


def eventually(true: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not true():
        assert time.monotonic() < deadline, "did not happen"
        time.sleep(0.02)


def test_plain_output_says_by_itself_what_takes_long() -> None:
    out = io.StringIO()
    with PlainNarrator(out, quiet_s=0) as narrator:
        narrator.now("launching baseline")
        narrator.detail("weight-load 35 %")
        eventually(lambda: re.search(r"\.\.\. launching baseline: weight-load 35 %, \d+ s\n", out.getvalue()))
        narrator.now("benchmark single-stream")
        eventually(lambda: "... benchmark single-stream, " in out.getvalue())
    assert "benchmark single-stream: weight-load" not in out.getvalue()


def test_plain_output_is_silent_while_lines_come() -> None:
    out = io.StringIO()
    with PlainNarrator(out, quiet_s=600) as narrator:
        narrator.now("launching baseline")
        narrator.tell("good", "restored: \x1b[2Jeverything")
        time.sleep(1.2)
    (line,) = out.getvalue().splitlines()
    assert line.endswith("s ✓ restored: [2Jeverything")


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_an_output_that_has_gone_ends_nothing() -> None:
    with PlainNarrator(Gone(), quiet_s=0) as narrator:
        narrator.now("launching baseline")
        time.sleep(1.2)


@pytest.mark.parametrize("width", [20, 40, 80])
def test_a_terminal_is_never_written_over_its_edge(width: int) -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, color_system=None, width=width, highlight=False)
    with LiveNarrator(console) as narrator:
        narrator.now("looking at processes, port, GPUs, checkout and environment files")
        narrator.detail("as long as a line of a log may well be, and then some more of it")
        narrator.tell("plain", "one two three four five six seven eight nine ten")
        narrator.tell("step", "eleven " * 20)
    lines = out.getvalue().replace("\r\x1b[2K", "\n").split("\n")
    shown = [line for line in lines if "\x1b" not in line]
    assert max(map(len, shown)) <= width
    told = [line for line in shown if line.strip() and "looking" not in line]
    assert all(line.startswith(("  ", "▶ ")) for line in told if not line.startswith("⠋")), told


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.4, "0 s"),
        (99, "99 s"),
        (100, "1 min 40 s"),
        (3599, "59 min 59 s"),
        (3660, "1 h 1 min"),
        (90061, "25 h 1 min"),
    ],
)
def test_a_duration_in_words(seconds: float, said: str) -> None:
    assert duration(seconds) == said
