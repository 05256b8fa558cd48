"""What a workload's name stands for, and that a workload comes back from a recording as it was."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from optagent.tools.calls.bench import Bench, Workload
from optagent.tools.calls.workloads import meant_by

SHAPES = [
    # name, input and output tokens, prompts, concurrency, warm-ups, dataset
    ("single-stream", 1024, 512, 10, 1, 3, "random-ids"),
    ("single-stream-long", 8192, 256, 5, 1, 3, "random-ids"),
    ("throughput-1", 1024, 1024, 40, 1, 1, "random-ids"),
    ("throughput-8", 1024, 1024, 40, 8, 8, "random-ids"),
    ("throughput-9", 1024, 1024, 45, 9, 9, "random-ids"),
    ("throughput-64", 1024, 1024, 320, 64, 64, "random-ids"),
    ("speculative", 1024, 512, 16, 1, 3, "custom"),
    ("prose of the house", 1024, 512, 10, 1, 3, "random-ids"),  # the owner's own: the defaults
]
SLIPS = [
    ("single-steam", "single-stream"),
    ("singel-stream", "single-stream"),
    ("single_stream", "single-stream"),
    ("Single-Stream", "single-stream"),
    ("single-stream-lon", "single-stream-long"),
    ("speculatve", "speculative"),
    ("throughput", "throughput-8"),
    ("throughput-x", "throughput-8"),
    ("throughput-0", "throughput-8"),
    ("throughput--4", "throughput-4"),
    ("throughput-8x", "throughput-8"),
    ("throughput32", "throughput-32"),
    ("throughtput-16", "throughput-16"),
    (" throughput-8", "throughput-8"),
]
OWN = ["chat", "single-stream-8k", "decode-heavy", "nightly", "agentic", "sharegpt", "ours", ""]


@pytest.mark.parametrize(
    ("name", "input_len", "output_len", "prompts", "concurrency", "warmups", "dataset"), SHAPES, ids=lambda v: str(v)
)
def test_the_shape_of_a_name(
    name: str, input_len: int, output_len: int, prompts: int, concurrency: int, warmups: int, dataset: str
) -> None:
    shape = Workload(name=name, prompts="p.jsonl")
    assert (shape.input_len, shape.output_len, shape.num_prompts) == (input_len, output_len, prompts)
    assert (shape.max_concurrency, shape.warmup_requests, shape.dataset) == (concurrency, warmups, dataset)


def test_what_is_given_wins_over_the_name() -> None:
    shape = Workload(name="throughput-8", num_prompts=7, input_len=99)
    assert (shape.num_prompts, shape.input_len, shape.output_len, shape.max_concurrency) == (7, 99, 1024, 8)


@pytest.mark.parametrize(("name", "meant"), SLIPS, ids=[name for name, _ in SLIPS])
def test_a_slip_is_not_a_name_of_one_s_own(name: str, meant: str) -> None:
    assert meant_by(name) == meant
    with pytest.raises(ValidationError, match=f"expected {meant}, or a name of your own") as error:
        Workload(name=name)
    assert error.value.errors()[0]["loc"] == ("name",)


@pytest.mark.parametrize("name", OWN)
def test_a_name_of_one_s_own(name: str) -> None:
    assert Workload(name=name).name == name


@pytest.mark.parametrize("given", [{"name": "speculative"}, {"dataset": "custom"}], ids=["speculative", "custom"])
def test_real_prompts_are_needed(given: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as error:
        Workload.model_validate(given)
    assert [one["loc"] for one in error.value.errors()] == [("prompts",)]


names = st.sampled_from(["single-stream", "single-stream-long", "throughput-3", "throughput-64", "speculative", "own"])
lengths = st.integers(1, 9000) | st.sampled_from([1024, 512, 256, 8192])
given_keys = st.fixed_dictionaries(
    {"name": names, "prompts": st.just("p.jsonl")},
    optional={
        "dataset": st.sampled_from(["random-ids", "custom"]),
        "input_len": lengths,
        "output_len": lengths,
        "num_prompts": st.integers(1, 400) | st.just(10),
        "max_concurrency": st.integers(1, 70),
        "warmup_requests": st.integers(0, 70) | st.just(3),
        "flush_cache": st.booleans(),
        "seed": st.integers(0, 100),
    },
)


@given(given_keys)
def test_a_workload_comes_back_from_a_recording(keys: dict[str, Any]) -> None:
    """Recordings leave out what is at its default; what a name would set otherwise must not be among that."""
    workload = Workload.model_validate(keys)
    assert {key: getattr(workload, key) for key in keys} == keys
    bench = Bench(key="k", run="r", url="u", workload=workload, seed=1, result_file="f")
    for mode in ("json", "python"):
        for leave_out in (True, False):
            dumped = bench.model_dump(mode=mode, exclude_defaults=leave_out)
            assert Bench.model_validate(dumped) == bench


def test_a_recording_from_before_there_were_names() -> None:
    old = {"name": "single-stream", "dataset": "custom", "prompts": "plans/prompts.jsonl"}
    expected = Workload(
        name="single-stream", dataset="custom", prompts="plans/prompts.jsonl", input_len=1024, output_len=512, num_prompts=10,
        max_concurrency=1, warmup_requests=3, flush_cache=True, seed=42,
    )  # fmt: skip
    assert Workload.model_validate(old) == expected
    assert expected.model_dump(exclude_defaults=True) == {"dataset": "custom", "prompts": "plans/prompts.jsonl"}
