"""The task check of a gate (G4): does a change that may move numbers in unknown ways still solve what the baseline does?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from optagent.agent.cells import Cell
from optagent.agent.experiments import CONFIRM, Experiment, Failure
from optagent.agent.gates.tasks import fewer_solved, told
from optagent.agent.numerics import Numerics, between
from optagent.agent.session import Session
from optagent.tools.calls.gate import Evaluate, Evaluated


@dataclass(frozen=True)
class TaskCheck:
    """What came of it: `evaluated` goes into the journal, empty when nothing had to be asked."""

    evaluated: dict[str, Any] | None = None
    failure: Failure | None = None


def is_wanted(experiment: Experiment) -> bool:
    """Whether tasks are to prove the candidate: kernels, code or the law of the output may differ, or it is what all kept
    changes come to."""
    if experiment.candidate is None:
        return False
    return experiment.kind == CONFIRM or between(experiment.base, experiment.candidate) >= Numerics.UNKNOWN


def check_tasks(session: Session, experiment: Experiment, cell: Cell, url: str, mark: str) -> TaskCheck:
    """Evaluate the arm, unless this configuration was evaluated before, and hold the candidate against the baseline as
    soon as both are known. `mark` makes the evaluation this one.

    That the evaluation itself does not work says nothing about a candidate, unless it works for the baseline.
    """
    settings = session.config.gate
    if settings.gsm8k is None or not is_wanted(experiment):
        return TaskCheck()
    asked = {"data": settings.gsm8k, "asked": settings.gsm8k_examples}
    known = session.ledger.evaluated.get(experiment.base.fingerprint())
    if known is not None and {k: known.get(k) for k in asked} != asked:
        known = None
    other = known if cell.arm == "candidate" else (experiment.candidate_gate or {}).get("evaluated")
    if cell.arm == "baseline" and (known is not None or other is None):
        return TaskCheck()
    session.narrator.now(f"task check, {cell.arm}: {settings.gsm8k_examples} tasks of {settings.gsm8k}")
    done = session.toolbox.evaluate(Evaluate(
        key=f"{cell.name}:tasks:{mark}", url=url, data=settings.gsm8k, examples=settings.gsm8k_examples,
        threads=settings.concurrency, file=f".optagent/gates/{cell.name}-{mark}-tasks.json",
        reference=(other or {}).get("file"),
    ))  # fmt: skip
    evaluated = asked | done.model_dump(mode="json", exclude_defaults=True)
    if problem := _problem(cell.arm, done, other):
        return TaskCheck(failure=Failure("candidate", "gate", "wrong-output", problem, _files(done, other)))
    session.narrator.tell("plain" if done.score is not None else "note", told(done))
    return TaskCheck(evaluated)


def _problem(arm: str, done: Evaluated, other: dict[str, Any] | None) -> str | None:
    """What is wrong with the candidate, of which `done` or `other` is the evaluation; None as long as the other arm is
    not evaluated, and when neither could be."""
    if other is None:
        return None
    score = other.get("score")
    mine, theirs = (done.score, score) if arm == "candidate" else (score, done.score)
    if theirs is None:
        return None
    if mine is None:
        why = done.problem if arm == "candidate" else other.get("problem")
        return f"the task check works for the baseline and not for the candidate: {why or 'no reason given'}"
    gained, lost = (done.gained, done.lost) if arm == "candidate" else (done.lost, done.gained)
    return fewer_solved(mine, theirs, done.examples, gained=gained, lost=lost)


def _files(done: Evaluated, other: dict[str, Any] | None) -> tuple[str, ...]:
    return tuple(name for name in (done.file, (other or {}).get("file", "")) if name)
