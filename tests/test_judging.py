"""From an experiment's runs to its verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from optagent.agent.judging import judgement
from optagent.agent.ledger import BASELINE, CONFIRM, ITEM, Experiment, Run
from optagent.agent.noise import Noise
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
    return judgement(
        experiment, baseline=baseline, pool=pool, noise=noise, direction="max", min_effect=0.02, max_pairs=12,
        tolerance=0.03, guards=guards or {},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        ((), Verdict.MORE),
        ((100.0,), Verdict.MORE),
        ((100.0, 100.0), Verdict.KEEP),
        ((102.9, 103.0), Verdict.KEEP),
        ((97.1, 97.0), Verdict.KEEP),
        ((103.0, 103.2), Verdict.INCONCLUSIVE),  # better than its record is not as recorded either
        ((96.0, 96.0), Verdict.INCONCLUSIVE),
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


def test_the_mean_is_geometric() -> None:
    assert geometric_mean([50.0, 200.0]) == pytest.approx(100.0)
