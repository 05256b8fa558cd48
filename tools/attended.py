"""The toolbox of a sitting that somebody watches and may want to end."""

from __future__ import annotations

import time
from contextlib import nullcontext
from typing import TypeVar

from optagent.tools.calls.base import Request, Result
from optagent.tools.calls.bench import Bench, BenchRun
from optagent.tools.calls.gate import Evaluated, Examined
from optagent.tools.calls.server import Launch, Launched
from optagent.tools.routed import RoutedToolbox
from optagent.tools.stop_request import StopRequest
from optagent.tools.toolbox import Toolbox
from optagent.tools.whereabouts import TWICE, Whereabouts

R = TypeVar("R", bound=Result)

BROKEN_OFF = frozenset(
    {"launch", "bench", "examine", "evaluate", "probe", "read_log", "list_flags", "prepare_environment"}
)
"""What may take long, and is broken off where somebody asks to end: nothing of it is kept, or what is kept is found again.
Everything else takes moments and is finished: git, files, and stopping a server."""


class AttendedToolbox(RoutedToolbox):
    """Wraps a toolbox: says which tool is at work, and breaks off what may take long when somebody asks to end."""

    def __init__(self, inner: Toolbox, whereabouts: Whereabouts, stop: StopRequest) -> None:
        self._inner, self._whereabouts, self._stop = inner, whereabouts, stop

    def call(self, tool: str, request: Request, answers_with: type[R]) -> R:
        log = request.log if isinstance(request, Launch) else None
        kind = TWICE if isinstance(request, Bench) and request.discard_first else tool
        breaking_off = self._stop.waiting(tool) if tool in BROKEN_OFF else nullcontext()
        began = time.monotonic()
        with self._whereabouts.calling(tool, kind, log), breaking_off:
            result: R = getattr(self._inner, tool)(request)
        if _came_to_its_end(result):
            self._whereabouts.took(kind, time.monotonic() - began)
        return result


def _came_to_its_end(result: Result) -> bool:
    """Whether it took as long as one like it will."""
    if isinstance(result, Launched):
        return result.outcome == "ready"
    return result.valid if isinstance(result, BenchRun) else isinstance(result, Examined | Evaluated)
