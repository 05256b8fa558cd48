"""Launches that were not made in pairs: the nearer in time, the more they count."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optagent.agent.noise import Noise
from optagent.agent.series import Made, Series, before_any, series_of
from optagent.agent.verdict import Verdict, judge_series

KNOWN = Noise(1.0, 40)
TWO_PERCENT = 100 * math.log(1.02)


def made(pattern: str, values: list[float]) -> list[Made]:
    """`b` is a launch of the baseline, `c` one of the candidate, a dot one of something else."""
    arms = [(at, arm) for at, arm in enumerate(pattern) if arm != "."]
    return [Made(at, arm == "c", value) for (at, arm), value in zip(arms, values, strict=True)]


def test_nothing_is_known_before_both_were_launched() -> None:
    assert not before_any(None).known
    assert not series_of(made("bb", [0.0, 0.1]), None).known
    assert series_of(made("bc", [0.0, 0.1]), None).known


def test_without_a_walk_it_is_the_difference_of_the_means() -> None:
    """Of known noise and a machine that stands still, the ratio is that of two normal means."""
    launches = made("bbbbbbcc", [0.0, 0.5, -0.5, 0.2, -0.2, 0.0, 2.0, 2.4])
    found = series_of(launches, Noise(1.0, 100_000))
    still = found.walk == 0
    picked = Series(*(getattr(found, name)[still] for name in (
        "noise", "walk", "weight", "level", "uu", "uv", "vv", "y", "x", "spread",
    )), found.at)  # fmt: skip
    variance = 1 / 6 + 1 / 2
    assert picked.effect == pytest.approx(2.2)
    assert picked.log_ratio(TWO_PERCENT) == pytest.approx(TWO_PERCENT / variance * (2.2 - TWO_PERCENT / 2), rel=0.1)


def test_near_launches_count_more_when_the_machine_moves() -> None:
    """The level rises by a per cent at each launch; the candidate is no better than its neighbours."""
    rising = made("bbbbbbcbcb", [float(n) for n in range(10)])
    assert series_of(rising, Noise(0.3, 40)).log_ratio(TWO_PERCENT) < 0
    steady = made("bbbbbbcbcb", [0.0] * 6 + [4.0, 0.0, 4.0, 0.0])
    assert series_of(steady, Noise(0.3, 40)).log_ratio(TWO_PERCENT) > 3


def test_what_is_far_away_in_time_tells_less() -> None:
    values = [0.0, 0.2, -0.2, 1.0, 1.2]
    near, far = made("bbbcc", values), made("bbb" + "." * 60 + "cc", values)
    width = [s.quantile(0.975) - s.quantile(0.025) for s in (series_of(near, KNOWN), series_of(far, KNOWN))]
    assert width[1] > width[0]


values = st.lists(st.floats(-5, 5), min_size=4, max_size=12)


@given(values, st.floats(0.1, 3))
@settings(deadline=None, max_examples=50)
def test_a_better_candidate_is_never_less_likely_to_be_better(drawn: list[float], more: float) -> None:
    pattern = ("bc" * len(drawn))[: len(drawn)]
    launches = made(pattern, drawn)
    better = [replace(one, value=one.value + more) if one.changed else one for one in launches]
    assert series_of(better, KNOWN).effect > series_of(launches, KNOWN).effect


@given(values, st.floats(-50, 50))
@settings(deadline=None, max_examples=50)
def test_the_unit_does_not_matter(drawn: list[float], shift: float) -> None:
    pattern = ("bc" * len(drawn))[: len(drawn)]
    launches = made(pattern, drawn)
    shifted = [replace(one, value=one.value + shift) for one in launches]
    here, there = series_of(launches, KNOWN), series_of(shifted, KNOWN)
    assert here.log_ratio(TWO_PERCENT) == pytest.approx(there.log_ratio(TWO_PERCENT), abs=1e-6)


@given(values)
@settings(deadline=None, max_examples=50)
def test_quantiles_are_in_order_around_the_effect(drawn: list[float]) -> None:
    found = series_of(made(("bc" * len(drawn))[: len(drawn)], drawn), KNOWN)
    low, middle, high = (found.quantile(share) for share in (0.025, 0.5, 0.975))
    assert low < middle < high
    assert low < found.effect < high


@pytest.mark.parametrize(
    ("pattern", "changed"),
    [("bbbbbbc", True), ("bbcc", False), ("bccc", False), ("bcc", False), ("bbb", True)],
)
def test_the_arm_with_less_to_say_is_launched_next(pattern: str, changed: bool) -> None:
    found = series_of(made(pattern, [0.0] * len(pattern)), KNOWN)
    assert found.prefers_changed(len(pattern)) is changed


@pytest.mark.parametrize(
    ("pattern", "values", "verdict"),
    [
        ("bb", [0.0, 0.1], Verdict.MORE),
        ("bbbbbbc", [0.0, 0.3, -0.3, 0.1, -0.1, 0.0, 20.0], Verdict.MORE),  # one launch is never enough to keep
        ("bbbbbbcc", [0.0, 0.3, -0.3, 0.1, -0.1, 0.0, 6.0, 6.2], Verdict.KEEP),
        ("bbbbbbc", [0.0, 0.3, -0.3, 0.1, -0.1, 0.0, -5.0], Verdict.REVERT),
        ("bbbbbbccbcc", [0.0, 0.3, -0.3, 0.1, -0.1, 0.0, 0.0, 0.1, 0.0, -0.1, 0.0], Verdict.REVERT),
        ("bc" * 12, [0.0, 1.2] * 12, Verdict.KEEP),
        ("bbbb" + "c" * 12, [0.0, 3.0, -3.0, 0.0] + [4.0, -2.0] * 6, Verdict.INCONCLUSIVE),
    ],
)
def test_verdicts(pattern: str, values: list[float], verdict: Verdict) -> None:
    counts = (pattern.count("b"), pattern.count("c"), pattern.count("c"))
    found = judge_series(series_of(made(pattern, values), None), counts, min_effect=0.02, max_launches=12)
    assert found.verdict is verdict, found.because


def test_changes_that_do_nothing_are_rarely_kept() -> None:
    """Of 300 on a quiet machine and as many on one that wanders, at most one in twelve (one in twenty is the aim)."""
    for walk in (0.0, 0.5):
        draw = random.Random(f"nothing {walk}")
        assert sum(kept(draw, walk, 0.0) for _ in range(300)) <= 25


def test_changes_that_help_are_mostly_kept() -> None:
    draw = random.Random("something")
    assert sum(kept(draw, 0.0, TWO_PERCENT) for _ in range(200)) >= 170


def kept(draw: random.Random, walk: float, effect: float) -> bool:
    """Whether a change with this effect (per cent) is kept, on launches that vary by one per cent."""
    level, at = 0.0, 0

    def launch(changed: bool) -> Made:
        nonlocal level, at
        level, at = level + draw.gauss(0, walk), at + 1
        return Made(at, changed, level + draw.gauss(0, 1.0) + (effect if changed else 0.0))

    series, counts = series_of([launch(False) for _ in range(4)], Noise(1.0, 8)), [4, 0]
    while True:
        changed = not counts[1] or series.prefers_changed(at + 1)
        series = series.and_then(launch(changed))
        counts[changed] += 1
        found = judge_series(series, (counts[0], counts[1], counts[1]), min_effect=0.02, max_launches=12)
        if found.verdict is not Verdict.MORE:
            return found.verdict is Verdict.KEEP
