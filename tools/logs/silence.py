"""Loading, idle or hung: how long each phase may be silent before it has stopped.

Silence alone is nothing: an idle server says nothing for days, and a large model loads for half an hour. What counts is
the silence of what should move: the stamped lines and the bar of a start, the batches of requests that wait.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from optagent.tools.calls.logs import Phase
from optagent.tools.logs.run import Run
from optagent.tools.logs.serving import QUEUED, RUNNING, count
from optagent.tools.logs.unwrapping import stamp_in

PHASE_SILENCE_S: dict[Phase, float] = {
    "arguments": 600,  # imports from a cold disk, a configuration from the hub
    "distributed-init": 660,  # PyTorch and NCCL give up by themselves after 600 s
    "weight-load": 1800,  # large shards from a network disk, without a bar
    "memory-pool": 300,
    "graph-capture": 900,
    "warmup": 700,  # the server gives up by itself after 600 s
    "serving": 600,
}
COMPILING_SILENCE_S = 2400.0
"""DeepGEMM says of itself that it may take 10 to 20 minutes."""
STEPS_OF_SILENCE = 20
"""A bar that moves is still when it has not moved for this many of its own steps."""
LEAST_BAR_SILENCE_S = 600.0
WAITING_SILENCE_S = 300.0
HEALTH_FAILURES = 3
MANY_RUNNING = 8
"""That many requests do not all end between two decode lines (40 steps)."""


def allowed_silence_s(run: Run) -> float:
    """How long this run may say nothing before it is taken for hung."""
    phase = run.phase
    if phase == "serving":
        return PHASE_SILENCE_S[phase]
    allowed = PHASE_SILENCE_S[phase]
    if run.compiling:
        allowed = max(allowed, COMPILING_SILENCE_S)
    elif run.bar is not None and run.bar.per_step_s is not None and run.bar.percent < 100:
        allowed = max(LEAST_BAR_SILENCE_S, STEPS_OF_SILENCE * run.bar.per_step_s)
    return allowed


def last_sign(run: Run) -> datetime | None:
    """When the run last moved: its last stamped line, or the bar that was begun then and tells how long it has run."""
    stamp = run.last_stamp
    if run.bar is None or run.bar.elapsed_s is None or run.bar_began is None:
        return stamp
    try:
        moved = run.bar_began + timedelta(seconds=run.bar.elapsed_s)
    except OverflowError:
        return stamp
    return moved if stamp is None or moved > stamp else stamp


def silence_of(run: Run, now: datetime) -> float | None:
    """For how many seconds nothing has moved: no start, or of a server that serves no batch."""
    sign = _last_batch(run) if run.ready else last_sign(run)
    return None if sign is None else (now - sign).total_seconds()


def _last_batch(run: Run) -> datetime | None:
    if run.serving.last_batch is None:
        return run.last_stamp
    return stamp_in(run.serving.last_batch[1].decode("utf-8", errors="replace"))


def requests_waiting(run: Run) -> str | None:
    """What shows that requests wait for this server, in words; None when it may as well be idle."""
    serving = run.serving
    if serving.health_failures >= HEALTH_FAILURES:
        return f"{serving.health_failures} health checks failed without a batch in between"
    if serving.last_batch is None:
        return None
    text = serving.last_batch[1].decode("utf-8", errors="replace")
    running, queued = count(RUNNING, text), count(QUEUED, text)
    if queued > 0:
        return f"{running} requests ran and {queued} were queued in the last batch"
    if running >= MANY_RUNNING and not serving.answered_since:
        return f"{running} requests ran in the last batch, and none was answered since"
    return None


def hung_because(run: Run, silent_for_s: float | None) -> str | None:
    """Why the run is hung, in words; None while its silence can be explained."""
    if not run.ready:
        if silent_for_s is None or silent_for_s <= allowed_silence_s(run):
            return None
        return f"nothing moved for {minutes(silent_for_s)} during {run.phase}"
    waiting = requests_waiting(run)
    if waiting is None:
        return None
    if run.serving.health_failures >= HEALTH_FAILURES:
        return waiting
    if silent_for_s is None or silent_for_s <= WAITING_SILENCE_S:
        return None
    return f"no batch for {minutes(silent_for_s)}, although {waiting}"


def minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} minutes"
