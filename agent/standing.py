"""Where an item stands: done, runnable, blocked or waiting for the owner. A list of small rules, first match wins."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from optagent.agent.change import describe
from optagent.agent.conditions import holds, parse_condition
from optagent.agent.dead_ends import is_of, matching, met, of_software, worth_another_look
from optagent.agent.part_ids import root_of
from optagent.agent.plan.model import Item, Plan, Risk, Status
from optagent.agent.plan.owner import edited_by_owner, effective_status, is_clear
from optagent.agent.principles import PrinciplesLike, conflicts
from optagent.agent.records import DeadEnd, Option, Question, Split
from optagent.agent.search.space import describe as describe_space
from optagent.agent.search.variants import variants
from optagent.agent.splitting import concerns
from optagent.tools.calls.configuration import Configuration

FINAL = frozenset({Status.KEPT, Status.REVERTED, Status.INCONCLUSIVE, Status.INVALID, Status.DROPPED})
WORTH_ANOTHER_LOOK = frozenset({Status.REVERTED, Status.INVALID})
"""Settled statuses that leave a dead end behind, which may have a condition for another look."""
ASKED_HERE = frozenset({"plan-ambiguous", "principle-conflict", "needs-approval", "repeated-failure"})
"""Reasons of the questions that the rules below ask; the same question is not asked twice."""
_IRREVERSIBLE = re.compile(
    r"\A\s*(?:no|none|not possible|impossible|nothing)\s*\.?\s*\Z|irreversibl|(?:cannot|can't|can not) be undone",
    re.IGNORECASE,
)


class Kind(StrEnum):
    RUNNABLE = "runnable"
    DONE = "done"
    DEAD = "dead"
    BLOCKED = "blocked"
    WAITING = "waiting"


@dataclass(frozen=True)
class Standing:
    """`question` is what has to be asked about the item (its id still empty), `waits_for` the id of the open question that
    it waits for; `reopens` are dead ends that no longer bind; `final`: nothing but an edit of the plan changes it."""

    item: Item
    kind: Kind
    because: str
    question: Question | None = None
    waits_for: str = ""
    reopens: tuple[str, ...] = ()
    final: bool = False


@dataclass(frozen=True)
class Bench:
    """What the rules look at besides the item: an immutable slice of the situation. `lifted` are items that their own dead
    ends do not bind at present."""

    plan: Plan
    status: Mapping[str, Status]
    written: Mapping[str, Status]
    results: Mapping[str, str]
    dead_ends: tuple[DeadEnd, ...]
    questions: tuple[Question, ...]
    approvals: frozenset[str]
    exceptions: frozenset[str]
    lifted: frozenset[str]
    repeated: Mapping[str, str]
    facts: Mapping[str, str]
    principles: PrinciplesLike
    reads_prose: bool
    base: Configuration
    splits: Mapping[str, Split] = field(default_factory=dict)

    @property
    def release(self) -> str | None:
        """Of the server in the baseline's environment."""
        return self.facts.get("sglang")

    def running_into(self, item: Item) -> list[DeadEnd]:
        """The dead ends that the item runs into, whether or not they bind."""
        return matching(item.change, item.id, self.dead_ends, self.release)


Rule = Callable[[Item, Bench], Standing | None]


def status_of(item: Item, bench: Bench) -> Status:
    return effective_status(item, bench.status, bench.written)


def _reopened_by_owner(item: Item, bench: Bench) -> bool:
    return status_of(item, bench) is Status.OPEN and edited_by_owner(item, bench.written)


def _conflicting_status(item: Item, bench: Bench) -> Standing | None:
    recorded = bench.status.get(item.id)
    if recorded is None or recorded is item.status or not edited_by_owner(item, bench.written):
        return None
    if is_clear(item.status, recorded):
        return None
    return _ask(
        item, "plan-ambiguous",
        f"The plan says that {item.id} is {item.status}, the journal says {recorded}. Which is it?",
        "both are records of people and runs; a measurement cannot tell which was meant",
        [Option("journal", f"the plan is rewritten to {recorded}"), Option("again", "the item is tried once more")],
        [f"journal: {bench.results.get(item.id, recorded)}"],
    )  # fmt: skip


def _split_up(item: Item, bench: Bench) -> Standing | None:
    """An item whose change was taken apart: its parts stand for it from then on."""
    split = bench.splits.get(item.id)
    if split is None or split.kept or not concerns(split, item) or _reopened_by_owner(item, bench):
        return None
    kind = Kind.DONE if status_of(item, bench) in FINAL else Kind.DEAD
    because = f"{split.because}; split into {', '.join(p.id for p in split.parts)}"
    return Standing(item, kind, because, final=True)


def _already_settled(item: Item, bench: Bench) -> Standing | None:
    status = status_of(item, bench)
    if status not in FINAL or (status in WORTH_ANOTHER_LOOK and _condition_met(item, bench)):
        return None
    return Standing(item, Kind.DONE, bench.results.get(item.id) or item.result or str(status), final=True)


def _condition_met(item: Item, bench: Bench) -> bool:
    """Whether what was said to be worth another look under a condition has that condition met now."""
    if found := bench.running_into(item):
        return all(worth_another_look(d, bench.facts) for d in found)
    return item.id not in bench.status and _holds(item.retry_when, bench)


def _holds(condition: str | None, bench: Bench) -> bool:
    return condition is not None and met(condition, bench.facts)


def _dead(item: Item, bench: Bench) -> Standing | None:
    found = bench.running_into(item)
    if item.id in bench.lifted or _reopened_by_owner(item, bench):
        found = [d for d in found if not is_of(d, item.id, item.change)]
    binding = [d for d in found if not worth_another_look(d, bench.facts)]
    if binding:
        first = binding[0]
        look = f"; another look when {first.retry_when}" if first.retry_when else ""
        return Standing(item, Kind.DEAD, f"{first.cause}{look}", final=not first.retry_when)
    if not found and status_of(item, bench) is Status.DEAD and not _holds(item.retry_when, bench):
        look = f"; another look when {item.retry_when}" if item.retry_when else ""
        because = f"{item.result or 'the plan says that it is dead'}{look}"
        return Standing(item, Kind.DEAD, because, final=not item.retry_when)
    return None


def _asked_by_others(item: Item, bench: Bench) -> Standing | None:
    """A question about the item that none of these rules asks, as a planner may."""
    asked = [q for q in bench.questions if q.item == item.id and q.reason not in ASKED_HERE]
    return _by_question(item, asked[-1]) if asked else None


def _by_question(item: Item, question: Question) -> Standing | None:
    """How the last question about an item holds it up: it is open, or its answer is not one that a rule can act on."""
    if question.answer is None:
        return Standing(item, Kind.WAITING, f"waits for the answer to {question.id}", waits_for=question.id)
    if question.answer in {o.key for o in question.options}:
        return None
    because = f"the answer to {question.id} is free text, which needs a person or a model to act on"
    return Standing(item, Kind.BLOCKED, because)


def _needs(item: Item, bench: Bench) -> Standing | None:
    for need in item.needs:
        other = bench.plan.item(need)
        if other is not None:
            status = status_of(other, bench)
            if status is Status.KEPT:
                continue
            if (parts := bench.splits.get(need)) is not None and not parts.kept and concerns(parts, other):
                if (missing := _parts_missing(item, parts, bench)) is not None:
                    return missing
                continue
            return Standing(item, Kind.BLOCKED, f"needs {need}, which is {status}", final=_hopeless(other, bench))
        try:
            met = holds(parse_condition(need), bench.facts)
        except ValueError as error:
            return Standing(item, Kind.BLOCKED, str(error))
        if met is None:
            return Standing(item, Kind.BLOCKED, f"needs {need}, and that is not known")
        if not met:
            return Standing(item, Kind.BLOCKED, f"needs {need}")
    return None


def _parts_missing(item: Item, split: Split, bench: Bench) -> Standing | None:
    """What an item waits for that needs one which was split: all of its parts are to be kept."""
    told = {p.id: Status(bench.status.get(p.id, Status.OPEN)) for p in split.parts}
    left = [name for name, status in told.items() if status is not Status.KEPT]
    if not left:
        return None
    open_ = [name for name in left if told[name] in (Status.OPEN, Status.TRYING, Status.PARKED)]
    because = f"needs {split.item}, which was split; {(open_ or left)[0]} is {told[(open_ or left)[0]]}"
    return Standing(item, Kind.BLOCKED, because, final=not open_)


def _hopeless(item: Item, bench: Bench) -> bool:
    """Whether the item will not be kept any more unless the plan or the world changes, and so asks for nothing."""
    if _split_up(item, bench) or _already_settled(item, bench) or _dead(item, bench):
        return True
    blocked = _needs(item, bench)
    return blocked is not None and blocked.final


def _prose(item: Item, bench: Bench) -> Standing | None:
    if (item.change is None or item.change.empty) and not item.space and not bench.reads_prose:
        return Standing(item, Kind.BLOCKED, "is prose: it needs a change block, or a planner that can read")
    return None


def _principles(item: Item, bench: Bench) -> Standing | None:
    if item.change is None or {item.id, root_of(item.id)} & bench.exceptions:
        return None
    tried = variants(item.change, item.space)
    broken = list(dict.fromkeys(b for change in tried for b in conflicts(change, bench.principles, bench.base)))
    if not broken:
        return None
    return _ask(
        item, "principle-conflict",
        f"{item.title}: {'; '.join(broken)}. Leave it out, or make an exception?",
        "a principle is the owner's to bend; no measurement can settle it",
        [Option("drop", "the item is left out"), Option("allow", "an exception for this item only, with all gates")],
        [f"change: {_all_of(item)}"],
    )  # fmt: skip


def _all_of(item: Item) -> str:
    """The item's change with the ranges it names."""
    fixed = describe(item.change) if item.change is not None and not item.change.empty else ""
    return " ".join(part for part in (fixed, describe_space(item.space)) if part) or "(nothing)"


def _approval(item: Item, bench: Bench) -> Standing | None:
    change = item.change
    if change is None or {item.id, root_of(item.id)} & bench.approvals:
        return None
    reasons = [r for r, wanted in (
        ("it switches the serving environment", change.environment not in (None, "", bench.facts.get("environment"))),
        ("its risk is high", item.risk is Risk.HIGH),
        ("it cannot be undone", bool(_IRREVERSIBLE.search(item.undo))),
        ("the plan asks for an approval", item.approval),
    ) if wanted]  # fmt: skip
    if not reasons:
        return None
    gain = f"{item.expected_gain[0]:.0%} to {item.expected_gain[1]:.0%}" if item.expected_gain else "not stated"
    unblocks = [
        d.title for d in bench.dead_ends if change.environment and d.item != item.id and of_software(d.retry_when)
    ]
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


def _parked_by_hand(item: Item, bench: Bench) -> Standing | None:
    """An item that the owner parked in the plan, without a question that it waits for."""
    by_hand = item.id not in bench.status or edited_by_owner(item, bench.written)
    allowed = {item.id, root_of(item.id)} & (bench.approvals | bench.exceptions)
    if status_of(item, bench) is not Status.PARKED or not by_hand or allowed:
        return None
    return Standing(item, Kind.BLOCKED, "is parked in the plan; it goes on when its status is open again")


RULES: tuple[Rule, ...] = (
    _conflicting_status,
    _split_up,
    _already_settled,
    _dead,
    _asked_by_others,
    _needs,
    _prose,
    _principles,
    _approval,
    _repeated,
    _parked_by_hand,
)


def standing(item: Item, bench: Bench) -> Standing:
    """Where the item stands, by the first rule that has something to say. What was asked already is not asked again."""
    found = next((s for rule in RULES if (s := rule(item, bench))), None)
    if found is not None:
        asked = _asked_before(found, bench) if found.question else None
        return (_by_question(item, asked) if asked else None) or found
    met_now = [d for d in bench.running_into(item) if worth_another_look(d, bench.facts)]
    reopens = tuple(d.id for d in met_now)
    if reopens:
        because = f"reopened: {met_now[0].retry_when} now holds"
    elif _reopened_by_owner(item, bench):
        because = "the owner opened it again"
    else:
        because = "nothing stands in its way"
    return Standing(item, Kind.RUNNABLE, because, reopens=reopens)


def _asked_before(found: Standing, bench: Bench) -> Question | None:
    """The last question of the same reason about the same item. A question whose reason is gone holds nothing up."""
    assert found.question is not None
    same = [q for q in bench.questions if q.item == found.item.id and q.reason == found.question.reason]
    return same[-1] if same else None


def _ask(item: Item, reason: str, text: str, why: str, options: list[Option], facts: list[str]) -> Standing:
    question = Question("", reason, text, why, tuple(options), item.id, tuple(facts))
    return Standing(item, Kind.WAITING, f"waits for the owner ({reason})", question)
