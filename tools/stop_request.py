"""A request to end: heeded where nothing is lost by it, which is while something is waited for, or between two steps.

Whoever asks does so in the handler of a signal. There the request interrupts at once what waits (a launch, a benchmark, an
examination, a look around), for as long as that may take; git, files and the journal are finished first, which takes moments.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class Interrupted(KeyboardInterrupt):
    """Somebody asked to end. `by` is who (a signal's name), `during` the tool that was waited for, "" between two steps."""

    def __init__(self, by: str, during: str) -> None:
        super().__init__(f"{by} during {during or 'the work between two steps'}")
        self.by, self.during = by, during


class StopRequest:
    """Nobody has asked, somebody has, or that was heeded: it interrupts once."""

    def __init__(self) -> None:
        self.by = ""
        self.heeded = False
        self._waits_for = ""
        self._put_off = 0

    @property
    def heeded_at_once(self) -> bool:
        """Whether a request would interrupt right here."""
        return bool(self._waits_for) and not self._put_off and not self.heeded

    @property
    def ends_by_itself(self) -> bool:
        return self._put_off > 0

    def ask(self, by: str) -> None:
        """Somebody asks to end: raises Interrupted when something is waited for now."""
        self.by = self.by or by
        if self._waits_for:
            self.heed()

    def heed(self) -> None:
        """Between two steps. Raises Interrupted when somebody has asked since."""
        if self.by and not self.heeded and not self._put_off:
            self.heeded = True
            raise Interrupted(self.by, self._waits_for)

    @contextmanager
    def waiting(self, tool: str) -> Iterator[None]:
        """Inside, a request interrupts at once."""
        self._waits_for = tool
        try:
            self.heed()
            yield
        finally:
            self._waits_for = ""

    @contextmanager
    def put_off(self) -> Iterator[None]:
        """Inside, the sitting ends by itself: nothing is interrupted."""
        self._put_off += 1
        try:
            yield
        finally:
            self._put_off -= 1
