"""Virtual time: what the simulated server's log and measurements are in. It runs `speed` times as fast as the wall."""

from __future__ import annotations

import threading
import time
from datetime import datetime, timedelta

SHORTEST_SLEEP_S = 0.002


class VirtualClock:
    """Advances only when it is told to; telling it waits until the wall has had its share."""

    def __init__(self, start: datetime, speed: float) -> None:
        self._start = start
        self._speed = speed
        self._elapsed_s = 0.0
        self._anchor = (time.monotonic(), 0.0)
        self._lock = threading.Lock()

    @property
    def elapsed_s(self) -> float:
        return self._elapsed_s

    def advance_to(self, elapsed_s: float) -> None:
        """Move to `elapsed_s` virtual seconds after the start; never back."""
        with self._lock:
            self._elapsed_s = max(self._elapsed_s, elapsed_s)
            wall, virtual = self._anchor
            due_s = wall + (self._elapsed_s - virtual) / self._speed - time.monotonic()
        if due_s > SHORTEST_SLEEP_S:
            time.sleep(due_s)

    def rest(self) -> None:
        """Forget how long the wall has waited: the next advance starts to count from now."""
        with self._lock:
            self._anchor = (time.monotonic(), self._elapsed_s)

    def stamp(self, elapsed_s: float | None = None) -> str:
        """A log timestamp, `YYYY-MM-DD HH:MM:SS`."""
        moment = self._start + timedelta(seconds=self._elapsed_s if elapsed_s is None else elapsed_s)
        return moment.strftime("%Y-%m-%d %H:%M:%S")
