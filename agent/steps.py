"""A step: what is done next, as `decide` says it and `experimenting` begins it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from optagent.agent.change import Change
from optagent.agent.experiments import Outlook
from optagent.agent.plan.model import Item
from optagent.agent.verdict import Judgement
from optagent.tools.calls.configuration import Configuration


class StepKind(StrEnum):
    BASELINE = "baseline"
    ITEM = "item"
    CONFIRM = "confirm"
    RESUME = "resume"
    TRIAL = "trial"
    SURVEY = "survey"
    BUNDLE = "bundle"


@dataclass(frozen=True)
class Step:
    """What is done next. `change` is what is tried where that is not the item's own.

    Of a combination, `items` are those that are on, `among` those that it was chosen from, `root` is the configuration without
    any of them, and `outlook` what a survey expects of it. `without` is the baseline without the item, when that is what the
    item is held against. With `judged` the item has its verdict already, by what a survey told of it.
    """

    kind: StepKind
    title: str
    item: Item | None = None
    change: Change | None = None
    items: tuple[str, ...] = ()
    among: tuple[str, ...] = ()
    root: Configuration | None = None
    outlook: Outlook | None = None
    without: Configuration | None = None
    judged: Judgement | None = None


Reasoned = tuple[Step, str, str]
"""A step with its reason in a word, and why."""
