"""Continue or ask: the contract, as a pure function with named reasons."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from optagent.agent.bundling import Bundle, bundle_of, to_take_out, together, without
from optagent.agent.change import Change
from optagent.agent.dead_ends import matching, worth_another_look
from optagent.agent.plan.model import Item
from optagent.agent.records import Option, Question, Split
from optagent.agent.searching import next_of
from optagent.agent.situation import Situation
from optagent.agent.standing import Kind, Standing, standing
from optagent.agent.verdict import expected_pairs, too_noisy
from optagent.tools.calls.configuration import Configuration


class Verb(StrEnum):
    CONTINUE = "continue"
    ASK = "ask"
    FINISH = "finish"


class StepKind(StrEnum):
    BASELINE = "baseline"
    ITEM = "item"
    CONFIRM = "confirm"
    RESUME = "resume"
    TRIAL = "trial"
    BUNDLE = "bundle"


@dataclass(frozen=True)
class Step:
    """What is done next. `change` is what is tried where that is not the item's own; `items` make up a bundle; `without`
    is the baseline without the item, when that is what the item is held against."""

    kind: StepKind
    title: str
    item: Item | None = None
    change: Change | None = None
    items: tuple[Item, ...] = ()
    without: Configuration | None = None


@dataclass(frozen=True)
class Decision:
    """What comes next, and why.

    `questions` are those that are new (their ids still empty): asked now, whatever the verb, and parked. With ASK,
    `reason` names why nothing else can go on. `reopened` are dead ends whose condition is met, with that reason; `moot`
    are open questions whose reason is gone, by their ids. `about_the_world`: what is asked is about no single item. `splits`
    are items to be taken apart from now on, `moved` those that evidence moved in the plan's order, a line each.
    """

    verb: Verb
    reason: str
    because: str
    step: Step | None = None
    questions: tuple[Question, ...] = ()
    standings: tuple[Standing, ...] = ()
    reopened: tuple[tuple[str, str], ...] = ()
    moot: tuple[str, ...] = ()
    about_the_world: bool = False
    splits: tuple[Split, ...] = ()
    moved: tuple[str, ...] = ()


REMINDER = 60
"""Characters of why an item was passed over, which every later step repeats."""

World = Callable[[Situation], Question | None]


def decide(situation: Situation) -> Decision:
    """Continue(step), Ask(questions) or Finish, each with its reasons. Same situation, same answer."""
    decision = _decide(situation)
    decision = replace(decision, moot=_moot(situation, decision))
    if not decision.standings:
        return decision
    moved = tuple(m.line for m in situation.ranking.moved)
    return replace(decision, splits=situation.due_splits, moved=moved)


def _moot(situation: Situation, decision: Decision) -> tuple[str, ...]:
    """Open questions that nothing waits for any more. While the world itself is in question, all of them stay."""
    if decision.about_the_world:
        return ()
    waited_for = {s.waits_for for s in decision.standings}
    return tuple(q.id for q in situation.questions if q.answer is None and q.id not in waited_for)


def _decide(situation: Situation) -> Decision:
    if unreadable := _ambiguous_plan(situation):
        return _ask_about_the_world(situation, unreadable)
    bench = situation.bench()
    standings = tuple(standing(item, bench) for item in situation.candidates())
    questions = tuple(s.question for s in standings if s.question is not None)
    reopened = tuple((d, s.because) for s in standings if s.kind is Kind.RUNNABLE for d in s.reopens)
    runnable = [s for s in standings if s.kind is Kind.RUNNABLE]
    work = bool(runnable) or not situation.confirmed
    drift = _output_drifted(situation)
    if not work and not drift:
        return _stop(situation, standings, questions)
    if _rests(situation):
        because = "the owner let the campaign rest when its hours were used up; raise budget.hours to go on"
        return Decision(Verb.FINISH, "budget-spent", because, None, (), standings)
    if blocking := _first(situation, WORLD_RULES):
        return _ask_about_the_world(situation, blocking, standings)
    if drift:
        return drift if isinstance(drift, Decision) else _ask_about_the_world(situation, drift, standings)

    def go(step: Step, reason: str, because: str) -> Decision:
        return Decision(Verb.CONTINUE, reason, because, step, questions, standings, reopened)

    if situation.under_way is not None and _still_wanted(situation, standings):
        title = situation.under_way.title
        return go(
            Step(StepKind.RESUME, title), "resume", f"{situation.under_way.id} was interrupted; its finished runs count"
        )
    if not situation.check.measured or (runnable and _noise_unknown(situation)):
        return go(_measure_baseline(situation), "baseline-unverified", _why_measure(situation))
    if question := _noise_question(situation):
        return _ask_about_the_world(situation, question, standings)
    if runnable:
        return go(*_next_try(situation, runnable, standings))
    because = "nothing else can run: the kept changes together are held against the first baseline, side by side"
    return go(Step(StepKind.CONFIRM, "kept changes against the first baseline"), "confirm", because)


def _next_try(
    situation: Situation, runnable: Sequence[Standing], standings: Sequence[Standing]
) -> tuple[Step, str, str]:
    """(step, reason, why) of the next item; of several at once where that saves launches."""
    inside = {s.item.id: b for s in runnable if (b := _came_in_with(s.item, situation))}
    fresh = [s for s in runnable if s.item.id not in inside]
    bundle = bundle_of([s.item for s in fresh if s.item.id not in situation.tried], situation.bundles)
    if situation.bundling and bundle and not _meets_dead_end(situation, together(bundle)):
        names = ", ".join(i.id for i in bundle)
        because = f"a launch takes long, and these are safe together; each is looked at alone afterwards: {names}"
        title = f"{len(bundle)} items together"
        return Step(StepKind.BUNDLE, title, None, together(bundle), bundle), "bundle", because
    if fresh:
        chosen = fresh[0]
        if chosen.item.space:
            return _searching(situation, chosen.item, _why_item(chosen, standings))
        return Step(StepKind.ITEM, chosen.item.title, chosen.item), "runnable", _why_item(chosen, standings)
    chosen = runnable[0]
    came_in = inside[chosen.item.id]
    less = without(situation.baseline.configuration, chosen.item.change or Change(), came_in.base)
    because = f"it was kept together with others ({came_in.experiment}): it is taken out to see whether it is missed"
    return Step(StepKind.ITEM, chosen.item.title, chosen.item, without=less), "take-out", because


def _meets_dead_end(situation: Situation, change: Change) -> bool:
    """Whether a change does all that a dead end did: several items together may, where none of them does alone."""
    binding = [d for d in situation.dead_ends if not worth_another_look(d, situation.facts)]
    return bool(matching(change, None, binding, situation.facts.get("sglang")))


def _searching(situation: Situation, item: Item, why: str) -> tuple[Step, str, str]:
    searched = next_of(
        item, situation.baseline.configuration, situation.searches.get(item.id, ()), situation.noise,
        situation.direction, situation.seed,
    )  # fmt: skip
    kind = StepKind.TRIAL if searched.look else StepKind.ITEM
    return Step(kind, item.title, item, searched.change), "search", f"{why}; {searched.words}"


def _came_in_with(item: Item, situation: Situation) -> Bundle | None:
    return to_take_out(item, situation.bundles, situation.removals.get(item.id, ()))


def _still_wanted(situation: Situation, standings: Sequence[Standing]) -> bool:
    """An experiment under way goes on unless its item has been dropped, declined, parked or changed since."""
    under_way = situation.under_way
    if under_way is None or under_way.item is None:
        return under_way is not None
    found = next((s for s in standings if s.item.id == under_way.item and s.kind is Kind.RUNNABLE), None)
    if found is not None and found.item.space:
        return True
    return found is not None and (found.item.change or Change()) == under_way.change


def _stop(situation: Situation, standings: Sequence[Standing], questions: tuple[Question, ...]) -> Decision:
    """Nothing can run: ask what is left to ask, or finish. An open question that no item waits for asks for nothing."""
    by_id = {q.id: q for q in situation.questions}
    asked = [q for s in standings if (q := s.question or by_id.get(s.waits_for)) is not None]
    if asked:
        because = f"everything that does not wait for an answer is done; {_count(len(asked), 'question')} open"
        return Decision(Verb.ASK, asked[0].reason, because, None, questions, tuple(standings))
    left = [s for s in standings if s.kind is Kind.BLOCKED and not s.final]
    if not left:
        return Decision(Verb.FINISH, "plan-finished", "every item of the plan is settled", None, (), tuple(standings))
    if _ended_by_owner(situation):
        because = f"the owner ended it with {_count(len(left), 'item')} left"
        return Decision(Verb.FINISH, "plan-finished", because, None, (), tuple(standings))
    question = Question(
        "", "nothing-runnable",
        f"Left and not able to run: {_count(len(left), 'item')}. How should it go on?",
        "what they wait for is not something that a probe or a measurement brings about",
        (Option("finish", "the campaign ends here"), Option("edited", "the plan has been changed; look at it again")),
        None, tuple(f"{s.item.id}: {s.because}" for s in left[:12]),
    )  # fmt: skip
    return _ask_about_the_world(situation, question, standings)


def _output_drifted(s: Situation) -> Question | Decision | None:
    """Small steps that each pass the gate may add up: whether that is still the same model only its owner can say."""
    if not s.drifted:
        return None
    asked = next(
        (q for q in reversed(s.questions) if q.reason == "principle-conflict" and q.facts == (s.drifted,)), None
    )
    if asked is not None and asked.answer == "accept":
        return None
    if asked is not None and asked.answer == "stop":
        because = (
            "the owner let the campaign rest: the kept changes together give another output than the first baseline"
        )
        return Decision(Verb.FINISH, "principle-conflict", because)
    return Question(
        "", "principle-conflict", "The kept changes together do not give the first baseline's output any more. May they stay?",
        "each passed the gate alone; how far the output may move in all is a matter of principle, not of measurement",
        (Option("accept", "the kept changes stay, and the campaign goes on from them"),
         Option("stop", "the campaign rests here; the handoff names what was kept and when")),
        None, (s.drifted,),
    )  # fmt: skip


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _last(situation: Situation, reason: str) -> Question | None:
    """The last question of this reason that is about no item."""
    return next((q for q in reversed(situation.questions) if q.reason == reason and q.item is None), None)


def _ended_by_owner(situation: Situation) -> bool:
    asked = _last(situation, "nothing-runnable")
    return asked is not None and asked.answer == "finish"


def _first(situation: Situation, rules: Sequence[World]) -> Question | None:
    return next((q for rule in rules if (q := rule(situation))), None)


def _ask_about_the_world(situation: Situation, question: Question, standings: Sequence[Standing] = ()) -> Decision:
    known = any(
        q.answer is None and q.item is None and (q.reason, q.facts) == (question.reason, question.facts)
        for q in situation.questions
    )
    because = "; ".join(question.facts[:1]) or question.text
    asked = () if known else (question,)
    return Decision(Verb.ASK, question.reason, because, None, asked, tuple(standings), about_the_world=True)


def _measure_baseline(situation: Situation) -> Step:
    return Step(StepKind.BASELINE, "baseline " + (situation.baseline.label or "as recorded"))


def _noise_unknown(situation: Situation) -> bool:
    return situation.noise is None or situation.noise.df < situation.noise_df_wanted


def _why_measure(situation: Situation) -> str:
    if situation.check.misses:
        return f"the baseline gave {situation.check.off:+.1%} against its record; once more before that is believed"
    if situation.baseline.measurement is None:
        return "the baseline has never been measured"
    if not situation.check.measured:
        return "a claim is not a measurement: the baseline is launched and measured before anything is held against it"
    return "how much launches vary in this environment is not known well enough to judge a change"


def _why_item(chosen: Standing, standings: Sequence[Standing]) -> str:
    before = [s for s in standings[: standings.index(chosen)] if s.kind is not Kind.DONE and not s.final]
    passed = "; ".join(f"{s.item.id} {_shortened(s.because)}" for s in before[:4])
    rank = f"rank {chosen.item.rank}" if chosen.item.rank is not None else "no rank"
    return f"{rank}, {chosen.because}" + (f" (passed over: {passed})" if passed else "")


def _shortened(reason: str) -> str:
    """A reason that is told in full elsewhere: here it only reminds."""
    return reason if len(reason) <= REMINDER else f"{reason[: REMINDER - 1].rstrip()}…"


def _foreign_server(s: Situation) -> Question | None:
    if not s.findings.foreign:
        return None
    return Question(
        "", "foreign-server", "A process that this campaign did not start is in the way. What should happen?",
        "whose it is and whether it may be stopped only its owner can say; it is not touched",
        (Option("gone", "you have stopped it; it is looked at again"),), None, (s.findings.foreign,),
    )  # fmt: skip


def _unrecorded_work(s: Situation) -> Question | None:
    if not s.findings.unrecorded:
        return None
    return Question(
        "", "unrecorded-work", "There is work in the source checkout that nobody recorded. What should happen with it?",
        "whether it belongs to the baseline, to somebody else or to nothing cannot be measured",
        (Option("set-aside", "it is committed to a branch of its own, and the checkout goes back to the baseline"),
         Option("settled", "you have taken care of it yourself; it is looked at again")),
        None, (s.findings.unrecorded,),
    )  # fmt: skip


def _ambiguous_plan(s: Situation) -> Question | None:
    fatal = [p for p in s.plan.problems if p.fatal and p.ambiguous]
    if not fatal:
        return None
    return Question(
        "", "plan-ambiguous", "The plan cannot be read one way. Please mend it.",
        "which reading was meant only its author knows",
        (Option("edited", "the plan has been changed; it is read again"),), None,
        tuple(f"line {p.line}: {p.message}" for p in fatal[:8]),
    )  # fmt: skip


def _missing_environment(s: Situation) -> Question | None:
    name = s.findings.missing_environment
    if not name:
        return None
    return Question(
        "", "baseline-moved",
        f"The serving environment {name}, which the baseline runs in, is not there or runs no server. What should happen?",
        "it was there when the baseline was recorded; building another one in its place would not be the same",
        (Option("restored", "you have put it back; it is looked at again"),), None, (f"environment {name} is missing",),
    )  # fmt: skip


def _baseline_moved(s: Situation) -> Question | None:
    again = Option("again", "you have put something right; the baseline is measured again")
    accept = Option("accept", "what is measured now becomes the baseline's record, and the campaign goes on from it")
    asked = _last(s, "baseline-moved")
    if asked is not None and asked.answer is None and any(o.key == again.key for o in asked.options):
        return asked
    why = "it was restored, launched and measured twice; why the machine gives something else is not in the journal"
    if s.check.failed and not _was_measured(s):
        text = "The first baseline does not come up, or gives no valid result. What should happen?"
        first = "it was never measured in this campaign; whether the configuration or the machine is at fault is its owner's"
        return Question("", "baseline-moved", text, f"{first} to find out", (again,), None, (s.check.failed,))
    if s.check.failed:
        text = "The baseline does not come up any more, or gives no valid result. What should happen?"
        return Question("", "baseline-moved", text, why, (again,), None, (s.check.failed,))
    if s.check.misses >= 2:
        fact = f"measured {s.check.off:+.1%} against its record, out of {s.tolerance:.0%}, twice"
        text = "The restored baseline no longer gives what was recorded. What should happen?"
        return Question("", "baseline-moved", text, why, (accept, again), None, (fact,))
    return None


def _was_measured(s: Situation) -> bool:
    """Whether the baseline has a result of this campaign's own; a claim of a handoff is none."""
    return s.baseline.measurement is not None and s.baseline.measurement.verified


def _noise_known_too_high(s: Situation) -> Question | None:
    """An open question about the noise holds, without another measurement, until the noise or the settings differ."""
    asked = _last(s, "too-noisy")
    return asked if asked is not None and asked.answer is None and _noise_question(s) else None


def _noise_question(s: Situation) -> Question | None:
    if s.noise is None or not too_noisy(s.noise, s.min_effect, s.max_pairs):
        return None
    pairs = expected_pairs(s.noise, s.min_effect)
    return Question(
        "", "too-noisy", f"Runs differ too much to tell a gain of {s.min_effect:.1%}. How should it go on?",
        "the noise was measured on the unchanged baseline; more runs are possible but cost more than was allowed",
        (Option("quiet", "you have quietened the machine; the noise is measured again"),
         Option("edited", "objective.min_effect or measuring.max_pairs in optagent.toml has been raised")),
        None, (f"one launch varies by {s.noise.launch_sd:.1f} %; about {pairs:.0f} pairs a verdict, {s.max_pairs} are allowed",),
    )  # fmt: skip


def _budget_fact(s: Situation) -> str:
    return f"budget.hours = {s.limits.hours:g} is reached" if s.limits.hours is not None else ""


def _rests(s: Situation) -> bool:
    """Whether the owner answered that the campaign rests, for the hours that are still configured."""
    asked = _last(s, "budget-spent")
    return asked is not None and asked.answer == "stop" and asked.facts == (_budget_fact(s),)


def _budget_spent(s: Situation) -> Question | None:
    """Asked when the hours are used up; a new sitting without the owner's `more` goes on waiting."""
    asked, fact = _last(s, "budget-spent"), _budget_fact(s)
    if asked is not None and asked.answer is None and asked.facts == (fact,):
        return asked
    unclear = asked is not None and asked.answer not in (None, "more", "stop") and asked.facts == (fact,)
    if not unclear and (s.limits.hours_left is None or s.limits.hours_left > 0):
        return None
    return Question(
        "", "budget-spent", "The hours of this sitting are used up. May it go on?",
        "how much the campaign may cost is the owner's to say",
        (Option("more", "another sitting of the same length"), Option("stop", "the campaign rests here")),
        None, (fact,),
    )  # fmt: skip


WORLD_RULES: tuple[World, ...] = (
    _foreign_server,
    _unrecorded_work,
    _missing_environment,
    _budget_spent,
    _baseline_moved,
    _noise_known_too_high,
)
