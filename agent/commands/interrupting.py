"""What signals ask of a command: to end in order, and at once when somebody asks again."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from signal import Signals
from types import FrameType

REQUESTS_TO_END = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
TYPED = (signal.SIGINT, signal.SIGQUIT)
"""What a person types, as often as it is meant."""
TWIN_S = 1.0
"""timeout(1) and other parents send SIGTERM to the process and once more to its whole group."""


def name_of(number: int) -> str:
    return "Ctrl-C" if number == signal.SIGINT else Signals(number).name


@contextmanager
def signals_ask(
    asked: Callable[[Signals], None], again: Callable[[], None], clock: Callable[[], float] = time.monotonic
) -> Iterator[None]:
    """Inside, a request to end (also a terminal that goes away) calls `asked`, and another one `again`, both in the handler
    of the signal. The third Ctrl-C ends the process.

    A terminal that goes away may send several SIGHUP, so that one is no second request, nor is a SIGTERM that comes with
    the first. A signal that was ignored stays ignored, as under nohup.
    """
    first_at: float | None = None

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal first_at
        if first_at is None:
            first_at = clock()
            asked(Signals(number))
        elif number in TYPED or (number == signal.SIGTERM and clock() - first_at >= TWIN_S):
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            again()

    before = {n: signal.getsignal(n) for n in REQUESTS_TO_END if signal.getsignal(n) is not signal.SIG_IGN}
    for number in before:
        signal.signal(number, handle)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def signals_interrupt() -> Iterator[None]:
    """Inside, a request to end interrupts as Ctrl-C does: what was started is stopped on the way out."""

    def interrupt(number: Signals | None = None) -> None:
        raise KeyboardInterrupt

    with signals_ask(interrupt, interrupt):
        yield
