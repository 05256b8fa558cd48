"""What the batches of a serving log show: acceptance, graphs, the queue, and whether anybody waits."""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, field

from optagent.tools.logs.cutting import Line

ACCEPT = re.compile(rb"accept len: (\d{1,6}(?:\.\d{1,4})?)")
EAGER = b"cuda graph: False"
GRAPH = b"cuda graph: "
RUNNING = re.compile(r"#running-req: (\d{1,9})")
QUEUED = re.compile(r"#queue-req: (\d{1,9})")
REJECTED_BELOW = 1.05
"""A mean accept length below this means that the drafts are as good as never taken: 1 is the token of the target itself."""


@dataclass
class Serving:
    """Counts over the decode lines that were looked at (of a long log, a part of them)."""

    eager: int = 0
    with_graph_field: int = 0
    accepts: int = 0
    accept_sum: float = 0.0
    eager_lines: deque[Line] = field(default_factory=lambda: deque(maxlen=4))
    rejected_lines: deque[Line] = field(default_factory=lambda: deque(maxlen=4))
    last_batch: tuple[int, bytes] | None = None
    answered_since: int = 0
    failing_health: deque[Line] = field(default_factory=lambda: deque(maxlen=4))
    health_failures: int = 0

    def take_decode(self, number: int, raw: bytes) -> None:
        self.take_batch(number, raw)
        if GRAPH in raw:
            self.with_graph_field += 1
            if EAGER in raw:
                self.eager += 1
                self.eager_lines.append(_line(number, raw))
        if (accept := ACCEPT.search(raw)) is not None:
            length = float(accept.group(1))
            self.accepts += 1
            self.accept_sum += length
            if length < REJECTED_BELOW:
                self.rejected_lines.append(_line(number, raw))

    def take_batch(self, number: int, raw: bytes) -> None:
        """Any batch is a sign of life: health checks that failed before it do not count any more."""
        self.last_batch = (number, raw)
        self.answered_since = 0
        self.health_failures = 0
        self.failing_health.clear()

    def take_health_failure(self, line: Line) -> None:
        self.health_failures += 1
        if len(self.failing_health) < 4:
            self.failing_health.append(line)

    @property
    def mean_accept(self) -> float | None:
        return self.accept_sum / self.accepts if self.accepts else None


def count(pattern: re.Pattern[str], text: str) -> int:
    found = pattern.search(text)
    return int(found.group(1)) if found else 0


def _line(number: int, raw: bytes) -> Line:
    return Line(number, raw.decode("utf-8", errors="replace").rstrip())
