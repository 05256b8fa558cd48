"""One sitting from its first look to its end, and a look alone (`--dry-run`)."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from optagent.agent.decide import Decision, Verb, decide
from optagent.agent.errors import INTERRUPTED, BadInput, OptagentError
from optagent.agent.ids import next_id
from optagent.agent.jsonable import to_body
from optagent.agent.nodes import Round, hand_over, situation_of
from optagent.agent.orient import load_plan, orient
from optagent.agent.reconciling import reconcile, stop_server
from optagent.agent.records import Question
from optagent.agent.session import Session
from optagent.agent.situation import Situation
from optagent.agent.total_gain import total_gain
from optagent.agent.workloads import under_of
from optagent.tools.calls.server import Stop
from optagent.tools.calls.world import ProbeWorld
from optagent.tools.errors import MachineExhausted, ReplayDiverged, ReplayStopped, ToolFailure
from optagent.tools.exhausted import stop_if_exhausted
from optagent.tools.recording import RecordingToolbox
from optagent.tools.stop_request import Interrupted

WENT_ON, WAITING = 0, 3
"""Exit statuses of a sitting that ended in order, and of one that waits for an answer."""


@dataclass(frozen=True)
class Ended:
    """How a sitting ended. `questions` are open, `handoff` is the last one written."""

    exit_status: int
    verb: Verb
    reason: str
    because: str
    steps: int
    questions: tuple[Question, ...] = ()
    total_gain: str = ""


def run_sitting(session: Session, checkpoints: Path | None) -> Ended:
    """Run until nothing more can be done without the owner, the steps are used up, or somebody asks to end.

    Servers never outlive it, unless it is killed.
    """
    from optagent.agent.graph import run

    ledger = session.ledger
    earlier = ledger.sittings[-1] if ledger.sittings else None
    sitting = _begin(session)
    round_ = Round(session)
    steps = ledger.steps
    try:
        state = run(round_, checkpoints, sitting, earlier)
        _leave_nothing_running(session)
    except (ReplayDiverged, ReplayStopped):
        raise
    except Interrupted as asked:
        return _break_off(session, round_, asked, steps)
    except BaseException as error:
        _stop_whatever_runs(session)
        if (stop := _as_stop(error, checkpoints)) is None:
            raise
        raise stop from error
    session.note("sitting-ended", {"id": sitting}, sitting)
    return _ended(session, round_, state.get("steps", 0), state.get("ended", ""))


def _as_stop(error: BaseException, checkpoints: Path | None) -> OptagentError | None:
    """What a sitting that has begun ends with where a person can put it right, None for every other error."""
    try:
        if isinstance(error, Exception):
            stop_if_exhausted(error, checkpoints or "")
    except MachineExhausted as exhausted:
        return OptagentError(str(exhausted))
    if isinstance(error, ToolFailure | BadInput):
        return OptagentError(str(error))
    return None


def _ended(session: Session, round_: Round, steps: int, ended: str) -> Ended:
    decision = round_.decision
    assert decision is not None
    asks = decision.verb is Verb.ASK
    if decision.verb is Verb.CONTINUE:
        decision = replace(decision, reason="steps-used", because=ended)
    return Ended(
        WAITING if asks else WENT_ON, decision.verb, decision.reason, decision.because, steps,
        tuple(session.ledger.open_questions()), total_gain(session.ledger),
    )  # fmt: skip


def _break_off(session: Session, round_: Round, asked: Interrupted, steps_before: int) -> Ended:
    """Leave the campaign to whoever comes next: no server, the interruption in the journal, and a handoff. The sitting is not
    recorded as ended, since the next one goes on with it."""
    session.narrator.now("stopping what runs")
    _stop_whatever_runs(session)
    because = f"interrupted by {asked.by} {DURING.get(asked.during, 'between two steps')}"
    body = {"by": asked.by, "during": asked.during, "keys": sorted(session.ledger.pending)}
    session.note("interrupted", body)
    if not hand_over(session, round_.decision.standings if round_.decision else (), because):
        session.narrator.tell("plain", f"handoff {session.ledger.handoffs[-1]} still tells everything there is")
    return Ended(
        INTERRUPTED, Verb.CONTINUE, "interrupted", because, session.ledger.steps - steps_before,
        tuple(session.ledger.open_questions()), total_gain(session.ledger),
    )  # fmt: skip


DURING = {
    "launch": "during a launch", "bench": "during a benchmark", "examine": "during a gate", "evaluate": "during a gate",
    "probe": "while looking around", "read_log": "while reading a log", "list_flags": "while asking for the server's flags",
    "prepare_environment": "while preparing an environment",
}  # fmt: skip


def _stop_whatever_runs(session: Session) -> None:
    """Stop all servers of this sitting on the way out of a failure, whether or not it can still be recorded; also one
    whose launch had just ended and was not recorded yet."""
    with suppress(ToolFailure, OptagentError):
        _leave_nothing_running(session)
        if not session.ledger.pending_launches():
            return
    toolbox = session.toolbox.unrecorded if isinstance(session.toolbox, RecordingToolbox) else session.toolbox
    known = session.ledger.known_processes()
    environment = session.baseline().configuration.environment
    launches = session.ledger.pending_launches()
    for seen in toolbox.probe(ProbeWorld(environment=environment, known=known, launches=launches)).processes:
        if seen.alive:
            toolbox.stop(Stop(key=f"emergency:{seen.pid}", pid=seen.pid, start_time=seen.start_time))


def _leave_nothing_running(session: Session) -> None:
    for number, (pid, start_time) in enumerate(list(session.ledger.processes)):
        stop_server(session, pid, start_time, f"end-{number}")


def look(session: Session, *, begin: bool) -> Decision:
    """What comes next, decided by the same code. The session must be one that cannot act.

    With `begin` it is the first step of the next sitting, which counts its own hours and looks at the baseline anew;
    without, the next step of the sitting that the journal tells of.
    """
    if begin:
        _begin(session)
    return decide(situation_now(session))


def situation_now(session: Session) -> Situation:
    """What `decide` would look at now. The session must be one that cannot act."""
    orientation = orient(session)
    round_ = Round(session, orientation, reconcile(session, orientation))
    round_.orientation = replace(orientation, plan=load_plan(session))
    return situation_of(round_)


def _begin(session: Session) -> str:
    sitting = next_id("S", len(session.ledger.sittings))
    under = under_of(session.config.workload, session.config.objective.metric)
    session.journal.append("sitting", {"id": sitting, "under": to_body(under)}, sitting, at=session.time())
    return sitting
