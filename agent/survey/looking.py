"""The survey of a plan's simple items: which combination is launched next, and which one then goes on to a verdict. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from optagent.agent.bundling import Bundle
from optagent.agent.change import Change, apply_change, describe
from optagent.agent.dead_ends import blame_failure, says_nothing
from optagent.agent.experiments import BUNDLE, ITEM, SURVEY, TRIAL, Experiment, Forecast
from optagent.agent.noise import Noise, believed
from optagent.agent.plan.model import Item
from optagent.agent.records import Part
from optagent.agent.survey.factors import (
    Choice,
    Factor,
    change_at,
    changes_of,
    choice_of,
    configuration_at,
    difference,
    factors_of,
    items_at,
    names_of,
    put_back,
    set_in,
)
from optagent.agent.survey.feasible import Failed, Feasible, On, on
from optagent.agent.survey.proposing import ENOUGH, launches_wanted, propose
from optagent.agent.survey.surface import Observation, Surface
from optagent.agent.verdict import Judgement, Verdict
from optagent.tools.calls.configuration import Configuration

FEWEST = 3
"""Items from which on a survey saves launches."""
MOST = 400
"""So many of the latest experiments are looked at."""
WORTH_A_VERDICT = 0.5
"""Share of the minimum effect that the best combination must promise to be put to a verdict."""

NO_VALID_RUN = "no-valid-run"
"""The kind of a failure of which nothing but the runs themselves tells."""
FEWEST_WITH, SURELY = 2, 1.28
"""Launches that must have had an item on, and standard deviations by which the minimum effect must lie beyond what it gives,
for a survey to settle the item: what gives the minimum effect is missed in one of ten, as the verdict's rule allows."""
INTERVAL = 1.96
"""Standard deviations to either side of an interval of 95 %."""
OWN_KINDS = frozenset({SURVEY, ITEM, BUNDLE, TRIAL})


@dataclass(frozen=True)
class Looked:
    """What comes next of a survey: `look` at one more combination, or put the best one to a verdict.

    `change` leads there from the present baseline, `root` is the configuration without any of the items, `items` are those
    that are on, `among` all that it chooses from.
    """

    look: bool
    change: Change
    root: Configuration
    items: tuple[str, ...]
    among: tuple[str, ...]
    words: str
    forecast: Forecast | None = None


@dataclass(frozen=True)
class Seen:
    """What a survey goes by. `inside` are items that came in with a combination and have no verdict of their own yet;
    `refused` says why a change must not be launched, "" when it may. `noise` is that of a launch with one run."""

    baseline: Configuration
    experiments: Sequence[Experiment]
    bundles: Sequence[Bundle]
    noise: Noise | None
    direction: str
    min_effect: float
    seed: int
    refused: Callable[[Change], str] = lambda _: ""


def is_open(experiments: Sequence[Experiment]) -> bool:
    """Whether a survey is under way: nothing else was tried since its last launch."""
    last = next((e for e in reversed(experiments) if e.kind in OWN_KINDS), None)
    return last is not None and last.kind == SURVEY


def surveyed(experiments: Sequence[Experiment]) -> frozenset[str]:
    """The items that a survey has chosen from."""
    return frozenset(i for e in experiments if e.kind == SURVEY for i in e.among)


def next_of(fresh: Sequence[Item], inside: Sequence[Item], seen: Seen) -> Looked | None:
    """The next step of a survey of these items; None when there is none to make, or it has come to its end."""
    items = [*inside, *fresh]
    under_way = is_open(seen.experiments)
    known = surveyed(seen.experiments)
    if not under_way and sum(i.id not in known for i in fresh) < FEWEST:
        return None
    root = _root(seen, inside)
    factors = factors_of(items, root)
    if not factors:
        return None
    observations, failures = _observed(seen, root, factors)
    now = choice_of(seen.baseline, root, factors)
    if now is None or not observations:
        return None
    among = tuple(i.id for i in items)
    sd = believed(seen.noise) / 100
    surface = Surface(factors, set_in(root), observations, sd)
    done = _launches_of_this(seen.experiments)
    if done < launches_wanted(factors):
        found = _worth_looking(factors, surface, observations, failures, root, seen, done)
        if found is not None:
            choice, expected = found
            words = (
                f"launch {done + 1} of at most {launches_wanted(factors)} of the survey, expected to gain {expected:.1%}: "
                f"{_shown(factors, choice)}"
            )
            looked = _looked(True, factors, choice, root, seen, among, words)
            return replace(looked, forecast=surface.forecast(choice, now))
    choice, ahead = _best(surface, observations, now)
    candidate = configuration_at(root, factors, choice)
    tried = any(e.kind == BUNDLE and e.verdict and e.candidate == candidate for e in seen.experiments)
    if choice == now or tried or ahead < WORTH_A_VERDICT * math.log1p(seen.min_effect):
        return None
    words = f"the best of {done} launches of the survey, {math.expm1(ahead):+.1%} by what they gave: {_shown(factors, choice)}"
    return _looked(False, factors, choice, root, seen, among, words)


@dataclass(frozen=True)
class Told:
    """What a survey tells of an item on the present baseline: the change with the most promising of its values, and how far
    ahead that is with its standard deviation, as differences of logarithms; `launches` had the item on."""

    change: Change
    ahead: float
    sd: float
    launches: int

    def settles(self, min_effect: float) -> Judgement | None:
        """The verdict, where it is clear that the item does not give the minimum effect; None where it may."""
        if self.launches < FEWEST_WITH or self.ahead + SURELY * self.sd >= math.log1p(min_effect):
            return None
        effect, low, high = (math.expm1(self.ahead + z * self.sd) for z in (0.0, -INTERVAL, INTERVAL))
        because = (
            f"{effect:+.1%} by the survey, of which {self.launches} launches had it on: no gain of {min_effect:.1%}"
        )
        return Judgement(Verdict.REVERT, because, effect, low, high)


def told_of(item: Item, items: Sequence[Item], inside: Sequence[Item], seen: Seen) -> Told | None:
    """What the survey of these items tells of one of them; None where that cannot be said."""
    root = _root(seen, inside)
    factors = factors_of(items, root)
    observations, _ = _observed(seen, root, factors)
    now = choice_of(seen.baseline, root, factors)
    if now is None or not observations:
        return None
    found: list[tuple[Choice, Change]] = []
    for change in changes_of(item):
        choice = choice_of(apply_change(seen.baseline, change), root, factors)
        if choice is not None and choice != now:
            found.append((choice, change))
    if not found:
        return None
    surface = Surface(factors, set_in(root), observations, believed(seen.noise) / 100)
    forecasts = [surface.forecast(choice, now) for choice, _ in found]
    may_give = [f.level - f.baseline + SURELY * f.ahead_sd for f in forecasts]
    top = max(range(len(found)), key=lambda n: (round(may_give[n], 9), -n))
    expected, change = forecasts[top], found[top][1]
    mine = frozenset().union(*(on(c) for c, _ in found)) - on(now)
    launches = sum(bool(on(o.choice) & mine) for o in observations)
    return Told(change, expected.level - expected.baseline, expected.ahead_sd, launches)


def _root(seen: Seen, inside: Sequence[Item]) -> Configuration:
    """The baseline without what came in with a combination and may go out again."""
    last = next((b for b in reversed(seen.bundles) if b.kept and b.root is not None), None)
    if last is None or last.root is None:
        return seen.baseline
    names = frozenset(name for item in inside if item.id in last.items for name in names_of(item))
    return put_back(seen.baseline, names, last.root)


def _observed(seen: Seen, root: Configuration, factors: Sequence[Factor]) -> tuple[list[Observation], list[Failed]]:
    sign = 1.0 if seen.direction == "max" else -1.0
    observations: list[Observation] = []
    failures: list[Failed] = []
    for e in seen.experiments[-MOST:]:
        for arm, configuration in (("baseline", e.base), ("candidate", e.candidate)):
            values = e.values(arm) if configuration is not None else {}
            choice = choice_of(configuration, root, factors) if configuration is not None and values else None
            if choice is not None:
                observations += [Observation(choice, sign * math.log(v), e.sitting) for v in values.values()]
        if (failed := _failed(e, root, factors)) is not None:
            failures.append(failed)
    return observations, failures


def _failed(e: Experiment, root: Configuration, factors: Sequence[Factor]) -> Failed | None:
    if e.verdict not in (Verdict.FAILED, Verdict.INVALID) or (e.failures and says_nothing(e.failures[-1])):
        return None
    choice = choice_of(e.candidate or apply_change(e.base, e.change), root, factors)
    if choice is None or not any(choice):
        return None
    if not e.failures:
        return Failed(choice, NO_VALID_RUN)
    levels = sorted(on(choice))
    parts = [Part(str(n), None, factors[o[0]].levels[o[1] - 1].change) for n, o in enumerate(levels)]
    found = blame_failure(parts, e.failures[-1]).part
    blamed: On | None = levels[int(found.title)] if found is not None else None
    return Failed(choice, e.failures[-1].kind, blamed)


def _launches_of_this(experiments: Sequence[Experiment]) -> int:
    """Launches of the survey that is under way. What was refused before its launch cost none."""
    count = 0
    for e in reversed(experiments):
        if e.kind == SURVEY:
            count += e.candidate is not None
        elif e.kind in OWN_KINDS:
            break
    return count


def _worth_looking(
    factors: Sequence[Factor], surface: Surface, observations: Sequence[Observation], failures: Sequence[Failed],
    root: Configuration, seen: Seen, done: int,
) -> tuple[Choice, float] | None:  # fmt: skip
    """The next combination with the gain that is expected of it; None where none can be expected to gain enough."""
    feasible = Feasible(factors, set_in(root), failures, {o.choice for o in observations})
    found = propose(
        factors, surface, observations, feasible, seen.seed * 1009 + done,
        lambda choice: not seen.refused(change_at(factors, choice)),
    )  # fmt: skip
    if found is None or found.expected < ENOUGH * math.log1p(seen.min_effect):
        return None
    return found.choice, math.expm1(found.expected)


def _best(surface: Surface, observations: Sequence[Observation], now: Choice) -> tuple[Choice, float]:
    """The measured choice that is expected to be the best, and how far it is ahead of the present one."""
    choices = sorted({o.choice for o in observations})
    means, _ = surface.at(choices)
    choice = choices[max(range(len(choices)), key=lambda n: (round(float(means[n]), 9), -n))]
    expected = surface.forecast(choice, now)
    return choice, expected.level - expected.baseline


def _looked(
    look: bool, factors: Sequence[Factor], choice: Choice, root: Configuration, seen: Seen, among: tuple[str, ...], words: str
) -> Looked:  # fmt: skip
    change = difference(seen.baseline, configuration_at(root, factors, choice))
    return Looked(look, change, root, items_at(factors, choice), among, words)


def _shown(factors: Sequence[Factor], choice: Choice) -> str:
    return describe(change_at(factors, choice))
