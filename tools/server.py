"""Starting a server until it really serves, and stopping it until nothing of it is left."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Literal

from optagent.tools import process_notes, processes
from optagent.tools.calls.server import Launched, Stopped
from optagent.tools.deployment import Timeouts
from optagent.tools.errors import MachineExhausted
from optagent.tools.exhausted import stop_if_exhausted, stop_if_full
from optagent.tools.gpus import LookAtGpus, held_after, in_use
from optagent.tools.launch_watch import Report, Start, Watch
from optagent.tools.network import Address, Listener, held_by, listeners, port_holder
from optagent.tools.process_notes import Note
from optagent.tools.processes import Family, ProcessId, command_line

NOTHING_TO_DRAIN_S = 5.0
"""A server that never served has no requests to finish, and may not react to SIGTERM at all while it loads."""
GPU_FREE_S = 20.0
"""A driver takes seconds to free the memory of a process that was killed."""

PORT_FREE_S = 5.0
"""What a killed process listened on is free in milliseconds."""


def launch(start: Start, report: Report) -> Launched:
    """Start the server and wait until it serves, dies or stands still.

    Unless it serves in the end, everything that was started is gone again. What an interrupted attempt at the same launch
    left behind is stopped first, so that one launch never runs twice.
    """
    soon_s = min(start.timeouts.stop_s, NOTHING_TO_DRAIN_S)
    if left := _stop_earlier(start):
        return _nothing(start, "not-started", f"an earlier attempt at this launch cannot be stopped: {left}")
    holder = port_holder(start.address)
    if holder is not None:
        return _nothing(start, "port-taken", holder)
    before = in_use(start.gpus())
    family = processes.marked(start.mark)
    try:
        _set_aside(start.log)
        root = processes.start(start.command, start.log)
        family = Family(root, start.mark)
        note = Note(root, start.mark, processes.boot_id(), gpu_gb=before)
        process_notes.write(start.records, note)
        launched = Watch(start, root, family, report).until_settled()
    except OSError as error:
        problem = f"{error.filename or start.command.argv[0]}: {error.strerror or error}"
        left = _stop_family(family, start.records, soon_s)
        stop_if_exhausted(error, start.log)
        return _nothing(start, "not-started", _joined(problem, left))
    except BaseException:
        _stop_family(family, start.records, soon_s)
        raise
    if launched.outcome == "ready":
        _remember(start.records, note, family)
        return launched
    left = _stop_family(family, start.records, soon_s)
    stop_if_full(start.log)
    left = left or held_after(start.gpus, _pids(family), before, GPU_FREE_S)
    problem_and_left = _joined(launched.problem, left)
    return launched.model_copy(update={"exit_code": processes.exit_code(root), "problem": problem_and_left})


def stop(
    process: ProcessId,
    address: Address | None,
    records: Path,
    timeouts: Timeouts,
    gpus: LookAtGpus,
    gpu_free_s: float = GPU_FREE_S,
) -> Stopped:
    """Stop a server that was launched earlier, perhaps by a process that is no more, and prove that it is gone.

    With `address`, `problem` also says who else listens on the port by now: that is no process of ours. It says as well
    which GPU has not got its memory back within `gpu_free_s`.
    """
    note = process_notes.read(records, process) or process_notes.note_of(process)
    if note is not None and note.outdated:
        process_notes.forget(records, process)
        return Stopped(gone=True, was_running=False)
    was_running = processes.is_alive(process)
    family = note.family() if note is not None else Family(process, None)
    if note is not None and family.living():
        _remember(records, note, family)
    problem = _stop_family(family, records, timeouts.stop_s)
    gone = problem is None
    if gone and address is not None:
        problem = others_on_port(address, family)
    if gone:
        before = note.gpu_gb if note is not None else {}
        problem = _joined(problem, held_after(gpus, _pids(family), before, gpu_free_s))
    return Stopped(gone=gone, was_running=was_running, problem=problem)


def others_on_port(
    address: Address, family: Family, look: Callable[[Address], list[Listener]] = listeners
) -> str | None:
    """Who else listens where the family did, in words; None when nobody does.

    A member that has just died, or was born while the others were stopped, may still be met there: it is stopped, and
    waited for. Whoever does not go is named in the end.
    """
    deadline = time.monotonic() + PORT_FREE_S
    while found := look(address):
        others = [one for one in found if one.pid is None or not family.had(one.pid)]
        if others or time.monotonic() > deadline:
            return held_by(address, (others or found)[0])
        processes.stop(family, 0.0)
        time.sleep(processes.PAUSE_S)
    return None


def _nothing(start: Start, outcome: Literal["port-taken", "not-started"], problem: str | None) -> Launched:
    return Launched(outcome=outcome, problem=problem, simulated=start.simulated)


def _stop_earlier(start: Start) -> str | None:
    """Stop what an interrupted attempt at the same launch left behind; what is still there afterwards in words."""
    noted = [note for note in process_notes.read_all(start.records) if note.mark == start.mark]
    families = [*(note.family() for note in noted), processes.marked(start.mark)]
    return _joined(*(_stop_family(family, start.records, start.timeouts.stop_s) for family in families))


def _remember(records: Path, note: Note, family: Family) -> None:
    """Note whom the family has now, for those who have to find it without us; without a note they know less."""
    with suppress(OSError):
        process_notes.write(records, replace(note, members=note.members | family.seen))


def _pids(family: Family) -> set[int]:
    return {process.pid for process in family.seen}


def _joined(*problems: str | None) -> str | None:
    return "; ".join(problem for problem in problems if problem) or None


def _stop_family(family: Family, records: Path, grace_s: float) -> str | None:
    """Stop them all; what is still there afterwards in words, mostly None."""
    try:
        left = processes.stop(family, grace_s)
    except (OSError, MachineExhausted) as error:
        if family.root is not None:
            processes.kill_unseen(family.root)
        stop_if_exhausted(error, records)
        raise
    if left:
        return "still there: " + ", ".join(f"pid {p.id.pid} ({command_line(p.id.pid)[:100]})" for p in left)
    if family.root is not None:
        process_notes.forget(records, family.root)
    return None


def _set_aside(log: Path) -> None:
    """Move an earlier attempt's log out of the way: a log holds one launch."""
    number = 1
    while log.exists():
        earlier = log.with_name(f"{log.stem}.{number}{log.suffix}")
        if not earlier.exists():
            log.rename(earlier)
        number += 1
