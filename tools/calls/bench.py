"""Measuring a server, and sampling what it answers."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from optagent.tools.calls.base import EffectRequest, Request, Result


class Workload(Request):
    """A load shape, in the words of `sglang.bench_serving`. Lengths are in tokens.

    `dataset` "random-ids" needs nothing; "custom" reads `prompts`, a JSONL file of the campaign, one
    {"prompt": str} a line.
    """

    name: str = "single-stream"
    dataset: Literal["random-ids", "custom"] = "random-ids"
    prompts: str | None = None
    input_len: int = Field(1024, gt=0)
    output_len: int = Field(512, gt=0)
    num_prompts: int = Field(10, gt=0)
    max_concurrency: int = Field(1, gt=0)
    warmup_requests: int = Field(3, ge=0)
    flush_cache: bool = True
    seed: int = 42


class Bench(EffectRequest):
    """One run of `workload` against the server at `url`. `seed` fixes the prompts; `result_file` keeps every key."""

    run: str
    url: str
    workload: Workload
    seed: int
    result_file: str


class BenchRun(Result):
    """One benchmark run. `metrics` has the numeric keys of `bench_serving`'s result line with its units in the names
    (`median_tpot_ms`, `output_throughput` in tok/s, `duration` in s, ...); a value that was not measured is absent.

    `valid` is False when the run does not count, and `invalid_because` says why.
    """

    valid: bool
    invalid_because: list[str] = []
    metrics: dict[str, float] = {}
    result_file: str = ""
    elapsed_s: float | None = None
    simulated: bool = False


class Sample(EffectRequest):
    """Greedy answers to `prompts`, `max_tokens` each, at most `concurrency` at a time."""

    url: str
    prompts: list[str]
    max_tokens: int
    concurrency: int = 1


class Answer(Result):
    """One answer. `tokens` is the number of output tokens the server reports, None when it reports none."""

    text: str = ""
    tokens: int | None = None
    finish_reason: str = ""
    error: str | None = None


class Sampled(Result):
    """The answers in the order of the prompts. `accept_length` is the server's own figure, None without speculation."""

    answers: list[Answer] = []
    accept_length: float | None = None
    problem: str | None = None
    simulated: bool = False
