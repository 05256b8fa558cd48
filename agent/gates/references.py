"""What an examination is held against, and what of it goes into the journal. Functions of ledger and experiment. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from optagent.agent.experiments import CONFIRM, Experiment
from optagent.agent.gates.limits import Asked, Limits, limits_for, limits_from_the_first
from optagent.agent.gates.rules import GateResult, Held, judge_examined, was_compared
from optagent.agent.ledger import Ledger
from optagent.agent.numerics import between
from optagent.tools.calls.configuration import Configuration
from optagent.tools.calls.gate import Comparison, Examined

ITSELF, BASE, FIRST, CANDIDATE = "itself", "base", "first", "candidate"
"""An earlier examination of the same configuration; of the configuration that the change was put on; of the first
baseline; of the candidate that still has to be held against this baseline."""


@dataclass(frozen=True)
class Reference:
    """An earlier examination, and what it is to the one that is held against it."""

    role: str
    examined: Examined


def references_of(ledger: Ledger, experiment: Experiment, arm: str) -> list[Reference]:
    """The earlier examinations that one of this arm is held against."""
    base, candidate = experiment.base, experiment.candidate
    own = ledger.examined.get(base.fingerprint())
    if arm == "baseline" or candidate is None:
        waiting = experiment.candidate_gate
        found = [Reference(ITSELF, examined_of(own))] if own else []
        return (
            [*found, Reference(CANDIDATE, examined_of(waiting))] if waiting and not waiting.get("held", True) else found
        )
    found = [Reference(BASE, examined_of(own))] if own else []
    first = ledger.first_examined()
    if first is not None and first[0] not in (base, candidate):
        found.append(Reference(FIRST, examined_of(first[1])))
    return found


def examined_of(body: Mapping[str, Any]) -> Examined:
    """The examination that an entry of kind `gate` tells of, without its comparisons."""
    return Examined.model_validate({k: v for k, v in body.items() if k in Examined.model_fields})


def comparison_with(examined: Examined, references: Sequence[Reference], role: str) -> Comparison | None:
    """How it compares with the reference of this role, None without one."""
    files = [r.examined.file for r in references if r.role == role]
    return next((c for c in examined.comparisons if c.reference in files), None)


def gate_body(
    experiment: Experiment, arm: str, asked: Asked, examined: Examined, references: Sequence[Reference]
) -> dict[str, Any]:
    """The entry of kind `gate`: what was found, and by role how it compares. `held` says whether a candidate was held
    against the configuration it was put on, and a baseline against its own earlier examination."""
    body: dict[str, Any] = {"experiment": experiment.id, "arm": arm}
    body |= examined.model_dump(mode="json", exclude_defaults=True, exclude={"comparisons"})
    compared = {r.role: comparison_with(examined, references, r.role) for r in references}
    body |= {role: c.model_dump(mode="json", exclude_defaults=True) for role, c in compared.items() if c}
    due = compared.get(ITSELF if arm == "baseline" else BASE)
    return body | {"held": due is not None and was_compared(due, asked)}


def judge_arm(
    ledger: Ledger, experiment: Experiment, arm: str, asked: Asked, examined: Examined, references: Sequence[Reference]
) -> GateResult:
    """Whether the output of this arm is right. A baseline that differs from itself is not wrong for it."""
    candidate = experiment.candidate
    held: list[Held] = []
    if arm == "candidate" and candidate is not None:
        for reference in references:
            comparison = comparison_with(examined, references, reference.role)
            if comparison is not None and reference.role == BASE:
                held.append(_held_against_base(ledger, experiment, candidate, asked, comparison, reference.examined))
            elif comparison is not None:
                limits = _limits_from_the_first(ledger, candidate, asked)
                held.append(Held(comparison, reference.examined, limits, "the first baseline's", whole=False))
    return judge_examined(examined, asked, held)


def judge_waiting(
    ledger: Ledger, experiment: Experiment, asked: Asked, examined: Examined, references: Sequence[Reference]
) -> tuple[Examined, GateResult | None] | None:
    """The candidate that waited for this examination of its baseline, and whether its output is right: a result of None
    says that the two could not be compared. None when no candidate waited."""
    waiting = next((r.examined for r in references if r.role == CANDIDATE), None)
    if waiting is None or experiment.candidate is None:
        return None
    comparison = comparison_with(examined, references, CANDIDATE)
    if comparison is None or not was_compared(comparison, asked):
        return waiting, None
    held = _held_against_base(ledger, experiment, experiment.candidate, asked, comparison, examined)
    return waiting, judge_examined(waiting, asked, [held])


def _held_against_base(
    ledger: Ledger,
    experiment: Experiment,
    candidate: Configuration,
    asked: Asked,
    comparison: Comparison,
    base: Examined,
) -> Held:
    limits = _limits(ledger, experiment, candidate, asked)
    return Held(comparison, base, limits, same_draft=same_draft(experiment.base, candidate))


def _limits(ledger: Ledger, experiment: Experiment, candidate: Configuration, asked: Asked) -> Limits:
    """What the candidate may differ by from its base; in a confirmation that is all the kept changes together."""
    numerics = between(experiment.base, candidate)
    if experiment.kind == CONFIRM:
        return limits_from_the_first(numerics, asked)
    band = [Comparison.model_validate(body) for body in ledger.band_of(experiment.base)]
    return limits_for(numerics, band, asked)


def _limits_from_the_first(ledger: Ledger, candidate: Configuration, asked: Asked) -> Limits:
    first = ledger.first_examined()
    assert first is not None
    return limits_from_the_first(between(first[0], candidate), asked)


def same_draft(base: Configuration, candidate: Configuration) -> bool:
    """Whether both speculate alike, so that their accept lengths can be compared."""
    keys = [k for k in {**base.flags, **candidate.flags} if k.startswith("speculative-")]
    return all(base.flags.get(k) == candidate.flags.get(k) for k in keys if "attention" not in k)
