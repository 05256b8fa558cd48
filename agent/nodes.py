"""The nodes of the state machine. Each does one thing, notes what came of it, and names the node that follows.

The state that is checkpointed holds identifiers and small scalars only. What a node needs besides, it takes from the
journal; plan, findings and decision of the present round are kept on the `Round`, which lives as long as the process.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TypedDict

from optagent.agent import experimenting as work
from optagent.agent.bundling import bundles_of
from optagent.agent.candidates import candidates
from optagent.agent.canonical import mark
from optagent.agent.cells import Cell, cell_of
from optagent.agent.dead_ends import no_value_works
from optagent.agent.decide import Decision, Verb, decide
from optagent.agent.errors import BadInput
from optagent.agent.experiments import BASELINE, SURVEY, Experiment, Failure
from optagent.agent.full_load import death, stand
from optagent.agent.gating import gate
from optagent.agent.hand_off import write_handoff
from optagent.agent.ids import next_id
from optagent.agent.jsonable import to_body
from optagent.agent.load import load_of
from optagent.agent.measuring import measure
from optagent.agent.orient import Orientation, orient
from optagent.agent.outcomes import Evidence, blocks_of, outcomes_of
from optagent.agent.plan.model import Plan, Status
from optagent.agent.plan_sync import set_status
from optagent.agent.preparing import prepare
from optagent.agent.reconciling import Reconciled, known_good_state, probe, reconcile
from optagent.agent.records import Question, Split
from optagent.agent.session import Session
from optagent.agent.settling import settle
from optagent.agent.situation import (
    Limits,
    Situation,
    answered_with,
    baseline_check,
    is_confirmed,
    output_drift,
    repeated_failures,
)
from optagent.agent.spending import costs_of
from optagent.agent.splitting import kept_together
from optagent.agent.standing import Standing
from optagent.agent.verdict import Judgement, Verdict
from optagent.agent.workloads import called, same, telling
from optagent.tools.journal_store import Draft


class State(TypedDict, total=False):
    """What a checkpoint holds. `steps` counts the steps of this sitting, `ended` says why the sitting ends."""

    steps: int
    experiment: str
    arm: str
    pair: int
    attempt: int
    pid: int
    start_time: float
    url: str
    following: str
    ended: str


@dataclass
class Round:
    """What the nodes of one process share: the session, and plan, findings and decision of the present round."""

    session: Session
    orientation: Orientation | None = None
    reconciled: Reconciled | None = None
    decision: Decision | None = None
    judged: Judgement | None = None
    told: set[str] = field(default_factory=set)

    @property
    def plan(self) -> Plan:
        assert self.orientation is not None
        return self.orientation.plan

    @property
    def facts(self) -> dict[str, str]:
        return self.reconciled.facts if self.reconciled else {}


def orient_node(state: State, round_: Round) -> State:
    round_.orientation = orient(round_.session)
    if not round_.told:
        _tell_orientation(round_)
    return {"following": "reconcile"}


def _tell_orientation(round_: Round) -> None:
    session, orientation = round_.session, round_.orientation
    assert orientation is not None
    items = orientation.plan.items
    left = [
        i
        for i in items
        if session.ledger.item_status.get(i.id, i.status) in (Status.OPEN, Status.TRYING, Status.PARKED)
    ]
    ranked = [i for i in items if i.rank is not None]
    session.narrator.tell(
        "step", f"plan {session.config.plan}: {len(ranked)} ranked items, {len(left)} still to settle"
    )
    for item in left[:9]:
        session.narrator.tell("plain", f"{item.rank if item.rank is not None else '-'}. {item.title} ({item.id})")
    handoff = orientation.handoff
    if handoff is None:
        session.narrator.tell("step", "no handoff yet: the configuration of optagent.toml is where it starts from")
    else:
        kind = "" if handoff.structured else ", free-form: nothing in it counts as verified"
        session.narrator.tell(
            "step", f"handoff {orientation.handoff_path} ({handoff.written}{kind}): {len(handoff.claims)} claims, "
            f"{len(handoff.dead_ends)} dead ends, {len(handoff.in_flight)} in flight",
        )  # fmt: skip
        baseline = handoff.baseline
        if baseline is not None and baseline.measurement is not None:
            m = baseline.measurement
            session.narrator.tell("plain", f"it says: baseline {m.metric} {m.value:.4g}; to be verified")
    round_.told.add("orientation")


def reconcile_node(state: State, round_: Round) -> State:
    assert round_.orientation is not None
    round_.session.narrator.now("looking at processes, port, GPUs, checkout and environment files")
    round_.reconciled = reconcile(round_.session, round_.orientation, check="claims" not in round_.told)
    round_.told.add("claims")
    round_.orientation = replace(round_.orientation, plan=orient(round_.session).plan)
    return {"following": "decide"}


def situation_of(round_: Round) -> Situation:
    """The situation as plan, ledger and findings give it."""
    session, ledger = round_.session, round_.session.ledger
    config = session.config
    assert round_.orientation is not None
    assert round_.reconciled is not None
    baseline = known_good_state(session, round_.orientation)
    first = ledger.first_baseline or (round_.orientation.handoff.first_baseline if round_.orientation.handoff else None)
    tolerance = config.measuring.baseline_tolerance
    surveying, current = work.surveys(session), ledger.current()
    current = current if current is not None and same(current.under, ledger.under) else None
    return Situation(
        plan=round_.plan, baseline=baseline, first_baseline=first, principles=config.principles,
        status=dict(ledger.item_status), written=dict(ledger.plan_written), results=dict(ledger.item_result),
        dead_ends=tuple(ledger.dead_ends.values()), questions=tuple(q for q in ledger.questions.values() if not q.withdrawn),
        approvals=frozenset(config.approvals) | answered_with(ledger, "needs-approval", "approve"),
        exceptions=answered_with(ledger, "principle-conflict", "allow"),
        lifted=frozenset(ledger.lifted), repeated=repeated_failures(ledger),
        facts=round_.facts, findings=round_.reconciled.findings, limits=_limits(session),
        check=baseline_check(ledger, baseline, tolerance),
        elsewhere=_elsewhere(session),
        noise=ledger.noise_in(baseline.configuration.environment, config.measuring.runs),
        noise_df_wanted=config.measuring.calibration_launches - 1,
        min_effect=config.objective.min_effect,
        max_pairs=config.measuring.max_pairs, tolerance=tolerance, under_way=current,
        confirmed=is_confirmed(ledger, baseline, first), drifted=output_drift(ledger, baseline),
        searches={
            item: telling((ledger.experiments[name] for name in names), ledger.under)
            for item, names in ledger.trials.items()
        },
        direction=config.objective.direction, seed=config.measuring.seed,
        load=load_of(ledger, config.workload, config.objective.metric, baseline.configuration) if surveying else None,
        surveying=surveying, experiments=tuple(telling(ledger.experiments.values(), ledger.under)),
        removals=ledger.removals, tried=frozenset(ledger.tried),
        bundles=(
            *bundles_of([ledger.experiments[name] for name in ledger.bundles]),
            *kept_together(ledger.splits, ledger.experiments),
        ),
        splits=dict(ledger.splits), ranks=dict(ledger.ranks), evidence=_evidence(round_),
    )  # fmt: skip


def _elsewhere(session: Session) -> str:
    """What the baseline's record is of, where that is not what is measured now; "" otherwise."""
    ledger = session.ledger
    measured = ledger.baseline.measurement if ledger.baseline is not None else None
    if measured is None or measured.under is None or same(measured.under, ledger.under):
        return ""
    return called(measured.under, ledger.workloads)


def _evidence(round_: Round) -> Evidence:
    """What moves items in the plan's order. The seconds of a simulated deployment are not those that a plan speaks of."""
    session, ledger = round_.session, round_.session.ledger
    config, ends = session.config, ledger.dead_ends.values()
    items = candidates(round_.plan, ends, ledger.splits, ledger.item_status, ledger.plan_written)
    real = config.deployment.kind != "simulator"
    return Evidence(
        outcomes=outcomes_of(reversed(telling(ledger.experiments.values(), ledger.under)), items),
        blocks=blocks_of(ends, round_.facts),
        costs=costs_of(ledger.launch_s, ledger.run_s) if real else None,
        runs=config.measuring.runs,
        min_effect=config.objective.min_effect,
        max_pairs=config.measuring.max_pairs,
    )


def _limits(session: Session) -> Limits:
    hours = session.config.budget.hours
    if hours is None or not session.ledger.started_at:
        return Limits(hours)
    spent = _when(session.time()) - _when(session.ledger.started_at)
    return Limits(hours, hours - spent.total_seconds() / 3600)


def _when(text: str) -> datetime:
    """The time that ISO 8601 text tells; without a zone it is UTC. Raises BadInput when it tells none."""
    try:
        told = datetime.fromisoformat(text)
    except ValueError:
        raise BadInput("clock or journal", f"expected a time in ISO 8601, found {text[:40]!r}") from None
    return told if told.tzinfo else told.replace(tzinfo=UTC)


def decide_node(state: State, round_: Round) -> State:
    session = round_.session
    _remember_ranks(round_)
    decision = decide(situation_of(round_))
    round_.decision = decision
    for split in decision.splits:
        _take_apart(session, split)
    for line in decision.moved:
        if line not in round_.told:
            round_.told.add(line)
            session.narrator.tell("note", line)
    for question in decision.questions:
        _ask(session, question)
    for question_id in decision.moot:
        session.note("withdrawn", {"id": question_id, "because": "its reason is gone"}, question_id)
    for dead_end, because in decision.reopened:
        if dead_end in session.ledger.reopened:
            continue
        session.note("reopened", {"dead_end": dead_end, "because": because})
    session.note("decision", {"verb": decision.verb, "reason": decision.reason, "because": decision.because})
    if decision.verb is Verb.CONTINUE and decision.step is not None:
        limit = session.step_limit
        if limit is not None and state.get("steps", 0) >= limit:
            return {"following": "hand_off", "ended": f"the budget of {limit} step{'s' if limit > 1 else ''} is used"}
        session.narrator.tell("step", f"step {state.get('steps', 0) + 1}: {decision.step.title}")
        session.narrator.tell("why", decision.because)
        return {"following": "prepare", "steps": state.get("steps", 0) + 1}
    session.narrator.tell("why", decision.because)
    ended = f"{'asked' if decision.verb is Verb.ASK else 'finished'}: {decision.because}"
    return {"following": "hand_off", "ended": ended}


def _remember_ranks(round_: Round) -> None:
    """The plan's ranks as they are first read: what differs from them later is the owner's edit."""
    plan = round_.plan
    if plan.items and not round_.session.ledger.ranks and not any(p.fatal for p in plan.problems):
        round_.session.note("ranks", {"ranks": {i.id: i.rank for i in plan.items}})


def _take_apart(session: Session, split: Split) -> None:
    """Record that an item is tried without the part that is known to fail, and show it in the plan."""
    parts = ", ".join(p.id for p in split.parts)
    noted = Draft("split", to_body(split), f"{split.item}:{mark(split.change)}")
    set_status(session, split.item, Status.DEAD, f"{split.because}; split into {parts}", because=noted)
    session.narrator.tell("note", f"{split.item}: {split.because}; the rest is tried without it ({parts})")


def _ask(session: Session, question: Question) -> None:
    asked = replace(question, id=next_id("Q", len(session.ledger.questions)))
    noted = Draft("question", to_body(asked), asked.id)
    if question.item is not None and question.reason != "plan-ambiguous":
        set_status(session, question.item, Status.PARKED, f"waits for the answer to {asked.id}", because=noted)
    else:
        session.journal.append_all([noted])
    goes_on = " - parked, the rest goes on" if question.item is not None else ""
    session.narrator.tell("ask", f"{asked.id} ({asked.reason}): {asked.text}{goes_on}")


def prepare_node(state: State, round_: Round) -> State:
    session = round_.session
    assert round_.decision is not None
    assert round_.decision.step is not None
    experiment = work.begin(session, round_.decision.step)
    round_.judged = round_.decision.step.judged
    if round_.judged is not None:
        return {"following": "settle", "experiment": experiment.id}
    if experiment.latest:
        return {"following": "judge" if experiment.latest == "run" else "diagnose", "experiment": experiment.id}
    failure = prepare(session, experiment, round_.facts)
    if failure is not None:
        return _failed(session, experiment, failure)
    return _next_cell(session, session.ledger.experiments[experiment.id])


def _failed(session: Session, experiment: Experiment, failure: Failure) -> State:
    session.note("failure", {"experiment": experiment.id, "failure": failure})
    return {"following": "diagnose", "experiment": experiment.id}


def _next_cell(session: Session, experiment: Experiment) -> State:
    cell = work.plan_cell(session, experiment)
    if cell is None:
        return {"following": "judge", "experiment": experiment.id}
    return _launching(cell)


def _launching(cell: Cell) -> State:
    return {
        "following": "launch",
        "experiment": cell.experiment,
        "arm": cell.arm,
        "pair": cell.pair,
        "attempt": cell.attempt,
    }


def _present(state: State, round_: Round) -> tuple[Experiment, Cell]:
    experiment = round_.session.ledger.experiments[state["experiment"]]
    return experiment, Cell(experiment.id, state["arm"], state["pair"], state.get("attempt", 0))


def launch_node(state: State, round_: Round) -> State:
    session = round_.session
    experiment, cell = _present(state, round_)
    if work.measured_before(session, experiment, cell) and not work.waits_for_gate(session, experiment):
        return {"following": "measure", "pid": 0, "url": ""}
    launched = work.launch(session, experiment, cell)
    if launched.outcome != "ready" or launched.pid is None or launched.start_time is None:
        return _failed(session, experiment, work.failure_of(cell, launched, work.log_of(experiment, cell)))
    return {"following": "gate", "pid": launched.pid, "start_time": launched.start_time, "url": launched.url or ""}


def gate_node(state: State, round_: Round) -> State:
    session = round_.session
    experiment, cell = _present(state, round_)
    if experiment.kind == SURVEY:
        return _look(state, round_)
    failure = gate(session, experiment, cell, state["url"]) or stand(session, experiment, cell, state["url"])
    if failure is None:
        return {"following": "measure"}
    work.let_go(session, state["pid"], state["start_time"], cell.name)
    return _failed(session, experiment, failure)


def measure_node(state: State, round_: Round) -> State:
    session = round_.session
    experiment, cell = _present(state, round_)
    runs = measure(session, experiment, cell, state["url"])
    failure = death(session, experiment, cell, runs) if state["url"] else None
    if state["pid"]:
        work.let_go(session, state["pid"], state["start_time"], cell.name)
    return {"following": "judge"} if failure is None else _failed(session, experiment, failure)


def _look(state: State, round_: Round) -> State:
    """A launch of a survey: measured first, and gated where it stands out. After a crash only what is missing is done."""
    session, url = round_.session, state["url"]
    experiment, cell = _present(state, round_)
    runs = [] if experiment.values("candidate") else measure(session, experiment, cell, url)
    failure = death(session, experiment, cell, runs)
    if failure is None and work.waits_for_gate(session, session.ledger.experiments[experiment.id]):
        failure = gate(session, experiment, cell, url) or stand(session, experiment, cell, url)
    work.let_go(session, state["pid"], state["start_time"], cell.name)
    return {"following": "judge"} if failure is None else _failed(session, experiment, failure)


def judge_node(state: State, round_: Round) -> State:
    session = round_.session
    experiment = session.ledger.experiments[state["experiment"]]
    round_.judged = work.judge(session, experiment)
    if round_.judged.verdict is Verdict.MORE:
        return _next_cell(session, experiment)
    if work.waits_for_gate(session, experiment):
        return _launching(cell_of(experiment, "candidate", 1))
    return {"following": "settle"}


def diagnose_node(state: State, round_: Round) -> State:
    """What a failure means: another try where it may pass by itself, otherwise the end of the experiment."""
    session = round_.session
    experiment = session.ledger.experiments[state["experiment"]]
    failure = experiment.failures[-1]
    session.narrator.tell("bad", f"{experiment.id} {failure.arm}: {failure.summary}")
    for line in failure.evidence[:3]:
        session.narrator.tell("plain", line)
    may_retry = failure.arm == "baseline" or failure.kind == "port-in-use"
    if may_retry and len(experiment.failures) < work.TRIES:
        session.narrator.tell("why", "this need not come from the change: once more")
        return _next_cell(session, experiment)
    verdict = (
        Verdict.INVALID
        if failure.stage == "gate" or (failure.arm == "baseline" and experiment.kind != BASELINE)
        else Verdict.FAILED
    )
    earlier = [
        (e.change, f.kind) for e in session.ledger.experiments.values() if e.id != experiment.id for f in e.failures
    ]
    exhausted = no_value_works(experiment.change, failure.kind, earlier)
    round_.judged = Judgement(verdict, failure.summary + (f"; {exhausted}" if exhausted else ""))
    return {"following": "settle"}


def settle_node(state: State, round_: Round) -> State:
    session = round_.session
    assert round_.judged is not None
    settle(session, round_.plan, session.ledger.experiments[state["experiment"]], round_.judged, round_.facts)
    return {"following": "orient", "experiment": ""}


def hand_off_node(state: State, round_: Round) -> State:
    session, decision = round_.session, round_.decision
    asks = decision is not None and decision.verb is Verb.ASK
    following = "ask" if asks else "end"
    hand_over(session, decision.standings if decision else (), state.get("ended", ""))
    return {"following": following}


def hand_over(session: Session, standings: Sequence[Standing], ended: str) -> bool:
    """Write a handoff, unless the last one tells everything there is. Returns whether it was written."""
    if session.ledger.fact_seq <= session.ledger.handoff_seq and session.ledger.handoffs:
        return False
    session.narrator.now("writing the handoff")
    path = write_handoff(session, probe(session), standings, ended)
    session.narrator.tell("good", f"handoff written: {path}")
    return True
