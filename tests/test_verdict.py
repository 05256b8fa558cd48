"""Keep or revert: the laws of the rule, and its error rates on simulated launches."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Literal

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from optagent.agent.guards import Guard, harm
from optagent.agent.noise import NOISE_FLOOR, Noise, noise_of, pooled, with_pairs
from optagent.agent.verdict import (
    ALPHA,
    BETA,
    KEEP_AT,
    KEEP_AT_THE_END,
    REVERT_AT,
    Judgement,
    Verdict,
    expected_pairs,
    gain,
    judge,
    screen,
    too_noisy,
)

Direction = Literal["max", "min"]
Pairs = list[tuple[float, float]]

values = st.floats(50.0, 200.0)
pairs_of_runs = st.lists(st.tuples(values, values), min_size=1, max_size=12)
noises = st.builds(Noise, st.floats(0.0, 10.0), st.integers(1, 40))
directions = st.sampled_from(["max", "min"])
HARD_TO_KEEP = {Verdict.REVERT: 0, Verdict.INCONCLUSIVE: 1, Verdict.MORE: 1, Verdict.TOO_NOISY: 1, Verdict.KEEP: 2}
ONE_PER_CENT = Noise(1.0, 100)
laws = settings(deadline=None, max_examples=60)


def judged(pairs: Sequence[tuple[float, float]], noise: Noise = ONE_PER_CENT, direction: str = "max") -> Judgement:
    return judge(pairs, noise, direction=direction, min_effect=0.02, max_pairs=12)


def far_from_a_threshold(judgement: Judgement) -> bool:
    """Whether rounding cannot change the verdict."""
    marks = (KEEP_AT, REVERT_AT, KEEP_AT_THE_END)
    return judgement.llr is not None and all(abs(judgement.llr - mark) > 1e-6 for mark in marks)


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        ([], Verdict.MORE),
        ([(100.0, 200.0)], Verdict.MORE),  # one pair is never enough, however good
        ([(100.0, 50.0)], Verdict.MORE),
        ([(100.0, 104.0)] * 2, Verdict.KEEP),
        ([(100.0, 100.0)] * 2, Verdict.MORE),
        ([(100.0, 100.0)] * 5, Verdict.REVERT),  # no gain is a loss of simplicity
        ([(100.0, 98.0)] * 2, Verdict.REVERT),
        ([(100.0, 101.0)] * 11, Verdict.MORE),  # half the minimum effect tells neither way ...
        ([(100.0, 101.0)] * 12, Verdict.INCONCLUSIVE),  # ... and ends when the pairs are used up
    ],
)
def test_verdicts_at_one_per_cent_noise(pairs: Pairs, expected: Verdict) -> None:
    assert judged(pairs).verdict is expected


def test_the_last_pair_keeps_at_odds_of_four_to_one() -> None:
    almost = [(100.0, 101.2)] * 12
    assert KEEP_AT_THE_END < (judged(almost).llr or 0) < KEEP_AT
    assert judged(almost).verdict is Verdict.KEEP
    assert judged(almost[:11]).verdict is Verdict.MORE


@pytest.mark.parametrize(
    ("losses", "expected"),
    [
        ([0.0] * 3, Verdict.KEEP),
        ([0.20] * 3, Verdict.REVERT),
        ([0.045] * 3, Verdict.MORE),  # near the margin, and not decided
        ([0.04] * 12, Verdict.KEEP),
        ([0.07] * 12, Verdict.REVERT),
        ([0.3, -0.2, 0.1], Verdict.MORE),  # too restless to tell
    ],
)
def test_a_guard_stops_a_keep_when_it_got_worse_and_delays_it_while_that_is_open(
    losses: list[float], expected: Verdict
) -> None:
    guard = Guard([(100.0, 100.0 * (1 + loss)) for loss in losses], margin=0.05)
    judgement = judge(
        [(100.0, 110.0)] * len(losses), ONE_PER_CENT, direction="max", min_effect=0.02, max_pairs=12,
        guards={"p99_ttft_ms": guard},
    )  # fmt: skip
    assert judgement.verdict is expected
    assert ("p99_ttft_ms" in judgement.because) == (expected is not Verdict.KEEP)


@laws
@given(st.lists(st.tuples(values, values), min_size=1, max_size=12), st.floats(1.0, 1.5), noises)
def test_a_guard_that_got_worse_is_not_less_harmful(pairs: Pairs, factor: float, noise: Noise) -> None:
    order = {"harmless": 0, "open": 1, "harmful": 2}
    worse = [(b, c * factor) for b, c in pairs]
    assert order[harm(Guard(worse), noise)[0]] >= order[harm(Guard(pairs), noise)[0]]


@laws
@given(pairs_of_runs, st.floats(1.0, 1.5), noises, directions)
def test_better_candidates_are_never_judged_worse(pairs: Pairs, factor: float, noise: Noise, direction: str) -> None:
    better = [(b, c * factor if direction == "max" else c / factor) for b, c in pairs]
    before, after = judged(pairs, noise, direction), judged(better, noise, direction)
    assert HARD_TO_KEEP[after.verdict] >= HARD_TO_KEEP[before.verdict]


@laws
@given(
    st.lists(st.tuples(st.floats(98.0, 102.0), st.floats(99.0, 110.0)), min_size=2, max_size=12),
    st.lists(st.floats(1.0, 1.5), min_size=12, max_size=12),
    noises,
)
def test_what_is_kept_is_not_reverted_for_being_better(pairs: Pairs, factors: list[float], noise: Noise) -> None:
    """Also when some pairs gain more than others, and so look noisier."""
    better = [(b, c * factor) for (b, c), factor in zip(pairs, factors, strict=False)]
    assert (judged(pairs, noise).verdict, judged(better, noise).verdict) != (Verdict.KEEP, Verdict.REVERT)


@laws
@given(pairs_of_runs, noises)
def test_min_is_max_in_a_mirror(pairs: Pairs, noise: Noise) -> None:
    down, up = judged(pairs, noise, "min"), judged([(c, b) for b, c in pairs], noise, "max")
    assume(far_from_a_threshold(down))
    assert down.verdict is up.verdict
    assert down.effect == pytest.approx(up.effect, abs=1e-9)


@laws
@given(pairs_of_runs, st.floats(0.001, 1000.0), noises, directions)
def test_units_do_not_matter(pairs: Pairs, unit: float, noise: Noise, direction: str) -> None:
    one, other = judged(pairs, noise, direction), judged([(b * unit, c * unit) for b, c in pairs], noise, direction)
    assume(far_from_a_threshold(one))
    assert (other.verdict, other.pairs) == (one.verdict, one.pairs)


@laws
@given(pairs_of_runs, noises, st.randoms(use_true_random=False))
def test_the_order_of_pairs_does_not_matter(pairs: Pairs, noise: Noise, shuffler: random.Random) -> None:
    shuffled = shuffler.sample(pairs, len(pairs))
    assume(far_from_a_threshold(judged(pairs, noise)))
    assert judged(shuffled, noise).verdict is judged(pairs, noise).verdict


@laws
@given(pairs_of_runs, noises)
def test_the_effect_lies_within_its_interval(pairs: Pairs, noise: Noise) -> None:
    found = judged(pairs, noise)
    assert found.effect is not None
    assert found.low is not None
    assert found.high is not None
    assert found.low < found.effect < found.high


@laws
@given(st.tuples(values, values), noises)
def test_more_pairs_narrow_the_interval(pair: tuple[float, float], noise: Noise) -> None:
    def width(judgement: Judgement) -> float:
        assert judgement.low is not None
        assert judgement.high is not None
        return judgement.high - judgement.low

    assert width(judged([pair] * 8, noise)) < width(judged([pair] * 2, noise))


@laws
@given(st.integers(12, 30), noises, st.data())
def test_the_last_pair_always_decides(count: int, noise: Noise, data: st.DataObject) -> None:
    pairs = data.draw(st.lists(st.tuples(values, values), min_size=count, max_size=count))
    assert judged(pairs, noise).verdict is not Verdict.MORE


@laws
@given(values, values)
def test_gain_changes_sign_with_the_direction_and_the_roles(baseline: float, candidate: float) -> None:
    up = gain(baseline, candidate, "max")
    assert gain(baseline, candidate, "min") == -up
    assert gain(candidate, baseline, "max") == pytest.approx(-up)
    assert (up > 0) == (candidate > baseline)


@pytest.mark.parametrize(
    ("pair", "log"),
    [
        ((1e308, 1e-308), -61600 * math.log(10)),
        ((1e-308, 1e308), 61600 * math.log(10)),
        ((2.0**-1074, 1), 107400 * math.log(2)),
    ],
)
def test_a_gain_too_large_for_a_ratio_is_told_all_the_same(pair: tuple[float, float], log: float) -> None:
    assert gain(*pair, "max") == pytest.approx(log, rel=1e-12)
    found = judged([pair] * 4)
    assert found.effect is not None
    assert found.high is not None
    assert math.isfinite(found.effect)
    assert math.isfinite(found.high)
    assert found.verdict is (Verdict.KEEP if log > 0 else Verdict.REVERT)
    assert len(found.because) < 150


def test_no_number_of_pairs_tells_an_effect_that_vanishes() -> None:
    assert expected_pairs(ONE_PER_CENT, 1e-300) == math.inf


# Noise


@laws
@given(st.lists(noises, min_size=1, max_size=6))
def test_pooled_noise_lies_between_its_parts(parts: list[Noise]) -> None:
    whole = pooled(parts)
    assert min(n.launch_sd for n in parts) - 1e-9 <= whole.launch_sd <= max(n.launch_sd for n in parts) + 1e-9
    assert whole.df == sum(n.df for n in parts)


@laws
@given(st.lists(values, min_size=2, max_size=12), st.floats(0.01, 100.0))
def test_noise_is_relative(runs: list[float], unit: float) -> None:
    assert noise_of([r * unit for r in runs]).launch_sd == pytest.approx(noise_of(runs).launch_sd, abs=1e-6)


def test_noise_of_a_known_sample() -> None:
    found = noise_of([100 * math.exp(x / 100) for x in (-1.0, 0.0, 1.0)])
    assert found.launch_sd == pytest.approx(1.0)
    assert found.df == 2


def test_a_spread_too_small_to_be_believed_is_not() -> None:
    assert noise_of([90.0, 90.0, 90.0]).launch_sd == 0.0
    assert Noise(0.0, 5).pair_sd == pytest.approx(NOISE_FLOOR * math.sqrt(2))


@laws
@given(noises, st.lists(st.floats(-20.0, 20.0), max_size=12))
def test_pairs_can_add_noise_and_never_take_it_away(noise: Noise, gains: list[float]) -> None:
    assert with_pairs(noise, gains).launch_sd >= noise.launch_sd


def test_a_machine_that_became_restless_gets_no_quick_verdict() -> None:
    restless = [(100.0, 112.0), (100.0, 96.0), (100.0, 110.0)]
    steady = [(100.0, 106.0)] * 3
    assert judged(steady, Noise(0.5, 5)).verdict is Verdict.KEEP
    assert judged(restless, Noise(0.5, 5)).verdict is Verdict.MORE


@laws
@given(st.floats(NOISE_FLOOR, 8.0), st.floats(1.01, 3.0), st.floats(0.005, 0.2))
def test_noise_costs_pairs_and_effect_saves_them(sd: float, more: float, effect: float) -> None:
    base = expected_pairs(Noise(sd, 5), effect)
    assert expected_pairs(Noise(sd * more, 5), effect) >= base >= 2
    assert expected_pairs(Noise(sd, 5), effect * more) <= base


@pytest.mark.parametrize(("sd", "hopeless"), [(0.5, False), (1.0, False), (2.0, False), (4.0, True)])
def test_a_machine_too_noisy_for_two_per_cent_in_twelve_pairs(sd: float, hopeless: bool) -> None:
    assert too_noisy(Noise(sd, 10), 0.02, 12) is hopeless


# The screen


@pytest.mark.parametrize(
    ("candidate", "direction", "stopped"),
    [(100.0, "max", False), (96.0, "max", False), (95.0, "max", True), (104.0, "min", False), (105.0, "min", True)],
)
def test_only_a_clear_loss_is_screened_out(candidate: float, direction: str, stopped: bool) -> None:
    found = screen([100.0, 100.0], candidate, ONE_PER_CENT, direction)
    assert (found is not None) is stopped
    if found is not None:
        assert found.verdict is Verdict.REVERT
        assert found.effect is not None
        assert found.effect < 0


@laws
@given(st.lists(values, min_size=1, max_size=8), st.floats(1, 3), noises, directions)
def test_a_gain_is_never_screened_out(baseline: list[float], factor: float, noise: Noise, direction: str) -> None:
    better = max(baseline) * factor if direction == "max" else min(baseline) / factor
    assert screen(baseline, better, noise, direction) is None


# Error rates, on launches that were drawn


DRAWS = 2000


def share_kept(launch_sd: float, effect: float, noise_df: int | None, seed: int) -> float:
    """How often a change of this effect is kept when launches vary by `launch_sd` per cent. The rule is given the true
    noise, or an estimate from `noise_df` + 1 launches."""
    draw = random.Random(seed)

    def launch(mean: float) -> float:
        return mean * math.exp(draw.gauss(0, launch_sd) / 100)

    def decide() -> Verdict:
        noise = noise_of([launch(100) for _ in range(noise_df + 1)]) if noise_df else Noise(launch_sd, 200)
        pairs: Pairs = []
        while True:
            pairs.append((launch(100), launch(100 * (1 + effect))))
            if (found := judged(pairs, noise).verdict) is not Verdict.MORE:
                return found

    return sum(decide() is Verdict.KEEP for _ in range(DRAWS)) / DRAWS


def sampling_error(rate: float) -> float:
    return 3 * math.sqrt(rate * (1 - rate) / DRAWS)


@pytest.mark.parametrize("noise_df", [None, 5], ids=["noise-known", "noise-from-six-launches"])
@pytest.mark.parametrize("launch_sd", [0.5, 1.0])
def test_a_change_that_does_nothing_is_seldom_kept(launch_sd: float, noise_df: int | None) -> None:
    assert share_kept(launch_sd, 0.0, noise_df, seed=1) <= ALPHA + sampling_error(ALPHA)


@pytest.mark.parametrize("launch_sd", [0.5, 1.0])
def test_a_change_of_the_minimum_effect_is_seldom_missed(launch_sd: float) -> None:
    assert share_kept(launch_sd, 0.02, None, seed=2) >= 1 - BETA - sampling_error(BETA)


def test_a_loss_is_as_good_as_never_kept() -> None:
    assert share_kept(1.0, -0.02, None, seed=3) == 0.0
