"""What a survey varies: the plan's simple items as factors, each off or at one of a few levels. Pure.

A change of several parts is a factor a part, a range a factor with a few of its values. Factors that set the same flag to
different things are alternatives, and become levels of one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from optagent.agent.canonical import canonical, canonical_configuration, flag_name
from optagent.agent.change import Change, apply_change, merged
from optagent.agent.outcomes import promise_of
from optagent.agent.plan.model import Item, Risk
from optagent.agent.search.proposing import spread_points
from optagent.agent.search.space import at
from optagent.agent.splitting import parts_of
from optagent.agent.survey.foreseen import Foreseen
from optagent.tools.calls.configuration import Configuration, FlagValue

RISK = {Risk.LOW: 0.05, Risk.MEDIUM: 0.12, Risk.HIGH: 0.25}
"""How likely a part of an item of this risk is not to run."""
ONE_AXIS, SEVERAL_AXES = 9, 16
"""Levels at most of an item that names a range, and of one that names several."""

ENVIRONMENT = "environment"
"""Stands among the flags and variables for the serving environment. No flag is called so."""

Choice = tuple[int, ...]
"""The level of each factor, counted from 1; 0: it is as it was without the survey's items."""
Value = FlagValue | None
Names = frozenset[str]


@dataclass(frozen=True)
class Level:
    """One way in which a factor can be on: what it sets, and the items that want it: those that are needed, and its own last.

    `promise` is the gain that the plan promises of it, a fraction (0 where it promises none), `risk` how likely it is not
    to run before it was seen running, `cost` what a launch with it takes, in usual ones. `reach` says how far its settings
    move things beside usual ones; `foreseen` is what the load lets one expect of it, where it does.
    """

    change: Change
    items: tuple[str, ...]
    promise: float = 0.0
    risk: float = 0.0
    cost: float = 1.0
    reach: float = 1.0
    foreseen: Foreseen | None = None


@dataclass(frozen=True)
class Factor:
    """One thing that is off or at one of its levels."""

    levels: tuple[Level, ...]

    @property
    def names(self) -> Names:
        """The flags (by their first names) and variables that any level sets."""
        return frozenset(name for level in self.levels for name in settings(level.change))


def settings(change: Change) -> dict[str, Value]:
    """What the change sets, flags by their first names and in one notation."""
    one = canonical(change)
    found: dict[str, Value] = {**one.flags, **one.env}
    return found | ({ENVIRONMENT: one.environment} if one.environment else {})


def factors_of(items: Sequence[Item], base: Configuration) -> tuple[Factor, ...]:
    """The factors of these items on `base`, in the items' order. An item that needs another one of them brings it along."""
    by_id = {i.id: i for i in items}
    single = [factor for item in items for factor in _of_item(item, base, by_id)]
    before = set_in(base)
    found = (_together(group, before) for group in _sharing_names(single))
    return tuple(factor for factor in found if factor.levels)


def may_join(item: Item) -> bool:
    """Whether the item can be looked at together with others: it sets flags, variables and the environment, nothing else."""
    change = item.change or Change()
    if change.patch or change.files:
        return False
    return bool(change.flags or change.env or change.environment or item.space)


def names_of(item: Item) -> Names:
    """The flags and variables that the item may set."""
    fixed = settings(item.change) if item.change is not None else {}
    return frozenset(fixed) | {flag_name(a.name) if a.kind == "flag" else a.name for a in item.space}


def changes_of(item: Item) -> list[Change]:
    """The item's change; of one that names a range, with a few of its values."""
    fixed = item.change or Change()
    if not item.space:
        return [fixed]
    most = ONE_AXIS if len(item.space) == 1 else SEVERAL_AXES
    return [at(fixed, item.space, point) for point in spread_points(item.space, most)]


def needed_by(item: Item, others: Mapping[str, Item]) -> tuple[Item, ...]:
    """Those of the others that the item needs, directly and through others, each after what it needs itself."""
    found: dict[str, Item] = {}

    def add(one: Item, above: frozenset[str]) -> None:
        for name in one.needs:
            if name in others and name not in above and name not in found:
                add(others[name], above | {name})
                found[name] = others[name]

    add(item, frozenset({item.id}))
    return tuple(found.values())


def _of_item(item: Item, base: Configuration, others: Mapping[str, Item]) -> list[Factor]:
    needed = needed_by(item, others)
    first = merged(i.change for i in needed if i.change is not None)
    ids = (*(i.id for i in needed), item.id)
    promise = sum(promise_of(i) or 0.0 for i in (*needed, item))
    risk = RISK[item.risk]
    if item.space:
        return [Factor(tuple(Level(merged((first, change)), ids, promise, risk) for change in changes_of(item)))]
    parts = [p.change for p in parts_of(item.change or Change(), base)]
    each = promise / len(parts)
    return [Factor((Level(merged((first, part)), ids, each, risk),)) for part in parts]


def _sharing_names(factors: Iterable[Factor]) -> list[list[Factor]]:
    """The factors in groups: those that have a name in common, directly or through others, are in one."""
    groups: list[tuple[set[str], list[Factor]]] = []
    for factor in factors:
        meeting = [g for g in groups if g[0] & factor.names]
        groups = [g for g in groups if g not in meeting]
        names = set(factor.names).union(*(g[0] for g in meeting))
        groups.append((names, [*(f for g in meeting for f in g[1]), factor]))
    return [members for _, members in groups]


def _together(group: Sequence[Factor], before: Mapping[str, Value]) -> Factor:
    """One factor with all levels of the group; what two of them set alike is one level, and what is so already is none."""
    levels: dict[str, Level] = {}
    for level in (level for f in group for level in f.levels):
        sets = settings(level.change)
        if differing := {name: value for name, value in sets.items() if before.get(name) != value}:
            levels.setdefault(repr(sorted(differing.items(), key=repr)), level)
    return Factor(tuple(levels.values()))


def change_at(factors: Sequence[Factor], choice: Choice) -> Change:
    """What is put on the configuration without the survey's items."""
    return merged(f.levels[n - 1].change for f, n in zip(factors, choice, strict=True) if n)


def items_at(factors: Sequence[Factor], choice: Choice) -> tuple[str, ...]:
    """The items of which a part is on."""
    on = (i for f, n in zip(factors, choice, strict=True) if n for i in f.levels[n - 1].items)
    return tuple(dict.fromkeys(on))


def set_in(configuration: Configuration) -> dict[str, Value]:
    """All flags and variables of a configuration, in one notation."""
    one = canonical_configuration(configuration)
    return {**one.flags, **one.env, ENVIRONMENT: one.environment}


def choice_of(configuration: Configuration, root: Configuration, factors: Sequence[Factor]) -> Choice | None:
    """The choice that leads from `root` to the configuration; None when none does."""
    if not same_beside(configuration, root, factors):
        return None
    now, before = set_in(configuration), set_in(root)
    found = []
    for factor in factors:
        level = _level_of(now, before, factor)
        if level is None:
            return None
        found.append(level)
    return tuple(found)


def _level_of(now: Mapping[str, Value], before: Mapping[str, Value], factor: Factor) -> int | None:
    names = factor.names
    mine = {name: now.get(name) for name in names}
    for number, assigned in enumerate(assignments(factor, before)):
        if mine == assigned:
            return number
    return None


def assignments(factor: Factor, before: Mapping[str, Value]) -> list[dict[str, Value]]:
    """What each of the factor's names is, off and at each level, on what was `before`."""
    off: dict[str, Value] = {name: before.get(name) for name in sorted(factor.names)}
    return [off, *({**off, **settings(level.change)} for level in factor.levels)]


def same_beside(configuration: Configuration, root: Configuration, factors: Sequence[Factor]) -> bool:
    """Whether the two differ in nothing but what the factors set."""
    names: Names = frozenset().union(*(f.names for f in factors))
    return _without(configuration, names) == _without(root, names)


def _without(configuration: Configuration, names: Names) -> Configuration:
    one = canonical_configuration(configuration)
    return replace(
        one,
        environment="" if ENVIRONMENT in names else one.environment,
        flags={k: v for k, v in one.flags.items() if k not in names},
        env={k: v for k, v in one.env.items() if k not in names},
    )


def put_back(configuration: Configuration, names: Names, before: Configuration) -> Configuration:
    """The configuration with these flags and variables as they were `before`."""

    def mixed(now: Mapping[str, FlagValue], then: Mapping[str, FlagValue]) -> dict[str, FlagValue]:
        kept = {k: v for k, v in now.items() if flag_name(k) not in names}
        return kept | {k: v for k, v in then.items() if flag_name(k) in names}

    env = {k: v for k, v in configuration.env.items() if k not in names}
    env |= {k: v for k, v in before.env.items() if k in names}
    environment = before.environment if ENVIRONMENT in names else configuration.environment
    return replace(configuration, environment=environment, flags=mixed(configuration.flags, before.flags), env=env)


def difference(base: Configuration, candidate: Configuration) -> Change:
    """The change that leads from one configuration to the other, in flags, variables and environment."""
    flags: dict[str, Value] = {k: None for k in base.flags if k not in candidate.flags}
    env: dict[str, str | None] = {k: None for k in base.env if k not in candidate.env}
    return Change(
        flags=flags | {k: v for k, v in candidate.flags.items() if base.flags.get(k) != v},
        env=env | {k: v for k, v in candidate.env.items() if base.env.get(k) != v},
        environment=candidate.environment if candidate.environment != base.environment else None,
    )


def configuration_at(root: Configuration, factors: Sequence[Factor], choice: Choice) -> Configuration:
    return apply_change(root, change_at(factors, choice))
