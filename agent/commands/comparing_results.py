"""`optagent verdict A B`: two files of `bench_serving` results, and whether one is faster."""

from __future__ import annotations

import json
import math
from pathlib import Path

from optagent.agent.commands.giving_verdicts import outside
from optagent.agent.commands.printable import clean
from optagent.agent.errors import BadInput
from optagent.agent.noise import Noise
from optagent.agent.verdict import MIN_PAIRS, MIN_PAIRS_ALONE, Judgement, Verdict, judge

LOWER_IS_BETTER = ("_ms", "duration")
NO_LIMIT = 10_000
ASSUMED_DF = 10
"""Of a launch-to-launch spread that the user gives: about what a calibration of ten launches tells."""


def compare_results(
    baseline: Path, candidate: Path, *, metric: str, min_effect: float, launch_sd: float | None, as_json: bool
) -> int:
    """Say which is faster and whether one can tell. Run n of one file is paired with run n of the other. Raises BadInput."""
    for option, value in (("--min-effect", min_effect), ("--launch-sd", launch_sd)):
        if value is not None and (problem := outside(value, above=0.0, below=10.0)):
            raise BadInput(option, problem)
    before, after = values_of(baseline, metric), values_of(candidate, metric)
    pairs = list(zip(before, after, strict=False))
    direction = direction_of(metric)
    noise = None if launch_sd is None else Noise(100 * launch_sd, ASSUMED_DF)
    judged = judge(pairs, noise, direction=direction, min_effect=min_effect, max_pairs=NO_LIMIT)
    told = conclusion(judged, pairs, metric, known_noise=noise is not None)
    if as_json:
        effect = {"estimate": judged.effect, "low": judged.low, "high": judged.high}
        print(json.dumps({
            "metric": metric, "direction": direction, "baseline": before, "candidate": after, "verdict": judged.verdict.value,
            "effect": effect, "because": told,
        }))  # fmt: skip
    else:
        print(told)
        if unpaired := abs(len(before) - len(after)):
            longer = baseline if len(before) > len(after) else candidate
            print(
                f"{unpaired} more run{'s' if unpaired > 1 else ''} in {clean(str(longer))} without a partner: not used"
            )
    return 0


def direction_of(metric: str) -> str:
    """Where better lies for a key of `bench_serving`'s result line."""
    return "min" if metric.endswith(LOWER_IS_BETTER) else "max"


def values_of(file: Path, metric: str) -> list[float]:
    """The metric of each result in the file, one JSON object a line. Raises BadInput."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(str(file), f"cannot be read: {getattr(error, 'strerror', None) or error}") from None
    found = [_value(str(file), number, line, metric) for number, line in enumerate(lines, 1) if line.strip()]
    if not found:
        raise BadInput(str(file), "holds no result of bench_serving")
    return found


def _value(name: str, number: int, line: str, metric: str) -> float:
    try:
        result = json.loads(line)
    except (ValueError, RecursionError):
        raise BadInput(name, "expected one JSON object a line, as bench_serving writes them", number) from None
    value = result.get(metric) if isinstance(result, dict) else None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value <= 0:
        raise BadInput(name, f"{metric}: expected a number above zero", number)
    return float(value)


def conclusion(judged: Judgement, pairs: list[tuple[float, float]], metric: str, *, known_noise: bool) -> str:
    """The answer in one or two sentences."""
    n, effect = len(pairs), judged.effect or 0.0
    span_of = f" [{judged.low:+.1%}, {judged.high:+.1%}]" if judged.low is not None and judged.high is not None else ""
    numbers = f"{metric} {effect:+.1%}{span_of}"
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
