"""The cost model against the anchors it was calibrated on, and the laws it has to obey."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optagent.tools.simulator.acceptance import (
    accept_probability,
    draw_accept_length,
    expected_accept_length,
    longest_draft,
    looks_random,
)
from optagent.tools.simulator.cost import all_reduce_us, decode_step, padded_batch, prefill_s, target_step
from optagent.tools.simulator.memory import graph_gb, plan_memory
from optagent.tools.simulator.noise import generator, slowdown
from optagent.tools.simulator.scenario import load, packaged
from optagent.tools.simulator.setup import AllReduce, Setup, Speculation
from optagent.tools.simulator.tables import interpolate, mla_us

SCENARIO = load(packaged("kimi-k2.5-8x-rtx-pro-6000"))
MODEL, COSTS = SCENARIO.model, SCENARIO.costs
BASELINE = Setup()
EAGLE = Speculation("EAGLE3", 3, 1, 4)
CONTEXT = 300.0


def tokens_per_s(setup: Setup) -> float:
    """One stream's decode speed at the reference context, in tok/s."""
    gained = 1.0
    if setup.speculation:
        chance = accept_probability(COSTS, setup.speculation, random_prompt=False)
        gained = expected_accept_length(chance, longest_draft(setup.speculation))
    return gained / decode_step(MODEL, COSTS, setup, 1, CONTEXT).total_us * 1e6


def gain(change: Setup, base: Setup = BASELINE) -> float:
    """In percent."""
    return 100 * (tokens_per_s(change) / tokens_per_s(base) - 1)


SPECULATING = replace(BASELINE, speculation=EAGLE, graph_max_bs=48)
ANCHORS = {
    "graphs up to 512": (replace(BASELINE, graph_max_bs=512), -9.5, -7.5),
    "EAGLE3 3/1/4": (SPECULATING, 27.0, 35.0),
    "n-grams": (replace(BASELINE, speculation=Speculation("NGRAM", 0, 1, 12)), -70.0, -20.0),
    "one-shot all-reduce over PCIe": (replace(BASELINE, all_reduce=AllReduce("custom")), 10.0, 18.0),
    "fewer channels": (replace(BASELINE, all_reduce=AllReduce(channels=4)), -0.3, 0.3),
    "expert parallelism": (replace(BASELINE, ep_size=8), -5.0, -2.0),
    "fused all-reduce": (replace(BASELINE, all_reduce=AllReduce(fused=True)), 4.5, 7.5),
    "no peer-to-peer": (replace(BASELINE, all_reduce=AllReduce(peer_to_peer=False)), -45.0, -30.0),
    "fp8 KV cache": (replace(BASELINE, kv_dtype="fp8_e4m3"), -84.0, -78.0),
    "no graphs": (replace(BASELINE, graph_max_bs=0), -65.0, -40.0),
}


@pytest.mark.parametrize("name", ANCHORS)
def test_anchor(name: str) -> None:
    change, low, high = ANCHORS[name]
    assert low <= gain(change) <= high


def test_baseline_speed() -> None:
    assert tokens_per_s(BASELINE) == pytest.approx(90.4, abs=0.8)


def test_all_reduce_is_a_third_of_a_step() -> None:
    step = target_step(MODEL, COSTS, BASELINE, 1, CONTEXT)
    assert 0.25 < step.all_reduce_us / step.total_us < 0.35


def test_decode_kernel_verifies_faster() -> None:
    decode = replace(SPECULATING, speculation=replace(EAGLE, attention_mode="decode"))
    assert 1.5 < gain(decode, SPECULATING) < 6.0


def test_no_host_sync_is_faster() -> None:
    assert 2.0 < gain(replace(SPECULATING, speculation=replace(EAGLE, sync_host=False)), SPECULATING) < 6.0


@pytest.mark.parametrize(("batch", "low", "high"), [(8, 340, 420), (32, 600, 1000), (64, 900, 1550)])
def test_throughput_of_batches(batch: int, low: float, high: float) -> None:
    assert low < batch / decode_step(MODEL, COSTS, BASELINE, batch, 1500).total_us * 1e6 < high


@pytest.mark.parametrize(("tokens", "rate"), [(8192, 7300), (131072, 4770)])
def test_prefill_rate(tokens: int, rate: float) -> None:
    seconds = sum(prefill_s(MODEL, COSTS, BASELINE, 8192, done) for done in range(0, tokens, 8192))
    assert tokens / seconds == pytest.approx(rate, rel=0.1)


def test_large_messages_are_slower_without_nccl() -> None:
    small, large = 7168, 28 * 7168
    custom, nccl = AllReduce("custom"), AllReduce()
    assert all_reduce_us(small, custom) < all_reduce_us(small, nccl)
    assert all_reduce_us(large, custom) > all_reduce_us(large, nccl)
    assert all_reduce_us(100 * large, custom) == all_reduce_us(100 * large, nccl)


BATCHES = st.integers(1, 128)
CONTEXTS = st.floats(1, 200_000)
SETUPS = st.sampled_from(
    [BASELINE, SPECULATING, replace(BASELINE, ep_size=8), replace(BASELINE, all_reduce=AllReduce("custom"))]
)


@given(BATCHES, BATCHES, CONTEXTS, SETUPS)
def test_a_larger_batch_takes_no_less_time(one: int, other: int, context: float, setup: Setup) -> None:
    small, large = sorted((one, other))
    costs = [decode_step(MODEL, COSTS, setup, batch, context).total_us for batch in (small, large)]
    assert costs[0] <= costs[1] + 1e-6


@given(BATCHES, CONTEXTS, CONTEXTS, SETUPS)
def test_a_longer_context_takes_no_less_time(batch: int, one: float, other: float, setup: Setup) -> None:
    costs = [decode_step(MODEL, COSTS, setup, batch, context).total_us for context in sorted((one, other))]
    assert costs[0] <= costs[1] + 1e-6


@given(st.integers(1, 1024), st.integers(1, 1024))
def test_larger_graphs_take_no_less_time_and_memory(one: int, other: int) -> None:
    small, large = (replace(BASELINE, graph_max_bs=size) for size in sorted((one, other)))
    steps = [target_step(MODEL, COSTS, setup, 1, CONTEXT).graph_us for setup in (small, large)]
    assert steps[0] <= steps[1]
    assert graph_gb(COSTS, small) <= graph_gb(COSTS, large)


@given(
    st.floats(0.05, 0.99),
    st.integers(0, 2048),
    st.sampled_from([1, 2, 4, 8]),
    st.floats(0, 120),
    st.booleans(),
    st.sampled_from([None, EAGLE]),
)
def test_memory_is_never_negative(
    fraction: float, graphs: int, tp: int, taken: float, all_to_all: bool, how: Speculation | None
) -> None:
    setup = Setup(mem_fraction_static=fraction, graph_max_bs=graphs, tp_size=tp, all_to_all=all_to_all, speculation=how)
    plan = plan_memory(SCENARIO.hardware, MODEL, COSTS, SCENARIO.faults, setup, taken)
    free = [plan.at_start_gb, plan.after_weights_gb, plan.after_draft_gb, plan.after_pool_gb, plan.after_capture_gb]
    assert min(free) >= 0
    assert free == sorted(free, reverse=True)
    assert plan.kv_tokens >= 0
    assert (plan.kv_tokens > 0) or plan.shortage


@given(st.lists(st.tuples(st.floats(1, 1e6), st.floats(1, 1e6)), min_size=1, unique_by=lambda point: point[0]))
def test_interpolation_goes_through_its_points(points: list[tuple[float, float]]) -> None:
    curve = sorted(points)
    for x, y in curve:
        assert interpolate(curve, x) == pytest.approx(y)


def test_mla_extrapolates_in_proportion() -> None:
    assert mla_us(64, 131072) == pytest.approx(2 * mla_us(32, 131072))


@given(st.floats(0, 0.95), st.integers(1, 12), st.integers(0, 10_000))
def test_accept_lengths_stay_in_their_range(chance: float, longest: int, seed: int) -> None:
    drawn = draw_accept_length(generator(seed), chance, longest)
    assert 1 <= drawn <= longest + 1
    assert 1 <= expected_accept_length(chance, longest) <= longest + 1


def test_random_tokens_are_told_from_text() -> None:
    assert looks_random(generator("ids").choices(range(32000), k=1024))
    assert not looks_random([1, 2, 3, 4] * 64)
    assert not looks_random([1, 2, 3])


def test_graphs_pad_up_and_end() -> None:
    assert padded_batch(BASELINE, 5) == (8, True)
    assert padded_batch(BASELINE, 128) == (128, True)
    assert padded_batch(BASELINE, 129) == (129, False)
    assert padded_batch(replace(BASELINE, graph_max_bs=0), 1) == (1, False)


def test_noise_is_seeded_and_has_its_width() -> None:
    draws = [slowdown(0.01, 7, number) for number in range(400)]
    assert draws == [slowdown(0.01, 7, number) for number in range(400)]
    spread = sum((one - 1) ** 2 for one in draws) / len(draws)
    assert spread**0.5 == pytest.approx(0.01, rel=0.2)
    assert slowdown(0.0, 7) == 1.0
