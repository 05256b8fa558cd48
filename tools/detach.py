"""Going on without the terminal: a process of its own session, which tells the one that started it how its start went."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

STARTED = b"\0"
"""Ends what the new process says to the one that started it, if it got as far as it should."""


@dataclass(frozen=True)
class Split:
    """`pid` is the new process, None in the new process itself. There, what is printed goes to the old one until `ready` is
    called. Here `exit_status` is what the new one ended with, None when it runs on."""

    pid: int | None = None
    exit_status: int | None = None
    ready: Callable[[], None] = lambda: None


def detach(say: Callable[[str], None]) -> Split:
    """Split in two. The new process leads a session of its own and has no terminal; the old one waits until the new one is
    ready, or has ended, and hands on to `say` what it prints until then. Ctrl-C meanwhile asks the new one to end.

    The new process goes on whatever becomes of the old one. Raises OSError.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        return _become_child(writing)
    os.close(writing)
    try:
        started = _listen(reading, say)
    except KeyboardInterrupt:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
        started = False
    if started:
        return Split(pid)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return Split(pid, status if status >= 0 else 128 - status)


def _become_child(writing: int) -> Split:
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor, at in ((nothing, 0), (writing, 1), (writing, 2)):
        os.dup2(descriptor, at)
    os.close(nothing)

    def ready() -> None:
        with suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        with suppress(OSError):  # whoever started it may have gone
            os.write(writing, STARTED)
        os.close(writing)

    return Split(ready=ready)


def _listen(reading: int, say: Callable[[str], None]) -> bool:
    """Whether it got ready. It did not when it closed its outputs without saying so."""
    with open(reading, "rb", buffering=0) as pipe:
        while piece := pipe.read(4096):
            said, started, _ = piece.partition(STARTED)
            if said:
                say(said.decode(errors="replace"))
            if started:
                return True
    return False
