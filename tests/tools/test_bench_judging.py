"""What makes a benchmark result count."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optagent.tools.bench_judging import cached_share, judge, metrics_of, oddities, repetitive_share
from optagent.tools.calls.bench import Workload

WORKLOAD = Workload(input_len=1000, output_len=100, num_prompts=4)
TEXTS = ["a fair answer", "another one", "a third", "the last"]
GOOD: dict[str, Any] = {
    "backend": "sglang", "duration": 2.0, "completed": 4, "total_output_tokens": 400, "output_throughput": 200.0,
    "median_ttft_ms": 20.0, "median_tpot_ms": 5.0, "errors": ["", "", "", ""], "accept_length": None,
    "output_lens": [100, 100, 100, 100], "input_lens": [1000, 1000, 1000, 1000], "cached_tokens": [0, 0, 0, 0],
    "generated_texts": TEXTS, "request_rate": float("inf"),
}  # fmt: skip
NAN = float("nan")


def test_a_good_result() -> None:
    assert judge(GOOD, WORKLOAD) == []
    bare = {k: v for k, v in GOOD.items() if not isinstance(v, list)}
    assert judge(bare, WORKLOAD) == []  # an older client tells less


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"completed": 3}, "3 of 4 requests completed"),
        ({"errors": ["", "HTTP 500", "", ""]}, "1 requests failed, the first with: HTTP 500"),
        ({"output_lens": [], "total_output_tokens": 380}, "380 output tokens instead of 400"),
        ({"total_output_tokens": 420}, "420 output tokens instead of 400"),
        (
            {"output_lens": [100, 99, 100, 20], "total_output_tokens": 319},
            "2 answers are shorter than the 100 tokens asked for, the shortest has 20",
        ),
        ({"output_lens": [99, 101, 100, 100]}, "1 answers are shorter than the 100 tokens asked for"),
        ({"generated_texts": ["a", "", "b", ""]}, "2 answers are empty"),
        ({"median_tpot_ms": NAN}, "median_tpot_ms is missing"),
        ({"p99_itl_ms": float("inf")}, "p99_itl_ms is not a finite number"),
        ({"output_throughput": None}, "output_throughput is missing"),
        (
            {"cached_tokens": [999, 999, 999, 999]},
            "100% of the prompt tokens came from the prefix cache, which was to be empty",
        ),
    ],
    ids=lambda v: v[:40] if isinstance(v, str) else "",
)
def test_results_that_do_not_count(change: dict[str, Any], reason: str) -> None:
    reasons = judge(GOOD | change, WORKLOAD)
    assert len(reasons) == 1, reasons
    assert reasons[0].startswith(reason)


@pytest.mark.parametrize(
    "change",
    [
        {"total_output_tokens": 402},  # speculation may end a little late
        {"output_lens": [102, 100, 100, 100], "total_output_tokens": 402},
        {"total_output_tokens_retokenized": 90},
        {"cached_tokens": [0, 999, 0, 0]},  # twins among random prompts of a small vocabulary
        {"cached_tokens": [40, 40, 40, 40]},
        {"cached_tokens": [None, 999, 999, 999]},  # not known is not empty, and not full
    ],
)
def test_results_that_count(change: dict[str, Any]) -> None:
    assert judge(GOOD | change, WORKLOAD) == []


@pytest.mark.parametrize(
    "workload",
    [
        WORKLOAD.model_copy(update={"flush_cache": False}),
        WORKLOAD.model_copy(update={"dataset": "custom", "prompts": "p"}),  # real prompts may begin alike
    ],
)
def test_a_cache_that_was_not_to_be_empty(workload: Workload) -> None:
    assert judge(GOOD | {"cached_tokens": [999] * 4}, workload) == []


def test_an_answer_of_one_token_has_no_tpot_and_may_be_half_a_character() -> None:
    result = GOOD | {"total_output_tokens": 4, "output_lens": [1] * 4, "generated_texts": ["", "a", "b", "c"]}
    del result["median_tpot_ms"]
    assert judge(result, WORKLOAD.model_copy(update={"output_len": 1})) == []


def test_an_empty_result_counts_for_nothing() -> None:
    assert judge({}, WORKLOAD)
    assert metrics_of({"a": True, "b": "1", "c": None, "d": NAN, "e": 1, "optagent_x": 2}) == {"e": 1.0}
    assert (cached_share({}), repetitive_share({}), oddities({})) == (None, None, [])


@given(
    st.dictionaries(
        st.sampled_from(sorted(GOOD)), st.none() | st.text() | st.lists(st.none() | st.text()) | st.floats()
    )
)
def test_whatever_a_client_writes_is_judged(change: dict[str, Any]) -> None:
    """What is missing or no number can only take validity away: a result that counts has its numbers."""
    result = GOOD | change
    if judge(result, WORKLOAD) == []:
        metrics = metrics_of(result)
        assert metrics["completed"] == 4
        assert metrics["output_throughput"] == metrics["output_throughput"]
    for share in (cached_share(result), repetitive_share(result)):
        assert share is None or share >= 0


def test_the_share_of_the_prompts_that_was_cached() -> None:
    assert cached_share(GOOD) == 0.0
    assert cached_share(GOOD | {"cached_tokens": [0, 500, 0, 0]}) == 0.125
    assert cached_share(GOOD | {"cached_tokens": [0, None, 0, 0]}) is None
    assert cached_share(GOOD | {"cached_tokens": [0, 0]}) is None


def test_the_share_of_repetitive_answers() -> None:
    words = [f"w{n}" for n in range(60)]
    random.Random(1).shuffle(words)
    circle, fair = "the same " * 30, " ".join(words)
    assert repetitive_share({"generated_texts": [circle, fair, fair, fair]}) == 0.25
    assert repetitive_share({"generated_texts": [circle, fair], "errors": ["", "HTTP 500"]}) == 1.0
    assert repetitive_share({"generated_texts": ["short", "no no"]}) is None


def test_detokenising_that_loses_much_is_told() -> None:
    assert oddities(GOOD | {"total_output_tokens_retokenized": 390}) == []
    [told] = oddities(GOOD | {"total_output_tokens_retokenized": 120})
    assert "120 tokens when they are tokenised again, of 400" in told
