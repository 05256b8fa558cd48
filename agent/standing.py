"""Where an item stands: done, runnable, blocked or waiting for the owner. A list of small rules, first match wins."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from optagent.agent.change import describe
from optagent.agent.conditions import holds, parse_condition
from optagent.agent.dead_ends import matching, worth_another_look
from optagent.agent.plan.model import Item, Plan, Risk, Status
from optagent.agent.plan.owner import edited_by_owner, effective_status
from optagent.agent.principles import PrinciplesLike, conflicts
from optagent.agent.records import DeadEnd, Option, Question

FINAL = frozenset({Status.KEPT, Status.REVERTED, Status.INCONCLUSIVE, Status.INVALID, Status.DROPPED})


class Kind(StrEnum):
    RUNNABLE = "runnable"
    DONE = "done"
    DEAD = "dead"
    BLOCKED = "blocked"
    WAITING = "waiting"


@dataclass(frozen=True)
class Standing:
    """`question` is what has to be asked about the item (its id still empty); `reopens` are dead ends that no longer bind."""

    item: Item
    kind: Kind
    because: str
    question: Question | None = None
    reopens: tuple[str, ...] = ()
    final: bool = False


@dataclass(frozen=True)
class Bench:
    """What the rules look at besides the item: an immutable slice of the situation."""

    plan: Plan
    status: Mapping[str, Status]
    written: Mapping[str, Status]
    results: Mapping[str, str]
    dead_ends: tuple[DeadEnd, ...]
    questions: tuple[Question, ...]
    approvals: frozenset[str]
    exceptions: frozenset[str]
    declined: frozenset[str]
    repeated: Mapping[str, str]
    facts: Mapping[str, str]
    principles: PrinciplesLike
    reads_prose: bool


Rule = Callable[[Item, Bench], Standing | None]


def status_of(item: Item, bench: Bench) -> Status:
    return effective_status(item, bench.status, bench.written)


def _conflicting_status(item: Item, bench: Bench) -> Standing | None:
    recorded = bench.status.get(item.id)
    if (
        recorded is None
        or not edited_by_owner(item, bench.written)
        or item.status in (recorded, Status.OPEN, Status.DROPPED)
    ):
        return None
    return _ask(
        item, "plan-ambiguous",
        f"The plan says that {item.id} is {item.status}, the journal says {recorded}. Which is it?",
        "both are records of people and runs; a measurement cannot tell which was meant",
        [Option("journal", f"the plan is rewritten to {recorded}"), Option("again", "the item is tried once more")],
        [f"journal: {bench.results.get(item.id, recorded)}"],
    )  # fmt: skip


def _already_settled(item: Item, bench: Bench) -> Standing | None:
    status = status_of(item, bench)
    if status in FINAL:
        return Standing(item, Kind.DONE, bench.results.get(item.id) or item.result or str(status), final=True)
    return None


def _declined(item: Item, bench: Bench) -> Standing | None:
    return Standing(item, Kind.DONE, "the owner declined it", final=True) if item.id in bench.declined else None


def _dead(item: Item, bench: Bench) -> Standing | None:
    found = matching(item.change, item.id, bench.dead_ends)
    if status_of(item, bench) is Status.OPEN and edited_by_owner(item, bench.written):
        found = [d for d in found if d.item != item.id]
    binding = [d for d in found if not worth_another_look(d, bench.facts)]
    if binding:
        first = binding[0]
        look = f"; another look when {first.retry_when}" if first.retry_when else ""
        return Standing(item, Kind.DEAD, f"{first.cause}{look}", final=not first.retry_when)
    if not found and status_of(item, bench) is Status.DEAD:
        return _dead_by_the_plan(item, bench)
    return None


def _dead_by_the_plan(item: Item, bench: Bench) -> Standing | None:
    """A dead item of the plan that no dead end of the journal explains: its own condition counts."""
    if item.retry_when and holds(parse_condition(item.retry_when), bench.facts):
        return None
    look = f"; another look when {item.retry_when}" if item.retry_when else ""
    return Standing(
        item, Kind.DEAD, f"{item.result or 'the plan says that it is dead'}{look}", final=not item.retry_when
    )


def _waiting_for_answer(item: Item, bench: Bench) -> Standing | None:
    for question in bench.questions:
        if question.item == item.id and question.answer is None:
            return Standing(item, Kind.WAITING, f"waits for the answer to {question.id}")
    return None


def _answered_in_prose(item: Item, bench: Bench) -> Standing | None:
    answered = [q for q in bench.questions if q.item == item.id and q.answer is not None]
    if answered and answered[-1].answer not in {o.key for o in answered[-1].options}:
        return Standing(
            item,
            Kind.BLOCKED,
            f"the answer to {answered[-1].id} is free text, which needs a person or a model to act on",
        )
    return None


def _needs(item: Item, bench: Bench) -> Standing | None:
    for need in item.needs:
        other = bench.plan.item(need)
        if other is not None:
            status = status_of(other, bench)
            if status is Status.KEPT:
                continue
            final = status in FINAL or other.id in bench.declined
            return Standing(item, Kind.BLOCKED, f"needs {need}, which is {status}", final=final)
        try:
            met = holds(parse_condition(need), bench.facts)
        except ValueError as error:
            return Standing(item, Kind.BLOCKED, str(error))
        if met is None:
            return Standing(item, Kind.BLOCKED, f"needs {need}, and that is not known")
        if not met:
            return Standing(item, Kind.BLOCKED, f"needs {need}")
    return None


def _prose(item: Item, bench: Bench) -> Standing | None:
    if (item.change is None or item.change.empty) and not bench.reads_prose:
        return Standing(item, Kind.BLOCKED, "is prose: it needs a change block, or a planner that can read")
    return None


def _principles(item: Item, bench: Bench) -> Standing | None:
    if item.change is None or item.id in bench.exceptions:
        return None
    broken = conflicts(item.change, bench.principles)
    if not broken:
        return None
    return _ask(
        item, "principle-conflict",
        f"{item.title}: {'; '.join(broken)}. Leave it out, or make an exception?",
        "a principle is the owner's to bend; no measurement can settle it",
        [Option("drop", "the item is left out"), Option("allow", "an exception for this item only, with all gates")],
        [f"change: {describe(item.change)}"],
    )  # fmt: skip


def _approval(item: Item, bench: Bench) -> Standing | None:
    change = item.change
    if change is None or item.id in bench.approvals:
        return None
    reasons = [r for r, wanted in (
        ("it switches the serving environment", bool(change.environment)),
        ("its risk is high", item.risk is Risk.HIGH),
        ("the plan asks for an approval", item.approval),
    ) if wanted]  # fmt: skip
    if not reasons:
        return None
    gain = f"{item.expected_gain[0]:.0%} to {item.expected_gain[1]:.0%}" if item.expected_gain else "not stated"
    unblocks = [d.title for d in bench.dead_ends if d.retry_when and d.item != item.id]
    facts = [
        f"change: {describe(change)}",
        f"may gain: {gain}" + (f"; may reopen {', '.join(unblocks[:6])}" if unblocks else ""),
    ]
    facts += [
        f"may break: {item.may_break or 'not stated'}",
        f"undone by: {item.undo or 'switching back to the baseline, which is left as it is'}",
    ]
    facts += [f"costs: {item.cost}"] if item.cost else []
    return _ask(
        item, "needs-approval",
        f"May I go on with \"{item.title}\"?",
        f"{' and '.join(reasons)}, and only the owner can take that risk",
        [Option("approve", "it is prepared beside the present state, measured, and kept or switched back"),
         Option("decline", "the item is left out; everything else goes on")],
        facts,
    )  # fmt: skip


def _repeated(item: Item, bench: Bench) -> Standing | None:
    cause = bench.repeated.get(item.id)
    if cause is None:
        return None
    return _ask(
        item, "repeated-failure",
        f"{item.title} failed twice in the same way: {cause}. What should happen with it?",
        "its remedy was tried and did not help; another try costs a launch and tells nothing new",
        [Option("drop", "the item is left out"), Option("again", "one more try")],
        [],
    )  # fmt: skip


RULES: tuple[Rule, ...] = (
    _waiting_for_answer,
    _conflicting_status,
    _already_settled,
    _declined,
    _dead,
    _answered_in_prose,
    _needs,
    _prose,
    _principles,
    _approval,
    _repeated,
)


def standing(item: Item, bench: Bench) -> Standing:
    """Where the item stands, by the first rule that has something to say."""
    for rule in RULES:
        if found := rule(item, bench):
            return found
    found_dead = matching(item.change, item.id, bench.dead_ends)
    reopens = tuple(d.id for d in found_dead if worth_another_look(d, bench.facts))
    because = f"reopened: {found_dead[0].retry_when} now holds" if reopens else "nothing stands in its way"
    return Standing(item, Kind.RUNNABLE, because, reopens=reopens)


def _ask(item: Item, reason: str, text: str, why: str, options: list[Option], facts: list[str]) -> Standing:
    question = Question("", reason, text, why, tuple(options), item.id, tuple(facts))
    return Standing(item, Kind.WAITING, f"waits for the owner ({reason})", question)
