"""The time, asked like everything else so that a replay sees the recorded one."""

from __future__ import annotations

from optagent.tools.calls.base import Request, Result


class AskTime(Request):
    pass


class TimeTold(Result):
    """UTC, ISO 8601 with seconds."""

    now: str
