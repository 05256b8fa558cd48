"""The words of the simulated model, and what stands for tokens."""

from __future__ import annotations

import hashlib
import math
from functools import lru_cache

from optagent.tools.simulator.noise import generator

WORDS = (
    "the", "a", "of", "to", "and", "in", "that", "this", "it", "is", "are", "was", "be", "we", "can", "then", "when",
    "first", "next", "value", "result", "number", "function", "list", "each", "step", "time", "model", "data", "point",
    "small", "large", "simple", "because", "therefore", "however", "with", "for", "from", "by", "on", "as", "so", "if",
    "return", "compute", "measure", "compare", "choose", "write", "read", "find", "answer", "question", "case", "order",
    "left", "right", "sum", "part", "whole", "rule", "example", "reason",
)  # fmt: skip
CHARACTERS_PER_TOKEN = 4


def pieces(text: str) -> list[str]:
    """A text cut into what stands for its tokens: four characters each, one piece at least."""
    step = CHARACTERS_PER_TOKEN
    return [text[at : at + step] for at in range(0, len(text), step)] or [""]


def count_tokens(text: str) -> int:
    """Tokens of a text: a quarter of its characters, one at least."""
    return max(1, math.ceil(len(text) / CHARACTERS_PER_TOKEN))


@lru_cache(maxsize=1 << 16)
def token_id(piece: str) -> int:
    """A stand-in for a token's id: the same text always gets the same."""
    return int.from_bytes(hashlib.blake2b(piece.encode(errors="surrogatepass"), digest_size=2).digest(), "big")


def token_ids(text: str) -> list[int]:
    """The ids of an answer's tokens, one a word."""
    return [token_id(word) for word in text.split()]


def natural_length(prompt: str) -> int:
    """After how many tokens the model would stop by itself."""
    return generator("length", prompt).randint(60, 900)


@lru_cache(maxsize=1 << 16)
def common_tokens(one: str, other: str) -> int:
    """How many tokens two texts have in common from their beginning."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[:middle] == other[:middle]:
            low = middle
        else:
            high = middle - 1
    return low // CHARACTERS_PER_TOKEN
