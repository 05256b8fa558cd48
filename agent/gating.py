"""The gate of an experiment: is what the server says still right? Asked before anything is measured."""

from __future__ import annotations

from optagent.agent.cells import Cell
from optagent.agent.experimenting import run_mark
from optagent.agent.experiments import BASELINE, Experiment, Failure
from optagent.agent.gates.limits import Asked
from optagent.agent.gates.prompts import PROMPTS
from optagent.agent.gates.references import (
    BASE,
    CANDIDATE,
    ITSELF,
    Reference,
    comparison_with,
    gate_body,
    judge_arm,
    judge_waiting,
    references_of,
)
from optagent.agent.gates.rules import GateResult, summary, unlike_itself
from optagent.agent.gates.texts import TEXTS
from optagent.agent.reconcile import sha256
from optagent.agent.session import Session
from optagent.agent.task_check import check_tasks
from optagent.tools.calls.gate import Examine, Examined

BASELINE_GATES = 2
"""Launches of a baseline experiment that are gated: two of them give a first comparison of the baseline with itself."""

AS_WHAT = {
    CANDIDATE: "the same as the candidate's",
    ITSELF: "as at its first launch",
    BASE: "the same as the baseline's",
}


def gate(session: Session, experiment: Experiment, cell: Cell, url: str) -> Failure | None:
    """Check the output, once for each arm of an experiment: a launch that answers wrongly is never measured.

    No candidate is kept that was not held against the configuration it was put on. Where that was not examined yet, the
    candidate waits for the gate of the baseline arm, and a failure there is the candidate's.
    """
    enough = BASELINE_GATES if experiment.kind == BASELINE else 1
    if experiment.gated.count(cell.arm) >= enough or session.journal.find("gate", cell.name):
        return None
    asked = Asked(session.config.gate.prompts, session.config.gate.concurrency)
    references = references_of(session.ledger, experiment, cell.arm)
    examined = _examine(session, experiment, cell, url, references)
    result = judge_arm(session.ledger, experiment, cell.arm, asked, examined, references)
    if not result.passed:
        return _wrong(cell.arm, examined, result)
    if failure := _of_waiting_candidate(session, experiment, asked, examined, references):
        return failure
    checked = check_tasks(session, experiment, cell, url, mark_of(session, experiment, cell))
    if checked.failure is not None:
        return checked.failure
    body = gate_body(experiment, cell.arm, asked, examined, references)
    session.note("gate", body | ({"evaluated": checked.evaluated} if checked.evaluated else {}), cell.name)
    _tell(session, cell, asked, examined, references, result)
    return None


def mark_of(session: Session, experiment: Experiment, cell: Cell) -> str:
    """What makes a gate this gate: the run it belongs to, what is asked, and which try of a failing baseline it is.

    It is the same after a crash. An examination that was finished is then found again, by its result in the journal or
    by its file; one that was cut short is asked anew, of the launch of the same configuration that runs then.
    """
    questions = session.config.gate.model_dump_json()
    mark = sha256(f"{run_mark(session, experiment, cell)}:{questions}")[:8]
    return f"{mark}-try{len(experiment.failures) + 1}" if experiment.failures else mark


def _examine(session: Session, experiment: Experiment, cell: Cell, url: str, references: list[Reference]) -> Examined:
    settings, mark = session.config.gate, mark_of(session, experiment, cell)
    session.narrator.now(
        f"gate, {cell.arm}: {settings.prompts} prompts, alone and {settings.concurrency} at a time, {settings.texts} texts"
    )
    return session.toolbox.examine(Examine(
        key=f"{cell.name}:gate:{mark}", url=url, prompts=list(PROMPTS[: settings.prompts]),
        texts=list(TEXTS[: settings.texts]), max_tokens=settings.max_tokens, concurrency=settings.concurrency,
        file=f".optagent/gates/{cell.name}-{mark}.json.gz", references=[r.examined.file for r in references],
    ))  # fmt: skip


def _of_waiting_candidate(
    session: Session, experiment: Experiment, asked: Asked, examined: Examined, references: list[Reference]
) -> Failure | None:
    judged = judge_waiting(session.ledger, experiment, asked, examined, references)
    if judged is None:
        return None
    waiting, result = judged
    if result is None:
        files = tuple(name for name in (examined.file, waiting.file) if name)
        summary = "the answers of baseline and candidate could not be held against each other"
        return Failure("baseline", "gate", "not-compared", summary, files)
    return None if result.passed else _wrong("candidate", waiting, result)


def _wrong(arm: str, examined: Examined, result: GateResult) -> Failure:
    """The failure, with all problems and the first few answers that show them as its evidence."""
    more = f"; and {len(result.problems) - 2} more" if len(result.problems) > 2 else ""
    shown = [line[:300] for done in examined.passes for line in done.problems[:2]]
    evidence = (*([examined.file] if examined.file else []), *result.problems, *shown)
    return Failure(arm, "gate", "wrong-output", "; ".join(result.problems[:2]) + more, evidence)


def _tell(
    session: Session, cell: Cell, asked: Asked, examined: Examined, references: list[Reference], result: GateResult
) -> None:
    roles = {r.role for r in references}
    role = CANDIDATE if CANDIDATE in roles else ITSELF if cell.arm == "baseline" else BASE
    words = summary(examined, asked, comparison_with(examined, references, role), AS_WHAT[role])
    session.narrator.tell("plain", f"gate passed: {words}{' (simulated)' if examined.simulated else ''}")
    itself = comparison_with(examined, references, ITSELF)
    unlike = unlike_itself(itself) if itself is not None else None
    for note in (*result.notes, *([unlike] if unlike else [])):
        session.narrator.tell("note", note)
