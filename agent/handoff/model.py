"""A handoff as data: what its front matter holds and its sections show."""

from __future__ import annotations

from dataclasses import dataclass

from optagent.agent.records import (
    Attempt,
    Baseline,
    Claim,
    DeadEnd,
    InFlight,
    Lesson,
    NextStep,
    Question,
)

FORMAT = "optagent-handoff/1"


@dataclass(frozen=True)
class Place:
    """Where a campaign lies: host and user by name, the campaign's folder; "" is not known."""

    host: str = ""
    user: str = ""
    folder: str = ""


@dataclass(frozen=True)
class LeftOut:
    """What a handoff does not hold because it would grow without end: of what, how much, and where it is."""

    what: str
    count: int
    where: str


@dataclass(frozen=True)
class Handoff:
    """Everything one sitting tells the next.

    `structured` is False for a free-form document that somebody else wrote: it is read as far as it goes, and nothing
    in it counts as verified. `written` is UTC, ISO 8601, `place` where that was. `first_baseline` is where the campaign
    started from. `supersedes` is the handoff whose place it takes, by its path; `left_out` says what it leaves to others.
    """

    id: str
    campaign: str
    written: str
    objective: str = ""
    principles: tuple[str, ...] = ()
    supersedes: str | None = None
    ended: str = ""
    simulated: bool = False
    first_baseline: Baseline | None = None
    baseline: Baseline | None = None
    total_gain: str = ""
    claims: tuple[Claim, ...] = ()
    lessons: tuple[Lesson, ...] = ()
    attempts: tuple[Attempt, ...] = ()
    dead_ends: tuple[DeadEnd, ...] = ()
    in_flight: tuple[InFlight, ...] = ()
    next_steps: tuple[NextStep, ...] = ()
    questions: tuple[Question, ...] = ()
    notes: str = ""
    place: Place | None = None
    left_out: tuple[LeftOut, ...] = ()
    structured: bool = True
