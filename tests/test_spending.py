"""How runs are spread over launches, and what is said of it before the first launch."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optagent.agent.noise import Noise
from optagent.agent.spending import MOST_RUNS, Costs, baseline_launches, costs_of, forecast, runs_wanted
from optagent.agent.spread import Spread, spread_of
from optagent.agent.verdict import expected_launches, expected_pairs

LONG, SHORT = Costs(1200, 60), Costs(10, 60)


def spread(launch_sd: float, run_sd: float) -> Spread:
    draw = random.Random(7)
    drawn = []
    for _ in range(400):
        level = draw.gauss(0, launch_sd)
        drawn.append([100 * math.exp((level + draw.gauss(0, run_sd)) / 100) for _ in range(3)])
    return spread_of(drawn)


@pytest.mark.parametrize(
    ("launch_sd", "run_sd", "costs", "wanted"),
    [
        (2.0, 0.1, LONG, {1}),  # more runs would tell nothing new
        (0.2, 3.0, LONG, {MOST_RUNS}),  # a launch takes as long as twenty runs
        (1.0, 2.0, LONG, set(range(3, MOST_RUNS + 1))),
        (1.0, 2.0, SHORT, {1, 2}),
        (0.3, 0.3, LONG, {1}),  # two pairs are needed anyway
    ],
)
def test_repeats_are_spent_where_they_buy_most(launch_sd: float, run_sd: float, costs: Costs, wanted: set[int]) -> None:
    assert runs_wanted(spread(launch_sd, run_sd), costs, 0.02, usual=2) in wanted


@pytest.mark.parametrize(
    ("calibration", "sentinel", "known", "here", "launches"),
    [
        (2, 2, 0, 0, 2),  # the first sitting
        (2, 2, 0, 1, 2),  # after a survey that began with one launch: one alone would tell nothing of the noise
        (2, 2, 5, 0, 2),  # a later sitting
        (2, 2, 5, 1, 1),
        (2, 2, 5, 9, 1),
        (4, 2, 0, 0, 4),
        (4, 2, 1, 3, 3),
        (4, 1, 3, 0, 1),
    ],
)
def test_the_baseline_is_launched_until_it_tells_enough(
    calibration: int, sentinel: int, known: int, here: int, launches: int
) -> None:
    assert baseline_launches(calibration, sentinel, known, here) == launches


@given(st.integers(2, 12), st.integers(1, 12), st.integers(0, 20), st.integers(0, 20))
def test_one_go_makes_the_noise_known(calibration: int, sentinel: int, known: int, here: int) -> None:
    launches = baseline_launches(calibration, sentinel, known, here)
    assert launches >= 1
    assert known + launches - 1 >= calibration - 1
    assert here + launches >= sentinel


@pytest.mark.parametrize(
    ("known", "costs"), [(Spread(), LONG), (spread_of([[1.0, 1.1], [1.0, 1.2]]), LONG), (spread(1.0, 1.0), None)]
)
def test_what_is_not_known_well_is_not_reckoned_with(known: Spread, costs: Costs | None) -> None:
    assert runs_wanted(known, costs, 0.02, usual=2) == 2


@given(st.floats(10, 3000), st.floats(1, 600))
def test_a_longer_launch_never_gets_fewer_runs(launch_s: float, run_s: float) -> None:
    known = spread(1.0, 2.0)
    assert runs_wanted(known, Costs(launch_s * 2, run_s), 0.02, 2) >= runs_wanted(
        known, Costs(launch_s, run_s), 0.02, 2
    )


@given(st.floats(0.3, 4.0), st.integers(0, 40))
def test_a_larger_pool_never_costs_more(launch_sd: float, pool: int) -> None:
    noise = Noise(launch_sd, 20)
    assert expected_launches(noise, 0.02, pool + 1) <= expected_launches(noise, 0.02, pool)
    assert expected_launches(noise, 0.02, pool) <= 2 * expected_pairs(noise, 0.02)


def test_what_is_expected_is_said() -> None:
    known = spread(1.0, 1.0)
    told = forecast(known, LONG, 0.02, 2, pool=6)
    assert told.launches is not None
    assert told.seconds == pytest.approx(told.launches * (1200 + 2 * 60))
    assert told.sentence(known).startswith(f"about {math.ceil(told.launches)} launches expected with 2 runs each, ")
    assert "not known yet" in forecast(Spread(), None, 0.02, 1, None).sentence(Spread())


def test_costs_are_the_median_of_what_was_seen() -> None:
    assert costs_of([10.0, 600.0, 12.0], [3.0]) == Costs(12.0, 3.0)
    assert costs_of([10.0, 12.0], [3.0, 5.0]) == Costs(11.0, 4.0)
    assert costs_of([], [3.0]) is None
