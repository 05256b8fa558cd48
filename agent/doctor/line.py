"""One line of a doctor's report."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    OK = "ok"
    PROBLEM = "problem"
    UNKNOWN = "cannot tell"


@dataclass(frozen=True)
class Line:
    """What was looked at, how it is, and for a problem what to do about it."""

    name: str
    state: State
    text: str
    remedy: str = ""


def fine(name: str, text: str) -> Line:
    return Line(name, State.OK, text)


def problem(name: str, text: str, remedy: str) -> Line:
    return Line(name, State.PROBLEM, text, remedy)


def unknown(name: str, text: str, remedy: str = "") -> Line:
    return Line(name, State.UNKNOWN, text, remedy)
