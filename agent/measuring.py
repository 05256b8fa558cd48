"""Measuring: one benchmark run of an experiment, and whether it counts."""

from __future__ import annotations

from collections.abc import Sequence

from optagent.agent.cells import Cell
from optagent.agent.experimenting import bench_key, progress, run_mark
from optagent.agent.ledger import Experiment, Run
from optagent.agent.session import Session
from optagent.agent.validity import REPETITIVE, repetitive_shares, too_repetitive
from optagent.agent.verdict import geometric_mean
from optagent.tools.calls.bench import Bench, BenchRun


def measure(session: Session, experiment: Experiment, cell: Cell, url: str) -> Run:
    """One benchmark run, recorded as a run of the experiment."""
    objective, workload = session.config.objective, session.config.workload
    session.narrator.now(f"benchmark {workload.name}, {cell.arm} ({progress(experiment, cell)})")
    done = session.toolbox.bench(Bench(
        key=bench_key(session, experiment, cell), run=cell.name, url=url, workload=workload, seed=workload.seed + cell.pair,
        result_file=f".optagent/runs/{cell.name}-{run_mark(session, experiment, cell)}.jsonl",
        discard_first=session.config.measuring.discard_first,
    ))  # fmt: skip
    known = repetitive_shares(session.ledger, experiment.base) if cell.arm == "candidate" else None
    run = run_of(cell, done, objective.metric, known)
    session.note("run", {"experiment": experiment.id, "run": run}, cell.name)
    value = f"{run.value:.4g}" if run.value is not None else "no value"
    state = "" if run.valid else f" - invalid: {run.because}"
    marker = " (simulated)" if done.simulated else ""
    session.narrator.tell("plain", f"{cell.name}: {objective.metric} {value}{marker}{state}")
    for warning in done.warnings:
        session.narrator.tell("note", f"{cell.name}: {warning}")
    return run


KEPT_METRICS = (
    "output_throughput", "total_throughput", "request_throughput", "median_ttft_ms", "p99_ttft_ms", "median_tpot_ms",
    "p99_tpot_ms", "mean_e2e_latency_ms", "accept_length", "completed", "duration",
)  # fmt: skip
"""What of a run is copied into the journal; every key stays in the result file."""

CACHE_FLUSHED = "cache_flushed"
"""1 when the prefix cache was empty when the run began, 0 when it was left as it was."""


def run_of(cell: Cell, done: BenchRun, metric: str, known: Sequence[float] | None = None) -> Run:
    """The run as the experiment counts it. A value that is missing or not above zero makes it invalid, never 0.

    For a run of the candidate, `known` are the shares of repetitive answers in the baseline's runs. What the run says of
    cache and repetition stands among the metrics; what is not known does not.
    """
    value = done.metrics.get(metric)
    reasons = list(done.invalid_because)
    if done.valid and (value is None or value <= 0):
        reasons = [f"the result has no {metric}"]
    if known is not None and (reason := too_repetitive(done.repetitive, known)):
        reasons.append(reason)
    kept = {k: v for k, v in done.metrics.items() if k in KEPT_METRICS or k == metric}
    said = {"cached_share": done.cached_share, REPETITIVE: done.repetitive, CACHE_FLUSHED: _flushed(done)}
    kept |= {name: share for name, share in said.items() if share is not None}
    valid = done.valid and not reasons
    return Run(cell.arm, cell.pair, value, valid, "; ".join(reasons), kept, done.result_file)


def _flushed(done: BenchRun) -> float | None:
    return None if done.cache == "unknown" else float(done.cache == "flushed")


def mean_of(experiment: Experiment, arm: str) -> tuple[float, int] | None:
    """(geometric mean, number of launches) of one arm; None when nothing valid was measured."""
    values = list(experiment.values(arm).values())
    return (geometric_mean(values), len(values)) if values else None
