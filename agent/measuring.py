"""Measuring: one benchmark run of an experiment, and whether it counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from optagent.agent.cells import Cell
from optagent.agent.config import GPU_MEMORY
from optagent.agent.experimenting import bench_key, measured_before, one_run_is_enough, progress, run_mark
from optagent.agent.experiments import Experiment, Run
from optagent.agent.reconciling import probe
from optagent.agent.session import Session
from optagent.agent.validity import REPETITIVE, other_answers, repetitive_shares, too_repetitive
from optagent.agent.verdict import geometric_mean
from optagent.tools.calls.bench import Bench, BenchRun


def measure(session: Session, experiment: Experiment, cell: Cell, url: str) -> list[Run]:
    """The benchmark runs of one launch, each recorded as a run of the experiment.

    After a crash `url` is empty: the launch is gone, and the runs that it finished are taken from the journal. A run that
    does not count ends the launch's runs.
    """
    runs: list[Run] = []
    for repeat in range(max(1, experiment.repeats)):
        if repeat and one_run_is_enough(session, experiment):
            break
        if not url and not measured_before(session, experiment, cell, repeat):
            break
        runs.append(_one_run(session, experiment, cell, url, repeat))
        if not runs[-1].valid:
            break
    return runs


def _one_run(session: Session, experiment: Experiment, cell: Cell, url: str, repeat: int) -> Run:
    objective, workload = session.config.objective, session.config.workload
    name = f"{cell.name}-run{repeat + 1}" if repeat else cell.name
    which = f", run {repeat + 1} of {experiment.repeats}" if experiment.repeats > 1 else ""
    session.narrator.now(f"benchmark {workload.name}, {cell.arm} ({progress(experiment, cell)}{which})")
    seed = workload.seed + cell.pair + SEEDS_APART * repeat
    done = session.toolbox.bench(Bench(
        key=bench_key(session, experiment, cell, repeat), run=name, url=url, workload=workload,
        seed=seed,
        result_file=f".optagent/runs/{name}-{run_mark(session, experiment, cell)}.jsonl",
        discard_first=session.config.measuring.discard_first and not repeat,
    ))  # fmt: skip
    known = repetitive_shares(session.ledger, experiment.base) if cell.arm == "candidate" else None
    run = replace(run_of(cell, done, objective.metric, known), openings=tuple(done.openings), seed=seed)
    if cell.arm == "candidate" and (reason := other_answers(session.ledger, experiment, run)):
        run = replace(run, valid=False, because="; ".join(filter(None, [run.because, reason])))
    if run.valid and GPU_MEMORY in session.config.measuring.guards and (memory := _fullest_gpu(session)):
        run = replace(run, metrics={**run.metrics, GPU_MEMORY: memory})
    session.note("run", {"experiment": experiment.id, "run": run}, name)
    value = f"{run.value:.4g}" if run.value is not None else "no value"
    state = "" if run.valid else f" - invalid: {run.because}"
    marker = " (simulated)" if done.simulated else ""
    session.narrator.tell("plain", f"{name}: {objective.metric} {value}{marker}{state}")
    for warning in done.warnings:
        session.narrator.tell("note", f"{name}: {warning}")
    return run


def _fullest_gpu(session: Session) -> float | None:
    """GiB in use on the fullest GPU, with the server still on it; None where there is no GPU to look at."""
    gpus = probe(session).gpus or []
    return max((gpu.memory_used_gb for gpu in gpus), default=None)


SEEDS_APART = 1000
"""Between the seeds of the runs of one launch; those of pairs are one apart."""

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
    return Run(cell.arm, cell.pair, value, valid, "; ".join(reasons), kept, done.result_file, done.elapsed_s)


def _flushed(done: BenchRun) -> float | None:
    return None if done.cache == "unknown" else float(done.cache == "flushed")


def mean_of(experiment: Experiment, arm: str) -> tuple[float, int] | None:
    """(geometric mean, number of launches) of one arm; None when nothing valid was measured."""
    values = list(experiment.values(arm).values())
    return (geometric_mean(values), len(values)) if values else None
