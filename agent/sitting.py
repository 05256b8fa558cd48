"""One sitting from its first look to its end, and a look alone (`--dry-run`)."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from optagent.agent.decide import Decision, Verb, decide
from optagent.agent.errors import OptagentError
from optagent.agent.ids import next_id
from optagent.agent.jsonable import to_body
from optagent.agent.nodes import Round, situation_of
from optagent.agent.orient import load_plan, orient
from optagent.agent.reconciling import reconcile, stop_server
from optagent.agent.records import Question
from optagent.agent.session import Session
from optagent.agent.situation import Situation
from optagent.agent.total_gain import total_gain
from optagent.agent.workloads import under_of
from optagent.tools.calls.server import Stop
from optagent.tools.calls.world import ProbeWorld
from optagent.tools.errors import JournalUnavailable, ReplayDiverged, ToolFailure
from optagent.tools.processes import LeftRunning
from optagent.tools.recording import RecordingToolbox

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
    """Run until nothing more can be done without the owner, or the steps are used up.

    Servers never outlive it, unless it is killed or LeftRunning is raised in it.
    """
    from optagent.agent.graph import run

    ledger = session.ledger
    earlier = ledger.sittings[-1] if ledger.sittings else None
    sitting = _begin(session)
    round_ = Round(session)
    try:
        state = run(round_, checkpoints, sitting, earlier)
        _leave_nothing_running(session)
    except (ReplayDiverged, LeftRunning):
        raise
    except BaseException as error:
        _stop_whatever_runs(session)
        if isinstance(error, JournalUnavailable):
            raise OptagentError(str(error)) from error
        raise
    session.note("sitting-ended", {"id": sitting}, sitting)
    return _ended(session, round_, state.get("steps", 0), state.get("ended", ""))


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
