"""The numbers of a benchmark run, under the keys and in the units of `bench_serving`'s result line."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

Runs = Sequence[tuple[float, int]]
"""Values and how often each came: gaps of a steady decode repeat a lot."""


@dataclass(frozen=True)
class Measured:
    """One finished request. Times in seconds on the clock of the run; `error` is empty when it succeeded. Of the prompt,
    `cached_tokens` came from the prefix cache; None when the server does not tell."""

    input_len: int = 0
    output_len: int = 0
    started_s: float = 0.0
    first_token_s: float = 0.0
    finished_s: float = 0.0
    itl_runs: list[tuple[float, int]] = field(default_factory=list)
    text: str = ""
    error: str = ""
    verify_steps: int = 0
    cached_tokens: int | None = None

    @property
    def latency_s(self) -> float:
        return self.finished_s - self.started_s

    @property
    def ttft_s(self) -> float:
        return self.first_token_s - self.started_s

    @property
    def tpot_s(self) -> float | None:
        """Time per output token after the first; None for answers of one token."""
        if self.output_len < 2:
            return None
        return (self.finished_s - self.first_token_s) / (self.output_len - 1)


def summarise(requests: Sequence[Measured], duration_s: float) -> dict[str, Any]:
    """The result line's numbers. Failed requests count for nothing but their error."""
    good = [one for one in requests if not one.error]
    inputs, outputs = sum(one.input_len for one in good), sum(one.output_len for one in good)
    latency = sum(one.latency_s for one in good)
    duration = max(duration_s, 1e-9)
    line: dict[str, Any] = {
        "duration": duration_s,
        "completed": len(good),
        "total_input_tokens": inputs,
        "total_output_tokens": outputs,
        "request_throughput": len(good) / duration,
        "input_throughput": inputs / duration,
        "output_throughput": outputs / duration,
        "total_throughput": (inputs + outputs) / duration,
        "concurrency": latency / duration,
        "max_concurrent_requests": most_at_once(good),
        "accept_length": accept_length(good),
    }
    line |= spread("e2e_latency", [(one.latency_s, 1) for one in good])
    line |= spread("ttft", [(one.ttft_s, 1) for one in good])
    line |= spread("tpot", [(tpot, 1) for one in good if (tpot := one.tpot_s) is not None])
    line |= spread("itl", [run for one in good for run in one.itl_runs])
    return line


def details(requests: Sequence[Measured]) -> dict[str, Any]:
    """What `--output-details` and `--cache-report` add, a list entry a request in the order of the prompts."""
    return {
        "input_lens": [one.input_len for one in requests],
        "output_lens": [one.output_len for one in requests],
        "ttfts": [one.ttft_s for one in requests],
        "errors": [one.error for one in requests],
        "generated_texts": [one.text for one in requests],
        "cached_tokens": [one.cached_tokens for one in requests],
    }


def spread(name: str, runs: Runs) -> dict[str, float]:
    """Mean, median, standard deviation and percentiles in milliseconds; nothing for no values."""
    if not runs:
        return {}
    ordered = sorted(runs)
    count = sum(times for _, times in ordered)
    mean = math.fsum(value * times for value, times in ordered) / count
    variance = math.fsum((value - mean) ** 2 * times for value, times in ordered) / count
    values = {
        "mean": mean,
        "median": percentile(ordered, count, 50),
        "std": math.sqrt(variance),
        "p90": percentile(ordered, count, 90),
        "p95": percentile(ordered, count, 95),
        "p99": percentile(ordered, count, 99),
    }
    return {f"{kind}_{name}_ms": value * 1000 for kind, value in values.items()}


def percentile(ordered: Runs, count: int, percent: float) -> float:
    """Linear interpolation between the two nearest of `count` ordered values, as NumPy does by default."""
    place = (count - 1) * percent / 100
    low = math.floor(place)
    below, above = _at(ordered, low), _at(ordered, min(low + 1, count - 1))
    return below + (above - below) * (place - low)


def _at(ordered: Runs, place: int) -> float:
    for value, times in ordered:
        if place < times:
            return value
        place -= times
    return ordered[-1][0]


def most_at_once(requests: Sequence[Measured]) -> int:
    """The most requests that were out at the same moment."""
    events = sorted([(one.started_s, 1) for one in requests] + [(one.finished_s, -1) for one in requests])
    now = most = 0
    for _, change in events:
        now += change
        most = max(most, now)
    return most


def accept_length(requests: Sequence[Measured]) -> float | None:
    """Tokens a verify step yielded in this run; None when the server does not tell."""
    steps = sum(one.verify_steps for one in requests)
    if not steps:
        return None
    return sum(one.output_len for one in requests if one.verify_steps) / steps
