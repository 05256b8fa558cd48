"""What a load lets one foresee of a setting: what it can feel, what it cannot, and what would starve it."""

from __future__ import annotations

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from optagent.agent.load import Load
from optagent.agent.survey.foreseen import (
    LITTLE_SD,
    NOTHING_SD,
    RUNNING_WITH_DRAFTS,
    STARVES,
    USUAL_SD,
    Foreseen,
    Settings,
    Value,
    foreseen,
)

LOAD = Load(clients=64, tokens=2000)
LATENCY = Load(clients=64, tokens=2000, throughput=False)
AMPLE = Load(clients=64, tokens=2000, room=200_000)
SCARCE = Load(clients=64, tokens=2000, room=50_000)
HITS, MISSES = Load(clients=64, tokens=2000, cached=0.4), Load(clients=64, tokens=2000, cached=0.0)

DENSE = Load(clients=64, tokens=2000, room=200_000, kv_gb=40.0, weights_gb=30.0)
SPACIOUS = Load(clients=64, tokens=2000, room=200_000, kv_gb=40.0, weights_gb=3.0)

STARVING, RELIEVING, LOSING = "starves", "relieves", "loses a little"
NOTHING, HARDLY = "nothing, surely", "nothing, nearly surely"


def said(found: Foreseen | None) -> str | None:
    """What was foreseen, in a word."""
    if found is None:
        return None
    if found.ahead == 0:
        return {NOTHING_SD: NOTHING, LITTLE_SD: HARDLY}[found.sd]
    if found.sd == LITTLE_SD:
        return LOSING if found.ahead < 0 else "gains a little"
    return STARVING if found.ahead <= STARVES else RELIEVING if found.ahead > 0 else "?"


@pytest.mark.parametrize(
    ("sets", "before", "load", "word"),
    [
        # requests at once: too few for the load, as many as come, and more than that
        ({"max-running-requests": 16}, {}, LOAD, STARVING),
        ({"max-running-requests": 63}, {}, LOAD, STARVING),
        ({"max-running-requests": 64}, {}, LOAD, NOTHING),
        ({"max-running-requests": 256}, {}, LOAD, NOTHING),
        ({"max-running-requests": "16"}, {}, LOAD, STARVING),
        ({"max-running-requests": 64}, {"max-running-requests": 16}, LOAD, RELIEVING),
        ({"max-running-requests": 32}, {"max-running-requests": 16}, LOAD, RELIEVING),
        ({"max-running-requests": 8}, {"max-running-requests": 16}, LOAD, STARVING),
        ({"max-running-requests": None}, {"max-running-requests": 16}, LOAD, RELIEVING),
        ({"max-running-requests": 16}, {}, LATENCY, None),  # fewer at once may be quicker for each
        # weights on fewer GPUs leave less of them for the KV cache
        ({"tp-size": 2, "dp-size": 2}, {"tp-size": 4}, DENSE, STARVING),
        ({"tp-size": 2, "dp-size": 2}, {"tp-size": 4}, SPACIOUS, None),
        ({"tp-size": 2, "dp-size": 2}, {"tp-size": 4}, AMPLE, None),  # the log did not say what the weights take
        ({"pp-size": 2, "tp-size": 2}, {"tp-size": 4}, DENSE, None),  # on as many as before
        ({"tp-size": 8}, {"tp-size": 4}, DENSE, None),
        ({"tp-size": 2, "attn-dp-size": 2}, {"tp-size": 4}, DENSE, None),
        ({"tp-size": 2}, {"tp-size": 4, "max-total-tokens": 20_000}, DENSE, None),
        # every replica takes its share
        ({"max-running-requests": 16}, {"dp-size": 4}, LOAD, NOTHING),
        ({"max-running-requests": 15}, {"dp-size": 4}, LOAD, STARVING),
        ({"max-running-requests": 21}, {"dp-size": 3}, LOAD, STARVING),
        # speculation alone lets 48 run
        ({"speculative-algorithm": "EAGLE"}, {}, LOAD, STARVING),
        ({"speculative-algorithm": "EAGLE"}, {}, LATENCY, None),
        ({"speculative-algorithm": "EAGLE"}, {}, Load(RUNNING_WITH_DRAFTS, 2000), None),
        ({"speculative-algorithm": "EAGLE"}, {"dp-size": 2}, LOAD, None),
        ({"speculative-algorithm": "EAGLE"}, {"max-running-requests": 64}, LOAD, None),
        ({"speculative-algorithm": "EAGLE", "max-running-requests": 64}, {}, LOAD, None),
        ({"speculative-algorithm": "NGRAM"}, {"speculative-algorithm": "EAGLE"}, LOAD, None),
        ({"speculative-algorithm": None}, {"speculative-algorithm": "EAGLE"}, LOAD, None),
        ({"max-running-requests": 64}, {"speculative-algorithm": "EAGLE"}, LOAD, RELIEVING),
        ({"max-running-requests": 16}, {"speculative-algorithm": "EAGLE"}, LOAD, STARVING),
        ({"speculative-algorithm": "EAGLE"}, {"max-running-requests": 16}, LOAD, None),  # no fewer than before
        ({"speculative-algorithm": "EAGLE", "max-running-requests": None}, {"max-running-requests": 16}, LOAD, None),
        ({"max-running-requests": None}, {"max-running-requests": 256, "speculative-algorithm": "EAGLE"}, LOAD, STARVING),
        # ranks of data parallel attention share the number
        ({"max-running-requests": 16}, {"attn-dp-size": 4}, LOAD, STARVING),
        ({"max-running-requests": 64}, {"attn-dp-size": 4}, LOAD, NOTHING),
        ({"max-running-requests": 16}, {"dp-size": 4, "enable-dp-attention": True}, LOAD, STARVING),
        ({"max-running-requests": 64}, {"dp-size": 4, "enable-dp-attention": True}, LOAD, NOTHING),
        ({"cuda-graph-max-bs": 16}, {"attn-dp-size": 4}, LOAD, None),
        # graphs for what runs at once
        ({"cuda-graph-max-bs": 32}, {}, LOAD, STARVING),
        ({"cuda-graph-max-bs-decode": 32}, {}, LOAD, STARVING),
        ({"cuda-graph-max-bs": 64}, {}, LOAD, None),  # not known how large they were
        ({"cuda-graph-max-bs": 256}, {"cuda-graph-max-bs": 128}, LOAD, NOTHING),
        ({"cuda-graph-max-bs": 64}, {"cuda-graph-max-bs": 128}, LOAD, None),
        ({"cuda-graph-max-bs-decode": 128}, {"cuda-graph-max-bs": 32}, LOAD, RELIEVING),
        ({"cuda-graph-max-bs": 16}, {"dp-size": 4}, LOAD, None),
        ({"cuda-graph-max-bs": 21}, {"dp-size": 3}, LOAD, STARVING),
        ({"cuda-graph-max-bs": 16}, {"max-running-requests": 16}, LOAD, None),
        ({"cuda-graph-max-bs": 16}, {"max-running-requests": 32}, LOAD, STARVING),
        # memory for the KV cache
        ({"mem-fraction-static": 0.9}, {"mem-fraction-static": 0.8}, AMPLE, NOTHING),
        ({"mem-fraction-static": 0.7}, {"mem-fraction-static": 0.8}, AMPLE, HARDLY),
        ({"mem-fraction-static": 0.9}, {"mem-fraction-static": 0.8}, SCARCE, RELIEVING),
        ({"mem-fraction-static": 0.9}, {}, SCARCE, RELIEVING),
        ({"mem-fraction-static": 0.7}, {"mem-fraction-static": 0.8}, SCARCE, STARVING),
        ({"mem-fraction-static": 0.7}, {"mem-fraction-static": 0.8, "max-running-requests": 16}, SCARCE, HARDLY),
        ({"mem-fraction-static": 0.9}, {"mem-fraction-static": 0.8}, LOAD, None),  # nobody saw the KV cache
        ({"mem-fraction-static": None}, {"mem-fraction-static": 0.8}, SCARCE, None),
        ({"max-total-tokens": 100_000}, {}, AMPLE, STARVING),
        ({"max-total-tokens": 128_000}, {}, AMPLE, NOTHING),
        ({"max-total-tokens": 100_000}, {}, LOAD, STARVING),
        ({"max-total-tokens": 40_000}, {}, SCARCE, STARVING),
        ({"max-total-tokens": 60_000}, {}, SCARCE, NOTHING),  # memory ends it before
        ({"max-total-tokens": 500_000}, {}, SCARCE, NOTHING),
        ({"max-total-tokens": 500_000}, {"max-total-tokens": 50_000}, SCARCE, RELIEVING),
        ({"max-total-tokens": 32_000}, {"dp-size": 4}, SCARCE, NOTHING),
        ({"mem-fraction-static": 0.7}, {"mem-fraction-static": 0.8, "dp-size": 4}, SCARCE, HARDLY),
        ({"mem-fraction-static": 0.4}, {"mem-fraction-static": 0.8}, AMPLE, STARVING),  # not even half of it is left
        # who is let in first matters where somebody waits
        ({"schedule-conservativeness": 0.3}, {}, AMPLE, NOTHING),
        ({"schedule-conservativeness": 0.3}, {}, SCARCE, None),
        ({"schedule-conservativeness": 0.3}, {}, LOAD, None),
        ({"schedule-policy": "lpm"}, {}, AMPLE, HARDLY),
        ({"schedule-policy": "lpm"}, {"max-running-requests": 16}, AMPLE, None),
        ({"schedule-policy": "lpm"}, {"speculative-algorithm": "EAGLE"}, AMPLE, None),
        ({"schedule-policy": "lpm"}, {}, SCARCE, None),
        ({"schedule-policy": "lpm"}, {}, LOAD, None),
        # the prefix cache is worth what it serves
        ({"disable-radix-cache": True}, {}, HITS, STARVING),
        ({"disable-radix-cache": True}, {}, MISSES, HARDLY),
        ({"disable-radix-cache": True}, {}, LOAD, None),
        ({"disable-radix-cache": None}, {"disable-radix-cache": True}, MISSES, None),
        # what nothing reads, what is on for a reason, and what nobody knows
        ({"num-continuous-decode-steps": 4}, {}, LOAD, NOTHING),
        ({"disable-overlap-schedule": True}, {}, LOAD, LOSING),
        ({"disable-overlap-schedule": None}, {"disable-overlap-schedule": True}, LOAD, None),
        ({"page-size": 64}, {}, AMPLE, None),
        ({"NCCL_ALGO": "Tree"}, {}, AMPLE, None),
        # of several settings
        ({"num-continuous-decode-steps": 4, "page-size": 64}, {}, LOAD, None),
        ({"max-running-requests": 16, "page-size": 64}, {}, LOAD, STARVING),
        ({"page-size": 64, "max-running-requests": 16, "disable-overlap-schedule": True}, {}, LOAD, STARVING),
        ({"num-continuous-decode-steps": 4, "disable-overlap-schedule": True}, {}, LOAD, LOSING),
        ({"disable-overlap-schedule": True, "cuda-graph-max-bs": 128}, {"cuda-graph-max-bs": 32}, LOAD, RELIEVING),
        ({"cuda-graph-max-bs": 32, "max-running-requests": 32}, {}, Load(32, 2000), None),
        ({}, {"max-running-requests": 16}, LOAD, None),
    ],
)  # fmt: skip
def test_what_is_foreseen(sets: Settings, before: Settings, load: Load, word: str | None) -> None:
    assert said(foreseen(sets, before, load)) == word


def test_the_numbers_that_decide_are_told() -> None:
    found = foreseen({"max-running-requests": 16}, {}, LOAD)
    assert found is not None
    assert {"16", "64"} <= set(found.because.split())
    kv_cache = foreseen({"mem-fraction-static": 0.4}, {"mem-fraction-static": 0.8}, SCARCE)
    assert kv_cache is not None
    assert {"25000", "128000"} <= set(kv_cache.because.replace(",", "").split())


# Laws

LIMITS = (
    "max-running-requests",
    "cuda-graph-max-bs",
    "cuda-graph-max-bs-decode",
    "max-total-tokens",
    "mem-fraction-static",
)
NAMES = (
    *LIMITS, "schedule-conservativeness", "schedule-policy", "disable-radix-cache",
    "num-continuous-decode-steps", "speculative-algorithm", "disable-overlap-schedule", "dp-size", "page-size", "NCCL_ALGO",
)  # fmt: skip
values: st.SearchStrategy[Value] = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**63), 2**63), st.just(10**400), st.floats(),
    st.sampled_from(["abc", "", "-", "0", "-1", "8", "0.85", "1e9", "1e999", "9" * 30]),
)  # fmt: skip
some_settings = st.dictionaries(st.sampled_from(NAMES), values, max_size=5)
loads = st.builds(
    Load,
    clients=st.integers(1, 512),
    tokens=st.floats(1, 50_000),
    cached=st.none() | st.floats(0, 1),
    throughput=st.booleans(),
    room=st.none() | st.integers(1, 2_000_000),
)


@given(some_settings, some_settings, loads)
def test_whatever_the_values_are_something_sensible_is_said(sets: Settings, before: Settings, load: Load) -> None:
    found = foreseen(sets, before, load)
    if found is not None:
        assert math.isfinite(found.ahead)
        assert 0 < found.sd <= USUAL_SD
        assert found.because


@given(some_settings, some_settings, loads)
def test_what_is_so_already_says_nothing(sets: Settings, before: Settings, load: Load) -> None:
    assert foreseen(before, before, load) is None or any(v != v for v in before.values())
    unchanged = {name: value for name, value in before.items() if name not in sets and value == value}
    assert foreseen({**unchanged, **sets}, before, load) == foreseen(sets, before, load)


@given(some_settings, some_settings, loads)
def test_the_order_of_settings_does_not_matter(sets: Settings, before: Settings, load: Load) -> None:
    one, other = foreseen(sets, before, load), foreseen(dict(list(sets.items())[::-1]), before, load)
    assert (one is None) == (other is None)
    if one is not None and other is not None:
        if one.ahead > STARVES:
            assert (one.sd, abs(one.ahead)) == (other.sd, abs(other.ahead))
        else:
            assert other.ahead <= STARVES


STARVING_ALONE: tuple[Settings, ...] = (
    {"max-running-requests": 1}, {"cuda-graph-max-bs": 1}, {"max-total-tokens": 10}, {"disable-radix-cache": True},
)  # fmt: skip


@given(st.sampled_from(STARVING_ALONE), st.dictionaries(st.sampled_from(NAMES), values, max_size=4), st.booleans())
def test_what_starves_outweighs_everything_else(alone: Settings, others: Settings, first: bool) -> None:
    load = Load(64, 2000, cached=0.4, room=200_000)
    others = {name: value for name, value in others.items() if name not in {"dp-size", "max-running-requests", *alone}}
    sets = {**alone, **others} if first else {**others, **alone}
    found = foreseen(sets, {}, load)
    assert found is not None
    assert found.ahead <= STARVES


@given(some_settings, some_settings, loads)
def test_one_unknown_setting_makes_all_unknown_unless_something_starves(
    sets: Settings, before: Settings, load: Load
) -> None:
    found = foreseen({**sets, "page-size": 7}, {**before, "page-size": 16}, load)
    assert found is None or found.ahead <= STARVES


@given(
    st.sampled_from(LIMITS),
    st.tuples(*[st.integers(1, 2**31)] * 3) | st.tuples(*[st.integers(1, 300)] * 3),
    some_settings,
    loads,
)
def test_raising_a_limit_is_never_worse_than_lowering_it(
    name: str, numbers: tuple[int, int, int], before: Settings, load: Load
) -> None:
    low, now, high = sorted(numbers)
    assume(low < now < high)
    scale = 2.0**31 if name == "mem-fraction-static" else 1
    before = {**{k: v for k, v in before.items() if not k.startswith("cuda-graph")}, name: now / scale}
    lower, higher = (foreseen({name: value / scale}, before, load) for value in (low, high))
    assert (lower is None) == (higher is None) or name.startswith("cuda-graph"), (
        "fewer graphs may gain by what they free"
    )
    down, up = (0.0 if found is None else found.ahead for found in (lower, higher))
    assert up >= down
    assert down <= 0
    assert up > STARVES


@given(st.integers(1, 512), st.integers(1, 512), st.integers(1, 8))
def test_more_replicas_never_need_more_requests_in_each(clients: int, limit: int, replicas: int) -> None:
    def starves(dp_size: int) -> bool:
        found = foreseen({"max-running-requests": limit}, {"dp-size": dp_size}, Load(clients, 2000))
        return found is not None and found.ahead <= STARVES

    assert starves(replicas) or not starves(replicas + 1)
