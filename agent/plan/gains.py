"""Expected gains as people write them (`+10..18 %`, `10-18%`, `1.5-2x`, 0.1) as fractions (low, high)."""

from __future__ import annotations

import re
from collections.abc import Callable

_NUMBER = r"([+\-−]?\s*\d{1,6}(?:\.\d{1,6})?)"
_TO = r"\s*(?:\.\.\.?|…|to|-|–|—|−)\s*"
_ABOUT = r"(?:\s*(?:~|≈|about|ca\.?|around|>=?|≥)\s*)?"
_PERCENT = re.compile(
    rf"{_ABOUT}{_NUMBER}\s*(?:%|percent)?{_TO}{_ABOUT}{_NUMBER}\s*(?:%|percent)|{_ABOUT}{_NUMBER}\s*(?:%|percent)"
)
_TIMES = re.compile(
    rf"{_ABOUT}(\d{{1,4}}(?:\.\d{{1,4}})?)\s*[x×]?{_TO}(\d{{1,4}}(?:\.\d{{1,4}})?)\s*[x×](?!\w)|{_ABOUT}(\d{{1,4}}(?:\.\d{{1,4}})?)\s*[x×](?!\w)"
)
_UP_TO = re.compile(r"\s*(?:up to|at most|<=?|≤)\s*", re.IGNORECASE)
_PLAIN = re.compile(rf"\s*{_NUMBER}(?:{_TO}{_NUMBER})?\s*\Z")
_OF_THE_WHOLE = re.compile(r".{0,20}\b(?:end[- ]to[- ]end|overall|TPS|throughput|tok/s)", re.IGNORECASE)

LARGEST_FRACTION = 5.0
"""A bare number above this is taken for a percentage whose sign was forgotten, and refused."""

Gain = tuple[float, float]


def read_gain(text: str) -> Gain:
    """The gain that the whole of `text` states. Raises ValueError, saying what was expected."""
    body = _UP_TO.sub("", text, count=1) if (up_to := _UP_TO.match(text)) else text
    for pattern, scale in ((_PERCENT, _percent), (_TIMES, _times)):
        if match := pattern.fullmatch(body.strip()):
            low, high = _ends(match, scale)
            return _ordered(min(0.0, high) if up_to else low, high)
    if match := _PLAIN.match(body):
        low, high = _ends(match, fraction)
        return _ordered(min(0.0, high) if up_to else low, high)
    raise ValueError(f"expected a gain such as '+10..18 %' or 0.1, found {text[:60]!r}")


def find_gain(text: str) -> Gain | None:
    """The percentage or factor in `text` that is said of the whole, else the first one; what is said of memory is none."""
    if "memory" in text.lower():
        return None
    for pattern, scale in ((_PERCENT, _percent), (_TIMES, _times)):
        found = list(pattern.finditer(text))
        if match := next((m for m in found if _OF_THE_WHOLE.match(text, m.end())), next(iter(found), None)):
            low, high = _ends(match, scale)
            if _UP_TO.search(text[: match.start()][-12:]):
                low = min(0.0, high)
            return (low, high) if low <= high else (high, low)
    return None


def fraction(value: float) -> float:
    """`value` as a fraction. Raises ValueError when it can only be meant as a percentage."""
    if not abs(value) <= LARGEST_FRACTION:
        raise ValueError(f"{value:g} as a fraction would be {value:.0%}; write '{value:g} %' if that is what is meant")
    return value


def _ends(match: re.Match[str], scale: Callable[[float], float]) -> Gain:
    texts = [group for group in match.groups() if group is not None]
    values = [scale(float(re.sub(r"\s", "", text).replace("−", "-"))) for text in texts]
    return values[0], values[-1]


def _percent(value: float) -> float:
    return round(value / 100, 6)


def _times(value: float) -> float:
    return round(value - 1, 6)


def _ordered(low: float, high: float) -> Gain:
    if low > high:
        raise ValueError(f"the gain runs from {low:g} down to {high:g}; the lower end comes first")
    return low, high
