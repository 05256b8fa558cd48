"""The baseline's band and the limits that are read off it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optagent.agent.gates.band import UNMEASURED, agreements, least, most, p95
from optagent.agent.gates.limits import CEILING, FLOORS, Asked, limits_for, limits_from_the_first
from optagent.agent.numerics import Numerics
from optagent.tools.calls.gate import Agreement, Comparison

ASKED = Asked(prompts=32, concurrency=8)


def comparison(exact: float = 1.0, early: float = 0.0, length: float = 1.0, kl: float | None = None) -> Comparison:
    seen = [Agreement(concurrency=c, exact=exact, early=early, prefix=exact, finish=0.0, length=length) for c in (1, 8)]
    return Comparison(reference="r", agreement=seen, kl=kl, decode_kl=kl, scored=5000)


@pytest.mark.parametrize(
    ("shares", "lowest", "highest"),
    [
        ([1.0], 0.881, 1.0),  # three of 32 may differ from a baseline that never does
        ([1.0] * 10, 0.967, 1.0),
        ([0.5], 0.235, 0.765),
        ([0.4, 0.6], 0.235, 0.765),
        ([0.0], 0.0, 0.119),
    ],
)
def test_edges_of_a_band(shares: list[float], lowest: float, highest: float) -> None:
    assert least(shares, 32) == pytest.approx(lowest, abs=0.001)
    assert most(shares, 32) == pytest.approx(highest, abs=0.001)


def test_a_percentile_is_one_of_the_values() -> None:
    band = [comparison(kl=n / 1000) for n in range(1, 21)]
    assert p95(band, lambda c: c.kl) == 0.019
    assert p95(band[:3], lambda c: c.kl) == 0.003
    assert p95([comparison()], lambda c: c.kl) == 0.0
    assert p95([], lambda c: c.kl) == 0.0


def test_what_is_taken_before_the_baseline_was_seen_twice() -> None:
    assert agreements([], 8) == [UNMEASURED]
    assert agreements([comparison(exact=0.9)], 4) == [UNMEASURED], "another number at a time is another band"
    alone = limits_for(Numerics.NONE, [], ASKED).answers[1]
    assert alone.exact == pytest.approx(0.50, abs=0.01)
    assert alone.early == pytest.approx(0.12, abs=0.01)


def test_exactness_is_asked_only_where_no_number_moves() -> None:
    asked = {n: [limits_for(n, [], ASKED).answers[c].exact is not None for c in (1, 8)] for n in Numerics}
    assert asked == {
        Numerics.NONE: [True, True], Numerics.BATCHING: [True, False], Numerics.ORDER: [False, False],
        Numerics.UNKNOWN: [False, False], Numerics.LAW: [False, False],
    }  # fmt: skip


def test_one_at_a_time_is_one_pass() -> None:
    assert Asked(32, 1).passes == (1,)
    assert list(limits_for(Numerics.ORDER, [], Asked(32, 1)).answers) == [1]


bands = st.lists(
    st.builds(comparison, st.floats(0, 1), st.floats(0, 1), st.floats(0, 3), st.floats(0, 1) | st.none()), max_size=5
)


@given(bands, st.sampled_from(Numerics), st.integers(1, 64))
def test_limits_lie_between_floor_and_ceiling(band: list[Comparison], numerics: Numerics, prompts: int) -> None:
    limits = limits_for(numerics, band, Asked(prompts, 8))
    floor = FLOORS[numerics]
    assert limits.far is not None
    assert floor.kl <= limits.kl <= CEILING.kl
    assert floor.far <= limits.far <= CEILING.far
    for answers in limits.answers.values():
        assert answers.finish is not None
        assert answers.length is not None
        assert floor.early <= answers.early <= CEILING.early
        assert floor.finish <= answers.finish <= CEILING.finish
        assert floor.length <= answers.length <= CEILING.length
        assert answers.exact is None or 0 <= answers.exact <= 1


@given(bands, st.floats(0, 1), st.floats(0, 1))
def test_a_noisier_baseline_allows_no_less(band: list[Comparison], kl: float, length: float) -> None:
    noisier = [*band, comparison(kl=max([kl, *(c.kl or 0 for c in band)]), length=length)]
    before, after = limits_for(Numerics.ORDER, band, ASKED), limits_for(Numerics.ORDER, noisier, ASKED)
    assert after.kl >= before.kl
    if band:
        assert (after.answers[1].length or 0) >= (before.answers[1].length or 0)


def test_the_drift_from_the_first_baseline_has_limits_of_its_own() -> None:
    limits = limits_from_the_first(Numerics.UNKNOWN, ASKED)
    assert (limits.kl, limits.decode_kl, limits.far) == (0.02, 0.02, None)
    assert {(a.early, a.exact, a.finish, a.length) for a in limits.answers.values()} == {(0.20, None, None, None)}
    assert limits_from_the_first(Numerics.LAW, ASKED).kl == FLOORS[Numerics.LAW].kl
