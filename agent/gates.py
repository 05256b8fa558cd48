"""Is the output still right? Judging sampled answers before anything is measured. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from optagent.tools.calls.bench import Answer, Sampled

PROMPTS = (
    "Explain in three sentences what a KV cache is for.",
    "Write a Python function that returns the n-th Fibonacci number.",
    "A train leaves at 14:05 and arrives at 17:50. How long does it travel?",
    "List four causes of tail latency in a web service.",
    "Translate into French: the server is ready.",
    "What is the derivative of x squared times sine x?",
    "Write a shell command that counts the lines of all .log files below this folder.",
    "Summarise the idea of speculative decoding for a colleague.",
)
REPEATED_SHARE = 0.5
"""More than this share of an answer being one repeated three-word group is degenerate output."""
ACCEPT_LENGTH_DROP = 0.10
"""A drop of accept length beyond this with the same draft hints at corrupted verification, whatever the speed."""


@dataclass(frozen=True)
class GateResult:
    """`passed`, and what is wrong when it did not."""

    passed: bool
    problems: tuple[str, ...] = ()
    accept_length: float | None = None


def judge_samples(sampled: Sampled, *, max_tokens: int, reference_accept_length: float | None = None) -> GateResult:
    """The smoke gate: every prompt answered, lengths as asked, nothing degenerate, accept length not fallen."""
    problems = [sampled.problem] if sampled.problem else []
    if not sampled.answers and not problems:
        problems.append("no answer at all")
    for number, answer in enumerate(sampled.answers, 1):
        problems += [f"prompt {number}: {p}" for p in _wrong(answer, max_tokens)]
    problems += _accept_length(sampled, reference_accept_length)
    return GateResult(not problems, tuple(problems[:6]), sampled.accept_length)


def _wrong(answer: Answer, max_tokens: int) -> list[str]:
    if answer.error:
        return [answer.error]
    if not answer.text.strip():
        return ["an empty answer"]
    if answer.tokens is not None and answer.tokens != max_tokens and answer.finish_reason == "length":
        return [f"{answer.tokens} tokens instead of {max_tokens}"]
    if repetition(answer.text) > REPEATED_SHARE:
        return ["the answer repeats itself"]
    return []


def repetition(text: str) -> float:
    """The share of three-word groups that are the most frequent one; 0 for texts of fewer than twelve words."""
    words = text.split()
    if len(words) < 12:
        return 0.0
    groups = Counter(zip(words, words[1:], words[2:], strict=False))
    return groups.most_common(1)[0][1] / (len(words) - 2)


def _accept_length(sampled: Sampled, before: float | None) -> list[str]:
    now = sampled.accept_length
    if before and now and now < before * (1 - ACCEPT_LENGTH_DROP):
        return [f"accept length fell from {before:.2f} to {now:.2f}"]
    if now is not None and now <= 1.0:
        return ["accept length is 1.00: every draft is rejected"]
    return []
