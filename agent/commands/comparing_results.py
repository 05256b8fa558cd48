"""`optagent verdict A B`: two files of `bench_serving` results, and whether one is faster."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

from optagent.agent.commands import json_lines
from optagent.agent.commands.giving_verdicts import is_finite, no_effect, outside
from optagent.agent.commands.printable import clean
from optagent.agent.errors import BadInput
from optagent.agent.metric_directions import direction_of
from optagent.agent.noise import Noise
from optagent.agent.verdict import MIN_PAIRS, MIN_PAIRS_ALONE, Judgement, Verdict, judge

Pairs = Sequence[tuple[float, float]]
NO_LIMIT = 10_000
HARDLY = 0.0005
NO_FACTOR_BELOW, NO_FACTOR_ABOVE = -0.5, 9.0
MOST_TIMES = 1_000_000
ASSUMED_DF = 10
"""Of a launch-to-launch spread that the user gives: about what a calibration of ten launches tells."""


def compare_results(
    baseline: str,
    candidate: str,
    *,
    metric: str,
    direction: str | None,
    min_effect: float,
    launch_sd: float | None,
    as_json: bool,
) -> int:
    """Say which is better and whether one can tell. Run n of one file is paired with run n of the other. `direction` is
    None where the metric's name tells it. Raises BadInput."""
    if problem := no_effect(min_effect):
        raise BadInput("--min-effect", problem)
    if launch_sd is not None and (problem := outside(launch_sd, above=0.0, below=10.0)):
        raise BadInput("--launch-sd", problem)
    before, after = values_of(baseline, metric), values_of(candidate, metric)
    pairs = list(zip(before, after, strict=False))
    direction = direction or direction_of(metric)
    if direction is None:
        raise BadInput(
            "--metric", f"whether more of {clean(metric)} is better is not known; add --direction max or min"
        )
    noise = None if launch_sd is None else Noise(100 * launch_sd, ASSUMED_DF)
    judged = judge(pairs, noise, direction=direction, min_effect=min_effect, max_pairs=NO_LIMIT)
    told = conclusion(judged, pairs, metric, known_noise=noise is not None)
    if as_json:
        effect = {"estimate": judged.effect, "low": judged.low, "high": judged.high}
        json_lines.write([json.dumps({
            "metric": metric, "direction": direction, "baseline": before, "candidate": after, "verdict": judged.verdict.value,
            "effect": effect, "because": told,
        }, allow_nan=False)])  # fmt: skip
        return 0
    lines = [told]
    if unpaired := abs(len(before) - len(after)):
        longer = json_lines.name_of(baseline if len(before) > len(after) else candidate)
        lines.append(f"{unpaired} more run{'s' if unpaired > 1 else ''} in {longer} without a partner: not used")
    json_lines.write(lines)
    return 0


def values_of(file: str, metric: str) -> list[float]:
    """The metric of each result in the file, one JSON object a line. Raises BadInput."""
    name = json_lines.name_of(file)
    results = json_lines.read(
        json_lines.lines_of(file), name, "expected one JSON object a line, as bench_serving writes them"
    )
    found = [_value(name, number, result, metric) for number, result in results]
    if not found:
        raise BadInput(name, "holds no result of bench_serving")
    return found


def _value(name: str, number: int, result: Any, metric: str) -> float:
    value = result.get(metric) if isinstance(result, dict) else None
    if not is_finite(value) or value <= 0:
        raise BadInput(name, f"{clean(metric)}: expected a number above zero", number)
    return float(value)


def conclusion(judged: Judgement, pairs: Pairs, metric: str, *, known_noise: bool) -> str:
    """The answer in one or two sentences."""
    n = len(pairs)
    numbers = (
        f"{clean(metric)} {_typical([b for b, _ in pairs])} -> {_typical([c for _, c in pairs])}, {_change(judged)}"
    )
    span = f"{n} pair{'s' if n > 1 else ''} of runs"
    needed = MIN_PAIRS if known_noise else MIN_PAIRS_ALONE
    if n < needed:
        remedy = "" if known_noise else ", or say how much launches vary with --launch-sd"
        return f"It cannot be told: {numbers} over {span}. At least {needed} of each side are needed{remedy}."
    if judged.verdict is Verdict.KEEP:
        return f"The second is better: {numbers} over {span}."
    if judged.verdict is Verdict.REVERT:
        worse = judged.high is not None and judged.high < 0
        return f"The second is {'worse' if worse else 'not better by as much as asked'}: {numbers} over {span}."
    return f"It cannot be told yet: {numbers} over {span}; {judged.because.split('; ')[-1]}."


def _change(judged: Judgement) -> str:
    """How much better it got, with the 95 % interval."""
    told = _better(judged.effect or 0.0)
    if judged.low is None or judged.high is None:
        return told
    return f"{told} (95 %: {_better(judged.low)} to {_better(judged.high)})"


def _better(effect: float) -> str:
    """An effect in words that need no sign; one that is large as a factor, as per cent of a loss end at 100."""
    if abs(effect) < HARDLY:
        return "the same"
    if NO_FACTOR_BELOW < effect < NO_FACTOR_ABOVE:
        return f"{100 * abs(effect):.1f} % {'better' if effect > 0 else 'worse'}"
    factor = 1 + effect if effect > 0 else 1 / max(1 + effect, 1 / MOST_TIMES)
    if factor >= MOST_TIMES:
        return f"more than {MOST_TIMES} times {'better' if effect > 0 else 'worse'}"
    return f"{_short(factor)} times {'better' if effect > 0 else 'worse'}"


def _typical(values: Sequence[float]) -> str:
    """The geometric mean, as the comparison is one of ratios."""
    mean = math.exp(min(sum(map(math.log, values)) / len(values), math.log(max(values))))
    return _short(mean)


def _short(number: float) -> str:
    return f"{number:.0f}" if 10_000 <= number < 1e15 else f"{number:.4g}"
