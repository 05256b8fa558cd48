"""Conditions such as `cuda>=13 and gpu.count>=8`: what an item needs, what makes a dead end worth another look."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from operator import eq, ge, gt, le, lt, ne
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from packaging.version import Version

OPERATORS: dict[str, Callable[[Any, Any], bool]] = {">=": ge, "<=": le, "==": eq, "!=": ne, ">": gt, "<": lt}
WORKLOAD = "workload"
"""The fact that names what is measured with: what one workload does not gain by, another may."""

_TERM = re.compile(r"([A-Za-z_][\w.-]*?)\s*(>=|<=|==|!=|>|<)\s*([^\s<>=!,;]+)\Z", re.ASCII)
_AND = re.compile(r"\s+and\s+", re.IGNORECASE)
_QUANTITY = re.compile(r"(?:\A|[._])(?:count|percent|gb|mb|gib|mib|ms|s|mhz|watts?|w)\Z", re.IGNORECASE)
_EXPECTED = "a condition such as cuda>=13, gpu.count>=8 or environment==cu13, several joined by 'and'"


class Term(NamedTuple):
    """One comparison: a fact's name, an operator of `OPERATORS`, and the value it is held against."""

    fact: str
    operator: str
    value: str

    def __str__(self) -> str:
        return f"{self.fact}{self.operator}{self.value}"


class Condition(NamedTuple):
    """Terms that must all hold."""

    terms: tuple[Term, ...]

    def __str__(self) -> str:
        return " and ".join(str(term) for term in self.terms)


def looks_like_condition(text: str) -> bool:
    """Whether `text` compares something, and so is no name of an item."""
    return any(sign in text for sign in "<>=")


def parse_condition(text: str) -> Condition:
    """The condition that `text` states. Raises ValueError, saying what was expected, when it is none."""
    return Condition(tuple(_term(part) for part in _AND.split(text.strip())))


def as_value(text: str) -> str:
    """`text` as it can stand in a condition, such as the name of a workload: without blanks and signs of comparison."""
    return re.sub(r"[\s<>=!,;'\"]+", "-", text.strip()).strip("-")[:80]


def conjunction(terms: Iterable[Term]) -> str | None:
    """The condition that asks for all of the terms, each once; None without any."""
    return str(Condition(tuple(dict.fromkeys(terms)))) or None


def holds(condition: Condition, facts: Mapping[str, str]) -> bool | None:
    """Whether the condition holds for `facts`; None when that depends on a fact nobody knows."""
    answers = [_term_holds(term, facts) for term in condition.terms]
    if False in answers:
        return False
    return None if None in answers else True


def _term(text: str) -> Term:
    match = _TERM.match(text)
    if match is None:
        raise ValueError(f"expected {_EXPECTED}; found {text[:80]!r}")
    value = match[3].strip("'\"")
    ordered = match[2] in ("<", ">", "<=", ">=")
    if not value or (ordered and _number(value) is None and _version(value) is None):
        raise ValueError(f"expected a version or a number after {match[1]}{match[2]}; found {match[3][:80]!r}")
    return Term(match[1], match[2], value)


def _term_holds(term: Term, facts: Mapping[str, str]) -> bool | None:
    fact = facts.get(term.fact, "").strip()
    if not fact:
        return None
    compare = OPERATORS[term.operator]
    if _QUANTITY.search(term.fact):
        known, wanted = _number(fact), _number(term.value)
        if known is not None and wanted is not None:
            return compare(known, wanted)
    found, asked = _version(fact), _version(term.value)
    if found is not None and asked is not None:
        return compare(found if asked.local else _public(found), asked)
    return compare(fact, term.value) if term.operator in ("==", "!=") else None


def _number(text: str) -> float | None:
    return float(text) if re.fullmatch(r"[+-]?\d{1,30}(?:\.\d{1,30})?", text, re.ASCII) else None


def _version(text: str) -> Version | None:
    from packaging.version import InvalidVersion, Version

    if len(text) > 100:
        return None
    try:
        return Version(text)
    except InvalidVersion:
        return None


def _public(version: Version) -> Version:
    from packaging.version import Version

    return Version(version.public)
