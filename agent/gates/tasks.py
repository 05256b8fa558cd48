"""G4: whether a configuration still solves the tasks that the baseline solves. Pure."""

from __future__ import annotations

import math

from optagent.tools.calls.gate import Evaluated

ERRORS = 1.5
"""Standard errors by which a score may lie below the baseline's on the same tasks."""


def fewer_solved(now: float, before: float, examples: int, *, gained: int | None, lost: int | None) -> str | None:
    """What is wrong with a score beside the baseline's, None when nothing is.

    `now` and `before` are shares of `examples` tasks solved. Where it is known which tasks, only those that one of the
    two solved count (McNemar); otherwise the two shares are compared as if the tasks were not the same.
    """
    if gained is not None and lost is not None:
        if lost - gained <= ERRORS * math.sqrt(lost + gained):
            return None
        return f"{_scores(now, before, examples)}: {lost} were solved only by the baseline, {gained} only now"
    error = math.sqrt((now * (1 - now) + before * (1 - before)) / examples) if examples > 0 else math.inf
    if before - now <= ERRORS * error:
        return None
    return f"{_scores(now, before, examples)}, more than {ERRORS} standard errors ({ERRORS * error:.1%}) less"


def told(done: Evaluated) -> str:
    """A score in one short line."""
    if done.score is None:
        return f"task check: no score, {done.problem or 'and no reason given'}"
    return f"task check: {done.score:.1%} of {done.examples} solved"


def _scores(now: float, before: float, examples: int) -> str:
    return f"{now:.1%} of {examples} tasks are solved, {before:.1%} by the baseline"
