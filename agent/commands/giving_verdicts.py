"""`optagent verdict`: the rule applied to anybody's numbers, one JSON line in and one out."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from optagent.agent.errors import BadInput
from optagent.agent.guards import MARGIN, Guard
from optagent.agent.noise import Noise, of_one_number, with_pairs
from optagent.agent.verdict import Judgement, expected_pairs, gain, judge

MAX_PAIRS = 12
MIN_EFFECT = 0.02
KEYS = frozenset({"id", "direction", "min_effect", "noise", "pairs", "guards", "max_pairs"})
Pairs = list[tuple[float, float]]


def give_verdicts(file: str, *, max_pairs: int = MAX_PAIRS) -> int:
    """Read JSON lines from `file` ("-" for the standard input) and print a verdict for each. Raises BadInput."""
    if file == "-":
        return _stream(sys.stdin.buffer, "standard input", max_pairs)
    try:
        with Path(file).open("rb") as lines:
            return _stream(lines, file, max_pairs)
    except OSError as error:
        raise BadInput(file, f"cannot be read: {error.strerror or error}") from None


def _stream(lines: Iterable[bytes], name: str, max_pairs: int) -> int:
    for answer in answers(lines, name, max_pairs):
        sys.stdout.write(json.dumps(answer, ensure_ascii=False) + "\n")
    sys.stdout.flush()
    return 0


def answers(lines: Iterable[bytes], name: str, max_pairs: int = MAX_PAIRS) -> Iterator[dict[str, Any]]:
    """One answer a line; empty lines are passed over. Raises BadInput with the line that is wrong."""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            asked = json.loads(line)
        except (ValueError, RecursionError):
            raise BadInput(name, "not a JSON object", number) from None
        try:
            yield answer(asked, max_pairs)
        except _Wrong as wrong:
            raise BadInput(name, str(wrong), number) from None


class _Wrong(ValueError):
    """What is wrong with a line, as a person reads it."""


def answer(asked: Any, max_pairs: int = MAX_PAIRS) -> dict[str, Any]:
    """The verdict on one set of pairs as the command prints it."""
    if not isinstance(asked, dict):
        raise _Wrong("expected a JSON object with `pairs`")
    if unknown := set(asked) - KEYS:
        raise _Wrong(f"unknown key {sorted(unknown)[0]!r}; known are {', '.join(sorted(KEYS))}")
    direction = asked.get("direction", "max")
    if direction not in ("max", "min"):
        raise _Wrong(f'direction: expected "max" or "min", not {direction!r}')
    min_effect = _number(asked.get("min_effect", MIN_EFFECT), "min_effect", above=0.0, below=10.0)
    most = asked.get("max_pairs", max_pairs)
    if isinstance(most, bool) or not isinstance(most, int) or most < 2:
        raise _Wrong(f"max_pairs: expected a whole number from 2, not {most!r}")
    noise, pairs = _noise(asked.get("noise")), _pairs(asked.get("pairs"), "pairs")
    guards = _guards(asked.get("guards") or {})
    judged = judge(pairs, noise, direction=direction, min_effect=min_effect, max_pairs=most, guards=guards)
    return _told(asked.get("id"), judged, _expected(pairs, noise, direction, min_effect))


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


def _noise(given: Any) -> Noise | None:
    if given is None:
        return None
    if not isinstance(given, dict):
        raise _Wrong(f"noise: expected null or an object with launch_sd, run_sd and df, not {given!r}")
    launch_sd = 100 * _number(given.get("launch_sd", 0.0), "noise.launch_sd", least=0.0, below=10.0)
    run_sd = 100 * _number(given.get("run_sd", 0.0), "noise.run_sd", least=0.0, below=10.0)
    df = given.get("df")
    if df is None:
        return None
    return of_one_number(launch_sd, run_sd, max(1, int(_number(df, "noise.df", least=1.0))))


def _pairs(given: Any, name: str) -> Pairs:
    if not isinstance(given, list):
        raise _Wrong(f"{name}: expected a list of [baseline, candidate] pairs")
    found: Pairs = []
    for at, pair in enumerate(given, 1):
        if not isinstance(pair, list) or len(pair) != 2:
            raise _Wrong(f"{name}: pair {at}: expected [baseline, candidate], not {str(pair)[:60]}")
        found.append(
            (_number(pair[0], f"{name}: pair {at}", above=0.0), _number(pair[1], f"{name}: pair {at}", above=0.0))
        )
    return found


def _guards(given: Any) -> dict[str, Guard]:
    if not isinstance(given, Mapping):
        raise _Wrong("guards: expected an object, a metric's name to its pairs")
    return {name: _guard(name, body) for name, body in given.items()}


def _guard(name: str, body: Any) -> Guard:
    """Pairs alone, or an object with pairs, margin (a fraction) and direction."""
    if isinstance(body, list):
        return Guard(_pairs(body, f"guards.{name}"))
    if not isinstance(body, dict) or set(body) - {"pairs", "margin", "direction"}:
        raise _Wrong(f"guards.{name}: expected pairs, or an object with pairs, margin and direction")
    direction = body.get("direction", "min")
    if direction not in ("max", "min"):
        raise _Wrong(f'guards.{name}.direction: expected "max" or "min", not {direction!r}')
    margin = _number(body.get("margin", MARGIN), f"guards.{name}.margin", least=0.0, below=10.0)
    return Guard(_pairs(body.get("pairs"), f"guards.{name}.pairs"), margin, direction)


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
    fine = not isinstance(value, bool) and isinstance(value, int | float) and math.isfinite(value)
    if not fine or (above is not None and value <= above) or (least is not None and value < least):
        bound = f" above {above:g}" if above is not None else f" from {least:g}" if least is not None else ""
        return f"expected a number{bound}, not {value!r}"
    if below is not None and value >= below:
        return f"expected a fraction such as 0.02, not {value!r}"
    return None
