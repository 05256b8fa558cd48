"""What a survey expects of configurations: the posterior after its launches, and what one more launch would say."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from optagent.agent.change import Change
from optagent.agent.experiments import Outlook
from optagent.agent.plan.model import Item
from optagent.agent.search.space import Axis
from optagent.agent.survey.factors import Choice, Factor, Level, factors_of, set_in
from optagent.agent.survey.foreseen import NOTHING_SD, USUAL_SD, Foreseen
from optagent.agent.survey.surface import BELIEVED, LEARN_FROM, MUCH_WORSE, Observation, Surface
from optagent.tools.calls.configuration import Configuration

ROOT = Configuration("default", {"page-size": 16, "num-continuous-decode-steps": 2})
BEFORE = set_in(ROOT)
QUIET, USUAL = 1e-5, 0.015


def switch(name: str, promise: float = 0.0, reach: float = 1.0, foreseen: Foreseen | None = None) -> Factor:
    return Factor((Level(Change(flags={name: True}), (name,), promise, reach=reach, foreseen=foreseen),))


THREE = (switch("a"), switch("b"), switch("c"))
OFF: Choice = (0, 0, 0)
SIZES = Axis("flag", "max-running-requests", values=(8, 16, 32, 64, 128))


def item(name: str, needs: tuple[str, ...] = (), space: tuple[Axis, ...] = (), **flags: bool | int | str) -> Item:
    return Item(name, name, 1, needs=needs, change=Change(flags=dict(flags)), space=space)


# Some of every kind of factor: switches, alternatives, what needs a small step, ranges of few and many values, two axes
MIXED = factors_of(
    [
        item("a", x=True), item("b", **{"schedule-policy": "lpm"}), item("c", **{"schedule-policy": "fcfs"}),
        item("d", **{"num-continuous-decode-steps": 3}), item("e", ("d",), z=2), item("f", ("d",), y=4),
        item("g", space=(SIZES,)),
        item("h", space=(Axis("flag", "page-size", values=(1, 16, 64)),)),
        item("i", space=(Axis("flag", "chunked-prefill-size", low=1024, high=16384, integer=True),
                         Axis("env", "NCCL_ALGO", values=(None, "Ring", "Tree")))),
    ],
    ROOT,
)  # fmt: skip


def choices(factors: tuple[Factor, ...]) -> st.SearchStrategy[Choice]:
    return st.tuples(*(st.integers(0, len(f.levels)) for f in factors))


def observations(factors: tuple[Factor, ...], most: int = 9) -> st.SearchStrategy[list[Observation]]:
    one = st.builds(Observation, choices(factors), st.floats(4.5, 4.7), st.sampled_from(["S1", "S2"]))
    return st.lists(one, min_size=1, max_size=most)


def ahead(surface: Surface, one: Choice, other: Choice) -> float:
    expected = surface.outlook(one, other)
    return expected.level - expected.baseline


def test_nothing_can_be_said_before_anything_was_measured() -> None:
    with pytest.raises(ValueError, match="nothing was measured"):
        Surface(THREE, BEFORE, [], USUAL)


@given(st.dictionaries(choices(MIXED), st.floats(4.5, 4.7), min_size=1, max_size=12))
def test_without_noise_what_was_measured_is_expected_again(values: dict[Choice, float]) -> None:
    surface = Surface(MIXED, BEFORE, [Observation(c, v, "S1") for c, v in values.items()], QUIET)
    seen = list(values)
    mean, sd = surface.at(seen)
    apart = np.subtract.outer(mean, mean) - np.subtract.outer(list(values.values()), list(values.values()))
    assert np.abs(apart).max() < 0.01
    assert (sd < 0.03).all(), "how far the whole sitting lies off is not known"


@given(observations(MIXED), choices(MIXED), choices(MIXED))
def test_two_choices_have_a_covariance(seen: list[Observation], one: Choice, other: Choice) -> None:
    surface = Surface(MIXED, BEFORE, seen, USUAL)
    expected = surface.outlook(one, other)
    assert expected.level_var > 0
    assert expected.baseline_var > 0
    assert expected.covariance**2 <= expected.level_var * expected.baseline_var + 1e-9
    mean, sd = surface.at([one, other])
    assert expected.level - expected.baseline == pytest.approx(mean[0] - mean[1], abs=1e-6)
    assert (sd > 0).all()
    assert expected.ahead_sd <= sd.sum() + 1e-6


@given(observations(MIXED, LEARN_FROM - 2), choices(MIXED), choices(MIXED))
def test_a_launch_that_gives_what_was_expected_makes_nothing_less_certain(
    seen: list[Observation], one: Choice, other: Choice
) -> None:
    """And what it ran more certain. One that surprises says that effects are larger than was thought."""
    before = Surface(MIXED, BEFORE, seen, USUAL)
    expected = before.outlook(one, other)
    after = Surface(MIXED, BEFORE, [*seen, Observation(one, expected.level, seen[-1].sitting)], USUAL)
    assert (after.at([one, other])[1] <= 1.02 * before.at([one, other])[1]).all()
    assert after.outlook(one, other).ahead_sd <= 1.02 * expected.ahead_sd + 1e-3
    narrowed = expected.level_var * USUAL**2 / (expected.level_var + USUAL**2)
    assert after.outlook(one, other).level_var <= 1.02 * narrowed


def test_what_surprises_makes_effects_larger_than_was_thought() -> None:
    sds = []
    for value in (4.6, 4.9):
        surface = Surface(THREE, BEFORE, [Observation(OFF, 4.6), Observation((1, 0, 0), value)], USUAL)
        sds.append([surface.outlook(c, OFF).ahead_sd for c in ((1, 0, 0), (0, 1, 0))])
    (quiet, other_quiet), (surprised, other_surprised) = sds
    assert surprised > quiet
    assert other_surprised == pytest.approx(other_quiet, rel=0.1), "but not those of other levels"


@given(observations(THREE), choices(THREE), st.floats(-15, 15))
def test_the_unit_of_the_objective_makes_no_difference(seen: list[Observation], one: Choice, unit: float) -> None:
    other = [replace(o, value=o.value + unit) for o in seen]
    surface, scaled = Surface(THREE, BEFORE, seen, USUAL), Surface(THREE, BEFORE, other, USUAL)
    assert ahead(scaled, one, OFF) == pytest.approx(ahead(surface, one, OFF), abs=2e-3)
    assert scaled.at([one])[0] - unit == pytest.approx(surface.at([one])[0], abs=2e-3)


@given(observations(THREE))
def test_the_order_of_the_launches_makes_no_difference_within_a_sitting(seen: list[Observation]) -> None:
    seen = [replace(o, sitting="S1") for o in seen]
    asked = [OFF, (1, 1, 0)]
    one, other = (Surface(THREE, BEFORE, o, USUAL).at(asked) for o in (seen, seen[::-1]))
    assert np.allclose(one, other, atol=1e-6)


def test_half_of_a_promise_is_expected_until_it_was_measured() -> None:
    factors = (switch("a", promise=0.2), switch("b"))
    surface = Surface(factors, BEFORE, [Observation((0, 0), 4.6)], QUIET)
    assert ahead(surface, (1, 0), (0, 0)) == pytest.approx(BELIEVED * 0.2, abs=5e-3)
    assert ahead(surface, (0, 1), (0, 0)) == pytest.approx(0.0, abs=5e-3)
    surface = Surface(factors, BEFORE, [Observation((0, 0), 4.6), Observation((1, 0), 4.6)], QUIET)
    assert ahead(surface, (1, 0), (0, 0)) == pytest.approx(0.0, abs=1e-3)


@pytest.mark.parametrize(
    ("level", "expected", "sd"),
    [
        (switch("x"), 0.0, USUAL_SD),
        (switch("x", promise=0.2), BELIEVED * 0.2, USUAL_SD),
        (switch("x", reach=2.0), 0.0, 2 * USUAL_SD),
        (switch("x", reach=0.5), 0.0, USUAL_SD / 2),
        (switch("x", 0.2, 2.0, Foreseen(-0.3, 0.03, "it starves")), -0.3, 0.03),  # the load knows better than the plan
        (switch("x", 0.2, 2.0, Foreseen(0.0, NOTHING_SD, "it is not felt")), 0.0, NOTHING_SD),
    ],
)
def test_what_is_known_of_a_level_before_any_launch(level: Factor, expected: float, sd: float) -> None:
    """How far ahead it is expected, and how sure that is beside a level that is known to do nothing."""
    surface = Surface((level, *THREE), BEFORE, [Observation((0, *OFF), 4.6)], QUIET)
    assert ahead(surface, (1, *OFF), (0, *OFF)) == pytest.approx(expected, abs=1e-3)
    still = switch("x", foreseen=Foreseen(0.0, 0.0, "it does nothing"))
    least = Surface((still, *THREE), BEFORE, [Observation((0, *OFF), 4.6)], QUIET).outlook((1, *OFF), (0, *OFF))
    own = surface.outlook((1, *OFF), (0, *OFF)).ahead_sd ** 2 - least.ahead_sd**2
    assert sd**2 <= own + 1e-6
    assert own <= sd**2 + 0.04**2, "beside that, a combination may give more than its levels"


# Who answers for what


def equal_shares(on: list[Choice], lost: float, noise: float) -> NDArray[np.float64]:
    """What each level loses where effects are normal, and all equally large."""
    levels = np.array(on, dtype=float)
    seen = USUAL_SD**2 * levels @ levels.T + noise**2 * np.eye(len(on))
    return np.asarray(USUAL_SD**2 * levels.T @ np.linalg.solve(seen, np.full(len(on), -lost)))


@pytest.mark.parametrize("lost", [0.2, 0.25])
@pytest.mark.parametrize("launches", [("abc", "ade", "afg"), ("abcd", "aefg"), ("abc", "ade", "afg", "h")])
def test_what_several_launches_have_in_common_answers_for_what_they_lost(
    launches: tuple[str, ...], lost: float
) -> None:
    """More than by equal shares, and its companions less, where it is much beside what a level usually does."""
    factors, off = tuple(switch(n) for n in "abcdefgh"), (0,) * 8
    on = {names: tuple(int(n in names) for n in "abcdefgh") for names in launches}
    losing = [c for names, c in on.items() if "a" in names]
    seen = [Observation(off, 4.6), *(Observation(c, 4.6 - lost * (c in losing)) for c in on.values())]
    surface = Surface(factors, BEFORE, seen, 0.01)
    share = equal_shares(losing, lost, 0.01)
    alone = [tuple(int(n == m) for m in range(8)) for n in range(8)]
    gives = np.array([ahead(surface, c, off) for c in alone])
    assert gives[0] < 1.2 * share[0]
    assert (gives[1:7] > 0.8 * share[1:7]).all()
    assert gives[0] == min(gives)
    assert abs(gives[7]) < 0.25 * abs(gives[0]), "what was in none of them has lost nothing"


@given(st.lists(st.floats(-0.1, 0.1), min_size=3, max_size=3))
def test_effects_add_up(effects: list[float]) -> None:
    alone = [tuple(int(n == m) for m in range(3)) for n in range(3)]
    seen = [Observation(OFF, 4.6), *(Observation(c, 4.6 + e) for c, e in zip(alone, effects, strict=True))]
    surface = Surface(THREE, BEFORE, seen, QUIET)
    assert ahead(surface, (1, 1, 1), OFF) == pytest.approx(sum(effects), abs=0.05)
    assert surface.outlook((1, 1, 1), OFF).ahead_sd > surface.outlook((1, 0, 0), OFF).ahead_sd


def test_a_value_near_one_that_gained_is_expected_to_gain() -> None:
    (factor,) = factors_of([item("g", space=(SIZES,))], ROOT)
    seen = [Observation((0,), 4.6), Observation((3,), 4.7)]
    surface = Surface((factor,), BEFORE, seen, 0.005)
    gains = [ahead(surface, (n,), (0,)) for n in range(1, 6)]
    assert gains[2] == max(gains)
    assert min(gains[1], gains[3]) > max(gains[0], gains[4])
    sds = [surface.outlook((n,), (0,)).ahead_sd for n in range(1, 6)]
    assert sds[2] == min(sds)


def test_an_alternative_says_nothing_of_another_one() -> None:
    factors = factors_of([item("b", **{"schedule-policy": "lpm"}), item("c", **{"schedule-policy": "fcfs"})], ROOT)
    surface = Surface(factors, BEFORE, [Observation((0,), 4.6), Observation((1,), 4.8)], QUIET)
    assert abs(ahead(surface, (2,), (0,))) < 0.2 * ahead(surface, (1,), (0,))


def test_what_is_needed_gives_the_same_wherever_it_is_on() -> None:
    factors = factors_of([item("d", y=1), item("e", ("d",), z=2)], ROOT)
    surface = Surface(factors, BEFORE, [Observation((0,), 4.6), Observation((1,), 4.7)], QUIET)
    assert ahead(surface, (2,), (0,)) == pytest.approx(0.1, abs=0.03)


def test_how_bad_a_disaster_is_says_nothing() -> None:
    good = [Observation(OFF, 4.6), Observation((1, 0, 0), 4.65)]
    bad, worse = (
        Surface(THREE, BEFORE, [*good, Observation((0, 1, 0), 4.65 - less)], USUAL) for less in (MUCH_WORSE, 4.0)
    )
    assert np.allclose(bad.at([OFF, (1, 0, 1), (0, 1, 1)]), worse.at([OFF, (1, 0, 1), (0, 1, 1)]))
    assert ahead(bad, (0, 1, 1), OFF) < -0.1


def test_a_day_on_which_all_is_faster_is_no_gain() -> None:
    """The sitting that a candidate is launched in is not the one that most launches of the baseline were made in."""
    seen = [Observation(OFF, 4.6, "S1")] * 12 + [Observation(OFF, 4.63, "S2")] * 3
    expected = Surface(THREE, BEFORE, seen, 0.005).outlook((1, 0, 0), OFF)
    assert expected.after(4.63, 0.005)[0] == pytest.approx(0.0, abs=0.005)
    assert expected.after(4.66, 0.005)[0] == pytest.approx(0.03, abs=0.005)


# One more launch


@given(
    st.lists(st.floats(-1, 1), min_size=4, max_size=4), st.floats(-1, 1), st.floats(-1, 1), st.floats(-2, 2),
    st.floats(1e-3, 1),
)  # fmt: skip
def test_after_a_launch_is_the_conditional_distribution(
    root: list[float], level: float, baseline: float, value: float, noise: float
) -> None:
    table = np.array(root).reshape(2, 2)
    covariance = table @ table.T + 1e-6 * np.eye(2)
    expected = Outlook(level, baseline, covariance[0, 0], covariance[1, 1], covariance[0, 1])
    gain = covariance[:, 0] / (covariance[0, 0] + noise**2)
    mean = np.array([level, baseline]) + gain * (value - level)
    left = covariance - np.outer(gain, covariance[0])
    apart = np.array([1, -1])
    found, sd = expected.after(value, noise)
    assert found == pytest.approx(apart @ mean, abs=1e-9)
    assert sd == pytest.approx(math.sqrt(apart @ left @ apart), abs=1e-6)
    assert sd <= expected.ahead_sd + 1e-9
