"""Clients of a server that run as processes of their own: to their end, or until their time is up."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from optagent.tools import processes
from optagent.tools.commands import Command
from optagent.tools.processes import Family

LOOK_EVERY_S = 0.1
FAMILY_EVERY_S = 1.0
"""Finding the client's children reads all of /proc, on the machine that is being measured."""

TAIL_BYTES = 64 * 1024


@dataclass(frozen=True)
class ClientEnd:
    """`code` is its exit status, or minus the signal's number; None when it was stopped because its time was up. What it
    wrote is in the log behind `written_before` bytes, and `said` is the last line of it."""

    code: int | None
    said: str
    written_before: int


def run_client(command: Command, log: Path, timeout_s: float, while_running: Callable[[int], None]) -> ClientEnd:
    """Run a client whose output is appended to `log`; `while_running` is called often, with the log's size before.

    It is killed with all it started when it takes longer than `timeout_s`, or when we are interrupted. Raises OSError
    when it cannot be started.
    """
    written_before = log.stat().st_size if log.exists() else 0
    client = processes.start(command, log)
    family = Family(client, None)
    deadline = time.monotonic() + timeout_s
    look_around_at = 0.0
    try:
        while processes.is_alive(client) and (now := time.monotonic()) < deadline:
            if now >= look_around_at:
                family.living()
                look_around_at = now + FAMILY_EVERY_S
            while_running(written_before)
            time.sleep(LOOK_EVERY_S)
        in_time = not processes.is_alive(client)
    finally:
        processes.stop(family, grace_s=1.0)
    return ClientEnd(processes.exit_code(client) if in_time else None, _last_line(log, written_before), written_before)


def _last_line(log: Path, since: int) -> str:
    try:
        with log.open("rb") as file:
            end = file.seek(0, 2)
            file.seek(max(since, end - TAIL_BYTES))
            text = file.read(TAIL_BYTES).decode(errors="replace")
    except OSError:
        text = ""
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "it said nothing"
