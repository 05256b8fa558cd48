"""Closed-loop loads: clients that announce themselves, and a clock that waits until each of them has a request out.

A client sends `X-Optagent-Load: {"run": str, "clients": N, "requests": P, "index": k, "seed": s}` with request k of P.
The engine goes on only when as many requests are outstanding as a closed loop of N clients has at that moment, so what
is measured depends on the load alone and not on how fast the client's threads were. Requests without the header
are loads of their own; concurrent ones do not see each other.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from optagent.tools.simulator.batching import Engine, Job

HEADER = "X-Optagent-Load"
WARM_UP = "/warm-up"
"""How the runs end whose times count for nothing."""

STALLED_S = 60.0
"""Wall time after which a request whose load does not go on (a client died) is given up."""


class LoadStalled(RuntimeError):
    """The other clients of the load never came."""


@dataclass(frozen=True)
class Announcement:
    run: str
    clients: int
    requests: int
    index: int
    seed: int = 0

    @property
    def load(self) -> tuple[str, int, int, int]:
        return self.run, self.clients, self.requests, self.seed


def announcement(header: str) -> Announcement:
    """What the header announces. Raises ValueError or TypeError when it is not an announcement."""
    return Announcement(**json.loads(header))


def is_warm_up(told: Announcement) -> bool:
    return told.run.endswith(WARM_UP)


@dataclass
class Load:
    """One closed loop on an engine of its own, whose time starts at 0 when the clock shows `began_s`.

    `cached` are the prompts in the prefix cache when it began.
    """

    announced: Announcement
    engine: Engine
    began_s: float
    advance_clock: Callable[[float], None]
    cached: frozenset[str] = frozenset()
    arrived: list[Job] = field(default_factory=list)
    completed: int = 0
    done: set[int] = field(default_factory=set)
    changed: threading.Condition = field(default_factory=threading.Condition)

    def serve(self, job: Job) -> Job:
        """Take part with one request; returns it finished. Raises LoadStalled when the load stands still."""
        with self.changed:
            self.arrived.append(job)
            self._go_on_when_complete()
            while job.index not in self.done:
                if not self.changed.wait(STALLED_S):
                    raise LoadStalled(f"load {self.announced.run}: {self._expected()} clients were announced")
        return job

    def serve_all(self, jobs: Sequence[Job]) -> None:
        """Run a load whose requests are all here at once."""
        with self.changed:
            self.arrived.extend(jobs)
            self._go_on_when_complete()

    @property
    def over(self) -> bool:
        return self.completed >= self.announced.requests

    def _expected(self) -> int:
        return min(self.announced.clients, self.announced.requests - self.completed)

    def _go_on_when_complete(self) -> None:
        """Advance as often as everybody who is to come is there: at the end of a load nobody comes any more."""
        while not self.over and len(self.arrived) + self.engine.outstanding >= self._expected():
            for job in sorted(self.arrived, key=lambda job: job.index):
                self.engine.submit(job)
            self.arrived.clear()
            finished = self.engine.advance()
            self.advance_clock(self.began_s + self.engine.now_s)
            self.completed += len(finished)
            self.done |= {job.index for job in finished}
            self.changed.notify_all()
