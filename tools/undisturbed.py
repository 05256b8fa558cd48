"""Starting a process that no request to end reaches, as a terminal sends them to everybody who belongs to it."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

REQUESTS = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT}


@contextmanager
def undisturbed() -> Iterator[None]:
    """What is started inside finishes what it began: it has these signals blocked from its first moment on. A group of its own
    would not do, since the signal may come between its birth and its leaving ours. Ours come as soon as the block is left."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, REQUESTS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
