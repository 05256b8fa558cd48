"""optagent itself on a virtual machine: its own sittings, with an owner who answers at once, until it has finished."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from campaigns.deployment import Deployment
from campaigns.machine import Machine, Spent
from campaigns.model import Model
from campaigns.trace import Keeper, Trace
from campaigns.virtual import VirtualToolbox
from optagent.agent.commands.workspace import Silent, Workspace, open_session
from optagent.agent.decide import Verb
from optagent.agent.errors import OptagentError
from optagent.agent.records import Question
from optagent.agent.session import Session
from optagent.agent.sitting import WAITING, run_sitting
from optagent.tools.journal_store import JournalStore

NAME = "optagent"
MOST_SITTINGS = 20
ANSWERS = {
    "needs-approval": "approve", "principle-conflict": "drop", "repeated-failure": "drop", "plan-ambiguous": "journal",
    "nothing-runnable": "finish", "budget-spent": "stop", "baseline-moved": "accept",
}  # fmt: skip
"""What a sensible owner says to each kind of question, where that is one of its options."""
OTHERWISE = ("accept", "again", "finish", "stop", "drop")


def carry(deployment: Deployment, model: Model, seed: int, budget_hours: float, folder: Path) -> Trace:
    """One campaign in the empty `folder`, from its first sitting until nothing is left or the GPU-hours are used up."""
    machine = Machine(model, budget_hours)
    shutil.copytree(deployment.folder, folder, dirs_exist_ok=True)
    config = deployment.config
    config = config.model_copy(update={"measuring": config.measuring.model_copy(update={"seed": seed})})
    keeper = Keeper()
    problem, ended = "", ""
    with JournalStore.open(folder / ".optagent" / "journal.db", create=True) as store:
        toolbox = VirtualToolbox(machine, folder)
        session = open_session(Workspace(folder, config), store, toolbox, Silent())

        def before() -> None:
            keeper.hold(machine.gpu_hours, session.baseline().configuration)
            _answer(session, session.ledger.open_questions())

        toolbox.before = before
        try:
            ended = _sit(session)
        except Spent:
            ended = "budget"
        except OptagentError as error:
            problem = str(error)
        keeper.hold(machine.gpu_hours, session.baseline().configuration)
    return Trace(
        NAME,
        seed,
        tuple(keeper.held),
        machine.gpu_hours,
        machine.launches,
        machine.runs,
        len(machine.failures),
        ended,
        problem,
    )


def _sit(session: Session) -> str:
    for _ in range(MOST_SITTINGS):
        ended = run_sitting(session, None)
        if ended.exit_status != WAITING:
            return "finished" if ended.verb is Verb.FINISH else ended.reason
        if ended.reason == "too-noisy":
            return ended.reason
        _answer(session, ended.questions)
    raise OptagentError(f"still asking after {MOST_SITTINGS} sittings: {ended.reason}")


def _answer(session: Session, questions: Sequence[Question]) -> None:
    for question in questions:
        session.note("answer", {"id": question.id, "answer": answer(question)}, question.id)


def answer(question: Question) -> str:
    """The owner's answer: the option for this kind of question, or the first of the usual ones that is offered."""
    offered = [option.key for option in question.options]
    wanted = (ANSWERS.get(question.reason, ""), *OTHERWISE, *offered[:1])
    return next((key for key in wanted if key in offered), "as you think best")
