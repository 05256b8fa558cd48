"""One experiment through the funnel: prepare, launch, gate, measure, judge, settle. Each function is a node's work.

They are called again after a crash, so each looks first at what the journal already has.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import PurePosixPath

from optagent.agent.cells import Cell, next_cell
from optagent.agent.change import Change, apply_change
from optagent.agent.dead_ends import cause_text, log_evidence
from optagent.agent.decide import Step, StepKind
from optagent.agent.gates import PROMPTS, judge_samples
from optagent.agent.judging import judgement
from optagent.agent.ledger import BASELINE, CONFIRM, ITEM, Experiment, Failure, Run
from optagent.agent.plan.model import Status
from optagent.agent.plan_sync import set_status
from optagent.agent.reconcile import sha256
from optagent.agent.reconciling import install, stop_server
from optagent.agent.session import Session, next_id
from optagent.agent.situation import noise_for
from optagent.agent.verdict import Judgement, geometric_mean
from optagent.tools.calls.bench import Bench, BenchRun, Sample
from optagent.tools.calls.configuration import Configuration
from optagent.tools.calls.files import ReadText
from optagent.tools.calls.patch import ApplyPatch, RestoreCheckout
from optagent.tools.calls.server import EnvironmentRequest, Launch, Launched, ListFlags

TRIES = 2
"""How often a launch is tried when its failure may pass by itself."""


def begin(session: Session, step: Step) -> Experiment:
    """The experiment of this step: the one that is under way, or a new one."""
    ledger = session.ledger
    under_way = ledger.current()
    if under_way is not None and step.kind is StepKind.RESUME:
        return under_way
    if under_way is not None:
        _abandon(session, under_way)
    baseline = session.baseline()
    item = step.item
    body: dict[str, object] = {
        "id": next_id("E", len(ledger.experiments)), "title": step.title, "base": baseline.configuration,
        "kind": {StepKind.BASELINE: BASELINE, StepKind.ITEM: ITEM, StepKind.CONFIRM: CONFIRM}[step.kind],
    }  # fmt: skip
    if step.kind is StepKind.BASELINE:
        body["goal"] = _launches_wanted(session)
    elif step.kind is StepKind.CONFIRM:
        assert ledger.first_baseline is not None
        body |= {"base": ledger.first_baseline.configuration, "candidate": baseline.configuration}
    elif item is not None:
        body |= {"item": item.id, "change": item.change or Change()}
    session.note("experiment", body, str(body["id"]))
    if item is not None:
        set_status(session, item.id, Status.TRYING)
    return session.ledger.experiments[str(body["id"])]


def _launches_wanted(session: Session) -> int:
    """Enough launches that the noise of this environment is known, and at least those that check the baseline."""
    measuring, environment = session.config.measuring, session.baseline().configuration.environment
    known = sum(n.df for n in session.ledger.noise_in(environment))
    return max(measuring.sentinel_launches, measuring.calibration_launches - known)


def _abandon(session: Session, experiment: Experiment) -> None:
    """Close an experiment that is not wanted any more (its item was dropped, or its plan changed)."""
    because = "given up: it is not the next step any more"
    session.note("verdict", {"experiment": experiment.id, "verdict": "inconclusive", "because": because}, experiment.id)


def prepare(session: Session, experiment: Experiment) -> Failure | None:
    """Turn the change into a configuration that can be launched; a failure means that no launch is needed to know."""
    if experiment.kind == BASELINE or experiment.candidate is not None:
        return None
    change = experiment.change
    candidate = apply_change(experiment.base, change)
    if change.environment and (failure := _environment(session, experiment, change.environment)):
        return failure
    if failure := _unknown_flags(session, candidate, change):
        return failure
    if change.patch:
        patched = _patch(session, experiment, change.patch)
        if isinstance(patched, Failure):
            return patched
        candidate = replace(candidate, revision=patched)
    session.note("candidate", {"experiment": experiment.id, "configuration": candidate}, experiment.id)
    return None


def _environment(session: Session, experiment: Experiment, name: str) -> Failure | None:
    session.narrator.now(f"building environment {name} beside the present one")
    ready = session.toolbox.prepare_environment(
        EnvironmentRequest(key=f"{experiment.id}:environment:{name}", name=name)
    )
    if not ready.ready:
        return Failure("candidate", "prepare", "environment", ready.problem or f"environment {name} could not be built")
    versions = ", ".join(f"{k} {v}" for k, v in sorted(ready.versions.items()))
    session.narrator.tell(
        "plain", f"environment {name} is there, beside the present one" + (f": {versions}" if versions else "")
    )
    return None


def _unknown_flags(session: Session, candidate: Configuration, change: Change) -> Failure | None:
    if not change.flags:
        return None
    listed = session.toolbox.list_flags(ListFlags(environment=candidate.environment))
    if listed.flags is None:
        session.narrator.tell("note", f"flags could not be checked before the launch: {listed.problem}")
        return None
    unknown = [name for name, value in change.flags.items() if value is not None and name not in listed.flags]
    if not unknown:
        return None
    names = ", ".join(f"--{n}" for n in unknown)
    return Failure("candidate", "lint", "config-error", f"the installed server does not know {names}")


def _patch(session: Session, experiment: Experiment, name: str) -> str | Failure:
    path = str(PurePosixPath(session.config.plan).parent / name)
    read = session.toolbox.read_text(ReadText(path=path))
    if read.text is None:
        return Failure("candidate", "prepare", "patch", f"{path} cannot be read: {read.problem or 'it is not there'}")
    mark = sha256(session.ledger.founded + read.text)[:8]
    applied = session.toolbox.apply_patch(ApplyPatch(
        key=f"{experiment.id}:patch:{mark}", experiment=experiment.id, base=experiment.base.revision, diff=read.text,
        message=f"{experiment.id}: {experiment.title}",
    ))  # fmt: skip
    if applied.revision is None:
        return Failure("candidate", "prepare", "patch", f"{path} does not apply: {applied.problem}")
    session.narrator.tell("plain", f"patched {', '.join(applied.files)} on branch {applied.branch}")
    return applied.revision


def plan_cell(session: Session, experiment: Experiment) -> Cell | None:
    return next_cell(experiment, session.config.measuring.seed)


def configuration_of(experiment: Experiment, arm: str) -> Configuration:
    candidate = experiment.candidate
    return experiment.base if arm == "baseline" or candidate is None else candidate


def measured_before(session: Session, experiment: Experiment, cell: Cell) -> bool:
    """Whether the cell's benchmark had finished before a crash: its result stands in the journal, only the run is missing."""
    return session.journal.find("result", bench_key(session, experiment, cell)) is not None


def bench_key(session: Session, experiment: Experiment, cell: Cell) -> str:
    return f"{cell.name}:bench:{run_mark(session, experiment, cell)}"


def run_mark(session: Session, experiment: Experiment, cell: Cell) -> str:
    """What makes a run this run: when its journal was begun, and the configuration. Names such as E0003 begin anew with
    another journal; a result of an earlier one must never pass for it."""
    configuration = configuration_of(experiment, cell.arm).fingerprint()
    return sha256(f"{session.ledger.founded}:{configuration}")[:8]


def launch(session: Session, experiment: Experiment, cell: Cell) -> Launched:
    """Arrange checkout and environment files for the cell's configuration, and launch it."""
    configuration = configuration_of(experiment, cell.arm)
    arrange(session, configuration, f"{session.ledger.sitting}:{cell.name}:{len(experiment.failures)}")
    session.narrator.now(f"launching {cell.arm} ({_progress(experiment, cell)})")
    launched = session.toolbox.launch(Launch(
        key=f"{session.ledger.sitting}:{cell.name}:launch:{len(experiment.failures)}", launch=cell.name,
        configuration=configuration, log=log_of(experiment, cell),
    ))  # fmt: skip
    if launched.outcome == "ready" and launched.pid is not None and launched.start_time is not None:
        body = {"launch": cell.name, "pid": launched.pid, "start_time": launched.start_time}
        session.note("launched", body, f"{launched.pid}:{launched.start_time}")
    return launched


def log_of(experiment: Experiment, cell: Cell) -> str:
    """Where the cell's launch writes: a file of its own for each try, so that evidence keeps pointing at its lines."""
    tries = len(experiment.failures)
    return f".optagent/logs/{cell.name}{f'-try{tries + 1}' if tries else ''}.log"


def arrange(session: Session, configuration: Configuration, key: str) -> None:
    """Make checkout and environment files what the configuration says."""
    if configuration.revision:
        back = session.toolbox.restore_checkout(RestoreCheckout(
            key=f"{key}:checkout", revision=configuration.revision, reason="launch",
        ))  # fmt: skip
        if back.saved_branch:
            session.narrator.tell(
                "note", f"somebody edited the checkout meanwhile; that work is on branch {back.saved_branch}"
            )
    install(session, configuration, f"{key}:files")


def _progress(experiment: Experiment, cell: Cell) -> str:
    if experiment.kind == BASELINE:
        return f"{cell.pair} of {experiment.goal}"
    return "screen" if cell.pair == 1 and cell.arm == "candidate" else f"pair {cell.pair}"


def failure_of(cell: Cell, launched: Launched, log: str) -> Failure:
    """What went wrong with a launch, as the log tells it."""
    reading = launched.reading
    if launched.outcome == "port-taken":
        return Failure(cell.arm, "launch", "port-in-use", launched.problem or "the deployment's port is taken")
    if reading is None or not reading.exists:
        return Failure(
            cell.arm, "launch", "unknown", launched.problem or f"the launch ended {launched.outcome}, without a log"
        )
    kind = reading.cause.kind if reading.cause else ("hang" if launched.outcome == "hung" else "unknown")
    return Failure(cell.arm, "launch", kind, cause_text(reading), log_evidence(log, reading))


def gate(session: Session, experiment: Experiment, cell: Cell, url: str) -> Failure | None:
    """Check the output, once for each arm of an experiment: a launch that answers wrongly is never measured."""
    if cell.arm in experiment.gated:
        return None
    settings = session.config.gate
    configuration = configuration_of(experiment, cell.arm)
    session.narrator.now(f"gate: {len(PROMPTS)} prompts, alone and {settings.concurrency} at a time")
    accept_length = None
    for concurrency in dict.fromkeys((1, settings.concurrency)):
        sampled = session.toolbox.sample(Sample(
            key=f"{session.ledger.sitting}:{cell.name}:gate:{concurrency}", url=url, prompts=list(PROMPTS),
            max_tokens=settings.max_tokens, concurrency=concurrency,
        ))  # fmt: skip
        reference = session.ledger.accept_length.get(experiment.base.fingerprint()) if _same_draft(experiment) else None
        result = judge_samples(sampled, max_tokens=settings.max_tokens, reference_accept_length=reference)
        if not result.passed:
            return Failure(cell.arm, "gate", "wrong-output", "; ".join(result.problems))
        accept_length = result.accept_length if concurrency == 1 else accept_length
    body = {"experiment": experiment.id, "arm": cell.arm, "accept_length": accept_length}
    session.note("gate", body, f"{experiment.id}:{cell.arm}")
    if accept_length is not None and configuration is experiment.candidate:
        session.narrator.tell("plain", f"gate passed; accept length {accept_length:.2f}")
    return None


def _same_draft(experiment: Experiment) -> bool:
    """Whether both arms speculate alike, so that their accept lengths can be compared."""
    if experiment.candidate is None:
        return True
    keys = [k for k in {**experiment.base.flags, **experiment.candidate.flags} if k.startswith("speculative-")]
    return all(experiment.base.flags.get(k) == experiment.candidate.flags.get(k) for k in keys if "attention" not in k)


def measure(session: Session, experiment: Experiment, cell: Cell, url: str) -> Run:
    """One benchmark run, recorded as a run of the experiment."""
    objective, workload = session.config.objective, session.config.workload
    session.narrator.now(f"benchmark {workload.name}, {cell.arm} ({_progress(experiment, cell)})")
    done = session.toolbox.bench(Bench(
        key=bench_key(session, experiment, cell), run=cell.name, url=url, workload=workload, seed=workload.seed + cell.pair,
        result_file=f".optagent/runs/{cell.name}-{run_mark(session, experiment, cell)}.jsonl",
    ))  # fmt: skip
    run = run_of(cell, done, objective.metric)
    session.note("run", {"experiment": experiment.id, "run": run}, cell.name)
    value = f"{run.value:.4g}" if run.value is not None else "no value"
    state = "" if run.valid else f" - invalid: {run.because}"
    marker = " (simulated)" if done.simulated else ""
    session.narrator.tell("plain", f"{cell.name}: {objective.metric} {value}{marker}{state}")
    return run


KEPT_METRICS = (
    "output_throughput", "total_throughput", "request_throughput", "median_ttft_ms", "p99_ttft_ms", "median_tpot_ms",
    "p99_tpot_ms", "mean_e2e_latency_ms", "accept_length", "completed", "duration",
)  # fmt: skip
"""What of a run is copied into the journal; every key stays in the result file."""


def run_of(cell: Cell, done: BenchRun, metric: str) -> Run:
    """The run as the experiment counts it. A value that is missing or not above zero makes it invalid, never 0."""
    value = done.metrics.get(metric)
    because = "; ".join(done.invalid_because)
    valid = done.valid
    if valid and (value is None or value <= 0):
        valid, because = False, f"the result has no {metric}"
    kept = {k: v for k, v in done.metrics.items() if k in KEPT_METRICS or k == metric}
    return Run(cell.arm, cell.pair, value, valid, because, kept, done.result_file)


def judge(session: Session, experiment: Experiment) -> Judgement:
    """The verdict so far, by the rule alone."""
    config = session.config
    return judgement(
        experiment, baseline=session.baseline(), pool=session.ledger.values_of(experiment.base),
        noise=noise_for(session.ledger, experiment.base.environment), direction=config.objective.direction,
        min_effect=config.objective.min_effect, max_pairs=config.measuring.max_pairs,
        tolerance=config.measuring.baseline_tolerance, guards=config.measuring.guards,
    )  # fmt: skip


def mean_of(experiment: Experiment, arm: str) -> tuple[float, int] | None:
    """(geometric mean, number of launches) of one arm; None when nothing valid was measured."""
    values = list(experiment.values(arm).values())
    return (geometric_mean(values), len(values)) if values else None


def let_go(session: Session, pid: int, start_time: float, name: str) -> None:
    """Stop the cell's server: an idle server is not left running."""
    session.narrator.now("stopping the server")
    stop_server(session, pid, start_time, name)
