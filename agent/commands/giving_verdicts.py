"""`optagent verdict`: the rule applied to anybody's numbers, one JSON line in and one out."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeGuard

from optagent.agent.commands import json_lines
from optagent.agent.commands.printable import clip
from optagent.agent.errors import BadInput
from optagent.agent.guards import MARGIN, Guard
from optagent.agent.metric_directions import direction_of
from optagent.agent.noise import Noise, of_one_number, with_pairs
from optagent.agent.verdict import Judgement, Verdict, expected_pairs, gain, judge

MAX_PAIRS = 12
MOST_PAIRS = 1_000_000
MIN_EFFECT = 0.02
LEAST_EFFECT = 1e-6
"""What is smaller was meant to be something else: no number of launches tells it."""
NOISE_KNOWN = 1_000_000
"""Degrees of freedom from which on more of them change nothing."""
QUOTED = 60
KEYS = frozenset({"id", "direction", "min_effect", "noise", "pairs", "guards", "max_pairs"})
NOISE_KEYS_IN_WORDS = "launch_sd, df and, where runs within a launch were told apart, run_sd"
Pairs = list[tuple[float, float]]


def give_verdicts(file: str) -> int:
    """Read JSON lines from `file` ("-" for the standard input) and print a verdict for each. Raises BadInput."""
    json_lines.write(answers(json_lines.lines_of(file), json_lines.name_of(file)))
    return 0


def answers(lines: Iterable[bytes], name: str) -> Iterator[str]:
    """One answer a line, as strict JSON; empty lines are passed over. Raises BadInput with the line that is wrong."""
    strict = json.JSONEncoder(allow_nan=False)
    for number, asked in json_lines.read(lines, name, "not a JSON object"):
        try:
            given = answer(asked)
        except _Wrong as wrong:
            raise BadInput(name, str(wrong), number) from None
        try:
            yield strict.encode(given)
        except (ValueError, RecursionError):  # all else is text and finite numbers
            raise BadInput(name, "id: expected JSON without NaN or Infinity, and not nested deeply", number) from None


class _Wrong(ValueError):
    """What is wrong with a line, as a person reads it."""


def answer(asked: Any) -> dict[str, Any]:
    """The verdict on one set of pairs as the command prints it."""
    if not isinstance(asked, dict):
        raise _Wrong("expected a JSON object with `pairs`")
    if unknown := set(asked) - KEYS:
        if _of_bench_serving(asked):
            raise _Wrong(
                "this looks like a result of bench_serving; name a second file of results to compare it with, as in "
                "`optagent verdict baseline.jsonl candidate.jsonl`"
            )
        raise _Wrong(f"unknown key {_quoted(min(unknown))}; known are {', '.join(sorted(KEYS))}")
    direction = _direction(asked.get("direction", "max"), "direction")
    min_effect = asked.get("min_effect", MIN_EFFECT)
    if problem := no_effect(min_effect):
        raise _Wrong(f"min_effect: {problem}")
    most = asked.get("max_pairs", MAX_PAIRS)
    if isinstance(most, bool) or not isinstance(most, int) or not 2 <= most <= MOST_PAIRS:
        raise _Wrong(f"max_pairs: expected a whole number from 2 to {MOST_PAIRS}, not {_quoted(most)}")
    noise, pairs = _noise(asked.get("noise")), _pairs(asked.get("pairs"), "pairs")
    guards = _guards(asked.get("guards"))
    judged = judge(pairs, noise, direction=direction, min_effect=min_effect, max_pairs=most, guards=guards)
    judged = _unless_unguarded(judged, guards, last=len(pairs) >= most)
    return _told(asked.get("id"), judged, _expected(pairs, noise, direction, min_effect))


def _of_bench_serving(asked: Mapping[str, Any]) -> bool:
    return "pairs" not in asked and any(direction_of(key) for key in asked)


def _unless_unguarded(judged: Judgement, guards: Mapping[str, Guard], *, last: bool) -> Judgement:
    """Nothing is kept while a guard that was asked for has not been measured."""
    unmeasured = next((name for name, guard in guards.items() if not guard.measured), None)
    if judged.verdict is not Verdict.KEEP or unmeasured is None:
        return judged
    because = f"{judged.because}, but {clip(unmeasured, QUOTED)}, which must not get worse, has not been measured"
    if last:
        return replace(judged, verdict=Verdict.INCONCLUSIVE, because=f"{because}, so the simpler configuration stays")
    return replace(judged, verdict=Verdict.MORE, because=because)


def _told(identity: Any, judged: Judgement, expected: float | None) -> dict[str, Any]:
    return {
        "id": identity,
        "verdict": judged.verdict.value,
        "effect": {"estimate": judged.effect, "low": judged.low, "high": judged.high},
        "llr": judged.llr,
        "pairs_expected": expected,
        "because": judged.because,
    }


def _expected(pairs: Pairs, noise: Noise | None, direction: str, min_effect: float) -> float | None:
    """How many pairs a verdict takes on average at this noise; None while the noise is not known."""
    believed = with_pairs(noise, [gain(b, c, direction) for b, c in pairs])
    return round(expected_pairs(believed, min_effect), 1) if math.isfinite(believed.launch_sd) else None


def _direction(given: Any, name: str) -> str:
    if given not in ("max", "min"):
        raise _Wrong(f'{name}: expected "max" or "min", not {_quoted(given)}')
    return str(given)


def _noise(given: Any) -> Noise | None:
    if given is None:
        return None
    if not isinstance(given, dict):
        raise _Wrong(f"noise: expected null or an object with {NOISE_KEYS_IN_WORDS}, not {_quoted(given)}")
    if unknown := set(given) - {"launch_sd", "run_sd", "df"}:
        raise _Wrong(f"noise: unknown key {_quoted(min(unknown))}; expected {NOISE_KEYS_IN_WORDS}")
    for key in ("launch_sd", "df"):
        if key not in given:
            raise _Wrong(f"noise: {key} is missing; expected {NOISE_KEYS_IN_WORDS}")
    launch_sd = 100 * _number(given["launch_sd"], "noise.launch_sd", least=0.0, below=10.0)
    run_sd = 100 * _number(given.get("run_sd", 0.0), "noise.run_sd", least=0.0, below=10.0)
    if given["df"] is None:
        return None
    return of_one_number(launch_sd, run_sd, int(min(_number(given["df"], "noise.df", least=1.0), NOISE_KNOWN)))


def _pairs(given: Any, name: str) -> Pairs:
    if not isinstance(given, list):
        raise _Wrong(f"{name}: expected a list of [baseline, candidate] pairs")
    found: Pairs = []
    for at, pair in enumerate(given, 1):
        if not isinstance(pair, list) or len(pair) != 2:
            raise _Wrong(f"{name}: pair {at}: expected [baseline, candidate], not {_quoted(pair)}")
        found.append(
            (_number(pair[0], f"{name}: pair {at}", above=0.0), _number(pair[1], f"{name}: pair {at}", above=0.0))
        )
    return found


def _guards(given: Any) -> dict[str, Guard]:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise _Wrong(f"guards: expected an object, a metric's name to its pairs, not {_quoted(given)}")
    return {name: _guard(name, body) for name, body in given.items()}


def _guard(name: str, body: Any) -> Guard:
    """Pairs alone, or an object with pairs, margin (a fraction) and direction. Where nothing says otherwise, less is
    better, as it is for a latency."""
    where, usual = f"guards.{clip(name, QUOTED)}", direction_of(name) or "min"
    if isinstance(body, list):
        return Guard(_pairs(body, where), direction=usual)
    if not isinstance(body, dict) or set(body) - {"pairs", "margin", "direction"}:
        raise _Wrong(f"{where}: expected pairs, or an object with pairs, margin and direction, not {_quoted(body)}")
    direction = _direction(body.get("direction", usual), f"{where}.direction")
    margin = _number(body.get("margin", MARGIN), f"{where}.margin", least=0.0, below=10.0)
    return Guard(_pairs(body.get("pairs"), f"{where}.pairs"), margin, direction)


def _number(
    value: Any, name: str, *, above: float | None = None, least: float | None = None, below: float | None = None
) -> float:
    if problem := outside(value, above=above, least=least, below=below):
        raise _Wrong(f"{name}: {problem}")
    return float(value)


def outside(
    value: Any, *, above: float | None = None, least: float | None = None, below: float | None = None
) -> str | None:
    """What is wrong with a number that should lie within these limits; None when it does."""
    if isinstance(value, int) and not isinstance(value, bool) and not is_finite(value):
        return f"expected a number below 1.8e308, not {_quoted(value)}"
    if not is_finite(value) or (above is not None and value <= above) or (least is not None and value < least):
        bound = f" above {above:g}" if above is not None else f" from {least:g}" if least is not None else ""
        return f"expected a number{bound}, not {_quoted(value)}"
    if below is not None and value >= below:
        return f"expected a fraction such as 0.02, not {_quoted(value)}"
    return None


def no_effect(value: Any) -> str | None:
    """What is wrong with a minimum effect; None when it is one."""
    if problem := outside(value, above=0.0, below=10.0):
        return problem
    return None if value >= LEAST_EFFECT else f"expected a fraction such as 0.02, not {_quoted(value)}"


def is_finite(value: Any) -> TypeGuard[float]:
    """Whether it is a number that a float can hold, which long integers are not."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def _quoted(value: Any) -> str:
    return clip(repr(value), QUOTED)
