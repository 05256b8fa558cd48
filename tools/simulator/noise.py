"""Seeded draws: the same names give the same numbers, on every machine."""

from __future__ import annotations

import hashlib
import math
import random

MASK = (1 << 64) - 1


def generator(*names: object) -> random.Random:
    """A random generator that depends on nothing but `names`."""
    digest = hashlib.sha256("\x1f".join(str(name) for name in names).encode()).digest()
    return random.Random(int.from_bytes(digest[:8], "big"))


def slowdown(sd: float, *names: object) -> float:
    """A factor on durations whose logarithm has the standard deviation `sd` and mean 0."""
    return math.exp(generator(*names).gauss(0.0, sd)) if sd > 0 else 1.0


def scramble(number: int) -> int:
    """64 bits that look random, for each number below 2^64 its own (the finaliser of SplitMix64)."""
    number = (number ^ (number >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    number = (number ^ (number >> 27)) * 0x94D049BB133111EB & MASK
    return number ^ (number >> 31)
