"""Why an item stands where it stands: its rank, what was seen that bears on it, and what would change it. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from optagent.agent.change import describe
from optagent.agent.conditions import parse_condition
from optagent.agent.dead_ends import is_of, worth_another_look
from optagent.agent.experiments import Experiment
from optagent.agent.plan.model import Item, Status
from optagent.agent.ranking import Moved, Score, stated_seconds
from optagent.agent.records import Attempt, DeadEnd, Question
from optagent.agent.situation import Situation
from optagent.agent.standing import Bench, Kind, Standing, standing
from optagent.agent.survey.factors import factors_of, may_join, set_in
from optagent.agent.survey.known import UNFIT, with_what_is_known

MOST_LINES = 12
"""Lines of evidence that are told at most."""
NEAREST = 3


@dataclass(frozen=True)
class Cost:
    """What a verdict on the item is expected to take: launches, and seconds with those that the plan states. `timed`: a launch
    was timed here; otherwise its seconds are an assumption."""

    launches: float
    seconds: float
    stated_s: float
    timed: bool


@dataclass(frozen=True)
class Explanation:
    """`rank` is the plan's. `planned` and `place` are places among the `to_try` items that are still to be tried, by the plan
    and now (None: the item is settled). Gains and the chance are fractions; `expected_gain` is what the score counts with:
    the middle of the promise, less what promises were found to be short of so far."""

    item: str
    title: str
    rank: int | None
    planned: int | None
    place: int | None
    to_try: int
    placed_by_owner: bool
    moved: str
    promised: tuple[float, float] | None
    expected_gain: float
    chance: float
    cost: Cost
    standing: str
    because: str
    evidence: tuple[str, ...]
    would_change: tuple[str, ...]


def explain(
    situation: Situation, name: str, experiments: Iterable[Experiment], attempts: Iterable[Attempt] = ()
) -> Explanation | None:
    """All about one item, by its id; None when there is none of that name."""
    ranked, bench = situation.ranking, situation.bench()
    item = next((i for i in ranked.order if i.id == name), None)
    if item is None:
        return None
    score, stands = ranked.scores[name], standing(item, bench)
    moved = next((m for m in ranked.moved if m.item == name), None)
    return Explanation(
        item=name,
        title=item.title,
        rank=item.rank,
        planned=score.planned or None,
        place=score.place or None,
        to_try=sum(s.place > 0 for s in ranked.scores.values()),
        placed_by_owner=name in ranked.placed,
        moved=_moved(moved, score),
        promised=item.expected_gain,
        expected_gain=score.gain,
        chance=score.chance,
        cost=Cost(score.launches, score.cost_s, stated_seconds(item.cost), situation.evidence.costs is not None),
        standing=stands.kind.value,
        because=stands.because,
        evidence=tuple(_evidence(item, situation, bench, score, experiments, attempts))[:MOST_LINES],
        would_change=tuple(_would_change(stands, situation, bench)),
    )


def nearest(name: str, situation: Situation) -> list[str]:
    """The ids that a name which nothing has is probably meant for."""
    from difflib import get_close_matches

    ids = [i.id for i in situation.candidates()]
    words = name.lower().replace("_", "-")
    found = get_close_matches(words, ids, n=NEAREST, cutoff=0.5)
    return found or [i for i in ids if words in i or i in words][:NEAREST] or ids[:NEAREST]


def _moved(moved: Moved | None, score: Score) -> str:
    if moved is not None:
        return moved.because
    return "" if score.place == score.planned else "others moved"


# Evidence


def _evidence(
    item: Item,
    situation: Situation,
    bench: Bench,
    score: Score,
    experiments: Iterable[Experiment],
    attempts: Iterable[Attempt],
) -> Iterable[str]:
    for e in experiments:
        if e.item == item.id or item.id in e.items:
            yield _of_experiment(e)
    for a in attempts:
        if a.item == item.id:
            yield f"{a.experiment}: {a.verdict}{_effect(a.effect)}: {a.because}" + (
                "" if a.verified else " (not verified)"
            )
    for d in bench.running_into(item):
        yield f"dead end {d.id}: {d.cause}" + (f"; evidence {', '.join(d.evidence[:2])}" if d.evidence else "")
    for q in situation.questions:
        if q.item == item.id:
            yield f"{q.id} ({q.reason}): {'answered ' + q.answer if q.answer is not None else 'open'}"
    split = bench.splits.get(item.id)
    if split is not None:
        yield f"split into {', '.join(p.id for p in split.parts)}: {split.because}"
    for factor in score.factors:
        yield f"x {factor.value:.2f}: {factor.words}"
    if situation.surveying and situation.load is not None and may_join(item):
        yield from _foreseen(item, situation)


def _foreseen(item: Item, situation: Situation) -> Iterable[str]:
    """What a survey goes by before any of its launches: what the load and the machine tell of the item's settings."""
    base = situation.baseline.configuration
    load = situation.load.on(base) if situation.load is not None else None
    for factor in with_what_is_known(factors_of([item], base), set_in(base), load, situation.facts):
        for level in factor.levels:
            if level.risk >= UNFIT:
                yield f"foreseen of {describe(level.change)}: hardly runs, it does not go with these cards or this model"
            elif level.foreseen is not None:
                ahead = math.expm1(level.foreseen.ahead)
                yield f"foreseen of {describe(level.change)}: {ahead:+.1%}, {level.foreseen.because}"


def _of_experiment(e: Experiment) -> str:
    interval = f" [{e.low:+.1%}, {e.high:+.1%}]" if e.low is not None and e.high is not None else ""
    return f"{e.id}: {e.verdict or 'under way'}{_effect(e.effect)}{interval}" + (f": {e.because}" if e.because else "")


def _effect(effect: float | None) -> str:
    return f" {effect:+.1%}" if effect is not None else ""


# What would change it


def _would_change(stands: Standing, situation: Situation, bench: Bench) -> Iterable[str]:
    item = stands.item
    if stands.kind is Kind.RUNNABLE:
        yield "nothing has to: it is tried when those before it are; its rank in the plan, changed by hand, wins over evidence"
        return
    if stands.kind is Kind.WAITING:
        yield from _by_answer(stands, situation.questions)
        return
    binding = [d for d in bench.running_into(item) if not worth_another_look(d, bench.facts)]
    for d in binding:
        if d.retry_when:
            yield _condition(d.retry_when, bench.facts)
    if not binding and item.retry_when:
        yield _condition(item.retry_when, bench.facts)
    for need in item.needs:
        if stands.kind is Kind.BLOCKED and need in stands.because:
            yield f"{need} has to be kept" if bench.plan.item(need) else _condition(need, bench.facts)
    if stands.kind is Kind.BLOCKED:
        yield "an edit of the item in the plan"
    elif _may_be_opened(item, bench, binding):
        yield "`status: open` in the plan has it tried once more"


def _by_answer(stands: Standing, questions: Sequence[Question]) -> Iterable[str]:
    asked = next((q for q in questions if q.id == stands.waits_for), stands.question)
    if asked is None:
        return
    options = "|".join(o.key for o in asked.options) or "TEXT"
    yield f"optagent answer {asked.id or 'ID'} {options}" + ("" if asked.id else ", once it is asked")
    if asked.reason == "needs-approval":
        yield f'approvals = ["{stands.item.id}"] in optagent.toml'


def _condition(condition: str, facts: Mapping[str, str]) -> str:
    """The condition with what is known of its facts now."""
    try:
        names = dict.fromkeys(t.fact for t in parse_condition(condition).terms)
    except ValueError:
        return condition
    now = ", ".join(f"{n} is {facts[n]}" if facts.get(n) else f"{n} is not known" for n in names)
    return f"{condition} ({now})"


def _may_be_opened(item: Item, bench: Bench, binding: Sequence[DeadEnd]) -> bool:
    """Whether opening the item in the plan has it tried: its document says something else now, and no dead end of another
    change stands in the way, which that would not lift."""
    there = bench.plan.item(item.id)
    return (
        there is not None and there.status is not Status.OPEN and all(is_of(d, item.id, item.change) for d in binding)
    )
