"""The band: how far a configuration differs from itself from launch to launch. Pure.

A server's answers are not bit-equal from launch to launch, least of all when requests are batched by their arrival.
What a candidate may differ by is read off the baseline held against its own earlier examination (A/A).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from optagent.tools.calls.gate import Agreement, Comparison

UNMEASURED = Agreement(concurrency=1, exact=0.75, early=0.0, prefix=0.85, finish=0.05, length=1.0)
"""What is taken for one comparison as long as there is none: a quarter of the answers drifting apart somewhere is common
where batches form by chance, parting at once is not."""

ERRORS = 3.0
"""Standard errors of slack on a share: one in several hundred honest gates is stopped by chance."""


def agreements(comparisons: Sequence[Comparison], concurrency: int) -> list[Agreement]:
    """Of the passes with this many at a time; `UNMEASURED` alone when there is none."""
    found = [a for c in comparisons for a in c.agreement if a.concurrency == concurrency]
    return found or [UNMEASURED]


def least(shares: Sequence[float], prompts: int) -> float:
    """The lowest share of `prompts` answers that is still as in the band."""
    share, error = _smoothed(shares, prompts)
    return max(0.0, share - ERRORS * error)


def most(shares: Sequence[float], prompts: int) -> float:
    """The highest share of `prompts` answers that is still as in the band."""
    share, error = _smoothed(shares, prompts)
    return min(1.0, share + ERRORS * error)


def _smoothed(shares: Sequence[float], prompts: int) -> tuple[float, float]:
    """(the mean share, its binomial standard error over `prompts` answers), as if one more answer had been so and one
    more not (Laplace): a band of all or nothing has an error too."""
    seen = prompts * len(shares)
    share = (sum(shares) * prompts + 1) / (seen + 2)
    return share, math.sqrt(share * (1 - share) / prompts)


def p95(comparisons: Sequence[Comparison], figure: Callable[[Comparison], float | None]) -> float:
    """The 95th percentile (nearest rank) of a figure over the comparisons that have it; 0 when none has."""
    values = sorted(value for c in comparisons if (value := figure(c)) is not None)
    return values[math.ceil(0.95 * len(values)) - 1] if values else 0.0
