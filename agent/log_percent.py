"""Ratios in log per cent, 100·ln(candidate/baseline), and back: for small changes that is the change in per cent."""

from __future__ import annotations

import math
import sys

MOST = 700.0
"""No factor above e to this is told: the largest float is about e^709.8, and JSON has no infinity."""
MANY = 100.0
"""A fraction from which on it is told as a factor."""


def log_percent(baseline: float, candidate: float) -> float:
    """100·ln(candidate/baseline) of two values above zero, also where the ratio itself is no float."""
    ratio = candidate / baseline
    if sys.float_info.min <= ratio <= sys.float_info.max:
        return 100 * math.log(ratio)
    return 100 * (math.log(candidate) - math.log(baseline))


def fraction(log_percent: float) -> float:
    """The change as a fraction (0.09 = 9 % more); at most e^700, which stands for all that is more."""
    return math.expm1(min(log_percent / 100, MOST))


def signed(change: float) -> str:
    """A fraction with its sign, in few characters."""
    return f"{change:+.1%}" if change < MANY else f"{change:+.3g} times"


def unsigned(change: float) -> str:
    return f"{change:.1%}" if change < MANY else f"{change:.3g} times"
