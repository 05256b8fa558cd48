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
class Handoff:
    """Everything one sitting tells the next.

    `structured` is False for a free-form document that somebody else wrote: it is read as far as it goes, and nothing
    in it counts as verified. `written` is UTC, ISO 8601. `first_baseline` is where the campaign started from.
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
    structured: bool = True
