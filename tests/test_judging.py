"""From an experiment's runs to its verdict."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optagent.agent.experiments import (
    BASELINE,
    BUNDLE,
    CONFIRM,
    ITEM,
    SURVEY,
    TRIAL,
    Experiment,
    Launches,
    Outlook,
    Run,
)
from optagent.agent.judging import MOST_LAUNCHES, Rules, ahead_of_all, allowed_off, judgement
from optagent.agent.noise import NOISE_FLOOR, Noise, with_usual
from optagent.agent.records import Baseline, Measurement
from optagent.agent.verdict import Judgement, Verdict, geometric_mean
from optagent.tools.calls.configuration import Configuration

BASE = Configuration("default")
RECORDED = Baseline(BASE, Measurement("output_throughput", 100.0))
TRY = Experiment("E0001", ITEM, "an item", BASE, "S001")
MEASURE = replace(TRY, kind=BASELINE, goal=2)


def runs(arm: str, *values: float, **metrics: Sequence[float]) -> tuple[Run, ...]:
    return tuple(
        Run(arm, n, value, metrics={k: v[n - 1] for k, v in metrics.items()}) for n, value in enumerate(values, 1)
    )


def judged(
    experiment: Experiment,
    baseline: Baseline = RECORDED,
    pool: Sequence[float] = (100.0, 100.5),
    noise: Noise | None = Noise(1.0, 20),  # noqa: B008 - it is frozen
    guards: Mapping[str, float] | None = None,
) -> Judgement:
    mine = list(experiment.values("candidate").values())
    return judgement(
        experiment, Rules(guards=guards or {}), baseline=baseline, base=launches(*pool, of="E0000"),
        candidate=launches(*mine, of=experiment.id), noise=noise,
    )  # fmt: skip


def launches(*values: float, of: str) -> Launches:
    """Of experiment E0000 before those of all others."""
    first = 1 if of == "E0000" else 7
    at = tuple(range(first, first + len(values)))
    return Launches(values, tuple({"p99_ttft_ms": 50.0} for _ in values), (of,) * len(values), at)


@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        ((), Verdict.MORE),
        ((100.0,), Verdict.MORE),
        ((100.0, 100.0), Verdict.KEEP),
        ((102.9, 103.0), Verdict.KEEP),
        ((97.1, 97.0), Verdict.KEEP),
        ((104.5, 104.7), Verdict.INCONCLUSIVE),  # better than its record is not as recorded either
        ((95.0, 95.0), Verdict.INCONCLUSIVE),
    ],
)
def test_a_measured_baseline_is_held_against_its_record(values: tuple[float, ...], verdict: Verdict) -> None:
    assert judged(replace(MEASURE, runs=runs("baseline", *values))).verdict is verdict


def test_a_baseline_without_a_record_becomes_it() -> None:
    found = judged(replace(MEASURE, runs=runs("baseline", 50.0, 51.0)), baseline=Baseline(BASE))
    assert (found.verdict, found.effect) == (Verdict.KEEP, None)


def test_how_far_a_baseline_is_off_is_told() -> None:
    found = judged(replace(MEASURE, runs=runs("baseline", 90.0, 90.0)))
    assert found.effect == pytest.approx(-0.1)
    assert "-10.0%" in found.because


def test_a_clear_loss_needs_no_pair() -> None:
    found = judged(replace(TRY, runs=runs("candidate", 90.0)))
    assert (found.verdict, found.pairs) == (Verdict.REVERT, 0)


@pytest.mark.parametrize(
    ("experiment", "pool"),
    [
        (replace(TRY, runs=runs("candidate", 90.0)), ()),  # nothing to hold it against yet
        (replace(TRY, kind=CONFIRM, runs=runs("candidate", 90.0)), (100.0,)),  # what was kept is always paired
        (replace(TRY, runs=runs("candidate", 99.0)), (100.0,)),
    ],
)
def test_otherwise_a_first_run_alone_decides_nothing(experiment: Experiment, pool: tuple[float, ...]) -> None:
    assert judged(experiment, pool=pool).verdict is Verdict.MORE


def test_pairs_decide() -> None:
    assert judged(replace(TRY, runs=runs("baseline", 100, 101) + runs("candidate", 110, 111))).verdict is Verdict.KEEP


def test_a_run_without_its_partner_does_not_count() -> None:
    lonely = replace(TRY, runs=runs("candidate", 110, 111, 112) + runs("baseline", 100))
    assert judged(lonely).pairs == 1


def test_invalid_runs_end_the_experiment_before_any_number() -> None:
    invalid = (Run("candidate", 1, None, False, "no reply"),) * 2
    found = judged(replace(TRY, runs=invalid + runs("baseline", 100)))
    assert (found.verdict, found.effect) == (Verdict.INVALID, None)
    assert "no reply" in found.because


@pytest.mark.parametrize(("after", "verdict"), [(52.0, Verdict.KEEP), (60.0, Verdict.REVERT)])
def test_a_guarded_latency_may_not_grow_beyond_its_margin(after: float, verdict: Verdict) -> None:
    guarded = replace(
        TRY, runs=runs("baseline", 100, 100, p99_ttft_ms=[50, 50]) + runs("candidate", 110, 110, p99_ttft_ms=[after] * 2)
    )  # fmt: skip
    assert judged(guarded, guards={"p99_ttft_ms": 0.1}).verdict is verdict


def test_a_guard_that_was_not_measured_guards_nothing() -> None:
    kept = replace(TRY, runs=runs("baseline", 100, 100) + runs("candidate", 110, 110))
    assert judged(kept, guards={"p99_ttft_ms": 0.1}).verdict is Verdict.KEEP


def test_unknown_noise_is_taken_from_the_pool() -> None:
    pairs = replace(TRY, runs=runs("baseline", 100, 100) + runs("candidate", 104, 104))
    assert judged(pairs, pool=(100.0, 100.1, 99.9), noise=None).verdict is Verdict.KEEP
    assert judged(pairs, pool=(97.0, 103.0, 100.0), noise=None).verdict is Verdict.MORE


# Held against all launches of the baseline

POOLED = replace(TRY, pooled=True)
SIX = (100.0, 100.6, 99.4, 100.2, 99.9, 100.1)


@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        ((), Verdict.MORE),
        ((110.0,), Verdict.MORE),  # one launch is never enough to keep
        ((110.0, 109.0), Verdict.KEEP),
        ((97.0,), Verdict.REVERT),  # enough to see that there is no gain
        ((101.0,), Verdict.MORE),
        ((100.0, 100.1, 99.9), Verdict.REVERT),
        ((101.0,) * 12, Verdict.INCONCLUSIVE),
    ],
)
def test_without_pairs_the_pool_is_what_counts(values: tuple[float, ...], verdict: Verdict) -> None:
    found = judged(replace(POOLED, runs=runs("candidate", *values)), pool=SIX, noise=Noise(0.6, 11))
    assert found.verdict is verdict


@pytest.mark.parametrize(
    ("values", "verdict"),
    [((90.0, 91.0), Verdict.KEEP), ((100.0, 100.1), Verdict.REVERT), ((103.0, 104.0), Verdict.REVERT)],
)
def test_an_item_that_is_taken_out_is_kept_when_it_is_missed(values: tuple[float, ...], verdict: Verdict) -> None:
    """The candidate is what is left without it; the effect is the item's."""
    found = judged(replace(POOLED, removal=True, runs=runs("candidate", *values)), pool=SIX, noise=Noise(0.6, 11))
    assert found.verdict is verdict
    assert found.effect is not None
    assert (found.effect > 0) == (verdict is Verdict.KEEP)


def test_a_candidate_whose_output_waits_is_not_judged() -> None:
    waits = replace(POOLED, runs=runs("candidate", 110, 110), candidate_gate={"held": False})
    assert judged(waits, pool=SIX).verdict is Verdict.MORE
    assert judged(replace(waits, gated=("candidate", "baseline")), pool=SIX).verdict is Verdict.KEEP


def test_a_guard_is_held_against_the_pool_too() -> None:
    kept = replace(POOLED, runs=runs("candidate", 110, 110))
    assert judged(kept, pool=SIX, guards={"p99_ttft_ms": 0.1}).verdict is Verdict.KEEP
    slow = Launches((110.0, 110.0), ({"p99_ttft_ms": 60.0},) * 2, ("E0001",) * 2, (7, 8))
    found = judgement(
        kept, Rules(guards={"p99_ttft_ms": 0.1}), baseline=RECORDED, base=launches(*SIX, of="E0000"), candidate=slow,
        noise=Noise(1.0, 20),
    )  # fmt: skip
    assert found.verdict is Verdict.REVERT


def test_a_point_of_a_search_is_looked_at_and_never_kept() -> None:
    point = replace(TRY, kind=TRIAL, goal=1)
    assert judged(point).verdict is Verdict.MORE
    found = judged(replace(point, runs=runs("candidate", 150)))
    assert (found.verdict, found.effect) == (Verdict.INCONCLUSIVE, pytest.approx(0.496, abs=0.01))


def test_what_was_kept_is_confirmed_in_four_pairs() -> None:
    confirm = replace(TRY, kind=CONFIRM, runs=runs("baseline", 100, 100, 100) + runs("candidate", 150, 150, 150))
    assert judged(confirm).verdict is Verdict.MORE
    four = replace(confirm, runs=runs("baseline", *[100] * 4) + runs("candidate", *[150] * 4))
    assert judged(four).verdict is Verdict.KEEP


# A survey


LOOK = replace(TRY, kind=SURVEY, goal=1)
RIGHT = replace(LOOK, gated=("candidate",))
AT_110 = Outlook(math.log(110), math.log(100), 0.01**2, 0.005**2, 0.0)
UNSURE = Outlook(math.log(100), math.log(100), 0.2**2, 0.2**2, 0.0)


def sure_of(value: float) -> Outlook:
    return Outlook(math.log(value), math.log(100), 1e-8, 1e-8, 0.0)


@pytest.mark.parametrize(
    ("experiment", "values", "pool", "verdict"),
    [
        (RIGHT, (), SIX, Verdict.MORE),
        (RIGHT, (110.0,), SIX, Verdict.KEEP),
        (LOOK, (110.0,), SIX, Verdict.INCONCLUSIVE),  # nobody looked at its output
        (replace(RIGHT, candidate_gate={"held": False}), (110.0,), SIX, Verdict.INCONCLUSIVE),
        (RIGHT, (102.7,), SIX, Verdict.KEEP),
        (RIGHT, (101.8,), (100.0,), Verdict.INCONCLUSIVE),  # of one launch of the baseline little is known
        (RIGHT, (101.8,), SIX, Verdict.KEEP),
        (RIGHT, (101.5,), SIX, Verdict.INCONCLUSIVE),
        (RIGHT, (100.0,), SIX, Verdict.INCONCLUSIVE),
        (RIGHT, (80.0,), SIX, Verdict.INCONCLUSIVE),  # bad as it is, it settles nothing
        (RIGHT, (110.0,), (), Verdict.INCONCLUSIVE),
        # by what the survey expected
        (replace(RIGHT, outlook=AT_110), (102.7,), (100.0,), Verdict.KEEP),
        (replace(RIGHT, outlook=UNSURE), (110.0,), SIX, Verdict.INCONCLUSIVE),
        # sure as it may be, less than half of the minimum effect is not worth it
        (replace(RIGHT, outlook=sure_of(101.2)), (101.2,), SIX, Verdict.KEEP),
        (replace(RIGHT, outlook=sure_of(100.8)), (100.8,), SIX, Verdict.INCONCLUSIVE),
    ],
)
def test_a_launch_of_a_survey_is_kept_where_it_is_surely_ahead(
    experiment: Experiment, values: tuple[float, ...], pool: tuple[float, ...], verdict: Verdict
) -> None:
    found = judged(replace(experiment, runs=runs("candidate", *values)), pool=pool)
    assert found.verdict is verdict
    if values:
        assert "in the survey" in found.because
        assert (found.effect is None) == (not pool)


positive = st.floats(50, 200)


@given(
    st.lists(positive, min_size=1, max_size=4), positive, positive, st.floats(0.3, 5), st.sampled_from([None, AT_110])
)
def test_more_is_never_less_ahead(
    pool: list[float], one: float, other: float, noise: float, outlook: Outlook | None
) -> None:
    less, more = (
        ahead_of_all(
            replace(LOOK, outlook=outlook, runs=runs("candidate", value)), Rules(), launches(*pool, of="E0000"),
            Noise(noise, 5),
        )
        for value in sorted((one, other))
    )  # fmt: skip
    assert more >= less


@given(st.lists(positive, min_size=1, max_size=4), positive)
def test_less_of_a_latency_is_as_much_ahead_as_more_of_a_rate(pool: list[float], value: float) -> None:
    rate, latency = (
        ahead_of_all(
            replace(LOOK, runs=runs("candidate", value**sign)), Rules(direction),
            launches(*(v**sign for v in pool), of="E0000"), Noise(1.0, 5),
        )
        for sign, direction in ((1, "max"), (-1, "min"))
    )  # fmt: skip
    assert rate == latency


@pytest.mark.parametrize(("kind", "verdict"), [(ITEM, Verdict.MORE), (BUNDLE, Verdict.INCONCLUSIVE)])
def test_a_combination_has_to_show_its_gain_soon(kind: str, verdict: Verdict) -> None:
    """Its items have their verdicts still before them either way."""
    values = (101.0,) * MOST_LAUNCHES
    assert judged(replace(POOLED, kind=kind, runs=runs("candidate", *values)), noise=Noise(1.0, 20)).verdict is verdict


@pytest.mark.parametrize(
    ("survey_first", "baseline", "verdict"),
    [(True, Baseline(BASE), Verdict.KEEP), (False, Baseline(BASE), Verdict.MORE), (True, RECORDED, Verdict.MORE)],
)
def test_before_a_survey_one_launch_of_the_baseline_is_enough(
    survey_first: bool, baseline: Baseline, verdict: Verdict
) -> None:
    found = judgement(
        replace(MEASURE, runs=runs("baseline", 100.0)), Rules(survey_first=survey_first), baseline=baseline,
        base=Launches(), candidate=Launches(), noise=None,
    )  # fmt: skip
    assert found.verdict is verdict


# Noise that is believed


@given(st.floats(0, 20), st.integers(1, 500))
def test_few_launches_are_believed_less_than_many(launch_sd: float, df: int) -> None:
    seen, usual = max(launch_sd, NOISE_FLOOR), with_usual(None)
    assert min(seen, usual) - 1e-9 <= with_usual(Noise(launch_sd, df)) <= max(seen, usual) + 1e-9
    assert abs(with_usual(Noise(launch_sd, df + 1)) - seen) <= abs(with_usual(Noise(launch_sd, df)) - seen) + 1e-9
    assert with_usual(Noise(launch_sd, 10**7)) == pytest.approx(seen, rel=1e-3)


@pytest.mark.parametrize(("noise", "allowed"), [(None, 0.046), (Noise(0.5, 9), 0.03), (Noise(3.0, 9), 0.094)])
def test_a_noisy_baseline_may_lie_further_off(noise: Noise | None, allowed: float) -> None:
    assert allowed_off(0.03, noise, 2, 2) == pytest.approx(allowed, abs=0.001)


def test_the_mean_is_geometric() -> None:
    assert geometric_mean([50.0, 200.0]) == pytest.approx(100.0)
