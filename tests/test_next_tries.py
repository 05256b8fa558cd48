"""What is tried next: one item, one combination of several, one point of a search, or what is left without an item."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from types import SimpleNamespace

import pytest

from optagent.agent.bundling import Bundle
from optagent.agent.change import Change, apply_change
from optagent.agent.decide import Decision, Verb, decide
from optagent.agent.experiments import BASELINE, BUNDLE, SURVEY, TRIAL, Experiment, Failure, Run
from optagent.agent.flag_combinations import IPC
from optagent.agent.noise import Noise
from optagent.agent.plan.model import Item, Plan, Risk, Status
from optagent.agent.records import Baseline, DeadEnd, Measurement
from optagent.agent.search.space import Axis
from optagent.agent.situation import BaselineCheck, Situation
from optagent.agent.steps import StepKind
from optagent.agent.verdict import Verdict
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
    return decision.step.kind, decision.step.item.id if decision.step.item else "".join(decision.step.items)


def test_short_launches_try_one_item_at_a_time() -> None:
    assert step_of(decide(situation(*ITEMS))) == (StepKind.ITEM, "a")


# A survey


def flags_of(*names: str) -> dict[str, object]:
    return {k: v for name in names for k, v in FLAGS[name].items()}


def measured(base: Configuration = BASE) -> Experiment:
    return Experiment("E0001", BASELINE, "", base, "S001", runs=(Run("baseline", 1, 100.0),), verdict="keep")


def looked(number: int, items: str, value: float) -> Experiment:
    """A launch of a survey of all three."""
    change = Change(flags=flags_of(*items))
    return Experiment(
        f"E{number:04d}", SURVEY, "", BASE, "S001", change=change, candidate=apply_change(BASE, change), items=tuple(items),
        among=("a", "b", "c"), root=BASE, verdict="inconclusive", runs=(Run("candidate", 1, value),),
    )  # fmt: skip


def surveying(*items: Item, **more: object) -> Situation:
    """Where launches are long, and the baseline was measured."""
    return situation(*(items or ITEMS), **{"surveying": True, "experiments": (measured(),), **more})


WAITS = Item("w", "w", 4, 4, change=Change(flags={"stream-interval": 4}), needs=("a",))
PATCHED = Item("p", "p", 4, 4, change=Change(patch="p.diff"))


def test_long_launches_look_at_simple_items_together() -> None:
    decision = decide(surveying())
    kind, items = step_of(decision)
    assert (kind, decision.reason) == (StepKind.SURVEY, "survey")
    step = decision.step
    assert step is not None
    assert step.change == Change(flags=flags_of(*items))
    assert step.among == ("a", "b", "c")
    assert (step.root, step.item) == (BASE, None)
    assert step.outlook is not None


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"experiments": ()}, (StepKind.ITEM, "a")),  # nothing to go by
        ({"tried": frozenset("b")}, (StepKind.ITEM, "a")),  # what was tried alone joins no more
        ({"check": BaselineCheck(False)}, (StepKind.BASELINE, "")),
        ({"noise": None, "experiments": ()}, (StepKind.BASELINE, "")),
    ],
)
def test_what_comes_before_a_survey_or_in_its_place(more: dict[str, object], expected: tuple[StepKind, str]) -> None:
    assert step_of(decide(surveying(**more))) == expected


def test_a_survey_learns_the_noise_on_its_way() -> None:
    assert step_of(decide(surveying(noise=None)))[0] is StepKind.SURVEY
    verdict = surveying(noise=None, experiments=(measured(), *every_look({"a": 0.1, "b": -0.1, "c": -0.1})))
    assert step_of(decide(verdict))[0] is StepKind.BASELINE, "a verdict is given by what is known of it"


def test_items_that_change_more_than_settings_join_no_survey() -> None:
    step = decide(surveying(PATCHED, *ITEMS)).step
    assert step is not None
    assert step.among == ("a", "b", "c")
    assert step_of(decide(surveying(PATCHED, *ITEMS[:2]))) == (StepKind.ITEM, "p")


def test_what_waits_for_others_of_the_survey_comes_along_with_them() -> None:
    step = decide(surveying(*ITEMS, WAITS)).step
    assert step is not None
    assert set(step.among) == {"a", "b", "c", "w"}
    assert "a" in step.items or "w" not in step.items
    without = decide(surveying(*ITEMS[1:], WAITS, RISKY, Item("a", "a", 5, 5, change=Change(patch="p.diff")))).step
    assert without is not None
    assert set(without.among) == {"b", "c", "r"}


def test_a_range_is_not_brought_along() -> None:
    """An item that needs one with a range waits: which value it would need is not known yet."""
    step = decide(surveying(*ITEMS, RANGED, replace(WAITS, needs=("s",)))).step
    assert step is not None
    assert set(step.among) == {"a", "b", "c", "s"}


def test_what_the_principles_forbid_together_is_not_launched() -> None:
    """Each may be tried: it is the combination that does all that failed before."""
    dead = DeadEnd("both", "both of them", "hangs", change=Change(flags=flags_of("a", "b")), item="z")
    done: list[Experiment] = [measured()]
    while (found := step_of(decision := decide(surveying(experiments=done, dead_ends=(dead,)))))[0] is StepKind.SURVEY:
        assert not {"a", "b"} <= set(found[1])
        assert len(done) < 8, "there are no more combinations"
        assert decision.step is not None
        done.append(looked(len(done) + 1, found[1], 100.0))
    assert {"a", "b"} <= {i for e in done for i in e.items}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        # the server refuses both together
        (Change(flags={"dp-size": 2}), Change(flags={"attn-dp-size": 2})),
        # the one has no effect with the other
        (Change(env={IPC: "1"}), Change(flags={"enable-deterministic-inference": True})),
    ],
)
def test_what_excludes_itself_is_not_launched(one: Change, other: Change) -> None:
    """Each may be tried by itself."""
    items = (ITEMS[1], Item("x", "x", 2, 2, change=one), Item("y", "y", 3, 3, change=other))
    done: list[Experiment] = [measured()]
    while (found := step_of(decision := decide(surveying(*items, experiments=done))))[0] is StepKind.SURVEY:
        assert not {"x", "y"} <= set(found[1])
        assert len(done) < 8, "there are no more combinations"
        assert decision.step is not None
        change = decision.step.change
        assert change is not None
        done.append(
            replace(
                looked(len(done) + 1, "", 100.0), change=change, candidate=apply_change(BASE, change), items=decision.step.items,
                among=("b", "x", "y"),
            )
        )  # fmt: skip
    assert {"x", "y"} <= {i for e in done for i in e.items}


def every_look(effects: dict[str, float]) -> tuple[Experiment, ...]:
    combinations = [c for n in range(1, 4) for c in itertools.combinations("abc", n)]
    return tuple(
        looked(n, "".join(names), 100 * math.exp(sum(effects[name] for name in names)))
        for n, names in enumerate(combinations, 2)
    )


def test_the_best_of_a_survey_is_put_to_a_verdict() -> None:
    decision = decide(surveying(experiments=(measured(), *every_look({"a": 0.1, "b": -0.1, "c": -0.1}))))
    assert step_of(decision) == (StepKind.BUNDLE, "a")
    assert decision.step is not None
    assert (decision.step.change, decision.step.root) == (Change(flags=flags_of("a")), BASE)


def test_what_a_survey_shows_to_gain_nothing_is_settled_by_it() -> None:
    """Without a launch of its own. What may gain is tried as any item."""
    looks = every_look({"a": -0.05, "b": 0.0, "c": 0.0})
    decision = decide(surveying(experiments=(measured(), *looks)))
    assert step_of(decision) == (StepKind.ITEM, "a")
    assert decision.step is not None
    assert decision.step.judged is not None
    assert decision.step.judged.verdict is Verdict.REVERT
    assert decision.step.change == Change(flags=flags_of("a"))
    for more in ({"surveying": False}, {"lifted": frozenset("a")}):
        step = decide(surveying(experiments=(measured(), *looks), **more)).step
        assert step is not None
        assert (step.kind, step.judged) == (StepKind.ITEM, None)


# What came in together


def kept(**more: object) -> Situation:
    """All three came in together."""
    together = apply_change(BASE, Change(flags=flags_of("a", "b", "c")))
    bundle = Bundle("E0002", ("a", "b", "c"), True, BASE, BASE)
    now = Baseline(together, Measurement("output_throughput", 120.0, verified=True))
    ended = Experiment("E0002", BUNDLE, "", BASE, "S001", candidate=together, items=("a", "b", "c"), verdict="keep")
    return replace(  # type: ignore[arg-type]
        surveying(bundles=(bundle,), baseline=now, experiments=(measured(), ended)), **more
    )


def test_what_came_in_together_is_taken_out_one_by_one() -> None:
    decision = decide(kept())
    assert step_of(decision) == (StepKind.ITEM, "a")
    assert decision.step is not None
    assert decision.step.without == apply_change(BASE, Change(flags=flags_of("b", "c")))
    settled = kept(removals={"a": ["E0003"]}, status={"a": Status.KEPT}, written={"a": Status.OPEN})
    assert step_of(decide(settled)) == (StepKind.ITEM, "b")


def test_other_items_come_before_what_came_in_together() -> None:
    plan = Plan("p", (*ITEMS, RISKY))
    assert step_of(decide(kept(plan=plan))) == (StepKind.ITEM, "r")


def test_what_its_owner_parked_is_not_taken_out() -> None:
    parked, trying = replace(ITEMS[0], status=Status.PARKED), dict.fromkeys("abc", Status.TRYING)
    came_in = kept(plan=Plan("p", (parked, *ITEMS[1:])), status=trying, written=trying)
    assert step_of(decide(came_in)) == (StepKind.ITEM, "b")


def came_in_with_what_it_needs(**more: object) -> Situation:
    both = apply_change(BASE, Change(flags={**flags_of("a"), **WAITS.change.flags}))  # type: ignore[union-attr]
    came_in = replace(
        looked(2, "a", 120.0), candidate=both, items=("a", "w"), among=("a", "b", "c", "w"), verdict="keep"
    )
    return surveying(
        *ITEMS, WAITS, baseline=Baseline(both, Measurement("output_throughput", 120.0, verified=True)),
        bundles=(Bundle("E0002", ("a", "w"), True, BASE, BASE),), experiments=(measured(), came_in),
        **{"status": {"a": Status.TRYING, "w": Status.TRYING}, **more},
    )  # fmt: skip


def test_a_survey_goes_on_from_the_configuration_without_what_came_in() -> None:
    """Also without what needs an item that came in with it, and has no verdict yet."""
    decision = decide(came_in_with_what_it_needs())
    kind, items = step_of(decision)
    assert decision.step is not None
    assert (kind, decision.step.root) == (StepKind.SURVEY, BASE)
    assert "a" in items or "w" not in items


def test_what_needs_another_is_taken_out_first() -> None:
    came_in = came_in_with_what_it_needs(plan=Plan("p", (ITEMS[0], WAITS)), surveying=False)
    decision = decide(came_in)
    assert step_of(decision) == (StepKind.ITEM, "w")
    assert decision.step is not None
    assert decision.step.without == apply_change(BASE, Change(flags=flags_of("a")))
    settled = replace(came_in, removals={"w": ["E0003"]}, status={"a": Status.TRYING, "w": Status.KEPT})
    assert step_of(decide(settled)) == (StepKind.ITEM, "a")


# A search


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
