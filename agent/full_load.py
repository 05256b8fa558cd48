"""What a server does not survive: the load that a memory setting has to stand (the largest shape, at full concurrency), and
a run that it died of."""

from __future__ import annotations

from collections.abc import Sequence

from optagent.agent.cells import Cell
from optagent.agent.dead_ends import cause_text, log_evidence
from optagent.agent.experimenting import log_of, run_mark
from optagent.agent.experiments import SURVEY, Experiment, Failure, Run
from optagent.agent.search.choosing import is_memory_setting
from optagent.agent.session import Session
from optagent.tools.calls.bench import Bench, Workload
from optagent.tools.calls.configuration import Configuration
from optagent.tools.calls.logs import LogReading, ReadLog

MOST_AT_ONCE = 1024


def wanted(experiment: Experiment, cell: Cell) -> bool:
    """Once for each experiment, before the first run of the candidate."""
    first = cell.arm == "candidate" and (experiment.kind == SURVEY or not experiment.launches("candidate"))
    return first and not experiment.removal and is_memory_setting(experiment.change)


def full_load(workload: Workload, configuration: Configuration) -> Workload:
    """The workload's longest requests, as many at once as the server takes (the workload's own number at least)."""
    asked = configuration.flags.get("max-running-requests")
    many = asked if isinstance(asked, int) and not isinstance(asked, bool) else 0
    at_once = max(workload.max_concurrency, min(many, MOST_AT_ONCE))
    return workload.model_copy(update={"num_prompts": at_once, "max_concurrency": at_once, "warmup_requests": 0})


def stand(session: Session, experiment: Experiment, cell: Cell, url: str) -> Failure | None:
    """Put the load on; None when the server stood it. Its numbers count for nothing."""
    if not wanted(experiment, cell) or experiment.candidate is None:
        return None
    load = full_load(session.config.workload, experiment.candidate)
    session.narrator.now(f"{load.max_concurrency} of the longest requests at once, before a memory setting is measured")
    mark = run_mark(session, experiment, cell)
    done = session.toolbox.bench(Bench(
        key=f"{cell.name}:full-load:{mark}", run=f"{cell.name}-full-load", url=url, workload=load, seed=load.seed,
        result_file=f".optagent/runs/{cell.name}-full-load-{mark}.jsonl",
    ))  # fmt: skip
    if done.valid:
        return None
    why = "; ".join(done.invalid_because[:2])
    summary = f"does not stand {load.max_concurrency} requests at once: {why}"
    log, reading = _read(session, experiment, cell)
    evidence = (*log_evidence(log, reading), *([done.result_file] if done.result_file else []))
    return Failure("candidate", "load", reading.cause.kind if reading.cause else "load-failed", summary, evidence)


def death(session: Session, experiment: Experiment, cell: Cell, runs: Sequence[Run]) -> Failure | None:
    """Why the server died of its last run, by its log; None when the run is valid, or the log tells of no death."""
    if not runs or runs[-1].valid:
        return None
    log, reading = _read(session, experiment, cell)
    if reading.cause is None or reading.status != "crashed":
        return None
    summary = f"died under the load: {cause_text(reading)}"
    return Failure(cell.arm, "load", reading.cause.kind, summary, log_evidence(log, reading))


def _read(session: Session, experiment: Experiment, cell: Cell) -> tuple[str, LogReading]:
    log = log_of(experiment, cell)
    return log, session.toolbox.read_log(ReadLog(path=log))
