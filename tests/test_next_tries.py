"""What is tried next: one item, several at once, one point of a search, or what is left without an item."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

from optagent.agent.bundling import Bundle
from optagent.agent.change import Change, apply_change
from optagent.agent.decide import Decision, StepKind, Verb, decide
from optagent.agent.experiments import TRIAL, Experiment, Failure, Run
from optagent.agent.noise import Noise
from optagent.agent.plan.model import Item, Plan, Risk, Status
from optagent.agent.records import Baseline, Measurement
from optagent.agent.search.space import Axis
from optagent.agent.situation import BaselineCheck, Situation
from optagent.tools.calls.configuration import Configuration

BASE = Configuration("default", {"tp-size": 8})
FLAGS = {"a": {"enable-mixed-chunk": True}, "b": {"schedule-conservativeness": 0.5}, "c": {"page-size": 32}}
ITEMS = tuple(
    Item(name, name, n, n, change=Change(flags=dict(flags))) for n, (name, flags) in enumerate(FLAGS.items(), 1)
)
RISKY = Item("r", "r", 4, 4, change=Change(flags={"cuda-graph-max-bs": 8}), risk=Risk.MEDIUM)
SPACE = (Axis("flag", "cuda-graph-max-bs", values=(8, 16, 32)),)
RANGED = Item("s", "s", 1, 1, change=Change(), space=SPACE)


def situation(*items: Item, **more: object) -> Situation:
    measured = Baseline(BASE, Measurement("output_throughput", 100.0, verified=True))
    made = Situation(
        Plan("p", items), measured, measured,
        SimpleNamespace(preserve_precision=True, allow_code_changes=True, forbidden_flags=[]),
        facts={"environment": "default"}, check=BaselineCheck(True), noise=Noise(1.0, 9), confirmed=True,
    )  # fmt: skip
    return replace(made, **more)  # type: ignore[arg-type]


def step_of(decision: Decision) -> tuple[StepKind, str]:
    assert decision.verb is Verb.CONTINUE
    assert decision.step is not None
    return decision.step.kind, decision.step.item.id if decision.step.item else "".join(
        i.id for i in decision.step.items
    )


def test_short_launches_try_one_item_at_a_time() -> None:
    assert step_of(decide(situation(*ITEMS))) == (StepKind.ITEM, "a")


def test_long_launches_try_safe_items_together() -> None:
    decision = decide(situation(RISKY, *ITEMS, bundling=True))
    assert step_of(decision) == (StepKind.BUNDLE, "abc")
    assert decision.step is not None
    assert decision.step.change == Change(flags={k: v for flags in FLAGS.values() for k, v in flags.items()})


def test_what_was_tried_alone_joins_no_bundle() -> None:
    assert step_of(decide(situation(*ITEMS, bundling=True, tried=frozenset("b")))) == (StepKind.ITEM, "a")


def kept(**more: object) -> Situation:
    """All three came in together."""
    together = apply_change(BASE, Change(flags={k: v for flags in FLAGS.values() for k, v in flags.items()}))
    bundle = Bundle("E0002", ("a", "b", "c"), True, BASE)
    now = Baseline(together, Measurement("output_throughput", 120.0, verified=True))
    return replace(situation(*ITEMS, bundling=True, bundles=(bundle,), baseline=now), **more)  # type: ignore[arg-type]


def test_what_came_in_together_is_taken_out_one_by_one() -> None:
    decision = decide(kept())
    assert step_of(decision) == (StepKind.ITEM, "a")
    assert decision.step is not None
    assert decision.step.without == apply_change(BASE, Change(flags={**FLAGS["b"], **FLAGS["c"]}))
    settled = kept(removals={"a": ["E0003"]}, status={"a": Status.KEPT}, written={"a": Status.OPEN})
    assert step_of(decide(settled)) == (StepKind.ITEM, "b")


def test_other_items_come_before_what_came_in_together() -> None:
    plan = Plan("p", (*ITEMS, RISKY))
    assert step_of(decide(kept(plan=plan))) == (StepKind.ITEM, "r")


def trial(number: int, value: float | None, size: int, kind: str = "") -> Experiment:
    failures = (Failure("candidate", "launch", kind, "it failed"),) if kind else ()
    runs = (Run("candidate", 1, value),) if value is not None else ()
    return Experiment(
        f"E{number:04d}", TRIAL, "s", BASE, "S001", "s", Change(flags={"cuda-graph-max-bs": size}), goal=1, runs=runs,
        failures=failures, verdict="failed" if kind else "inconclusive",
    )  # fmt: skip


def searched(*trials: Experiment) -> Decision:
    return decide(situation(RANGED, searches={"s": trials}))


def test_an_item_with_a_range_is_searched_point_by_point() -> None:
    seen: list[object] = []
    for number in range(1, 4):
        decision = searched(*(trial(n, 100.0 + n, int(str(size))) for n, size in enumerate(seen, 1)))
        assert step_of(decision) == (StepKind.TRIAL, "s")
        assert decision.step is not None
        assert decision.step.change is not None
        seen.append(decision.step.change.flags["cuda-graph-max-bs"])
        assert len(set(map(str, seen))) == number
    assert sorted(int(str(s)) for s in seen) == [8, 16, 32]


def test_the_best_point_is_then_tried_as_any_item() -> None:
    decision = searched(trial(1, 100.0, 8), trial(2, 130.0, 16), trial(3, 90.0, 32))
    assert step_of(decision) == (StepKind.ITEM, "s")
    assert decision.step is not None
    assert decision.step.change == Change(flags={"cuda-graph-max-bs": 16})


def test_what_needs_more_than_what_failed_is_not_launched() -> None:
    decision = searched(trial(1, 100.0, 8), trial(2, None, 16, "gpu-oom-graph-capture"))
    assert step_of(decision) == (StepKind.ITEM, "s"), "32 would need more, so the search has ended"
    assert decision.step is not None
    assert decision.step.change == Change(flags={"cuda-graph-max-bs": 8})


def test_trials_on_another_baseline_count_for_nothing() -> None:
    old = replace(trial(1, 100.0, 8), base=Configuration("default", {"tp-size": 4}))
    assert step_of(searched(old)) == (StepKind.TRIAL, "s")


def test_a_range_over_a_precision_flag_is_asked_about_before_any_launch() -> None:
    ranged = replace(RANGED, space=(Axis("flag", "kv-cache-dtype", values=("auto", "fp8_e4m3")),))
    decision = decide(situation(ranged))
    assert [q.reason for q in decision.questions] == ["principle-conflict"]
