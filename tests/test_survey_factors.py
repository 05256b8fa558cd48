"""What a survey varies: items as factors with levels, and configurations as choices among them."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optagent.agent.canonical import canonical_configuration
from optagent.agent.change import Change, apply_change, merged
from optagent.agent.plan.model import Item, Risk
from optagent.agent.search.proposing import spread_points
from optagent.agent.search.space import Axis, contains, key, points, size
from optagent.agent.survey.factors import (
    ENVIRONMENT,
    ONE_AXIS,
    SEVERAL_AXES,
    Factor,
    change_at,
    choice_of,
    configuration_at,
    difference,
    factors_of,
    items_at,
    may_join,
    names_of,
    put_back,
    set_in,
    settings,
)
from optagent.tools.calls.configuration import Configuration

ROOT = Configuration("default", {"tp-size": 8, "page-size": 16}, {"NCCL_ALGO": "Ring"})
GRAPHS = Axis("flag", "cuda-graph-max-bs", values=(8, 16, 32))


def item(name: str, needs: tuple[str, ...] = (), **change: Any) -> Item:
    return Item(name, name, 1, needs=needs, change=Change(**change))


def shown(factors: tuple[Factor, ...]) -> list[list[dict[str, Any]]]:
    """What each level of each factor sets."""
    return [[settings(level.change) for level in factor.levels] for factor in factors]


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        ([], []),
        ([item("a", flags={"page-size": 32}), item("b", env={"NCCL_PROTO": "LL"})],
         [[{"page-size": 32}], [{"NCCL_PROTO": "LL"}]]),
        # a factor a part, and the environment is one
        ([item("a", flags={"page-size": 32, "stream-interval": 4}, environment="cu13")],
         [[{"page-size": 32}], [{"stream-interval": 4}], [{ENVIRONMENT: "cu13"}]]),
        # alternatives are levels of one factor, and what is so already is none
        ([item("a", flags={"page-size": 32}), item("b", flags={"page-size": 16}), item("c", flags={"page_size": 64})],
         [[{"page-size": 32}, {"page-size": 64}]]),
        ([item("a", flags={"page-size": "16"}), item("b", env={"NCCL_ALGO": " Ring"})], []),
        ([item("a", flags={"page-size": 32}), item("b", flags={"page-size": "32"})], [[{"page-size": 32}]]),
        ([item("a", flags={"page-size": None})], [[{"page-size": None}]]),
        ([item("a", flags={"stream-interval": None}, env={"NCCL_PROTO": None})], []),
        # also through what they share with a third
        ([item("a", flags={"dp-size": 2}), item("b", flags={"ep-size": 2}), item("c", flags={"dp-size": 4, "ep-size": 4})],
         [[{"dp-size": 2}, {"ep-size": 2}, {"dp-size": 4, "ep-size": 4}]]),
        # a range is one factor
        ([replace(item("a", flags={"page-size": 32}), space=(GRAPHS,))],
         [[{"page-size": 32, "cuda-graph-max-bs": n} for n in (8, 16, 32)]]),
        ([replace(item("a"), space=(Axis("env", "NCCL_ALGO", values=("Ring", "Tree")),))], [[{"NCCL_ALGO": "Tree"}]]),
        # what is needed comes along, as far as it is among the items
        ([item("a", flags={"page-size": 32}), item("b", ("a", "z"), flags={"stream-interval": 4})],
         [[{"page-size": 32}, {"page-size": 32, "stream-interval": 4}]]),
    ],
)  # fmt: skip
def test_the_factors_of_items(items: list[Item], expected: list[list[dict[str, Any]]]) -> None:
    assert shown(factors_of(items, ROOT)) == expected


def test_a_level_tells_whose_it_is_what_was_promised_and_how_risky_it_is() -> None:
    first = replace(item("a", flags={"page-size": 32, "stream-interval": 4}), expected_gain=(0.1, 0.3))
    second = replace(item("b", ("a",), flags={"dp-size": 2}), expected_gain=(-0.2, 0.1), risk=Risk.HIGH)
    (factor,) = factors_of([first, second], ROOT)
    of_first, of_second = factor.levels[0], factor.levels[-1]
    assert (of_first.items, of_first.promise) == (("a",), pytest.approx(0.1)), "half of it is the other part's"
    assert (of_second.items, of_second.promise) == (("a", "b"), pytest.approx(0.2)), "a loss is no promise"
    assert of_first.risk < of_second.risk


def test_of_a_long_range_a_few_values_are_levels() -> None:
    one = replace(item("a"), space=(Axis("flag", "mem-fraction-static", low=0.5, high=0.9),))
    several = replace(one, space=(*one.space, Axis("flag", "max-running-requests", low=1, high=500, integer=True)))
    assert [len(f.levels) for f in factors_of([one], ROOT)] == [ONE_AXIS]
    assert [len(f.levels) for f in factors_of([several], ROOT)] == [SEVERAL_AXES]
    found = [v for each in shown(factors_of([one], ROOT))[0] for v in each.values()]
    assert (min(found), max(found)) == (0.5, 0.9)


@pytest.mark.parametrize(
    ("one", "joins"),
    [
        (item("a", flags={"page-size": 32}), True),
        (item("a", env={"NCCL_PROTO": "LL"}), True),
        (item("a", environment="cu13"), True),
        (replace(item("a"), space=(GRAPHS,)), True),
        (replace(item("a"), change=None), False),
        (item("a"), False),
        (item("a", flags={"page-size": 32}, patch="p.diff"), False),
        (item("a", flags={"page-size": 32}, files={"sitecustomize.py": "x"}), False),
        (replace(item("a", patch="p.diff"), space=(GRAPHS,)), False),
    ],
)
def test_which_items_may_join(one: Item, joins: bool) -> None:
    assert may_join(one) == joins


def test_the_names_of_an_item_are_first_names() -> None:
    both = replace(item("a", flags={"tp": 4}, env={"X": "1"}, environment="cu13"), space=(GRAPHS,))
    assert names_of(both) == {"tp-size", "X", ENVIRONMENT, "cuda-graph-max-bs"}
    assert names_of(replace(both, change=None)) == {"cuda-graph-max-bs"}


# Laws

FLAGS: dict[str, list[Any]] = {
    "tp-size": [4, 8, "8"], "page-size": [16, "32", 64, None], "stream-interval": [2, 4], "enable-mixed-chunk": [True, None],
    "schedule-policy": ["lpm", "fcfs"],
}  # fmt: skip
flags = st.lists(st.sampled_from(sorted(FLAGS)), max_size=3, unique=True).flatmap(
    lambda names: st.fixed_dictionaries({name: st.sampled_from(FLAGS[name]) for name in names})
)
env = st.dictionaries(st.sampled_from(["NCCL_ALGO", "NCCL_PROTO"]), st.sampled_from(["Ring", "Tree", None]), max_size=1)
axes = st.sampled_from(
    [
        GRAPHS,
        Axis("flag", "page-size", values=(16, 32, 64)),
        Axis("env", "NCCL_PROTO", values=("LL", "Simple")),
        Axis("flag", "tp-size", low=1, high=40, integer=True),
    ]
)


@st.composite
def plans(draw: st.DrawFn) -> list[Item]:
    """Items that may join a survey, of which some need earlier ones."""
    found: list[Item] = []
    for name in "abcde"[: draw(st.integers(1, 5))]:
        change = draw(st.builds(Change, flags, env, environment=st.sampled_from([None, None, None, "cu13", "default"])))
        space = draw(st.lists(axes, max_size=2, unique_by=lambda a: a.name)) if draw(st.booleans()) else []
        needs = draw(st.lists(st.sampled_from([i.id for i in found]), max_size=1)) if found else []
        one = Item(name, name, 1, change=change, space=tuple(space), needs=tuple(needs))
        found += [one] if may_join(one) else []
    return found


roots = st.builds(Configuration, st.sampled_from(["default", "cu13"]), flags, env).map(
    lambda c: replace(
        c,
        flags={k: v for k, v in c.flags.items() if v is not None},
        env={k: v for k, v in c.env.items() if v is not None},
    )
)


def choices(factors: tuple[Factor, ...]) -> st.SearchStrategy[tuple[int, ...]]:
    return st.tuples(*(st.integers(0, len(f.levels)) for f in factors))


def alike(one: Configuration, other: Configuration) -> bool:
    return canonical_configuration(one) == canonical_configuration(other)


@given(plans(), roots, st.data())
def test_a_configuration_is_one_choice(items: list[Item], root: Configuration, data: st.DataObject) -> None:
    factors = factors_of(items, root)
    for one, other in combinations(factors, 2):
        assert not one.names & other.names
    choice = data.draw(choices(factors))
    assert choice_of(configuration_at(root, factors, choice), root, factors) == choice
    assert set(items_at(factors, choice)) <= {i.id for i in items}
    assert bool(items_at(factors, choice)) == any(choice)
    assert alike(root, configuration_at(root, factors, choice)) != any(choice)


@given(plans(), roots)
def test_what_an_item_needs_is_on_with_it(items: list[Item], root: Configuration) -> None:
    by_id = {i.id: i for i in items}

    def needed(name: str) -> set[str]:
        """Of these items, directly and through others."""
        return {n for need in by_id[name].needs for n in (need, *needed(need))}

    for level in (level for factor in factors_of(items, root) for level in factor.levels):
        own = level.items[-1]
        assert set(level.items[:-1]) == needed(own)
        first = merged(by_id[n].change or Change() for n in level.items[:-1])
        sets = settings(level.change)
        assert all(sets[k] == v for k, v in settings(first).items() if k not in names_of(by_id[own]))


@given(plans(), roots, st.data())
def test_what_is_put_back_is_undone(items: list[Item], root: Configuration, data: st.DataObject) -> None:
    factors = factors_of(items, root)
    there = configuration_at(root, factors, data.draw(choices(factors)))
    names = frozenset().union(*(names_of(i) for i in items))
    assert alike(put_back(there, names, root), root)
    assert put_back(there, frozenset(), root) == there
    some = frozenset(data.draw(st.sets(st.sampled_from(sorted(names))))) if names else frozenset()
    mixed, now, before = set_in(put_back(there, some, root)), set_in(there), set_in(root)
    for name in names:
        assert mixed.get(name) == (before if name in some else now).get(name)


@given(roots, roots)
def test_a_difference_leads_from_one_to_the_other(base: Configuration, candidate: Configuration) -> None:
    change = difference(base, candidate)
    assert apply_change(base, change) == candidate
    assert change.empty == (base == candidate)


@given(plans(), roots, st.data())
def test_what_the_factors_do_not_set_makes_another_configuration(
    items: list[Item], root: Configuration, data: st.DataObject
) -> None:
    factors = factors_of(items, root)
    there = configuration_at(root, factors, data.draw(choices(factors)))
    others = (
        replace(there, flags={**there.flags, "context-length": 4096}), replace(there, env={**there.env, "OTHER": "1"}),
        replace(there, files={"a.py": "x = 1"}), replace(there, revision="b2"),
    )  # fmt: skip
    for other in others:
        assert choice_of(other, root, factors) is None


def test_a_value_of_no_level_is_no_choice() -> None:
    factors = factors_of([item("a", flags={"page-size": 32}), item("b", flags={"stream-interval": 4})], ROOT)
    other = apply_change(configuration_at(ROOT, factors, (1, 1)), Change(flags={"page-size": 128}))
    assert choice_of(other, ROOT, factors) is None
    assert choice_of(replace(ROOT, flags={"tp": 8, "page_size": "32"}), ROOT, factors) == (1, 0), (
        "however it is written"
    )
    assert change_at(factors, (1, 0)) == Change(flags={"page-size": 32})


# The values of a range that are levels

spaces = st.lists(
    st.one_of(
        st.integers(1, 40).map(lambda n: Axis("flag", "", values=tuple(range(n)))),
        st.tuples(st.integers(1, 50), st.integers(1, 5000)).map(
            lambda ends: Axis("flag", "", low=ends[0], high=ends[0] + ends[1], integer=True)
        ),
        st.tuples(st.floats(0.01, 1), st.floats(0.1, 500)).map(
            lambda ends: Axis("flag", "", low=ends[0], high=ends[0] + ends[1])
        ),
        st.integers(1, 30).map(lambda n: Axis("flag", "", low=8, high=8 + 8 * n, step=8, integer=True)),
    ),
    min_size=1,
    max_size=3,
).map(lambda found: tuple(replace(axis, name=f"x{n}") for n, axis in enumerate(found)))


@given(spaces, st.sampled_from([ONE_AXIS, SEVERAL_AXES]))
def test_the_points_of_a_range_are_few_and_spread(space: tuple[Axis, ...], most: int) -> None:
    found = spread_points(space, most)
    assert 0 < len(found) <= most
    assert len({key(p) for p in found}) == len(found)
    assert all(contains(space, p) for p in found)
    number = size(space)
    if number is not None and number <= most:
        assert {key(p) for p in found} == {key(p) for p in points(space)}
    elif len(space) == 1:
        (axis,) = space
        low, high = (axis.values[0], axis.values[-1]) if axis.values else (axis.low, axis.high)
        values = [p[axis.name] for p in found]
        near = 0 if axis.values or axis.step else 0.01 * axis.high
        assert (values[0], values[-1]) == (pytest.approx(low, abs=near), pytest.approx(high, abs=near))
        assert len(found) >= most // 2
