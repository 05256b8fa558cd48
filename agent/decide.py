"""Continue or ask: the contract, as a pure function with named reasons."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from optagent.agent.change import Change
from optagent.agent.next_tries import came_inside, next_of_survey, next_try
from optagent.agent.records import Option, Question, Split
from optagent.agent.situation import Situation
from optagent.agent.standing import Kind, Standing, standing
from optagent.agent.steps import Step, StepKind
from optagent.agent.verdict import expected_pairs, too_noisy

if TYPE_CHECKING:
    pass


class Verb(StrEnum):
    CONTINUE = "continue"
    ASK = "ask"
    FINISH = "finish"


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
    if not situation.check.measured:
        return go(_measure_baseline(situation), "baseline-unverified", _why_measure(situation))
    survey = next_of_survey(situation, runnable, standings) if situation.surveying and runnable else None
    if survey is not None and survey[0].kind is StepKind.SURVEY:
        return go(*survey)
    if runnable and _noise_unknown(situation):
        return go(_measure_baseline(situation), "baseline-unverified", _why_measure(situation))
    if question := _noise_question(situation):
        return _ask_about_the_world(situation, question, standings)
    if runnable:
        return go(*(survey or next_try(situation, runnable, standings)))
    because = "nothing else can run: the kept changes together are held against the first baseline, side by side"
    return go(Step(StepKind.CONFIRM, "kept changes against the first baseline"), "confirm", because)


def _still_wanted(situation: Situation, standings: Sequence[Standing]) -> bool:
    """An experiment under way goes on unless its item has been dropped, declined, parked or changed since."""
    under_way = situation.under_way
    if under_way is None or under_way.item is None:
        return under_way is not None
    if under_way.removal:
        return under_way.item in came_inside(situation, standings)
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
    if situation.elsewhere:
        return f"the workload changed since the baseline was measured under {situation.elsewhere}: measured anew"
    if situation.baseline.measurement is None:
        return "the baseline has never been measured"
    if not situation.check.measured:
        return "a claim is not a measurement: the baseline is launched and measured before anything is held against it"
    return "how much launches vary in this environment is not known well enough to judge a change"


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
    return bool(s.elsewhere) or (s.baseline.measurement is not None and s.baseline.measurement.verified)


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
