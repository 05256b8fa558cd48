"""What failed launches of a survey say about other choices. Pure.

A failure whose words name one level rules that level out. Otherwise every level of the choice that has never run is
suspected; one that was the only suspect is guilty. For want of memory, whatever wants more than what failed fails too.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from optagent.agent.canonical import flag_name
from optagent.agent.change import Change
from optagent.agent.families import is_suspected, runs_into
from optagent.agent.search.choosing import is_memory_setting
from optagent.agent.search.feasible import (
    GPU_OUT_OF_MEMORY,
    HOST_OUT_OF_MEMORY,
    FailedTrial,
    amount,
    ruled_out,
    takes_memory,
)
from optagent.agent.search.space import Point
from optagent.agent.survey.factors import ENVIRONMENT, Choice, Factor, Level, Value, assignments, settings

On = tuple[int, int]
"""(factor, level)"""
AGAIN, FORGIVEN = 0.9, 2.0
"""A choice of which every level has run, and which failed all the same: how likely that is to happen again, and after how
many other levels it is less likely by 1/e."""
ELSEWHERE = 0.5
"""How much of a failure is still expected in another serving environment."""
NAMED_ELSEWHERE = 0.9
"""The same where it is known which level fails."""
MOST_GUILTY, COMPANY = 3, 0.01
"""Levels at most that are thought guilty of several failures at once, and how likely a failure is nobody's fault: of levels that
do not go together."""
UNUSUAL = 0.1
"""How likely a level is to cause a failure of a kind that others are usually met with, beside one of these."""
MOST_GUILT, LEAST_RISK = 0.98, 0.01
"""How likely a level is to fail that surely failed (what still gets through does so again with each failure), and the least
before any failure."""
MEMORY_KINDS = frozenset({*GPU_OUT_OF_MEMORY, *HOST_OUT_OF_MEMORY})
"""Want of memory has many causes at once: whatever wants as much in all of them fails too, and no single one is guilty."""
WORDS_SAY_NOTHING = frozenset({"hang", "load-failed", *MEMORY_KINDS})
"""Kinds of which the words tell where it ended, and not why."""
_WEIGHTS = re.compile(r"(?:tp|dp|pp|ep)-size\Z|speculative-draft-model-path\Z|quantization|\Adtype\Z|ep-num-redundant")
"""Settings that say how much of the weights lies on one GPU."""


@dataclass(frozen=True)
class Failed:
    """A choice that failed: the kind of its cause (docs/diagnosis.md), and the level that its words name."""

    choice: Choice
    kind: str
    blamed: On | None = None


class _Accused(NamedTuple):
    """Who may be guilty of a failure: all suspects, and those of them whose settings usually meet its kind of cause."""

    suspects: frozenset[On]
    usual: frozenset[On]

    def answers(self, guilty: frozenset[On]) -> float:
        """How likely the failure is where these are guilty."""
        if guilty & (self.usual or self.suspects):
            return 1.0
        return UNUSUAL if guilty & self.suspects else COMPANY


@dataclass
class Feasible:
    """How likely a choice is to run, after these failures and those choices that ran."""

    factors: Sequence[Factor]
    before: Mapping[str, Value]
    failures: Sequence[Failed]
    ran: Collection[Choice]
    _points: dict[Choice, Point] = field(default_factory=dict)
    _guilts: dict[Value, dict[On, float]] = field(default_factory=dict)

    def chance(self, choice: Choice) -> float:
        """From 0 (known not to run) to 1 (nothing speaks against it)."""
        if choice in self.ran:
            return 1.0
        if self._trials and ruled_out(self._point(choice), self._trials):
            return 0.0
        mine = on(choice)
        risks = {o: 0.0 if o in self._cleared else self._level(o).risk for o in mine}
        chance = math.prod(1 - max(risk, self._guilt(choice).get(o, 0.0)) for o, risk in risks.items())
        for failure, suspects in zip(self.failures, self._suspects, strict=True):
            chance *= 1 - self._again(choice, mine, failure, suspects)
        return chance

    def _again(self, choice: Choice, mine: frozenset[On], failure: Failed, suspects: frozenset[On]) -> float:
        """How likely the choice meets this failure too, beside what its suspected levels tell."""
        elsewhere = ELSEWHERE if self._environment(choice) != self._environment(failure.choice) else 1.0
        if failure.kind in MEMORY_KINDS:
            wanting = [o for o in on(failure.choice) if _wants_memory(self._level(o).change, failure.kind)]
            shared = sum(any(self._as_much(o, w) for o in mine) for w in wanting) / max(1, len(wanting))
            return elsewhere * AGAIN * shared**2
        if suspects:
            return 0.0
        apart = sum(a != b for a, b in zip(choice, failure.choice, strict=True))
        return elsewhere * AGAIN * math.exp(-max(0, apart - 1) / FORGIVEN)

    def _guilt(self, choice: Choice) -> Mapping[On, float]:
        """How likely each suspected level is to fail in the environment of this choice."""
        here = self._environment(choice)
        if here not in self._guilts:
            self._guilts[here] = self._guilt_in(here)
        return self._guilts[here]

    def _guilt_in(self, here: Value) -> dict[On, float]:
        """Of all sets of few guilty levels, those count that answer for the failures, as likely as their risks make them."""
        told = [(f, s) for f, s in zip(self.failures, self._suspects, strict=True) if s and f.kind not in MEMORY_KINDS]
        sure = {o for _, suspects in told if len(suspects) == 1 for o in suspects}
        left = [_Accused(s, self._usual(f.kind, s)) for f, s in told if not s & sure]
        guilt = {o: g for group in _sharing(left) for o, g in self._divided(group).items()}
        guilt |= {o: 1 - (1 - MOST_GUILT) ** sum(o in suspects for _, suspects in told) for o in sure}
        known = {o for f, suspects in told if self._environment(f.choice) == here for o in suspects}
        ran = frozenset().union(*(on(c) for c in self.ran if self._environment(c) == here))
        return {
            o: g if o in known else g * (NAMED_ELSEWHERE if o in sure else ELSEWHERE)
            for o, g in guilt.items()
            if o not in ran
        }

    def _usual(self, kind: str, suspects: frozenset[On]) -> frozenset[On]:
        return frozenset(o for o in suspects if is_suspected(kind, settings(self._level(o).change)))

    def _divided(self, accused: Sequence[_Accused]) -> dict[On, float]:
        """How likely each suspect is guilty of failures that have suspects in common."""
        doubted = sorted(frozenset().union(*(a.suspects for a in accused)))
        odds = {o: max(self._level(o).risk, LEAST_RISK) / (1 - min(self._level(o).risk, MOST_GUILT)) for o in doubted}
        weights = {
            guilty: math.prod(odds[o] for o in guilty) * math.prod(a.answers(frozenset(guilty)) for a in accused)
            for many in range(MOST_GUILTY + 1)
            for guilty in itertools.combinations(doubted, many)
        }
        total = sum(weights.values())
        return {o: sum(w for guilty, w in weights.items() if o in guilty) / total for o in doubted}

    def _as_much(self, one: On, other: On) -> bool:
        """Whether a level wants at least as much memory as another one of its factor, as far as that can be told."""
        if one[0] != other[0]:
            return False
        mine, theirs = settings(self._level(one).change), settings(self._level(other).change)
        return one == other or (mine.keys() == theirs.keys() and all(_at_least(n, mine[n], theirs[n]) for n in mine))

    def _level(self, o: On) -> Level:
        return self.factors[o[0]].levels[o[1] - 1]

    def _environment(self, choice: Choice) -> Value:
        return self._point(choice).get(ENVIRONMENT)

    def new(self, choice: Choice) -> int:
        """How many of its levels have never run."""
        return len(on(choice) - self._cleared)

    @cached_property
    def _assigned(self) -> list[list[dict[str, Value]]]:
        return [assignments(f, self.before) for f in self.factors]

    @cached_property
    def _trials(self) -> list[FailedTrial]:
        return [FailedTrial(self._point(f.choice), f.kind) for f in self.failures]

    @cached_property
    def _cleared(self) -> frozenset[On]:
        return frozenset().union(*(on(choice) for choice in self.ran))

    @cached_property
    def _suspects(self) -> list[frozenset[On]]:
        blamed = [self._named(f) for f in self.failures]
        known = frozenset(b for b in blamed if b is not None)
        found = [self._of(f) if b is None else frozenset({b}) for f, b in zip(self.failures, blamed, strict=True)]
        for _ in found:
            known |= frozenset(next(iter(s)) for s in found if len(s) == 1)
            found = [s & known if s & known else s for s in found]
        return found

    def _named(self, failure: Failed) -> On | None:
        """The level that the failure names. One that has run in the same environment does not fail by itself: then it is
        the company."""
        here = self._environment(failure.choice)
        ran = any(failure.blamed in on(c) and self._environment(c) == here for c in self.ran)
        return None if ran or failure.kind in WORDS_SAY_NOTHING else failure.blamed

    def _of(self, failure: Failed) -> frozenset[On]:
        """Suspected are the levels that never ran; of them those that this kind of cause blocks, where there are any."""
        never = on(failure.choice) - self._cleared
        blocked = frozenset(o for o in never if runs_into(failure.kind, settings(self._level(o).change)))
        return blocked or never

    def _point(self, choice: Choice) -> Point:
        if choice not in self._points:
            sets = (assigned[n] for assigned, n in zip(self._assigned, choice, strict=True))
            self._points[choice] = {name: value for each in sets for name, value in each.items()}
        return self._points[choice]


def _sharing(accused: Sequence[_Accused]) -> list[list[_Accused]]:
    """The failures in groups: those that have a suspect in common, directly or through others, are in one."""
    groups: list[list[_Accused]] = []
    for one in accused:
        meeting = [g for g in groups if any(one.suspects & other.suspects for other in g)]
        groups = [g for g in groups if g not in meeting] + [[*(a for g in meeting for a in g), one]]
    return groups


def _wants_memory(change: Change, kind: str) -> bool:
    of_weights = any(_WEIGHTS.search(flag_name(name)) for name in change.flags)
    return of_weights or (kind != "gpu-oom-weights" and is_memory_setting(change))


def _at_least(name: str, mine: Value, theirs: Value) -> bool:
    if mine == theirs:
        return True
    here, there = amount(mine), amount(theirs)
    return takes_memory(name) and here is not None and there is not None and here >= there


def on(choice: Choice) -> frozenset[On]:
    """The levels that are on in a choice."""
    return frozenset((n, level) for n, level in enumerate(choice) if level)
