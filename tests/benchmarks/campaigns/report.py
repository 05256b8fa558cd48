"""The benchmark's tables: each method's campaigns on one deployment, and all deployments together."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from campaigns.ours import NAME
from campaigns.trace import TIMES, Goal, Score

Scores = Mapping[str, Sequence[Score]]
"""By method, one for each seed."""


@dataclass(frozen=True)
class Done:
    """All campaigns on one deployment. `found` says how the best reachable value was found."""

    name: str
    unit: str
    goal: Goal
    best_gain: float
    found: str
    scores: Scores
    problems: Sequence[str] = ()


def table(done: Done) -> str:
    """What came out on one deployment."""
    goal = done.goal
    lines = [
        f"\n{done.name}: {goal.base:.4g} -> {goal.best:.4g} {done.unit} ({done.best_gain:+.1%}) can be reached ({done.found}); "
        f"budget {goal.budget_hours:.1f} GPU-hours",
        HEAD,
    ]
    lines += [row(method, scores, goal) for method, scores in done.scores.items()]
    if compared := against_the_best(done):
        rival, factor = compared
        lines.append(f"{NAME} takes {factor:.2f} of the GPU-hours of the best other ({rival}), at the median")
    lines.append(f"{'gain by then':<12}" + "".join(f"{at:>7.0%}" for at in TIMES) + "  of the budget, median")
    for method, scores in done.scores.items():
        lines.append(
            f"{method:<12}" + "".join(f"{median([s.line[n] for s in scores]):>7.0%}" for n in range(len(TIMES)))
        )
    return "\n".join([*lines, *(f"! {problem}" for problem in done.problems)])


HEAD = "".join(
    f"{title:>{width}}"
    for title, width in (
        ("", 12), ("gain kept", 20), ("GPU-hours to 95 %", 26), ("there", 8), ("launches", 15), ("GPU-hours", 11),
        ("useless", 9), ("slower", 8),
    )
)  # fmt: skip


def row(method: str, scores: Sequence[Score], goal: Goal) -> str:
    there = sum(s.hours_to_goal is not None for s in scores)
    cells = (
        f"{spread([s.kept for s in scores], '{:.0%}'):>20}",
        f"{spread(hours_of(scores, goal), '{:.1f}', goal.budget_hours):>26}",
        f"{there:>5}/{len(scores):<2}",
        f"{spread([s.launches for s in scores], '{:.0f}'):>15}",
        f"{median([s.gpu_hours for s in scores]):>11.1f}",
        f"{statistics.fmean(s.false_keeps for s in scores):>9.1f}",
        f"{sum(s.worse_than_start for s in scores):>8}",
    )
    return f"{method:<12}" + "".join(cells)


def overall(all_done: Sequence[Done]) -> str:
    """All deployments together: medians over their medians."""
    lines = [f"\n{len(all_done)} deployments", f"{'':<44}{NAME:>9}{'best other':>12}{'':>14}{'ratio':>8}"]
    found = [(done, compared) for done in all_done if (compared := against_the_best(done))]
    for done, (rival, factor) in found:
        ours, theirs = (median(hours_of(done.scores[name], done.goal)) for name in (NAME, rival))
        lines.append(f"{done.name:<44}{ours:>9.1f}{theirs:>12.1f}  {rival:<12}{factor:>8.2f}")
    if found:
        factors = [factor for _, (_, factor) in found]
        lines.append(f"ratio of GPU-hours until 95 % of the best reachable value: {spread(factors, '{:.2f}')}")
        for rival in (name for name in all_done[0].scores if name != NAME):
            lines.append(f"  beside {rival} alone: {spread([against(done, rival) for done, _ in found], '{:.2f}')}")
    for method in all_done[0].scores:
        scores = [score for done in all_done for score in done.scores[method]]
        lines.append(
            f"{method:<12} gain kept {spread([median([s.kept for s in done.scores[method]]) for done in all_done], '{:.0%}')}; "
            f"got there in {sum(s.hours_to_goal is not None for s in scores)} of {len(scores)} campaigns; "
            f"{sum(s.worse_than_start for s in scores)} ended slower than they started"
        )
    return "\n".join(lines)


def hours_of(scores: Sequence[Score], goal: Goal) -> list[float]:
    """GPU-hours until the goal; the whole budget where it was never reached."""
    return [goal.budget_hours if s.hours_to_goal is None else s.hours_to_goal for s in scores]


def against_the_best(done: Done) -> tuple[str, float] | None:
    """The rival with the lowest median, and our median over its; None where one of the two did not run."""
    medians = {name: median(hours_of(scores, done.goal)) for name, scores in done.scores.items()}
    rivals = [name for name in medians if name != NAME]
    if not rivals or NAME not in medians:
        return None
    best = min(rivals, key=lambda name: medians[name])
    return best, against(done, best)


def against(done: Done, rival: str) -> float:
    """Our median of the GPU-hours until the goal over the rival's."""
    ours, theirs = (median(hours_of(done.scores[name], done.goal)) for name in (NAME, rival))
    return ours / theirs if theirs else math.nan


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


def spread(values: Sequence[float], form: str, most: float = math.inf) -> str:
    """The median with the quartiles; what is at `most` was cut off there."""
    low, middle, high = quartiles(values)
    shown = [(">" if value >= most else "") + form.format(value) for value in (middle, low, high)]
    return f"{shown[0]} [{shown[1]}, {shown[2]}]"


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    if len(values) < 2:
        return values[0], values[0], values[0]
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, middle, high


def as_json(done: Done) -> dict[str, Any]:
    """Everything of one deployment, for a program to read."""
    rival, factor = against_the_best(done) or (None, None)
    return {
        "deployment": done.name,
        "unit": done.unit,
        "start": done.goal.base,
        "best": done.goal.best,
        "best_gain": done.best_gain,
        "found": done.found,
        "budget_gpu_hours": done.goal.budget_hours,
        "best_other": rival,
        "ratio": factor,
        "problems": list(done.problems),
        "methods": {
            method: [
                {
                    "gain_kept": s.kept,
                    "gain": s.gain,
                    "gpu_hours_to_goal": s.hours_to_goal,
                    "gpu_hours": s.gpu_hours,
                    "launches": s.launches,
                    "useless": s.false_keeps,
                    "worse_than_start": s.worse_than_start,
                    "line": list(s.line),
                }
                for s in scores
            ]
            for method, scores in done.scores.items()
        },
    }
