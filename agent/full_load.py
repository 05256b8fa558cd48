"""The load that a memory setting has to stand before it is measured: the largest shape, at full concurrency."""

from __future__ import annotations

from optagent.agent.cells import Cell
from optagent.agent.dead_ends import log_evidence
from optagent.agent.experimenting import log_of, run_mark
from optagent.agent.experiments import Experiment, Failure
from optagent.agent.search.choosing import is_memory_setting
from optagent.agent.session import Session
from optagent.tools.calls.bench import Bench, Workload
from optagent.tools.calls.configuration import Configuration
from optagent.tools.calls.logs import ReadLog

MOST_AT_ONCE = 1024


def wanted(experiment: Experiment, cell: Cell) -> bool:
    """Once for each experiment, before the first run of the candidate."""
    first = cell.arm == "candidate" and not experiment.launches("candidate")
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
    log = log_of(experiment, cell)
    reading = session.toolbox.read_log(ReadLog(path=log))
    kind = reading.cause.kind if reading.cause else "load-failed"
    why = "; ".join(done.invalid_because[:2])
    summary = f"does not stand {load.max_concurrency} requests at once: {why}"
    evidence = (*log_evidence(log, reading), *([done.result_file] if done.result_file else []))
    return Failure("candidate", "load", kind, summary, evidence)
