"""The noise of launches and of the runs within them, taken apart."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optagent.agent.noise import noise_of
from optagent.agent.spread import Spread, spread_of

values = st.floats(50, 200)
launches = st.lists(st.lists(values, min_size=1, max_size=4), min_size=1, max_size=6)


def test_one_run_a_launch_says_nothing_of_runs() -> None:
    spread = spread_of([[100.0], [101.0], [99.0]])
    assert spread.run_sd is None
    assert spread.launch_sd == pytest.approx(noise_of([100.0, 101.0, 99.0]).launch_sd)


def test_one_launch_says_nothing_of_launches() -> None:
    spread = spread_of([[100.0, 102.0]])
    assert (spread.launch_sd, spread.noise()) == (None, None)
    assert spread.run_sd == pytest.approx(100 * math.log(1.02) / math.sqrt(2))


@pytest.mark.parametrize(("launch_sd", "run_sd"), [(2.0, 0.5), (0.5, 2.0), (1.0, 1.0), (1.5, 0.0), (0.0, 1.5)])
def test_both_parts_are_found_again(launch_sd: float, run_sd: float) -> None:
    """From 4,000 launches of three runs each."""
    draw = random.Random(1)
    drawn = []
    for _ in range(4000):
        level = draw.gauss(0, launch_sd)
        drawn.append([100 * math.exp((level + draw.gauss(0, run_sd)) / 100) for _ in range(3)])
    spread = spread_of(drawn)
    assert spread.launch_sd is not None
    assert spread.launch_sd**2 == pytest.approx(launch_sd**2, abs=0.25)
    assert spread.run_sd == pytest.approx(run_sd, abs=0.05)
    of_two = spread.noise(2)
    assert of_two is not None
    assert of_two.launch_sd == pytest.approx(math.sqrt(launch_sd**2 + run_sd**2 / 2), abs=0.06)


@given(launches)
def test_more_runs_never_make_a_launch_noisier(drawn: list[list[float]]) -> None:
    spread = spread_of(drawn)
    found = [n.launch_sd for runs in range(1, 6) if (n := spread.noise(runs)) is not None]
    assert found == sorted(found, reverse=True)


@given(launches, launches)
def test_spreads_add_up(first: list[list[float]], second: list[list[float]]) -> None:
    one, other = spread_of(first), spread_of(second)
    both = one + other
    assert (both.launch_df, both.run_df) == (one.launch_df + other.launch_df, one.run_df + other.run_df)
    assert one + Spread() == one


def test_nothing_measured_is_no_spread() -> None:
    assert spread_of([]) == spread_of([[]]) == Spread()
