"""What the simulated model says: deterministic text that depends on the prompt and on what changes numerics."""

from __future__ import annotations

import hashlib
import math

from optagent.tools.simulator.noise import generator

WORDS = (
    "the", "a", "of", "to", "and", "in", "that", "this", "it", "is", "are", "was", "be", "we", "can", "then", "when",
    "first", "next", "value", "result", "number", "function", "list", "each", "step", "time", "model", "data", "point",
    "small", "large", "simple", "because", "therefore", "however", "with", "for", "from", "by", "on", "as", "so", "if",
    "return", "compute", "measure", "compare", "choose", "write", "read", "find", "answer", "question", "case", "order",
    "left", "right", "sum", "part", "whole", "rule", "example", "reason",
)  # fmt: skip
CHARACTERS_PER_TOKEN = 4.0
REFERENCE_NUMERICS = ("triton", "bfloat16", None, "auto", "auto")
DIVERGING = 0.2
"""Share of prompts whose greedy answer changes with the kernels (assumed; three times that for less precision)."""


def count_tokens(text: str) -> int:
    """Tokens of a text: a quarter of its characters, one at least."""
    return max(1, math.ceil(len(text) / CHARACTERS_PER_TOKEN))


def token_ids(text: str) -> list[int]:
    """Stand-ins for token ids, one a word: the same word always gets the same."""
    return [int.from_bytes(hashlib.blake2b(word.encode(), digest_size=2).digest(), "big") for word in text.split()]


def natural_length(prompt: str) -> int:
    """After how many tokens the model would stop by itself."""
    return generator("length", prompt).randint(60, 900)


def answer_words(prompt: str, count: int, numerics: tuple[str | None, ...]) -> list[str]:
    """The first `count` tokens of the greedy answer to `prompt`, one word each."""
    words = generator("answer", prompt).choices(WORDS, k=count)
    if numerics == REFERENCE_NUMERICS:
        return words
    draws = generator("numerics", prompt, *numerics)
    precise = numerics[1:] == REFERENCE_NUMERICS[1:]
    if draws.random() >= DIVERGING * (1 if precise else 3):
        return words
    first = draws.randint(8, 400)
    changed = draws.choices(WORDS, k=3)
    for place, word in zip(range(first, count), changed, strict=False):
        words[place] = word
    return words
