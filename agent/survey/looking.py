"""The survey of a plan's simple items: which combination is launched next, and which one then goes on to a verdict. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from optagent.agent.bundling import Bundle
from optagent.agent.change import Change, apply_change, describe
from optagent.agent.dead_ends import blame_failure, says_nothing
from optagent.agent.experiments import BUNDLE, ITEM, SURVEY, TRIAL, Experiment, Outlook
from optagent.agent.load import Load
from optagent.agent.noise import Noise, with_usual
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
from optagent.agent.survey.known import with_what_is_known
from optagent.agent.survey.proposing import ENOUGH, Proposal, launches_wanted, propose
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
HARDLY = 0.1
"""A value that is less likely to run than this has its own failure to be judged by, and not what others gave."""
INTERVAL = 1.96
"""Standard deviations to either side of an interval of 95 %."""
OWN_KINDS = frozenset({SURVEY, ITEM, BUNDLE, TRIAL})


@dataclass(frozen=True)
class Looked:
    """What comes next of a survey: `look` at one more combination, or put the best one to a verdict.

    `change` leads there from the present baseline, `root` is the configuration without any of the items, `items` are those
    that are on, `among` all that it chooses from, `outlook` is what is expected of one that is looked at.
    """

    look: bool
    change: Change
    root: Configuration
    items: tuple[str, ...]
    among: tuple[str, ...]
    words: str
    outlook: Outlook | None = None


@dataclass(frozen=True)
class Seen:
    """What a survey goes by. `noise` is that of a launch; `refused` says why a change and
    the configuration that it leads to must not be launched, "" when they may. `load` is the objective's, `facts` those about
    the machine."""

    baseline: Configuration
    experiments: Sequence[Experiment]
    bundles: Sequence[Bundle]
    noise: Noise | None
    direction: str
    min_effect: float
    seed: int
    refused: Callable[[Change, Configuration], str] = lambda _, __: ""
    load: Load | None = None
    facts: Mapping[str, str] = field(default_factory=dict)


def is_open(experiments: Sequence[Experiment]) -> bool:
    """Whether a survey is under way: nothing else was tried since its last launch."""
    last = next((e for e in reversed(experiments) if e.kind in OWN_KINDS), None)
    return last is not None and last.kind == SURVEY


def surveyed(experiments: Sequence[Experiment]) -> frozenset[str]:
    """The items that a survey has chosen from."""
    return frozenset(i for e in experiments if e.kind == SURVEY for i in e.among)


@dataclass(frozen=True)
class _View:
    """What was seen of some items, put in order: their factors on the `root`, the launches as observations and failures, and
    the choice that is the baseline `now`."""

    root: Configuration
    factors: tuple[Factor, ...]
    now: Choice
    observations: list[Observation]
    failures: list[Failed]
    surface: Surface

    def ahead(self, choice: Choice) -> Outlook:
        return self.surface.outlook(choice, self.now)


def _view(items: Sequence[Item], inside: Sequence[Item], seen: Seen) -> _View | None:
    """None where no launch tells anything of these items."""
    root = _root(seen, inside)
    load = seen.load.on(root) if seen.load is not None else None
    factors = with_what_is_known(factors_of(items, root), set_in(root), load, seen.facts)
    now = choice_of(seen.baseline, root, factors)
    observations, failures = _observed(seen, root, factors)
    if not factors or now is None or not observations:
        return None
    surface = Surface(factors, set_in(root), observations, with_usual(seen.noise) / 100)
    return _View(root, factors, now, observations, failures, surface)


def next_of(fresh: Sequence[Item], inside: Sequence[Item], seen: Seen) -> Looked | None:
    """The next step of a survey of these items; None when there is none to make, or it has come to its end."""
    items = [*inside, *fresh]
    known = surveyed(seen.experiments)
    if not is_open(seen.experiments) and sum(i.id not in known for i in fresh) < FEWEST:
        return None
    view = _view(items, inside, seen)
    if view is None:
        return None
    done, most = _launches_of_this(seen.experiments), launches_wanted(view.factors)
    coming = _worth_looking(view, seen, done) if done < most else None
    if coming is not None:
        choice, gain = coming.choice, math.expm1(coming.expected)
        words = f"launch {done + 1} of at most {most} of the survey, expected to gain {gain:.1%}"
    else:
        choice = _best(view)
        ahead = view.ahead(choice).ahead
        candidate = configuration_at(view.root, view.factors, choice)
        tried = any(e.kind == BUNDLE and e.verdict and e.candidate == candidate for e in seen.experiments)
        if choice == view.now or tried or ahead < WORTH_A_VERDICT * math.log1p(seen.min_effect):
            return None
        words = f"the best of {done} launches of the survey, {math.expm1(ahead):+.1%} by what they gave"
    change = change_at(view.factors, choice)
    return Looked(
        coming is not None, difference(seen.baseline, apply_change(view.root, change)), view.root,
        items_at(view.factors, choice), tuple(i.id for i in items), f"{words}: {describe(change)}",
        view.ahead(choice) if coming is not None else None,
    )  # fmt: skip


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
    view = _view(items, inside, seen)
    if view is None:
        return None
    changes = [(choice_of(apply_change(seen.baseline, c), view.root, view.factors), c) for c in changes_of(item)]
    feasible = _feasible(view)
    found = [
        (choice, change) for choice, change in changes
        if choice is not None and choice != view.now and feasible.chance(choice) > HARDLY
    ]  # fmt: skip
    if not found:
        return None
    outlooks = [view.ahead(choice) for choice, _ in found]
    may_give = [o.ahead + SURELY * o.ahead_sd for o in outlooks]
    top = max(range(len(found)), key=lambda n: (round(may_give[n], 9), -n))
    mine = frozenset().union(*(on(choice) for choice, _ in found)) - on(view.now)
    launches = sum(bool(on(o.choice) & mine) for o in view.observations)
    return Told(found[top][1], outlooks[top].ahead, outlooks[top].ahead_sd, launches)


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
        return Failed(choice, NO_VALID_RUN) if not e.values("candidate") else None
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


def _feasible(view: _View) -> Feasible:
    return Feasible(view.factors, set_in(view.root), view.failures, {o.choice for o in view.observations})


def _worth_looking(view: _View, seen: Seen, done: int) -> Proposal | None:
    """The next combination; None where none can be expected to gain enough."""
    feasible = _feasible(view)
    enough = ENOUGH * math.log1p(seen.min_effect)
    found = propose(
        view.factors, view.surface, view.observations, feasible, seen.seed * 1009 + done,
        lambda choice: not seen.refused(
            change_at(view.factors, choice), configuration_at(view.root, view.factors, choice)
        ),
        enough,
    )  # fmt: skip
    return found if found is not None and found.expected >= enough else None


def _best(view: _View) -> Choice:
    """The measured choice that is expected to be the best."""
    choices = sorted({o.choice for o in view.observations})
    means, _ = view.surface.at(choices)
    return choices[max(range(len(choices)), key=lambda n: (round(float(means[n]), 9), -n))]
