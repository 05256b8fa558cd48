"""What is tried next of all that can run: a combination of simple items, an item, a point of its search, or what is left
without it. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from optagent.agent.bundling import Bundle, to_take_out
from optagent.agent.change import Change
from optagent.agent.dead_ends import matching, worth_another_look
from optagent.agent.part_ids import root_of
from optagent.agent.plan.model import Item
from optagent.agent.principles import conflicts
from optagent.agent.searching import next_of as next_of_search
from optagent.agent.situation import Situation
from optagent.agent.splitting import complaints
from optagent.agent.standing import Kind, Standing
from optagent.agent.steps import Reasoned, Step, StepKind
from optagent.agent.survey.factors import difference, may_join, names_of, put_back

if TYPE_CHECKING:
    from optagent.agent.survey.looking import Seen, Told
    from optagent.tools.calls.configuration import Configuration

REMINDER = 60
"""Characters of why an item was passed over, which every later step repeats."""


def next_try(situation: Situation, runnable: Sequence[Standing], standings: Sequence[Standing]) -> Reasoned:
    """The next item: a fresh one, or one of those that came in with a combination, to be taken out."""
    inside = came_inside(situation, standings)
    fresh = [s for s in runnable if s.item.id not in inside]
    if fresh:
        chosen = fresh[0]
        told = _told(situation, chosen.item, inside, standings)
        judged = told.settles(situation.min_effect) if told is not None else None
        if told is not None and judged is not None:
            step = Step(StepKind.ITEM, chosen.item.title, chosen.item, told.change, judged=judged)
            return step, "runnable", _why_item(chosen, standings)
        if chosen.item.space:
            return _searching(situation, chosen.item, _why_item(chosen, standings))
        return Step(StepKind.ITEM, chosen.item.title, chosen.item), "runnable", _why_item(chosen, standings)
    within = [s for s in standings if s.item.id in inside]
    needed = {name for s in within for name in s.item.needs}
    chosen = next((s for s in within if s.item.id not in needed), runnable[0])
    came_in = inside[chosen.item.id]
    less = put_back(situation.baseline.configuration, names_of(chosen.item), came_in.before)
    because = f"it was kept together with others ({came_in.experiment}): it is taken out to see whether it is missed"
    inserted = difference(less, situation.baseline.configuration) if chosen.item.space else None
    return Step(StepKind.ITEM, chosen.item.title, chosen.item, inserted, without=less), "take-out", because


def came_inside(situation: Situation, standings: Sequence[Standing]) -> dict[str, Bundle]:
    """The items that came in with a combination, and have no verdict of their own yet. One that waits for another such one is
    among them."""
    left = [s for s in standings if s.kind is Kind.RUNNABLE or (s.kind is Kind.BLOCKED and not s.final)]
    came_in = {s.item.id: b for s in left if (b := _came_in_with(s.item, situation))}
    waiting = {s.item.id for s in left if s.kind is Kind.BLOCKED and not came_in.keys() & set(s.item.needs)}
    return {item: b for item, b in came_in.items() if item not in waiting}


def next_of_survey(
    situation: Situation, runnable: Sequence[Standing], standings: Sequence[Standing]
) -> Reasoned | None:
    """The next step of a survey of the simple items; None when it has come to its end, or there are too few of them."""
    from optagent.agent.survey.looking import next_of

    inside = came_inside(situation, standings)
    fresh = [s for s in runnable if s.item.id not in inside]
    open_ones = [s.item for s in fresh if s.item.id not in situation.tried and may_join(s.item)]
    within = [s.item for s in standings if s.item.id in inside and may_join(s.item)]
    coming = [i for i in _coming_along([*open_ones, *within], standings) if i.id not in inside]
    found = next_of([*open_ones, *coming], within, _seen(situation))
    if found is None:
        return None
    many = f"{len(found.items)} of {len(found.among)} items together"
    kind = StepKind.SURVEY if found.look else StepKind.BUNDLE
    step = Step(kind, many, None, found.change, found.items, found.among, found.root, found.outlook)
    return step, kind.value, found.words


def _told(situation: Situation, item: Item, inside: Mapping[str, Bundle], standings: Sequence[Standing]) -> Told | None:
    """What a survey told of the item, if there was one."""
    if not situation.surveying or not may_join(item) or item.id in situation.lifted:
        return None
    from optagent.agent.survey.looking import surveyed, told_of

    known = surveyed(situation.experiments)
    if root_of(item.id) not in known:
        return None
    items = [s.item for s in standings if root_of(s.item.id) in known and may_join(s.item)]
    return told_of(item, items, [i for i in items if i.id in inside], _seen(situation))


def _seen(situation: Situation) -> Seen:
    from optagent.agent.survey.looking import Seen

    return Seen(
        situation.baseline.configuration, situation.experiments, situation.bundles, situation.noise, situation.direction,
        situation.min_effect, situation.seed, lambda change, candidate: _refused(situation, change, candidate), situation.load,
        situation.facts,
    )  # fmt: skip


def _coming_along(joining: Sequence[Item], standings: Sequence[Standing]) -> list[Item]:
    """The items that wait for nothing but others that join, and of which it is known what they set."""
    ids = {i.id for i in joining if not i.space}
    blocked = [s.item for s in standings if s.kind is Kind.BLOCKED and not s.final and may_join(s.item)]
    return [i for i in blocked if i.needs and set(i.needs) <= ids]


def _refused(situation: Situation, change: Change, candidate: Configuration) -> str:
    """Why a combination must not be launched where each of its items may, "" when it may."""
    binding = [d for d in situation.dead_ends if not worth_another_look(d, situation.facts)]
    if met := matching(change, None, binding, situation.facts.get("sglang")):
        return f"it does all that {met[0].title} did"
    if complaints(candidate, []) - complaints(situation.baseline.configuration, []):
        return "its settings exclude each other, or one of them is without effect"
    return "; ".join(conflicts(change, situation.principles, situation.baseline.configuration))


def _searching(situation: Situation, item: Item, why: str) -> Reasoned:
    searched = next_of_search(
        item, situation.baseline.configuration, situation.searches.get(item.id, ()), situation.noise,
        situation.direction, situation.seed,
    )  # fmt: skip
    kind = StepKind.TRIAL if searched.look else StepKind.ITEM
    return Step(kind, item.title, item, searched.change), "search", f"{why}; {searched.words}"


def _came_in_with(item: Item, situation: Situation) -> Bundle | None:
    return to_take_out(item, situation.bundles, situation.removals.get(item.id, ()))


def _why_item(chosen: Standing, standings: Sequence[Standing]) -> str:
    before = [s for s in standings[: standings.index(chosen)] if s.kind is not Kind.DONE and not s.final]
    passed = "; ".join(f"{s.item.id} {_shortened(s.because)}" for s in before[:4])
    rank = f"rank {chosen.item.rank}" if chosen.item.rank is not None else "no rank"
    return f"{rank}, {chosen.because}" + (f" (passed over: {passed})" if passed else "")


def _shortened(reason: str) -> str:
    """A reason that is told in full elsewhere: here it only reminds."""
    return reason if len(reason) <= REMINDER else f"{reason[: REMINDER - 1].rstrip()}…"
