"""How far a load is, for people to see."""

from __future__ import annotations

import time
from collections.abc import Callable

REPORT_EVERY_S = 0.3

Report = Callable[[str], None]


class Progress:
    """Tells "benchmark: 12 of 32 requests", a few times a second at most. Whoever shows it adds the time that it takes."""

    def __init__(self, report: Report, requests: int, what: str = "benchmark") -> None:
        self.requests = requests
        self._report, self._what = report, what
        self._told_at = float("-inf")

    @property
    def due(self) -> bool:
        """Whether it is time to tell again: what costs something to find out need not be found out before."""
        return time.monotonic() - self._told_at >= REPORT_EVERY_S

    def tell(self, done: int | None) -> None:
        """`done` is the number of finished requests, None while that is not known."""
        if self.due:
            self._told_at = time.monotonic()
            far = "the client is starting" if done is None else f"{done} of {self.requests} requests"
            self._report(f"{self._what}: {far}")
