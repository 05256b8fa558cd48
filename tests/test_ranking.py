"""The order of items: the plan's without evidence, moved by what was seen, and never against the owner's own edit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise, permutations
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from optagent.agent.change import Change
from optagent.agent.experiments import BASELINE, ITEM, TRIAL, Experiment, Failure, Run
from optagent.agent.families import names_of, runs_into
from optagent.agent.noise import Noise
from optagent.agent.outcomes import Block, Evidence, Outcome, blocks_of, outcomes_of, promise_of
from optagent.agent.plan.model import Item
from optagent.agent.rank_edits import in_every_longest_run, placed_by_owner
from optagent.agent.ranking import Ranking, falling, ranking, stated_seconds
from optagent.agent.records import DeadEnd
from optagent.agent.search.space import Axis
from optagent.agent.spending import Costs
from optagent.tools.calls.configuration import Configuration

BASE = Configuration("cu128")
SPECULATIVE, GRAPH, SCHEDULER, NONE = (
    "speculative-num-steps",
    "cuda-graph-max-bs",
    "max-running-requests",
    "served-model-name",
)


def item(
    name: str, rank: int | None, flag: str = NONE, gain: tuple[float, float] | None = (0.02, 0.06), **more: Any
) -> Item:
    return replace(Item(name, name, rank or 0, rank, change=Change(flags={flag: 1}), expected_gain=gain), **more)


def order(items: Sequence[Item], evidence: Evidence, **more: Any) -> list[str]:
    return [i.id for i in ranked(items, evidence, **more).order]


def ranked(items: Sequence[Item], evidence: Evidence, **more: Any) -> Ranking:
    return ranking(items, [i.id for i in items], evidence, **more)


def kept(family: str, share: float = 1.0, name: str = "E0002") -> Outcome:
    return Outcome(name, frozenset({family}), True, share)


def lost(family: str, name: str = "E0003") -> Outcome:
    return Outcome(name, frozenset({family}), False, 0.0)


def seen(*outcomes: Outcome, **more: Any) -> Evidence:
    return replace(Evidence(outcomes), **more)


PLAN = (item("graphs", 1, GRAPH), item("queue", 2, SCHEDULER), item("drafts", 3, SPECULATIVE), item("name", 4))


# Tables


@pytest.mark.parametrize(
    ("evidence", "expected"),
    [
        (Evidence(), "graphs queue drafts name"),
        (seen(lost("cuda graph")), "queue drafts graphs name"),
        (seen(lost("cuda graph"), lost("cuda graph")), "queue drafts name graphs"),
        (seen(kept("speculative")), "graphs drafts queue name"),
        (seen(kept("speculative"), kept("speculative")), "drafts graphs queue name"),
        (seen(kept("speculative", 0.1)), "graphs queue name drafts"),  # kept, and gave a tenth of what it promised
        (seen(kept("speculative"), lost("speculative")), "graphs queue drafts name"),  # as good as nothing was known
        (seen(kept("quantisation"), lost("MoE")), "graphs queue drafts name"),  # families that no item is of
        (seen(blocks=(Block("d", "graph-capture-incompatible"),)), "queue drafts name graphs"),
        (seen(blocks=(Block("d", "jit-toolchain"),)), "graphs queue drafts name"),
    ],
)
def test_what_helped_and_what_failed_moves_the_family(evidence: Evidence, expected: str) -> None:
    assert order(PLAN, evidence) == expected.split()


def test_a_large_promise_outweighs_a_little_evidence() -> None:
    plan = (item("graphs", 1, GRAPH, (0.2, 0.4)), item("queue", 2, SCHEDULER, (0.01, 0.03)))
    assert order(plan, seen(lost("cuda graph"))) == ["graphs", "queue"]
    assert order(plan, seen(*[lost("cuda graph", f"E{n}") for n in range(100)])) == ["queue", "graphs"]


def test_an_environment_that_may_lift_a_cause_is_not_blocked_by_it() -> None:
    block = Block("d", "allreduce-unsupported")
    switch = replace(item("cu13", 1), change=Change(flags={"enable-torch-symm-mem": True}, environment="cu13"))
    assert order([switch, item("queue", 2)], seen(blocks=(block,))) == ["cu13", "queue"]


@pytest.mark.parametrize(
    ("cost", "costs", "expected"),
    [
        ("about 40 minutes, launches", None, "build queue"),
        ("about 40 minutes, launches", Costs(1200.0, 60.0), "build queue"),  # what it takes is little beside launches
        ("about 40 minutes, launches", Costs(5.0, 5.0), "queue build"),
        ("launches, 15 GiB", Costs(5.0, 5.0), "build queue"),
    ],
)
def test_a_stated_time_weighs_by_how_long_launches_take(cost: str, costs: Costs | None, expected: str) -> None:
    plan = (item("build", 1, cost=cost), item("queue", 2))
    assert order(plan, Evidence(costs=costs)) == expected.split()


def test_on_a_restless_machine_small_promises_cost_more_pairs() -> None:
    plan = (item("small", 1, gain=(0.0, 0.04)), item("large", 2, gain=(0.1, 0.3)), item("other", 3, gain=(0.1, 0.3)))
    assert order(plan, Evidence(noise=Noise(0.3, 9))) == ["small", "large", "other"]
    assert order(plan, Evidence(noise=Noise(2.5, 9))) == ["large", "other", "small"]


def test_items_without_a_rank_come_last_by_their_score() -> None:
    plan = (
        item("late", 5, gain=(0.0, 0.001)),
        item("little", None, gain=(0.0, 0.02)),
        item("much", None, gain=(0.1, 0.3)),
    )
    assert order(plan, Evidence()) == ["late", "little", "much"], "without evidence as they stand in the document"
    assert order(plan, seen(lost("MoE"))) == ["late", "much", "little"]


def test_what_is_settled_keeps_its_place() -> None:
    found = ranking(PLAN, ["graphs", "drafts"], seen(kept("speculative")))
    assert [i.id for i in found.order] == ["drafts", "queue", "graphs", "name"]
    assert found.scores["queue"].place == 0


@pytest.mark.parametrize(
    ("evidence", "lines"),
    [
        (Evidence(), []),
        (
            seen(lost("cuda graph", "E0007")),
            ["graphs moves from place 1 to 3: cuda graph: 0 of 1 kept (E0007)"],
        ),
        (
            seen(kept("speculative", 1.2)),
            ["drafts moves from place 3 to 1: speculative: 1 of 1 kept, 120% of what they promised (E0002)"],
        ),
        (
            seen(blocks=(Block("capture", "graph-capture-incompatible"),)),
            ["graphs moves from place 1 to 4: graph-capture-incompatible (capture) is likely to stop it too"],
        ),
    ],
)
def test_one_line_tells_each_item_that_moved(evidence: Evidence, lines: list[str]) -> None:
    assert [m.line for m in ranked(PLAN, evidence).moved] == lines


def test_an_item_that_is_passed_by_others_only_is_told_by_them() -> None:
    plan = (item("a", 1, GRAPH), item("b", 2, GRAPH), item("c", 3, SCHEDULER))
    found = ranked(plan, seen(lost("cuda graph"), lost("cuda graph")))
    assert [i.id for i in found.order] == ["c", "a", "b"]
    assert [m.line for m in found.moved] == [
        "c moves from place 3 to 1: before a: cuda graph: 0 of 2 kept (E0003, E0003)"
    ]


def test_what_the_score_is_made_of() -> None:
    score = ranked(PLAN, seen(kept("speculative", 0.5), kept("MoE", 0.5))).scores["drafts"]
    assert score.promised == pytest.approx(0.04)
    assert score.gain < score.promised, "half of what was promised so far came true"
    assert score.chance == pytest.approx((4 * 0.5 + 1) / 5)
    assert score.launches == 4
    assert score.cost_s == pytest.approx(4 * (300 + 60))
    assert score.value == pytest.approx(score.gain * score.chance / score.cost_s * 3600)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("", 0), ("launches only", 0), ("15 GiB", 0), ("1 GB of draft weights on each card, launches", 0),
        ("about 40 minutes and 15 GiB on the real machine", 2400), ("2 h", 7200), ("1.5 hours", 5400), ("90 s", 90),
        ("2-3 hours", 9000), ("10 to 20 min", 900), ("1 day", 86400), ("30 minutes to build, 30 minutes to load", 3600),
        ("8x H100", 0), ("a patch of one line", 0), ("12 steps", 0), ("9" * 400 + " h", 0),
    ],
)  # fmt: skip
def test_times_that_a_cost_states(text: str, seconds: float) -> None:
    assert stated_seconds(text) == seconds


# Outcomes

CHANGE = Change(flags={SPECULATIVE: 3})
CRASH = Failure("candidate", "launch", "gpu-oom-pool", "out of memory")


def experiment(verdict: str, effect: float | None = None, **more: Any) -> Experiment:
    return replace(Experiment("E1", ITEM, "t", BASE, "S1", "drafts", CHANGE, verdict=verdict, effect=effect), **more)


@pytest.mark.parametrize(
    ("done", "found"),
    [
        (experiment("keep", 0.04), (True, 1.0)),
        (experiment("keep", 0.02), (True, 0.5)),
        (experiment("keep", 0.2), (True, 1.5)),
        (experiment("keep", -0.2), (True, 0.1)),
        (experiment("keep"), (True, 1.0)),
        (experiment("keep", 0.02, item="of another plan"), (True, 1.0)),
        (experiment("revert", -0.01), (False, 0.0)),
        (experiment("failed", failures=(CRASH,)), (False, 0.0)),
        (experiment("invalid"), (False, 0.0)),
        (experiment("inconclusive", runs=(Run("candidate", 1, 9.0),)), (False, 0.0)),
        (experiment("inconclusive"), None),  # given up before anything was measured
        (experiment(""), None),
        (experiment("failed", failures=(replace(CRASH, kind="port-in-use"),)), None),
        (experiment("invalid", failures=(replace(CRASH, arm="baseline"),)), None),
        (experiment("keep", kind=BASELINE), None),
        (experiment("keep", kind=TRIAL), None),
        (
            experiment("keep", change=Change(flags={SPECULATIVE: None})),
            None,
        ),  # taking it away says nothing of having it
        (experiment("keep", 0.04, removal=True), (True, 1.0)),
        (experiment("failed", failures=(CRASH,), removal=True), None),
    ],
)
def test_what_an_experiment_says_of_others(done: Experiment, found: tuple[bool, float] | None) -> None:
    outcomes = outcomes_of([done], PLAN)
    assert [(o.kept, o.came_true) for o in outcomes] == ([] if found is None else [(found[0], pytest.approx(found[1]))])


def test_only_the_latest_experiments_count() -> None:
    many = [experiment("keep", 0.04) for _ in range(1000)]
    assert len(outcomes_of(many, PLAN)) == 400


@pytest.mark.parametrize(
    ("kind", "condition", "blocks"),
    [
        ("allreduce-unsupported", "cuda>=13", True),
        ("allreduce-unsupported", "cuda>=12", False),  # its condition is met
        ("gpu-oom-graph-capture", None, True),
        ("slow", None, False),
        ("unknown", None, False),
    ],
)
def test_causes_that_block_groups(kind: str, condition: str | None, blocks: bool) -> None:
    end = DeadEnd("d", "d", "so", kind, change=CHANGE, retry_when=condition)
    assert blocks_of([end], {"cuda": "12.8"}) == ((Block("d", kind),) if blocks else ())


@pytest.mark.parametrize(
    ("gain", "promise"), [(None, None), ((0.0, 0.0), None), ((-0.1, 0.0), None), ((0.0, 0.1), 0.05)]
)
def test_what_an_item_promises(gain: tuple[float, float] | None, promise: float | None) -> None:
    assert promise_of(item("a", 1, gain=gain)) == promise


# Laws

FLAGS = (SPECULATIVE, GRAPH, SCHEDULER, NONE, "moe-runner-backend", "nccl-x")
FAMILIES = ("speculative", "cuda graph", "scheduler", "MoE", "all-reduce")
gains = st.none() | st.tuples(st.floats(-0.05, 0.1), st.floats(0.0, 0.5)).map(lambda g: (min(g), max(g)))


@st.composite
def plans(draw: st.DrawFn) -> tuple[Item, ...]:
    count = draw(st.integers(1, 7))
    of_ranked = draw(st.integers(0, count))
    found = []
    for n in range(count):
        flags = draw(st.lists(st.sampled_from(FLAGS), min_size=1, max_size=2, unique=True))
        found.append(Item(
            f"i{n}", f"i{n}", n, n + 1 if n < of_ranked else None, change=Change(flags=dict.fromkeys(flags, 1)),
            expected_gain=draw(gains), cost=draw(st.sampled_from(["", "40 minutes", "2 h"])),
        ))  # fmt: skip
    return tuple(found)


shares = st.sampled_from([0.0, 0.1, 0.5, 1.0, 1.5])
outcomes = st.builds(
    lambda families, share: Outcome("E1", families, share > 0, share),
    st.frozensets(st.sampled_from(FAMILIES), max_size=2), shares,
)  # fmt: skip
KINDS = ("graph-capture-incompatible", "unsupported-arch", "allreduce-unsupported", "jit-toolchain")
blocks = st.builds(Block, st.just("d"), st.sampled_from(KINDS))
evidences = st.builds(
    Evidence, st.lists(outcomes, max_size=5).map(tuple), st.lists(blocks, max_size=2).map(tuple),
    st.none() | st.builds(Noise, st.floats(0.1, 4), st.just(8)),
    st.none() | st.builds(Costs, st.floats(1, 2000), st.floats(1, 200)),
)  # fmt: skip


@given(plans())
@settings(deadline=None)
def test_without_evidence_nothing_moves(plan: tuple[Item, ...]) -> None:
    found = ranked(plan, Evidence())
    assert found.order == plan
    assert found.moved == ()


@given(plans(), evidences, st.data())
@settings(deadline=None)
def test_nothing_is_lost_and_ranked_items_stay_in_front(
    plan: tuple[Item, ...], evidence: Evidence, data: st.DataObject
) -> None:
    to_try = data.draw(st.sets(st.sampled_from([i.id for i in plan])))
    found = ranking(plan, to_try, evidence)
    assert sorted(i.id for i in found.order) == sorted(i.id for i in plan)
    assert [i.rank is None for i in found.order] == [i.rank is None for i in plan]
    assert [i.id for i in found.order if i.id not in to_try] == [i.id for i in plan if i.id not in to_try]
    assert ranking(plan, to_try, evidence) == found, "same question, same answer"
    now = [i.id for i in found.order if i.id in to_try]
    before = [i.id for i in plan if i.id in to_try]
    moved = {m.item for m in found.moved}
    assert [n for n in now if n not in moved] == [n for n in before if n not in moved], (
        "what moved is told, and no more"
    )
    assert all(m.because for m in found.moved)
    assert all(s.gain > 0 and 0 < s.chance < 1 and s.cost_s > 0 for s in found.scores.values())


@given(plans(), evidences, st.sampled_from(FAMILIES), st.integers(0, 4), shares)
@settings(deadline=None, max_examples=300)
def test_a_worse_outcome_of_a_family_never_raises_its_items(
    plan: tuple[Item, ...], evidence: Evidence, family: str, at: int, better: float
) -> None:
    """However an experiment of the family went: had it gone worse, none of the family's items would stand further in front
    of any item that is of no family in question."""
    lower = [s for s in (0.0, 0.1, 0.5, 1.0, 1.5) if s < better]
    assume(lower)
    others = list(evidence.outcomes)[:at]

    def with_share(share: float) -> Ranking:
        outcome = Outcome("E1", frozenset({family}), share > 0, share)
        return ranked(plan, replace(evidence, outcomes=(*others, outcome)))

    good = with_share(better)
    mine = {i.id for i in plan if family in families_in(i)}
    for share in lower:
        bad = with_share(share)
        for name in mine:
            for other in (i.id for i in plan if i.id not in mine):
                if is_before(bad, name, other):
                    assert is_before(good, name, other)


@given(plans(), evidences, st.sampled_from(KINDS))
@settings(deadline=None)
def test_one_more_blocking_cause_never_raises_what_it_blocks(
    plan: tuple[Item, ...], evidence: Evidence, kind: str
) -> None:
    less = ranked(plan, evidence)
    more = ranked(plan, replace(evidence, blocks=(*evidence.blocks, Block("x", kind))))
    mine = {i.id for i in plan if i.change and runs_into(kind, names_of(i.change))}
    assume(evidence.blocks or evidence.outcomes)  # items without a rank have no order of score before
    for name in mine:
        assert all(is_before(less, name, i.id) for i in plan if i.id not in mine and is_before(more, name, i.id))


def families_in(item: Item) -> set[str]:
    told = dict(zip(FLAGS, ("speculative", "cuda graph", "scheduler", "", "MoE", "all-reduce"), strict=True))
    return {told[flag] for flag in item.change.flags} if item.change else set()


def is_before(found: Ranking, one: str, other: str) -> bool:
    names = [i.id for i in found.order]
    return names.index(one) < names.index(other)


@given(plans(), evidences, st.randoms(use_true_random=False))
@settings(deadline=None, max_examples=150)
def test_the_owners_own_edit_holds_whatever_was_seen(plan: tuple[Item, ...], evidence: Evidence, random: Any) -> None:
    recorded = {i.id: i.rank for i in plan}
    numbers = [i.rank for i in plan if i.rank is not None]
    random.shuffle(numbers)
    ranks = iter(numbers)
    edited = [replace(i, rank=next(ranks)) if i.rank is not None else i for i in plan]
    edited.sort(key=lambda i: (i.rank is None, i.rank or 0))
    placed = placed_by_owner(edited, recorded)
    found = ranked(edited, evidence, recorded=recorded)
    assert found.placed == placed
    for name in placed:
        for other in (i.id for i in edited if i.rank is not None and i.id != name):
            plain = [i.id for i in edited]
            assert is_before(found, name, other) == (plain.index(name) < plain.index(other))


@pytest.mark.parametrize(
    ("recorded", "now", "placed"),
    [
        ("abcd", "abcd", ""),
        ("abcd", "dabc", "d"),
        ("abcd", "bcda", "a"),
        ("abcd", "bacd", "ab"),  # of two that changed places nobody knows which one was meant
        ("abcd", "axbcd", "x"),
        ("abcd", "abd", ""),
        ("abcd", "dcba", "abcd"),
        ("", "abcd", ""),  # nothing was recorded yet
        ("abcdef", "aebcdf", "e"),
    ],
)
def test_which_items_the_owner_placed(recorded: str, now: str, placed: str) -> None:
    ranks: dict[str, int | None] = {name: n for n, name in enumerate(recorded, 1)}
    items = [item(name, n) for n, name in enumerate(now, 1)]
    assert placed_by_owner(items, ranks) == set(placed)


def test_a_rank_given_to_an_item_that_had_none_is_an_edit_and_a_part_is_none() -> None:
    assert placed_by_owner([item("a", 1), item("b", 2)], {"a": 1, "b": None}) == {"b"}
    assert placed_by_owner([item("a", 1), item("a~x", 1)], {"a": 1}) == set()


def test_every_longest_run_by_trying_all() -> None:
    for numbers in permutations(range(5)):
        runs = [set(c) for size in range(5, 0, -1) for c in rising(numbers, size)]
        longest = [r for r in runs if len(r) == len(runs[0])]
        wanted = set.intersection(*longest)
        assert [n in wanted for n in numbers] == in_every_longest_run(numbers)


def rising(numbers: Sequence[int], size: int) -> list[tuple[int, ...]]:
    if size == 0:
        return [()]
    return [
        (n, *rest) for i, n in enumerate(numbers) for rest in rising([m for m in numbers[i + 1 :] if m >= n], size - 1)
    ]


@given(st.lists(st.floats(-10, 10), max_size=8))
@settings(deadline=None)
def test_the_nearest_sequence_that_never_rises(values: list[float]) -> None:
    found = falling(values)
    assert len(found) == len(values)
    assert all(b <= a + 1e-9 for a, b in pairwise(found))
    assert sum(found) == pytest.approx(sum(values), abs=1e-6)
    if all(b <= a for a, b in pairwise(values)):
        assert found == values


def test_the_points_of_a_search_are_launches_too() -> None:
    searched = replace(item("pages", 1), space=(Axis("flag", "page-size", values=(16, 32, 64)),))
    found = ranked([searched, item("queue", 2)], Evidence())
    assert found.scores["pages"].launches == found.scores["queue"].launches + 3
    names = ranked([searched], seen(lost("memory"))).scores["pages"]
    assert [f.words for f in names.factors] == ["memory: 0 of 1 kept (E0003)"], "what is left open has a family as well"
