"""Properties of `decide`: what it never does, whatever the situation is."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

from hypothesis import given, settings
from hypothesis import strategies as st

from optagent.agent.change import Change
from optagent.agent.decide import Verb, decide
from optagent.agent.experiments import ITEM, Experiment
from optagent.agent.noise import Noise
from optagent.agent.part_ids import root_of
from optagent.agent.plan.model import Item, Plan, Risk, Status
from optagent.agent.principles import conflicts
from optagent.agent.reconcile import Findings
from optagent.agent.records import Baseline, DeadEnd, Measurement, Option, Question
from optagent.agent.situation import BaselineCheck, Limits, Situation
from optagent.agent.standing import ASKED_HERE, Kind
from optagent.agent.steps import StepKind
from optagent.tools.calls.configuration import Configuration

NAMES = ("a", "b", "c", "d")
BASE = Configuration("cu128", {"tp-size": 8})
FACTS = {"cuda": "12.8", "environment": "cu128"}
QUIET = Noise(0.5, 5)

CHANGES = {
    "flag": Change(flags={"cuda-graph-max-bs": 32}),
    "variable": Change(env={"NCCL_ALGO": "Tree"}),
    "both": Change(flags={"cuda-graph-max-bs": 32}, env={"NCCL_ALGO": "Tree"}),
    "precision": Change(flags={"kv-cache-dtype": "fp8_e4m3"}),
    "patch": Change(patch="changes/a.diff"),
    "environment": Change(environment="cu13"),
    "prose": None,
}
changes = st.sampled_from(list(CHANGES.values()))
conditions = st.sampled_from([None, "cuda>=13", "cuda>=12", "nccl>=2.30"])
statuses = st.sampled_from(list(Status))


@st.composite
def items(draw: st.DrawFn) -> list[Item]:
    found: list[Item] = []
    for rank, name in enumerate(NAMES, 1):
        needs = draw(st.lists(st.sampled_from([i.id for i in found] or ["cuda>=12"]), max_size=2, unique=True))
        found.append(Item(
            name, name, rank, rank, status=draw(statuses), change=draw(changes), needs=tuple(needs),
            risk=draw(st.sampled_from(list(Risk))), approval=draw(st.booleans()), retry_when=draw(conditions),
        ))  # fmt: skip
    return found


@st.composite
def dead_ends(draw: st.DrawFn) -> DeadEnd:
    name, change = draw(st.sampled_from([*NAMES, "other"])), draw(changes)
    item = None if name == "other" else name
    return DeadEnd(name, name, "it failed", item=item, change=change, retry_when=draw(conditions))


@st.composite
def questions(draw: st.DrawFn) -> list[Question]:
    found = []
    for number in range(draw(st.integers(0, 3))):
        reason = draw(st.sampled_from([*sorted(ASKED_HERE), "something-else"]))
        answer = draw(st.sampled_from([None, None, "approve", "again", "as you like"]))
        options = (Option("approve", ""), Option("again", ""))
        found.append(Question(f"Q{number + 1}", reason, "?", "", options, draw(st.sampled_from(NAMES)), (), answer))
    return found


some_items = st.frozensets(st.sampled_from(NAMES))
some_statuses = st.dictionaries(st.sampled_from(NAMES), statuses)
findings = st.sampled_from([
    Findings(), Findings(foreign="pid 1 listens on the port"), Findings(unrecorded="changes in a.py"),
    Findings(missing_environment="cu128"), Findings(drifted=("a",)),
])  # fmt: skip


@st.composite
def situations(draw: st.DrawFn) -> Situation:
    measurement = Measurement("output_throughput", 100.0, verified=True)
    under_way = draw(st.none() | st.builds(
        lambda item, change: Experiment("E0009", ITEM, item, BASE, "S001", item, change or Change()),
        st.sampled_from(NAMES), changes,
    ))  # fmt: skip
    return Situation(
        plan=Plan("p", tuple(draw(items()))), baseline=Baseline(BASE, measurement), first_baseline=None,
        principles=SimpleNamespace(
            preserve_precision=draw(st.booleans()), allow_code_changes=draw(st.booleans()), forbidden_flags=[]
        ),
        status=draw(some_statuses), written=draw(some_statuses), dead_ends=tuple(draw(st.lists(dead_ends(), max_size=3))),
        questions=tuple(draw(questions())), approvals=draw(some_items), exceptions=draw(some_items), lifted=draw(some_items),
        repeated=dict.fromkeys(draw(some_items), "it failed"), facts=FACTS, findings=draw(findings),
        limits=draw(st.sampled_from([Limits(), Limits(2, 1.5), Limits(2, -0.5)])),
        check=draw(st.sampled_from([BaselineCheck(), BaselineCheck(True), BaselineCheck(False, -0.1, 2)])),
        noise=draw(st.sampled_from([None, QUIET, Noise(20.0, 5)])), under_way=under_way, confirmed=draw(st.booleans()),
        drifted=draw(st.sampled_from(["", "", "E0009: KL 0.03 nats a token"])),
    )  # fmt: skip


def calm(situation: Situation) -> Situation:
    """The same plan and journal with nothing in the way: the baseline is measured, the noise is known and low."""
    return replace(
        situation,
        findings=Findings(),
        limits=Limits(),
        check=BaselineCheck(True),
        noise=QUIET,
        under_way=None,
        drifted="",
    )


def chosen(situation: Situation) -> Item | None:
    """The item that the step is about, resumed ones included."""
    step = decide(situation).step
    if step is not None and step.kind is StepKind.RESUME:
        assert situation.under_way is not None
        return situation.plan.item(situation.under_way.item or "")
    return step.item if step is not None else None


@given(situations())
@settings(max_examples=150, deadline=None)
def test_same_situation_same_answer(situation: Situation) -> None:
    assert decide(situation) == decide(replace(situation))


@given(situations())
@settings(max_examples=200, deadline=None)
def test_an_item_that_is_tried_is_free_to_be_tried(situation: Situation) -> None:
    item = chosen(situation)
    if item is None:
        return
    change = item.change or Change()
    assert not change.empty
    assert not any(q.item == item.id and q.answer is None and q.reason == "something-else" for q in situation.questions)
    names = {item.id, root_of(item.id)}
    if not names & situation.exceptions:
        assert not conflicts(change, situation.principles)
    if not names & situation.approvals:
        assert change.environment is None
        assert item.risk is not Risk.HIGH
        assert not item.approval
    assert item.id not in situation.repeated
    for need in item.needs:
        other = situation.plan.item(need)
        assert other is None or Status.KEPT in (other.status, situation.status.get(need))


@given(situations())
@settings(max_examples=200, deadline=None)
def test_a_dead_end_is_not_tried_before_its_condition_holds(situation: Situation) -> None:
    item = chosen(situation)
    if item is None:
        return
    reopened = item.status is Status.OPEN and situation.written.get(item.id, Status.OPEN) is not Status.OPEN
    own = item.id in situation.lifted or (reopened and item.id in situation.status) or reopened
    for dead in situation.dead_ends:
        if dead.retry_when == "cuda>=12" or (own and (dead.item == item.id or dead.change == item.change)):
            continue
        assert dead.item != item.id
        change = item.change
        assert change is None or dead.change is None or change != dead.change


@given(situations())
@settings(max_examples=150, deadline=None)
def test_with_a_foreign_server_it_never_goes_on(situation: Situation) -> None:
    foreign = replace(situation, findings=Findings(foreign="pid 1 listens on the port"))
    decision = decide(foreign)
    assert decision.verb is not Verb.CONTINUE
    if decide(calm(situation)).verb is Verb.CONTINUE and situation.limits.hours_left is None:
        assert decision.reason == "foreign-server"


@given(situations(), st.sampled_from(NAMES), st.sampled_from([*sorted(ASKED_HERE), "something-else"]))
@settings(max_examples=200, deadline=None)
def test_a_question_about_one_item_never_stops_an_independent_one(
    situation: Situation, about: str, reason: str
) -> None:
    before = calm(situation)
    question = Question("Q9", reason, "?", "", (), about)
    after = replace(before, questions=(*before.questions, question))
    here = {s.item.id: s.kind for s in decide(before).standings}
    there = {s.item.id: s.kind for s in decide(after).standings}
    assert all(there[name] is kind for name, kind in here.items() if name != about)
    free = [n for n, kind in here.items() if kind is Kind.RUNNABLE and n != about]
    if free:
        decision = decide(after)
        assert decision.verb is Verb.CONTINUE
        assert decision.step is not None
        assert decision.step.item is not None


@given(situations())
@settings(max_examples=200, deadline=None)
def test_asking_answers_nothing(situation: Situation) -> None:
    """After its questions are asked and nobody has answered, no item may be tried that waited, and none is asked again."""
    first = decide(situation)
    asked = tuple(replace(q, id=f"Q{90 + n}") for n, q in enumerate(first.questions))
    waiting = {q.item for q in asked if q.item}
    parked = {q.item: Status.PARKED for q in asked if q.item and q.reason != "plan-ambiguous"}
    parked |= {split.item: Status.DEAD for split in first.splits}
    plan = Plan("p", tuple(replace(i, status=parked.get(i.id, i.status)) for i in situation.plan.items))
    again = replace(
        situation,
        plan=plan,
        status={**situation.status, **parked},
        written={k: v for k, v in {**situation.written, **parked}.items() if situation.plan.item(k)},
        questions=(*(q for q in situation.questions if q.id not in first.moot), *asked),
        lifted=situation.lifted | {q.item for q in asked if q.item and q.reason != "plan-ambiguous"},
        splits={**situation.splits, **{split.item: split for split in first.splits}},
    )
    second = decide(again)
    assert not {(q.reason, q.item) for q in second.questions} & {(q.reason, q.item) for q in asked}
    item = chosen(again)
    assert item is None or item.id not in waiting
    if first.verb is Verb.ASK:
        assert second.verb is Verb.ASK
        assert second.reason in {q.reason for q in again.questions}, "one of those that are open, whichever comes first"


@given(situations())
@settings(max_examples=150, deadline=None)
def test_every_decision_says_why(situation: Situation) -> None:
    decision = decide(situation)
    assert decision.reason
    assert decision.because
    assert (decision.step is not None) == (decision.verb is Verb.CONTINUE)
    if decision.verb is Verb.ASK:
        assert decision.questions or any(q.answer is None for q in situation.questions)


def question(number: int, item: str | None, reason: str) -> Question:
    return Question(f"Q{number}", reason, "May it?", "yours to say", (Option("approve", "on"),), item)


def test_a_question_whose_reason_is_gone_is_withdrawn_and_one_that_is_waited_for_stays() -> None:
    risky = Item("risky", "a risk", 1, 1, change=Change(flags={"a": 1}), risk=Risk.HIGH)
    settled = Item("settled", "done", 2, 2, change=Change(flags={"b": 1}), status=Status.KEPT)
    free = Item("free", "free", 3, 3, change=Change(flags={"c": 1}))
    asked = (
        question(1, "risky", "needs-approval"),
        question(2, "settled", "needs-approval"),
        question(3, None, "foreign-server"),
    )
    plan = Plan("plan", (risky, settled, free))
    base = Baseline(Configuration("default"), Measurement("output_throughput", 100.0))
    known = SimpleNamespace(preserve_precision=True, allow_code_changes=True, forbidden_flags=[])
    situation = Situation(
        plan,
        base,
        base,
        known,
        questions=asked,
        check=BaselineCheck(measured=True),
        noise=Noise(0.5, 10),
        confirmed=True,
    )
    assert decide(situation).moot == ("Q2", "Q3")
    blocked = replace(situation, findings=Findings(foreign="pid 1 listens on the port"))
    assert decide(blocked).moot == (), "while the world itself is in question nothing is withdrawn"


def test_why_something_was_passed_over_is_a_short_reminder() -> None:
    long = "out of memory at 75.3 GB of 79.1, " * 9
    failed = [Item(f"i{n}", "i", n, n, change=Change(flags={"a": n})) for n in (1, 2)]
    dead = tuple(DeadEnd(i.id, "i", long, item=i.id, change=i.change, retry_when="cuda>=13") for i in failed)
    plan = Plan("plan", (*failed, Item("free", "free", 3, 3, change=Change(flags={"c": 1}))))
    base = Baseline(BASE, Measurement("output_throughput", 100.0))
    known = SimpleNamespace(preserve_precision=True, allow_code_changes=True, forbidden_flags=[])
    situation = Situation(
        plan,
        base,
        base,
        known,
        dead_ends=dead,
        facts=FACTS,
        check=BaselineCheck(measured=True),
        noise=QUIET,
        confirmed=True,
    )
    because = decide(situation).because
    assert "passed over: i1 out of memory at 75.3 GB" in because
    assert long[:61] not in because
    assert because.count("…") == 2
    assert any(long in s.because for s in decide(situation).standings), "in full where the item is looked at"


def test_kept_changes_that_drifted_together_are_the_owners_to_judge() -> None:
    kept = Plan("plan", (Item("a", "a", 1, 1, change=Change(flags={"a": 1}), status=Status.KEPT),))
    base = Baseline(BASE, Measurement("output_throughput", 100.0))
    known = SimpleNamespace(preserve_precision=True, allow_code_changes=True, forbidden_flags=[])
    fine = Situation(kept, base, base, known, check=BaselineCheck(measured=True), noise=QUIET, confirmed=True)
    assert decide(fine).verb is Verb.FINISH

    drifted = replace(fine, drifted="E0009: KL 0.03 nats a token, at most 0.02")
    asked = decide(drifted)
    assert (asked.verb, asked.reason, len(asked.questions)) == (Verb.ASK, "principle-conflict", 1)
    open_ = replace(asked.questions[0], id="Q1")
    assert decide(replace(drifted, questions=(open_,))).questions == (), "it is asked once"
    for answer, verb, reason in [("accept", Verb.FINISH, "plan-finished"), ("stop", Verb.FINISH, "principle-conflict")]:
        decision = decide(replace(drifted, questions=(replace(open_, answer=answer),)))
        assert (decision.verb, decision.reason) == (verb, reason)


def test_a_first_baseline_that_does_not_come_up_is_not_told_as_one_that_moved() -> None:
    plan = Plan("plan", (Item("a", "a", 1, 1, change=Change(flags={"a": 1})),))
    known = SimpleNamespace(preserve_precision=True, allow_code_changes=True, forbidden_flags=[])
    failed = BaselineCheck(failed="exit status 2: unrecognized arguments")
    first = Baseline(BASE)
    claimed = Baseline(BASE, Measurement("output_throughput", 100.0))
    verified = Baseline(BASE, Measurement("output_throughput", 100.0, verified=True))
    for baseline, new in ((first, True), (claimed, True), (verified, False)):
        decision = decide(Situation(plan, baseline, baseline, known, check=failed))
        assert (decision.verb, decision.reason) == (Verb.ASK, "baseline-moved")
        told = f"{decision.questions[0].text} {decision.questions[0].why}"
        assert ("never measured in this campaign" in told) == new
        assert ("any more" in told or "twice" in told) != new
