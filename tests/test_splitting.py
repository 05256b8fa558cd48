"""Bundles taken apart: into which parts, when, who is to blame, and which items come of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optagent.agent.candidates import candidates
from optagent.agent.canonical import equal
from optagent.agent.change import Change, change_body
from optagent.agent.experiments import ITEM, Experiment, Failure
from optagent.agent.part_ids import is_part, root_of
from optagent.agent.plan.model import Item, Plan, Risk, Status
from optagent.agent.records import DeadEnd, Split, SplitPart
from optagent.agent.search.space import Axis
from optagent.agent.splitting import (
    concerns,
    kept_together,
    merged,
    parts_of,
    settled_elsewhere,
    split_ahead,
    split_wanted,
    take_apart,
    with_parts,
)
from optagent.agent.verdict import Judgement, Verdict
from optagent.tools.calls.configuration import Configuration

BASE = Configuration("cu128", {"tp-size": 8, "model-path": "m"}, {}, {}, "a1")


def shown(change: Change, base: Configuration | None = None) -> list[set[str]]:
    """The parts by the names they have."""
    return [
        set().union(*(v if isinstance(v, dict) else {v} for v in change_body(p.change).values()))
        for p in parts_of(change, base)
    ]


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        (Change(), []),
        (Change(flags={"page-size": 64}), [{"page-size"}]),
        (Change(flags={"page-size": 64, "stream-interval": 10}), [{"page-size"}, {"stream-interval"}]),
        (
            Change(flags={"speculative-algorithm": "EAGLE3", "page-size": 64, "speculative_num_steps": 3}),
            [{"speculative-algorithm", "speculative_num_steps"}, {"page-size"}],
        ),
        (
            Change(flags={"enable-lora": True, "max-loras-per-batch": 4, "lora-backend": "triton", "max-lora-rank": 16}),
            [{"enable-lora", "max-loras-per-batch", "lora-backend", "max-lora-rank"}],
        ),
        (
            Change(flags={"enable-hicache": True, "hicache-ratio": 2, "hicache-size": 30, "page-size": 64}),
            [{"enable-hicache", "hicache-ratio", "hicache-size"}, {"page-size"}],
        ),
        (
            Change(flags={"enable-torch-compile": True, "page-size": 64, "torch-compile-max-bs": 8}),
            [{"enable-torch-compile", "torch-compile-max-bs"}, {"page-size"}],
        ),
        (
            Change(flags={"tp": 4, "dp_size": 2, "page-size": 64, "enable-dp-attention": True, "moe-a2a-backend": "deepep"}),
            [{"tp", "dp_size", "enable-dp-attention", "moe-a2a-backend"}, {"page-size"}],
        ),
        (
            Change(flags={"disaggregation-mode": "decode", "disaggregation-ib-device": "mlx5_0"}),
            [{"disaggregation-mode", "disaggregation-ib-device"}],
        ),
        (
            Change(env={"NCCL_ALGO": "Tree", "NCCL_PROTO": "LL"}, patch="a.diff", environment="cu13", files={"a.py": "x"}),
            [{"NCCL_ALGO"}, {"NCCL_PROTO"}, {"a.py"}, {"a.diff"}, {"cu13"}],
        ),
        # of what needs the other, on a bare server
        (Change(flags={"enable-prefill-cp": True, "cp-strategy": "zigzag"}), [{"enable-prefill-cp", "cp-strategy"}]),
        (Change(flags={"enable-eplb": True, "stream-interval": 2, "ep-size": 8, "tp-size": 8}),
         [{"enable-eplb", "ep-size", "tp-size"}, {"stream-interval"}]),
        (Change(flags={"attn-dp-size": 8, "tp-size": 8}), [{"attn-dp-size", "tp-size"}]),
        (Change(flags={"retraction-policy": "priority", "enable-priority-scheduling": True}),
         [{"retraction-policy", "enable-priority-scheduling"}]),
        (Change(flags={"cp-strategy": "zigzag", "page-size": 4}),
         [{"cp-strategy"}, {"page-size"}]),  # of no use together either: nothing holds them
    ],
)  # fmt: skip
def test_the_parts_of_a_change(change: Change, parts: list[set[str]]) -> None:
    assert shown(change) == parts


def test_what_the_baseline_has_needs_no_company() -> None:
    change = Change(flags={"attn-dp-size": 8, "page-size": 64})
    assert shown(change, BASE) == [{"attn-dp-size"}, {"page-size"}]
    with_size = Change(flags={"attn-dp-size": 16, "tp-size": 16})
    assert shown(with_size, BASE) == [{"attn-dp-size", "tp-size"}]


names = st.sampled_from(
    [
        "tp-size",
        "attn-dp-size",
        "page-size",
        "enable-eplb",
        "ep-size",
        "speculative-algorithm",
        "speculative-num-steps",
        "enable-lora",
        "hicache-ratio",
        "enable-prefill-cp",
        "cp-strategy",
        "chunked-prefill-size",
    ]
)
changes = st.builds(
    Change,
    st.dictionaries(names, st.none() | st.integers(1, 64) | st.just(True), max_size=6),
    st.dictionaries(st.sampled_from(["NCCL_ALGO", "NCCL_PROTO", "A"]), st.none() | st.just("1"), max_size=3),
    st.dictionaries(st.sampled_from(["a.py", "b.py"]), st.just("x"), max_size=2),
    st.sampled_from([None, "a.diff"]),
    st.sampled_from([None, "cu13"]),
)


@given(changes, st.sampled_from([None, BASE]))
@settings(deadline=None, max_examples=150)
def test_parts_put_together_are_the_change(change: Change, base: Configuration | None) -> None:
    parts = parts_of(change, base)
    assert merged(p.change for p in parts) == change
    assert not any(p.change.empty for p in parts)
    settings_ = [
        n
        for p in parts
        for body in change_body(p.change).values()
        for n in (body if isinstance(body, dict) else [body])
    ]
    assert len(settings_) == len(set(settings_)), "nothing is in two parts"


@given(changes)
@settings(deadline=None, max_examples=60)
def test_a_part_is_not_taken_apart_further(change: Change) -> None:
    for part in parts_of(change, BASE):
        assert len(parts_of(part.change, BASE)) == 1


# When

TWO = Change(flags={"page-size": 64}, env={"NCCL_ALGO": "Tree"})
THREE = Change(flags={"page-size": 64, "stream-interval": 10}, env={"NCCL_ALGO": "Tree"})
CRASH = Failure("candidate", "launch", "graph-capture-incompatible", "capture failed", ("x.log:9: ncclInvalidUsage",))


def item(change: Change | None = TWO, gain: tuple[float, float] | None = (0.05, 0.1), **more: Any) -> Item:
    return replace(Item("both", "Both at once", 1, 3, change=change, expected_gain=gain), **more)


def experiment(change: Change = TWO, *failures: Failure, **more: Any) -> Experiment:
    done = Experiment("E0004", ITEM, "Both at once", BASE, "S001", "both", change, failures=failures)
    return replace(done, **more)


def judged(
    verdict: Verdict, effect: float | None = None, low: float | None = None, high: float | None = None
) -> Judgement:
    return Judgement(verdict, "so it was", effect, low, high)


TREE = DeadEnd("tree", "NCCL_ALGO=Tree", "cannot be captured", change=Change(env={"NCCL_ALGO": "Tree"}))
GATE = replace(CRASH, stage="gate", kind="wrong-output")


@pytest.mark.parametrize(
    ("done", "said", "of", "wanted"),
    [
        (experiment(TWO, CRASH), judged(Verdict.FAILED), item(), True),
        (experiment(TWO, CRASH), judged(Verdict.FAILED), item(gain=None), True),
        (experiment(Change(flags={"page-size": 64}), CRASH), judged(Verdict.FAILED), item(), False),  # one part
        (experiment(TWO, replace(CRASH, kind="port-in-use")), judged(Verdict.FAILED), item(), False),  # may pass
        (experiment(TWO, replace(CRASH, arm="baseline")), judged(Verdict.INVALID), item(), False),
        (experiment(TWO, GATE), judged(Verdict.INVALID), item(), True),
        (experiment(TWO), judged(Verdict.INVALID), item(), False),  # runs that did not count
        (experiment(TWO), judged(Verdict.REVERT, 0.0, -0.01, 0.01), item(), True),
        (experiment(TWO), judged(Verdict.REVERT, 0.0, -0.01, 0.01), item(gain=None), False),  # nothing was promised
        (experiment(TWO), judged(Verdict.REVERT, -0.1, -0.2, -0.05), item(gain=(-0.1, 0.0)), False),
        (experiment(TWO), judged(Verdict.KEEP, 0.07, 0.05, 0.09), item(), False),  # as promised
        (experiment(TWO), judged(Verdict.KEEP, 0.03, 0.02, 0.06), item(), False),  # it may be as promised
        (experiment(TWO), judged(Verdict.KEEP, 0.03, 0.02, 0.04), item(), True),  # less
        (experiment(TWO), judged(Verdict.KEEP, 0.3, 0.2, 0.4), item(), True),  # more
        (experiment(TWO), judged(Verdict.KEEP, 0.3), item(), False),  # without an interval nobody knows
        (experiment(TWO, removal=True), judged(Verdict.REVERT, 0.0, 0.0, 0.0), item(), False),
        (experiment(TWO), judged(Verdict.INCONCLUSIVE, 0.0, -0.1, 0.1), item(), False),
        (
            experiment(TWO, CRASH),
            judged(Verdict.FAILED),
            item(space=(Axis("flag", "page-size", values=(1, 2)),)),
            False,
        ),
    ],
)
def test_when_a_change_is_taken_apart(done: Experiment, said: Judgement, of: Item, wanted: bool) -> None:
    assert (split_wanted(done, of, (), said) is not None) is wanted


def test_before_a_launch_only_what_is_known_to_fail_takes_it_apart() -> None:
    assert split_wanted(None, item(), (), None) is None
    assert "NCCL_ALGO=Tree" in str(split_wanted(None, item(), (TREE,), None))
    assert split_wanted(None, item(Change(env={"NCCL_ALGO": "Tree"})), (TREE,), None) is None, "nothing would be left"


# What comes of it


def nothing_settled(change: Change) -> bool:
    return False


def ids(split: Split | None) -> list[str]:
    return [p.id for p in split.parts] if split is not None else []


def test_where_the_failure_names_a_part_the_rest_is_tried_without_it() -> None:
    named = replace(CRASH, summary="NCCL_ALGO Tree cannot be captured")
    apart = take_apart(experiment(THREE, named), item(THREE), judged(Verdict.FAILED), (), nothing_settled)
    assert apart is not None
    assert apart.blamed is not None
    assert apart.blamed.change == Change(env={"NCCL_ALGO": "Tree"})
    assert apart.blamed_id == "both~nccl-algo"
    assert apart.split is not None
    assert ids(apart.split) == ["both~without-nccl-algo"]
    assert apart.split.parts[0].change == Change(flags={"page-size": 64, "stream-interval": 10})
    assert apart.split.experiment == "E0004"


def test_of_two_parts_the_other_one_is_the_rest() -> None:
    named = replace(CRASH, summary="NCCL_ALGO Tree cannot be captured")
    apart = take_apart(experiment(TWO, named), item(), judged(Verdict.FAILED), (), nothing_settled)
    assert apart is not None
    assert ids(apart.split) == ["both~page-size"]


def test_where_it_does_not_each_part_is_tried() -> None:
    silent = replace(CRASH, summary="Killed", evidence=())
    apart = take_apart(experiment(THREE, silent), item(THREE), judged(Verdict.FAILED), (), nothing_settled)
    assert apart is not None
    assert apart.blamed is None
    assert ids(apart.split) == ["both~page-size", "both~stream-interval", "both~nccl-algo"]
    assert apart.split is not None
    assert merged(p.change for p in apart.split.parts) == THREE


def test_a_patch_that_cannot_be_applied_is_the_part_to_blame() -> None:
    change = Change(flags={"page-size": 64}, patch="changes/a.diff")
    failure = Failure("candidate", "prepare", "patch", "it does not apply")
    apart = take_apart(experiment(change, failure), item(change), judged(Verdict.FAILED), (), nothing_settled)
    assert apart is not None
    assert (apart.blamed_id, ids(apart.split)) == ("both~a", ["both~page-size"])


def test_an_output_that_is_not_right_blames_nobody() -> None:
    apart = take_apart(experiment(TWO, GATE), item(), judged(Verdict.INVALID), (), nothing_settled)
    assert apart is not None
    assert apart.blamed is None
    assert ids(apart.split) == ["both~page-size", "both~nccl-algo"]


def test_what_was_kept_is_taken_out_part_by_part() -> None:
    change = Change(flags={"page-size": 64}, env={"NCCL_ALGO": "Tree"}, patch="a.diff")
    done = experiment(change)
    apart = take_apart(done, item(change), judged(Verdict.KEEP, 0.01, 0.005, 0.02), (), nothing_settled)
    assert apart is not None
    assert apart.split is not None
    assert (apart.split.kept, ids(apart.split)) == (True, ["both~page-size", "both~nccl-algo"])
    bundles = kept_together({"both": apart.split}, {"E0004": done})
    assert [(b.experiment, b.items, b.kept, b.base) for b in bundles] == [
        ("E0004", ("both~page-size", "both~nccl-algo"), True, BASE)
    ]
    assert kept_together({"both": replace(apart.split, kept=False)}, {"E0004": done}) == ()


PAGE = Change(flags={"page-size": "64"})  # as somebody else wrote it


@pytest.mark.parametrize(
    ("experiments", "dead_ends", "items", "settled"),
    [
        ([], [], [], False),
        ([experiment(PAGE, verdict="keep", item="other")], [], [], True),
        ([experiment(PAGE, verdict="keep", item="both")], [], [], False),  # that is the bundle itself
        ([experiment(PAGE, verdict="inconclusive", item="other")], [], [], False),
        ([experiment(PAGE, verdict="keep", item="other", removal=True)], [], [], False),
        ([], [DeadEnd("page", "page", "slow", "slow", change=PAGE)], [], True),
        ([], [DeadEnd("both", "both", "crash", item="both", change=PAGE)], [], False),
        ([], [DeadEnd("more", "more", "crash", change=TWO)], [], False),  # not exactly this
        ([], [], [Item("page", "page", 1, change=PAGE)], True),
        ([], [], [Item("both", "both", 1, change=PAGE)], False),
    ],
)
def test_what_is_settled_elsewhere(
    experiments: list[Experiment], dead_ends: list[DeadEnd], items: list[Item], settled: bool
) -> None:
    assert settled_elsewhere("both", experiments, dead_ends, items)(Change(flags={"page-size": 64})) is settled


def test_parts_that_are_settled_or_do_nothing_are_not_tried() -> None:
    change = Change(flags={"page-size": 64, "tp": 8, "stream-interval": 10})
    done = experiment(change, replace(CRASH, summary="Killed", evidence=()))
    settled = settled_elsewhere("both", (), [DeadEnd("page", "page", "slow", change=PAGE)], ())
    apart = take_apart(done, item(change), judged(Verdict.FAILED), (), settled)
    assert apart is not None
    assert ids(apart.split) == ["both~stream-interval"], "tp 8 is the baseline's already"


def test_when_nothing_is_left_it_stays_whole() -> None:
    done = experiment(TWO, replace(CRASH, summary="Killed", evidence=()))
    assert take_apart(done, item(), judged(Verdict.FAILED), (), lambda change: True) is None
    named = experiment(TWO, replace(CRASH, summary="NCCL_ALGO Tree cannot be captured"))
    apart = take_apart(named, item(), judged(Verdict.FAILED), (), lambda change: True)
    assert apart is not None
    assert (apart.split, apart.blamed and apart.blamed.title) == (None, "NCCL_ALGO=Tree")


@pytest.mark.parametrize(
    ("change", "known", "left"),
    [
        (TWO, TREE, ("both~page-size", Change(flags={"page-size": 64}))),
        (THREE, TREE, ("both~without-nccl-algo", Change(flags={"page-size": 64, "stream-interval": 10}))),
        # a group of which one flag is known to fail goes as a whole
        (
            Change(flags={"speculative-algorithm": "NGRAM", "speculative-num-steps": 3, "page-size": 64}),
            DeadEnd("ngram", "n-grams", "slow", change=Change(flags={"speculative-algorithm": "NGRAM"})),
            ("both~page-size", Change(flags={"page-size": 64})),
        ),
        (TWO, replace(TREE, change=TWO), None),
    ],
)
def test_the_rest_is_tried_without_what_is_known_to_fail(
    change: Change, known: DeadEnd, left: tuple[str, Change] | None
) -> None:
    split = split_ahead(item(change), [known], nothing_settled, BASE)
    assert (None if split is None else (split.parts[0].id, split.parts[0].change)) == left
    assert split is None or (split.experiment, split.change) == ("", change)


def test_ids_that_are_taken_are_not_given_again() -> None:
    split = split_ahead(item(), [TREE], nothing_settled, BASE, {"both~page-size"})
    assert ids(split) == ["both~page-size-2"]


# The items

SPLIT = Split(
    "both", (SplitPart("both~a", "Both: a", Change(flags={"a": 1})), SplitPart("both~b", "Both: b", Change(flags={"b": 1}))),
    "it failed", TWO,
)  # fmt: skip


def never(item: Item) -> bool:
    return False


def test_parts_come_right_behind_their_item_and_inherit_what_it_asks_for() -> None:
    parent = item(
        needs=("eagle3",), risk=Risk.HIGH, approval=True, undo="switch back", status=Status.DEAD, result="E0004"
    )
    other = Item("other", "other", 9, 4)
    found = with_parts([parent, other], {"both": SPLIT}, never)
    assert [i.id for i in found] == ["both", "both~a", "both~b", "other"]
    part = found[1]
    assert (part.rank, part.needs, part.risk, part.approval, part.undo) == (
        3,
        ("eagle3",),
        Risk.HIGH,
        True,
        "switch back",
    )
    assert (part.status, part.result, part.expected_gain) == (Status.OPEN, "", (0.0, 0.1))
    assert part.change == Change(flags={"a": 1})


@pytest.mark.parametrize("gain", [None, (-0.1, 0.0)])
def test_what_promises_nothing_has_parts_that_promise_nothing(gain: tuple[float, float] | None) -> None:
    assert with_parts([item(gain=gain)], {"both": SPLIT}, never)[1].expected_gain is None


def test_an_item_that_was_edited_is_whole_again() -> None:
    edited = item(replace(TWO, flags={"page-size": 32}))
    assert not concerns(SPLIT, edited)
    assert with_parts([edited], {"both": SPLIT}, never) == [edited]
    rewritten = item(Change(flags={"page_size": "64"}, env={"NCCL_ALGO": "Tree "}))
    assert concerns(SPLIT, rewritten), "another notation is no edit"


def test_the_parts_of_a_dropped_item_are_dropped_with_it() -> None:
    assert with_parts([item()], {"both": SPLIT}, lambda i: True) == [item()]


def test_a_part_of_several_may_be_split_once_more_and_no_part_is_split_twice() -> None:
    rest = Change(flags={"page-size": 64, "stream-interval": 10})
    outer = Split("both", (SplitPart("both~rest", "rest", rest),), "it failed", THREE)
    inner = Split("both~rest", (SplitPart("both~page-size", "p", Change(flags={"page-size": 64})),), "again", rest)
    splits = {"both": outer, "both~rest": inner}
    assert [i.id for i in with_parts([item(THREE)], splits, never)] == ["both", "both~rest", "both~page-size"]
    again = replace(inner, item="both~page-size", change=Change(flags={"page-size": 64}))
    looped = {**splits, "both~page-size": replace(again, parts=(SplitPart("both~rest", "rest", rest),))}
    assert len(with_parts([item(THREE)], looped, never)) <= 5, (
        "not even a journal that somebody wrote by hand goes on forever"
    )


def test_dead_ends_of_parts_are_tried_again_only_while_their_item_is_wanted() -> None:
    end = DeadEnd(
        "both~nccl-algo", "Both: tree", "no capture", item="both~nccl-algo", change=TREE.change, retry_when="nccl>=2.30"
    )
    plan = Plan("p", (item(),))
    assert [i.id for i in candidates(plan, [end], {}, {}, {})] == ["both", "both~nccl-algo"]
    assert [i.id for i in candidates(plan, [end], {}, {"both": Status.DROPPED}, {})] == ["both"]
    assert [i.id for i in candidates(Plan("p"), [end], {}, {}, {})] == []
    assert [i.id for i in candidates(Plan("p"), [TREE], {}, {}, {})] == ["tree"]


@pytest.mark.parametrize(("name", "root"), [("both", "both"), ("both~a", "both"), ("a.b-c~d~e", "a.b-c")])
def test_the_ids_of_parts(name: str, root: str) -> None:
    assert root_of(name) == root
    assert is_part(name) is (name != root)


@given(changes, st.lists(changes, max_size=2), st.sampled_from([Verdict.FAILED, Verdict.REVERT, Verdict.KEEP]))
@settings(deadline=None, max_examples=100)
def test_what_is_tried_apart_is_of_the_change_and_given_once(
    change: Change, dead: list[Change], verdict: Verdict
) -> None:
    ends = [DeadEnd(f"d{n}", "d", "so", change=c) for n, c in enumerate(dead) if not c.empty]
    done = experiment(change, *([CRASH] if verdict is Verdict.FAILED else []))
    settled = settled_elsewhere("both", (), ends, ())
    apart = take_apart(done, item(change), judged(verdict, 0.0, -0.01, 0.0), ends, settled, {"both~page-size"})
    if apart is None or apart.split is None:
        return
    parts = apart.split.parts
    assert len({p.id for p in parts} | {"both~page-size"}) == len(parts) + 1
    assert all(root_of(p.id) == "both" and is_part(p.id) for p in parts)
    whole = merged(p.change for p in parts)
    assert all(
        change_body(change)[k] == v or v.items() <= change_body(change)[k].items()
        for k, v in change_body(whole).items()
    )
    assert not any(equal(p.change, d) for p in parts for d in dead)
