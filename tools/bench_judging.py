"""Whether a benchmark result counts, and what it says: functions of the result alone."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from typing import Any

from optagent.tools.calls.bench import MOST_OPENINGS, Workload
from optagent.tools.repetition import SHORTEST_TEXT, repetitive

TOKEN_TOLERANCE = 0.01
"""Of all output tokens: speculation may run a token past the end. A request that answers shorter is not faster."""

NEEDED = ("duration", "completed", "total_output_tokens", "output_throughput")
LATENCIES = ("median_ttft_ms", "median_tpot_ms")
REQUEST_RATE = "request_rate"
"""What was asked for, not a result: infinite when as many requests as allowed are sent at once."""

CACHED_AT_MOST = 0.05
"""Of the prompt tokens of random prompts, when the cache was to be empty."""

TWINS = 3
"""The client's random prompts are alike when they begin with the same token, which in a vocabulary of 2,000 happens
once or twice in a run; a cache that was not empty is found by every request."""

FAR_BELOW = 0.5
"""Detokenising and tokenising again merges tokens, mostly a few per cent of them."""

OPENING = 16
"""Characters, some four tokens: the further an answer goes, the more often rounding makes another one of it."""


def judge(result: Mapping[str, Any], workload: Workload) -> list[str]:
    """Why a result does not count, nothing when it does."""
    reasons = [f"{name} is missing" for name in NEEDED if number(result.get(name)) is None]
    latencies = [name for name in LATENCIES if workload.output_len > 1 or name != "median_tpot_ms"]
    reasons += [f"{name} is missing" for name in latencies if number(result.get(name)) is None]
    completed = number(result.get("completed"))
    if completed is not None and completed != workload.num_prompts:
        reasons.append(f"{completed:.0f} of {workload.num_prompts} requests completed")
    errors = errors_of(result)
    if errors:
        reasons.append(f"{len(errors)} requests failed, the first with: {str(errors[0])[:200]}")
    reasons += _wrong_lengths(result, workload)
    empty = sum(text == "" for text in texts_of(result))
    if empty and workload.output_len > 1:  # one token need not be a whole character
        reasons.append(f"{empty} answers are empty")
    broken = sorted(k for k, v in result.items() if isinstance(v, float) and not math.isfinite(v) and k != REQUEST_RATE)
    reasons += [f"{name} is not a finite number" for name in broken if f"{name} is missing" not in reasons]
    reasons += _cache_was_not_empty(result, workload)
    return reasons


def metrics_of(result: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a result by their names; what is not a number was not measured, and is left out."""
    numbers = {name: number(value) for name, value in result.items() if not name.startswith("optagent_")}
    return {name: value for name, value in numbers.items() if value is not None}


def cached_share(result: Mapping[str, Any]) -> float | None:
    """The share of prompt tokens that came from the prefix cache; None when not every request tells."""
    cached, prompts = _cached_and_prompt_tokens(result)
    return sum(cached) / sum(prompts) if sum(prompts) > 0 else None


def repetitive_share(result: Mapping[str, Any]) -> float | None:
    """The share of answers that repeat one short group of words over and over, of those long enough to tell; None when
    none is."""
    told = [repetitive(None, text) for text in texts_of(result) if len(text) >= SHORTEST_TEXT]
    return sum(told) / len(told) if told else None


def openings_of(result: Mapping[str, Any]) -> list[str]:
    """A hash of how each of the first answers begins, in the order of the prompts; "" where there is no answer.

    All our loads are greedy, so that the same prompts get answers that begin alike, but for rounding.
    """
    errors = _list(result, "errors")
    texts = _list(result, "generated_texts")[:MOST_OPENINGS]
    failed = [bool(e) for e in errors[: len(texts)]] + [False] * (len(texts) - len(errors))
    return ["" if bad or not isinstance(text, str) else _opening(text) for text, bad in zip(texts, failed, strict=True)]


def _opening(text: str) -> str:
    begins = " ".join(text.split())[:OPENING]
    return hashlib.sha256(begins.encode(errors="replace")).hexdigest()[:8]


def oddities(result: Mapping[str, Any]) -> list[str]:
    """What a person should look at, and what may have a harmless reason."""
    told, again = number(result.get("total_output_tokens")), number(result.get("total_output_tokens_retokenized"))
    if told is None or again is None or again >= FAR_BELOW * told:
        return []
    return [f"the answers hold {again:.0f} tokens when they are tokenised again, of {told:.0f} that were counted"]


def errors_of(result: Mapping[str, Any]) -> list[Any]:
    """What the requests that failed say."""
    return [error for error in _list(result, "errors") if error]


def texts_of(result: Mapping[str, Any]) -> list[str]:
    """The answers of the requests that did not fail."""
    texts, errors = _list(result, "generated_texts"), _list(result, "errors")
    failed = [bool(e) for e in errors] if len(errors) == len(texts) else [False] * len(texts)
    return [text for text, bad in zip(texts, failed, strict=True) if isinstance(text, str) and not bad]


def number(value: object) -> float | None:
    """A finite number, None for everything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None


def _wrong_lengths(result: Mapping[str, Any], workload: Workload) -> list[str]:
    """Every request is to be as long as asked; a failed one is counted elsewhere."""
    asked = workload.output_len
    lengths = _counts(result, "output_lens")
    errors = _list(result, "errors")
    if len(errors) == len(lengths):
        lengths = [length for length, error in zip(lengths, errors, strict=True) if not error]
    short = [length for length in lengths if length < asked]
    if short:
        return [f"{len(short)} answers are shorter than the {asked} tokens asked for, the shortest has {min(short)}"]
    tokens, wanted = number(result.get("total_output_tokens")), workload.num_prompts * asked
    if tokens is not None and abs(tokens - wanted) > TOKEN_TOLERANCE * wanted:
        return [f"{tokens:.0f} output tokens instead of {wanted}"]
    return []


def _cache_was_not_empty(result: Mapping[str, Any], workload: Workload) -> list[str]:
    if not workload.flush_cache or workload.dataset != "random-ids":
        return []
    cached, prompts = _cached_and_prompt_tokens(result)
    share = cached_share(result)
    hits = sum(2 * found > of for found, of in zip(cached, prompts, strict=True))
    if share is None or share <= CACHED_AT_MOST or hits <= min(TWINS, len(prompts) // 2):
        return []
    return [f"{share:.0%} of the prompt tokens came from the prefix cache, which was to be empty"]


def _cached_and_prompt_tokens(result: Mapping[str, Any]) -> tuple[list[int], list[int]]:
    """Of each request; two empty lists when one of them does not tell."""
    cached, prompts = _counts(result, "cached_tokens"), _counts(result, "input_lens")
    return (cached, prompts) if len(cached) == len(prompts) else ([], [])


def _counts(result: Mapping[str, Any], name: str) -> list[int]:
    """A list of whole numbers; empty when a number is not known."""
    values = _list(result, name)
    return values if all(isinstance(v, int) and not isinstance(v, bool) for v in values) else []


def _list(result: Mapping[str, Any], name: str) -> list[Any]:
    value = result.get(name)
    return list(value) if isinstance(value, Sequence) and not isinstance(value, str) else []
