"""Ending in order when somebody asks for it, and at once when they ask again."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

REQUESTS_TO_END = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


@contextmanager
def signals_interrupt(
    told: Callable[[], None] = lambda: None, again: type[BaseException] = KeyboardInterrupt
) -> Iterator[None]:
    """Inside, a request to end (also a terminal that goes away) interrupts as Ctrl-C does: what was started is stopped
    on the way out. `told` is called first, in the handler of the signal.

    Ctrl-C while that is going on raises `again`, and the one after that ends the process. Of the other signals all but
    the first are ignored, since a terminal that goes away may send several. A signal that was ignored stays ignored, as
    under nohup.
    """
    requests = 0

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal requests
        requests += 1
        if requests == 1:
            told()
            raise KeyboardInterrupt
        if number == signal.SIGINT:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            raise again

    before = {n: signal.getsignal(n) for n in REQUESTS_TO_END if signal.getsignal(n) is not signal.SIG_IGN}
    for number in before:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
