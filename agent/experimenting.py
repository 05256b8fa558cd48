"""One experiment through the funnel: prepare, launch, gate, measure, judge, settle. Each function is a node's work.

They are called again after a crash, so each looks first at what the journal already has.
"""

from __future__ import annotations

from optagent.agent.cells import Cell, Wanted, next_cell
from optagent.agent.change import Change
from optagent.agent.dead_ends import cause_text, log_evidence
from optagent.agent.errors import OptagentError
from optagent.agent.experiments import (
    BASELINE,
    BUNDLE,
    CONFIRM,
    ITEM,
    SURVEY,
    TRIAL,
    Experiment,
    Failure,
    Launches,
)
from optagent.agent.ids import next_id, number_of
from optagent.agent.jsonable import to_body
from optagent.agent.judging import Rules, ahead_of_all, judgement, series_for
from optagent.agent.noise import Noise
from optagent.agent.plan.model import Status
from optagent.agent.plan_sync import set_status
from optagent.agent.reconcile import sha256
from optagent.agent.reconciling import install, stop_server
from optagent.agent.session import Session
from optagent.agent.spending import baseline_launches, costs_of, forecast, runs_wanted
from optagent.agent.steps import Step, StepKind
from optagent.agent.verdict import Judgement
from optagent.tools.calls.configuration import Configuration
from optagent.tools.calls.patch import RestoreCheckout
from optagent.tools.calls.server import Launch, Launched
from optagent.tools.journal_store import Draft

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
        "kind": KIND_OF[step.kind], "repeats": _runs_wanted(session),
    }  # fmt: skip
    if step.kind is StepKind.BASELINE:
        body["goal"] = _launches_wanted(session)
    elif step.kind is StepKind.CONFIRM:
        assert ledger.first_baseline is not None
        body |= {"base": ledger.first_baseline.configuration, "candidate": baseline.configuration}
    else:
        body |= {
            "change": step.change or (item.change if item else None) or Change(),
            "pooled": session.config.measuring.pool,
        }
        body |= {"item": item.id} if item is not None else {"items": list(step.items), "among": list(step.among)}
        body |= {"root": step.root} if step.root is not None else {}
        body |= {"outlook": step.outlook} if step.outlook is not None else {}
        body |= {"goal": 1} if step.kind in LOOKS else {}
        body |= {"repeats": 1} if step.kind is StepKind.SURVEY else {}
        body |= {"removal": True, "candidate": step.without} if step.without is not None else {}
    body |= {"under": ledger.under} if ledger.under is not None else {}
    begun_now = Draft("experiment", to_body(body), str(body["id"]))
    if item is not None:
        set_status(session, item.id, Status.TRYING, because=begun_now)
    else:
        session.journal.append_all([begun_now])
    begun = session.ledger.experiments[str(body["id"])]
    if step.judged is None:
        _tell_costs(session, begun)
    return begun


KIND_OF = {
    StepKind.BASELINE: BASELINE, StepKind.ITEM: ITEM, StepKind.CONFIRM: CONFIRM, StepKind.TRIAL: TRIAL,
    StepKind.SURVEY: SURVEY, StepKind.BUNDLE: BUNDLE,
}  # fmt: skip
LOOKS = frozenset({StepKind.TRIAL, StepKind.SURVEY})
"""Steps of one launch, after which nothing is decided about any item."""


def _runs_wanted(session: Session) -> int:
    """Runs a launch: the number that makes verdicts cheapest, as far as noise and costs are known."""
    config, ledger = session.config, session.ledger
    spread = ledger.spread_in(session.baseline().configuration.environment)
    costs = costs_of(ledger.launch_s, ledger.run_s)
    return runs_wanted(spread, costs, config.objective.min_effect, config.measuring.runs)


def _tell_costs(session: Session, experiment: Experiment) -> None:
    """How many launches the verdict is expected to take, said before the first of them."""
    if experiment.kind in (BASELINE, TRIAL, SURVEY, CONFIRM):
        return
    ledger = session.ledger
    spread = ledger.spread_in(experiment.base.environment)
    pool = len(ledger.launches_of(experiment.base)) if experiment.pooled else None
    costs = costs_of(ledger.launch_s, ledger.run_s)
    told = forecast(spread, costs, session.config.objective.min_effect, experiment.repeats, pool)
    session.narrator.tell("plain", told.sentence(spread))


def _launches_wanted(session: Session) -> int:
    """Enough launches that the noise of this environment is known, and at least those that check the baseline."""
    measuring, environment = session.config.measuring, session.baseline().configuration.environment
    known = session.ledger.spread_in(environment).launch_df
    here = len(session.ledger.launches_of(session.baseline().configuration))
    return baseline_launches(measuring.calibration_launches, measuring.sentinel_launches, known, here)


def surveys(session: Session) -> bool:
    """Whether a launch costs so much that several items are looked at in one."""
    measuring = session.config.measuring
    costs = costs_of(session.ledger.launch_s, session.ledger.run_s)
    return measuring.pool and costs is not None and costs.launch_s >= measuring.survey_from_s


def one_run_is_enough(session: Session, experiment: Experiment) -> bool:
    """Whether the launch's first run is: of a baseline of which nothing is recorded yet, where a survey comes before the first
    verdict, for which noise is learnt."""
    return experiment.kind == BASELINE and session.baseline().measurement is None and surveys(session)


def _abandon(session: Session, experiment: Experiment) -> None:
    """Close an experiment that is not wanted any more (its item was dropped, or its plan changed)."""
    because = "given up: it is not the next step any more"
    session.note("verdict", {"experiment": experiment.id, "verdict": "inconclusive", "because": because}, experiment.id)


def plan_cell(session: Session, experiment: Experiment) -> Cell | None:
    return next_cell(experiment, session.config.measuring.seed, _wanted(session, experiment))


def _wanted(session: Session, experiment: Experiment) -> Wanted:
    """Which arm would tell more now, and whether the baseline is due to be looked at again."""
    ledger = session.ledger
    base = ledger.launches_of(experiment.base)
    if not experiment.pooled or not experiment.values("candidate"):
        return Wanted()
    since = number_of(experiment.id) - number_of(base.experiments[-1]) if len(base) else 0
    series = series_for(
        experiment, _rules(session), base, _launches(session, experiment), _noise_elsewhere(session, experiment)
    )
    changed = series.prefers_changed(ledger.measured_launches + 1)
    arm = "candidate" if changed != experiment.removal else "baseline"
    due = since > session.config.measuring.sentinel_every or experiment.candidate_waits
    return Wanted(arm if len(base) else "baseline", due)


def _launches(session: Session, experiment: Experiment) -> Launches:
    return session.ledger.launches_of(experiment.candidate) if experiment.candidate else Launches()


def _noise_elsewhere(session: Session, experiment: Experiment) -> Noise | None:
    """The noise of this environment as other launches showed it than those of the experiment's base in this sitting, which
    are judged themselves."""
    ledger = session.ledger
    here = ledger.launches_of(experiment.base).before(experiment.id).spread
    return ledger.spread_in(experiment.base.environment).without_launches(here).noise(experiment.repeats)


def _rules(session: Session) -> Rules:
    config = session.config
    return Rules(
        config.objective.direction, config.objective.min_effect, config.measuring.max_pairs,
        config.measuring.baseline_tolerance, config.measuring.guards, config.measuring.confirm_pairs,
        surveys(session),
    )  # fmt: skip


def configuration_of(experiment: Experiment, arm: str) -> Configuration:
    candidate = experiment.candidate
    return experiment.base if arm == "baseline" or candidate is None else candidate


def measured_before(session: Session, experiment: Experiment, cell: Cell, repeat: int = 0) -> bool:
    """Whether the cell's benchmark had finished before a crash: its result stands in the journal, only the run is missing."""
    return session.journal.find("result", bench_key(session, experiment, cell, repeat)) is not None


def bench_key(session: Session, experiment: Experiment, cell: Cell, repeat: int = 0) -> str:
    again = f":{repeat + 1}" if repeat else ""
    return f"{cell.name}:bench:{run_mark(session, experiment, cell)}{again}"


def run_mark(session: Session, experiment: Experiment, cell: Cell) -> str:
    """What makes a run this run: when its journal was begun, and the configuration. Names such as E0003 begin anew with
    another journal; a result of an earlier one must never pass for it."""
    configuration = configuration_of(experiment, cell.arm).fingerprint()
    return sha256(f"{session.ledger.founded}:{configuration}")[:8]


def launch(session: Session, experiment: Experiment, cell: Cell) -> Launched:
    """Arrange checkout and environment files for the cell's configuration, and launch it."""
    configuration = configuration_of(experiment, cell.arm)
    arrange(session, configuration, f"{session.ledger.sitting}:{cell.name}:{len(experiment.failures)}")
    session.narrator.now(f"launching {cell.arm} ({progress(experiment, cell)})")
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
        if back.problem:
            raise OptagentError(
                f"the source checkout could not be brought to {configuration.revision[:12]}: {back.problem}"
            )
        if back.saved_branch:
            session.narrator.tell(
                "note", f"somebody edited the checkout meanwhile; that work is on branch {back.saved_branch}"
            )
    install(session, configuration, f"{key}:files")


def progress(experiment: Experiment, cell: Cell) -> str:
    if experiment.kind == BASELINE:
        return f"{cell.pair} of {experiment.goal}"
    if experiment.kind == TRIAL:
        return "a point of the search"
    if experiment.kind == SURVEY:
        return "a combination of the survey"
    if cell.pair == 1 and cell.arm == "candidate":
        return "screen"
    return f"launch {cell.pair}" if experiment.pooled else f"pair {cell.pair}"


def failure_of(cell: Cell, launched: Launched, log: str) -> Failure:
    """What went wrong with a launch, as the log tells it."""
    reading = launched.reading
    if launched.outcome == "port-taken":
        return Failure(cell.arm, "launch", "port-in-use", launched.problem or "the deployment's port is taken")
    if launched.outcome == "not-started":
        return Failure(cell.arm, "launch", "environment", launched.problem or "the server could not be started")
    if reading is None or not reading.exists:
        return Failure(
            cell.arm, "launch", "unknown", launched.problem or f"the launch ended {launched.outcome}, without a log"
        )
    kind = reading.cause.kind if reading.cause else ("hang" if launched.outcome == "hung" else "unknown")
    return Failure(cell.arm, "launch", kind, cause_text(reading), log_evidence(log, reading))


def judge(session: Session, experiment: Experiment) -> Judgement:
    """The verdict so far, by the rule alone."""
    ledger = session.ledger
    noise = (
        _noise_elsewhere(session, experiment)
        if experiment.pooled and experiment.kind != SURVEY
        else ledger.noise_in(experiment.base.environment, experiment.repeats)
    )
    return judgement(
        experiment, _rules(session), baseline=session.baseline(), base=ledger.launches_of(experiment.base),
        candidate=_launches(session, experiment), noise=noise,
    )  # fmt: skip


def waits_for_gate(session: Session, experiment: Experiment) -> bool:
    """Whether a survey's launch gave so much more than the baseline that it is kept if its output is right, which was not
    looked at yet."""
    if experiment.kind != SURVEY or experiment.failures or "candidate" in experiment.gated:
        return False
    ledger = session.ledger
    base, noise = ledger.launches_of(experiment.base), ledger.noise_in(experiment.base.environment)
    return ahead_of_all(experiment, _rules(session), base, noise)


def let_go(session: Session, pid: int, start_time: float, name: str) -> None:
    """Stop the cell's server: an idle server is not left running."""
    session.narrator.now("stopping the server")
    stop_server(session, pid, start_time, name)
