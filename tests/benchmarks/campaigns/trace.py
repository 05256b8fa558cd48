"""What a campaign held at which time, and what that comes to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from campaigns.model import Model
from campaigns.space import family
from optagent.tools.calls.configuration import Configuration

REACHED = 0.95
"""Share of the best reachable value at which a campaign has got there."""
NOTHING = 0.001
"""A part of a configuration that gives less than this (as a fraction) gives nothing."""


@dataclass(frozen=True)
class Held:
    """From so many GPU-hours on the campaign would have served with this configuration."""

    gpu_hours: float
    configuration: Configuration


@dataclass(frozen=True)
class Trace:
    """One campaign: what it held in the order of time, what it cost in all, and what went wrong with it."""

    method: str
    seed: int
    held: tuple[Held, ...]
    gpu_hours: float
    launches: int
    runs: int
    failed: int = 0
    ended: str = ""
    problem: str = ""


@dataclass
class Keeper:
    """Notes each time when another configuration is held."""

    held: list[Held] = field(default_factory=list)

    def hold(self, gpu_hours: float, configuration: Configuration) -> None:
        if not self.held or self.held[-1].configuration != configuration:
            self.held.append(Held(gpu_hours, configuration))


@dataclass(frozen=True)
class Goal:
    """What can be reached: the true values of the start and of the best configuration, and the GPU-hours there are."""

    base: float
    best: float
    budget_hours: float


@dataclass(frozen=True)
class Score:
    """How a campaign did. `hours_to_goal` is None when it never got there for good within the budget; `kept` is the share
    of the best reachable gain that the last configuration has; `line` has a share of the best gain for each share of the
    budget that is asked for."""

    kept: float
    gain: float
    hours_to_goal: float | None
    launches: int
    gpu_hours: float
    false_keeps: int
    worse_than_start: bool
    line: tuple[float, ...]


TIMES = (0.05, 0.10, 0.15, 0.20, 0.30, 0.40, 0.60, 0.80, 1.00)
"""Shares of the budget at which it is looked how far a campaign has got."""


def score(trace: Trace, model: Model, goal: Goal) -> Score:
    deployment = model.deployment
    values = [(one.gpu_hours, _value(model, one.configuration, goal)) for one in trace.held]
    last = values[-1][1]
    best_gain = deployment.gain(goal.best, goal.base)

    def share(value: float) -> float:
        return deployment.gain(value, goal.base) / best_gain if best_gain else 1.0

    return Score(
        kept=share(last),
        gain=deployment.gain(last, goal.base),
        hours_to_goal=_got_there(values, model, goal),
        launches=trace.launches,
        gpu_hours=trace.gpu_hours,
        false_keeps=len(useless(model, trace.held[-1].configuration)),
        worse_than_start=deployment.better(goal.base, last),
        line=tuple(share(_at(values, at * goal.budget_hours)) for at in TIMES),
    )


def _value(model: Model, configuration: Configuration, goal: Goal) -> float:
    """The true value; of a configuration that does not serve, one that is as good as nothing."""
    value = model.value(configuration)
    if value is not None:
        return value
    return 0.01 * goal.base if model.deployment.better(2.0, 1.0) else 100 * goal.base


def _got_there(values: Sequence[tuple[float, float]], model: Model, goal: Goal) -> float | None:
    """When the value first reached the goal and did not fall behind it any more."""
    since = None
    for hours, value in values:
        if _is_there(value, model, goal):
            since = hours if since is None else since
        else:
            since = None
    return since if since is not None and since <= goal.budget_hours else None


def _is_there(value: float, model: Model, goal: Goal) -> bool:
    if model.deployment.better(2.0, 1.0):
        return value >= REACHED * goal.best
    return value <= goal.best / REACHED


def _at(values: Sequence[tuple[float, float]], hours: float) -> float:
    return [value for began, value in values if began <= hours][-1]


def useless(model: Model, configuration: Configuration) -> list[str]:
    """The parts of a configuration without which it is no worse: what was kept for nothing, or to its harm."""
    base, deployment = model.deployment.base, model.deployment
    value = model.value(configuration)
    if value is None:
        return []
    groups: dict[str, set[str]] = {}
    for name in _differing(base.flags, configuration.flags):
        groups.setdefault(f"--{family(name)}", set()).add(name)
    for name in _differing(base.env, configuration.env):
        groups.setdefault(name, set()).add(name)
    found = []
    for group, names in groups.items():
        without = replace(
            configuration,
            flags=_put_back(configuration.flags, base.flags, names),
            env=_put_back(configuration.env, base.env, names),
        )
        other = model.value(without)
        if other is not None and deployment.gain(value, other) < NOTHING:
            found.append(group)
    return sorted(found)


def _differing(one: dict, other: dict) -> list[str]:  # type: ignore[type-arg]
    return [name for name in {**one, **other} if one.get(name) != other.get(name)]


def _put_back(now: dict, before: dict, names: set[str]) -> dict:  # type: ignore[type-arg]
    kept = {name: value for name, value in now.items() if name not in names}
    return kept | {name: before[name] for name in names if name in before}
