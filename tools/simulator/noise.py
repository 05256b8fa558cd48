"""Seeded draws: the same names give the same numbers, on every machine."""

from __future__ import annotations

import hashlib
import math
import random


def generator(*names: object) -> random.Random:
    """A random generator that depends on nothing but `names`."""
    digest = hashlib.sha256("\x1f".join(str(name) for name in names).encode()).digest()
    return random.Random(int.from_bytes(digest[:8], "big"))


def slowdown(sd: float, *names: object) -> float:
    """A factor on durations whose logarithm has the standard deviation `sd` and mean 0."""
    return math.exp(generator(*names).gauss(0.0, sd)) if sd > 0 else 1.0
