"""What a server's log says, in the words of the diagnosis contract."""

from __future__ import annotations

from typing import Literal

from optagent.tools.calls.base import Request, Result

Status = Literal["starting", "ready", "crashed", "hung", "stopped"]
Phase = Literal["arguments", "distributed-init", "weight-load", "memory-pool", "graph-capture", "warmup", "serving"]
PHASES: tuple[Phase, ...] = (
    "arguments", "distributed-init", "weight-load", "memory-pool", "graph-capture", "warmup", "serving",
)  # fmt: skip


class ReadLog(Request):
    """`path` of the log; `alive` tells whether its process still lives, None when that is not known."""

    path: str
    alive: bool | None = None


class EvidenceLine(Result):
    """A line of the log, counted by newlines from 1 as `grep -n` does."""

    line: int
    text: str


class Cause(Result):
    """Why a launch failed or is not right. `kind` is one of the diagnosis contract's kinds."""

    kind: str
    summary: str
    rank: int | None = None
    evidence: list[EvidenceLine] = []


class Action(Result):
    kind: str
    summary: str


class LogReading(Result):
    """Where a launch stands according to its log. `exists` is False when there is no such log (the rest is empty)."""

    exists: bool = True
    status: Status = "starting"
    phase: Phase = "arguments"
    cause: Cause | None = None
    warnings: list[Cause] = []
    action: Action | None = None
    retryable: bool = False
    confidence: Literal["high", "medium", "low"] = "medium"
    last_progress: str = ""
    kv_tokens: int | None = None
    kv_gb: float | None = None
    weights_gb: float | None = None
    context_len: int | None = None
    explained: str = ""
    disbelieve: list[str] = []
    """What the evidence shows, and what in this log not to believe: words for a person."""
