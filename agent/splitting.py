"""A change that bundles several things, taken apart: into which parts, when, and the items that come of it. Pure.

A bundle that failed or surprised says nothing about its parts. They are tried apart under ids of their own, `item~part`,
which stand right behind the item; the plan's document is not changed by it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from optagent.agent.bundling import Bundle
from optagent.agent.canonical import canonical, canonical_configuration, equal, flag_name
from optagent.agent.change import Change, apply_change, describe, merged
from optagent.agent.dead_ends import blame_failure, says_nothing
from optagent.agent.flag_combinations import EXCLUDED, WITHOUT_EFFECT, Setup, setup_of
from optagent.agent.part_ids import PART, root_of
from optagent.agent.plan.model import Item, Status
from optagent.agent.records import DeadEnd, Part, Split, SplitPart
from optagent.agent.verdict import Verdict
from optagent.tools.calls.configuration import Configuration

if TYPE_CHECKING:
    from optagent.agent.experiments import Experiment
    from optagent.agent.verdict import Judgement

LONGEST_NAME, LONGEST_TITLE, LONGEST_REASON = 48, 160, 300

_GROUPS = (
    ("speculative", re.compile(r"speculative-|uno-lora-path\Z|enable-multi-layer-eagle\Z")),
    ("lora", re.compile(r"(?:\A|-)loras?(?:-|\Z)")),
    ("hicache", re.compile(r"hicache-|enable-hierarchical-cache\Z")),
    ("disaggregation", re.compile(r"disaggregation-")),
    ("torch-compile", re.compile(r"(?:\A|-)torch-compile(?:-|\Z)")),
    (
        "layout",
        re.compile(
            r"(?:tp|dp|pp|ep|attn-dp|attn-cp|moe-dp|moe-dense-tp)-size\Z|enable-dp-(?:attention|lm-head)\Z|moe-a2a-backend\Z"
        ),
    ),
)
"""Flags that are of one feature, by their first names: one of them alone is no trial of it."""


# The parts


def parts_of(change: Change, base: Configuration | None = None) -> tuple[Part, ...]:
    """The parts of a change, in its own order; put together they are the change again.

    Flags of one feature stay together, and so do flags and variables of which one is refused or without effect when the
    other is missing (on `base`; on a bare configuration without it). Every other flag, every variable and file, the patch
    and the environment is a part of its own.
    """
    units = _needed_together(_units(change), base or Configuration(""))
    return tuple(Part(describe(unit), None, unit) for unit in units)


def _units(change: Change) -> list[Change]:
    flags: dict[str, dict[str, bool | int | float | str | None]] = {}
    for name, value in change.flags.items():
        flags.setdefault(_group(name) or flag_name(name), {})[name] = value
    units = [Change(flags=group) for group in flags.values()]
    units += [Change(env={name: value}) for name, value in change.env.items()]
    units += [Change(files={path: text}) for path, text in change.files.items()]
    units += [Change(patch=change.patch)] if change.patch else []
    return units + ([Change(environment=change.environment)] if change.environment else [])


def _group(name: str) -> str:
    first = flag_name(name)
    return next((group for group, names in _GROUPS if names.search(first)), "")


def _needed_together(units: Sequence[Change], base: Configuration) -> list[Change]:
    left = list(units)
    while (found := _needing(left, base)) is not None:
        first, *others = sorted(found)
        left[first] = merged(left[i] for i in (first, *others))
        left = [unit for i, unit in enumerate(left) if i not in others]
    return left


def _needing(units: Sequence[Change], base: Configuration) -> set[int] | None:
    """The indices of units of which one does not go without the others; None when each goes alone."""
    settings = [i for i, unit in enumerate(units) if unit.flags or unit.env]
    if len(settings) < 2:
        return None
    excused = complaints(base, []) | complaints(base, units)
    for i in settings:
        for rule in sorted(complaints(base, [units[i]]) - excused):
            others = [j for j in settings if j != i]
            company = next((j for j in others if rule not in complaints(base, [units[i], units[j]])), None)
            return {i, company} if company is not None else set(settings)
    return None


def complaints(base: Configuration, units: Iterable[Change]) -> set[int]:
    """The rules, by number, that have something against the units put on the base: that it excludes itself, or that one of
    its settings has no effect."""
    setup = setup_of(apply_change(base, merged(units)), {})
    found = {n for n, rule in enumerate(EXCLUDED) if rule(setup)}
    return found | {
        len(EXCLUDED) + n for n, (name, rule) in enumerate(WITHOUT_EFFECT) if _is_on(name, setup) and rule(setup)
    }


def _is_on(name: str, setup: Setup) -> bool:
    return setup.variable(name) if name.isupper() else setup.has(name)


# When


def split_wanted(
    experiment: Experiment | None,
    item: Item,
    dead_ends: Sequence[DeadEnd],
    judged: Judgement | None,
    base: Configuration | None = None,
) -> str | None:
    """Why the item's change is to be taken apart; None when it is not.

    Before a launch (without an experiment) a change is when one of its parts is known to fail: `dead_ends` are those that
    it runs into and that are not its own. After one, when it failed, when its output was not right, or when what it gained
    is not what the plan promised.
    """
    change, base = (experiment.change, experiment.base) if experiment is not None else (item.change, base)
    if change is None or item.space or len(parts_of(change, base)) < 2:
        return None
    if experiment is None or judged is None:
        known = next((d for d in dead_ends if d.change is not None), None)
        return f"{_short(known.title, 80)} is known to fail: {_short(known.cause, 160)}" if known else None
    if experiment.removal or (experiment.failures and _is_no_fault(experiment, judged)):
        return None
    return _surprise(experiment, item, judged)


def _is_no_fault(experiment: Experiment, judged: Judgement) -> bool:
    return judged.verdict in (Verdict.FAILED, Verdict.INVALID) and says_nothing(experiment.failures[-1])


def _surprise(experiment: Experiment, item: Item, judged: Judgement) -> str | None:
    promised = item.expected_gain
    if judged.verdict is Verdict.FAILED:
        return f"{experiment.id} failed, and which part is to blame is not known of a bundle"
    if judged.verdict is Verdict.INVALID:
        at_the_gate = bool(experiment.failures) and experiment.failures[-1].stage == "gate"
        return (
            f"{experiment.id} did not pass the gate, and which part is to blame is not known" if at_the_gate else None
        )
    if promised is None:
        return None
    if judged.verdict is Verdict.REVERT and promised[1] > 0:
        return f"{experiment.id} gained nothing where {_range(promised)} was promised: one part may hide another's gain"
    if judged.verdict is not Verdict.KEEP or judged.low is None or judged.high is None:
        return None
    if judged.low > promised[1]:
        return f"{experiment.id} gained more than the {_range(promised)} that was promised"
    return (
        f"{experiment.id} gained less than the {_range(promised)} that was promised"
        if judged.high < promised[0]
        else None
    )


def _range(promised: tuple[float, float]) -> str:
    return f"{promised[0]:.1%} to {promised[1]:.1%}"


# What comes of it


@dataclass(frozen=True)
class Apart:
    """What became of a bundle: the items that it was split into (None when nothing is left to try), and the part that the
    failure is blamed on, with an id that is free for its dead end."""

    split: Split | None
    blamed: Part | None = None
    blamed_id: str = ""


Settled = Callable[[Change], bool]
"""Whether a change was kept, is dead or stands in the plan elsewhere, so that it is not tried again as a part."""


def take_apart(
    experiment: Experiment,
    item: Item,
    judged: Judgement,
    dead_ends: Sequence[DeadEnd],
    settled: Settled,
    taken: Collection[str] = (),
) -> Apart | None:
    """The item's change after its verdict; None when it stays whole. `taken` are ids that are given already."""
    because = split_wanted(experiment, item, dead_ends, judged)
    if because is None:
        return None
    base, change = experiment.base, experiment.change
    parts = parts_of(change, base)
    if judged.verdict is Verdict.KEEP:
        able = [p.change for p in parts if not (p.change.files or p.change.patch or p.change.environment)]
        tried = [c for c in able if not settled(c)]
        return Apart(_split(item, change, tried, because, taken, experiment.id, kept=True)) if tried else None
    blamed, words = None, ""
    if judged.verdict is Verdict.FAILED and experiment.failures:
        found = blame_failure(parts, experiment.failures[-1])
        blamed, words = found.part, found.because
    if blamed is not None:
        because = f"{experiment.id} failed because of {blamed.title}: {words}"
        left = [merged(p.change for p in parts if p is not blamed)]
    else:
        left = [p.change for p in parts]
    left = [c for c in left if not settled(c) and not _does_nothing(c, base)]
    if not left and blamed is None:
        return None
    name = f"without-{_name(blamed.change)}" if blamed is not None and len(parts) > 2 else ""
    split = _split(item, change, left, because, taken, experiment.id, name=name) if left else None
    ids = {*taken, *(p.id for p in split.parts)} if split else set(taken)
    return Apart(split, blamed, _free(_part_id(item.id, blamed.change), ids) if blamed else "")


def split_ahead(
    item: Item,
    known: Sequence[DeadEnd],
    settled: Settled,
    base: Configuration | None = None,
    taken: Collection[str] = (),
) -> Split | None:
    """The item without the parts that are known to fail, before anything is launched; None when nothing would be left.

    `known` are dead ends that bind, that the item's change runs into, and that are not its own.
    """
    because = split_wanted(None, item, known, None, base)
    if because is None or item.change is None:
        return None
    parts = parts_of(item.change, base)
    names = set().union(*(_settings(d.change) for d in known if d.change is not None))
    dead = [p.change for p in parts if _settings(p.change) & names]
    rest = merged(p.change for p in parts if not _settings(p.change) & names)
    if not dead or rest.empty or settled(rest) or (base is not None and _does_nothing(rest, base)):
        return None
    name = f"without-{_name(dead[0])}" if len(parts) - len(dead) > 1 else ""
    return _split(item, item.change, [rest], because, taken, name=name)


def settled_elsewhere(
    item: str, experiments: Iterable[Experiment], dead_ends: Iterable[DeadEnd], items: Iterable[Item]
) -> Settled:
    """Tells whether a change was kept by itself, failed or was reverted by itself, or is another item's own."""
    kept = [e.change for e in experiments if e.verdict == Verdict.KEEP and e.item not in (None, item) and not e.removal]
    dead = [d.change for d in dead_ends if d.change is not None and item not in (d.item, d.id)]
    own = [i.change for i in items if i.change is not None and i.id != item and not i.space]
    known = [*kept, *dead, *own]
    return lambda change: any(equal(change, other) for other in known)


def _does_nothing(change: Change, base: Configuration) -> bool:
    """Whether the base is as the change would have it already."""
    if change.patch:
        return False
    return canonical_configuration(apply_change(base, canonical(change))) == canonical_configuration(base)


def _settings(change: Change) -> set[str]:
    """What the change touches, by names that are equal for equal things."""
    c = canonical(change)
    names = {f"--{n}" for n in c.flags} | set(c.env) | {f"file {n}" for n in c.files}
    return names | ({f"patch {c.patch}"} if c.patch else set()) | ({"environment"} if c.environment else set())


def _split(
    item: Item,
    change: Change,
    changes: Sequence[Change],
    because: str,
    taken: Collection[str],
    experiment: str = "",
    *,
    name: str = "",
    kept: bool = False,
) -> Split:
    ids: list[str] = []
    for c in changes:
        wanted = f"{root_of(item.id)}{PART}{name}" if name else _part_id(item.id, c)
        ids.append(_free(wanted, {*taken, *ids}))
    parts = tuple(
        SplitPart(i, f"{_short(item.title, 80)}: {_short(describe(c), LONGEST_TITLE - 90)}", c)
        for i, c in zip(ids, changes, strict=True)
    )
    return Split(item.id, parts, _short(because, LONGEST_REASON), change, experiment, kept)


def _free(name: str, taken: Collection[str]) -> str:
    count, free = 1, name
    while free in taken:
        count += 1
        free = f"{name}-{count}"
    return free


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1].rstrip()}…"


def _part_id(item: str, part: Change) -> str:
    return f"{root_of(item)}{PART}{_name(part)}"


def _name(change: Change) -> str:
    """A short name of what the change does first, made of letters, digits, dots and dashes."""
    for name in change.flags:
        return _group(name) or _slug(flag_name(name))
    for name in (*change.env, *change.files):
        return _slug(name)
    if change.patch:
        return _slug(change.patch.rpartition("/")[2].removesuffix(".diff").removesuffix(".patch"))
    return _slug(f"environment-{change.environment or ''}")


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-.")[:LONGEST_NAME] or "part"


# The items


def concerns(split: Split | None, item: Item) -> bool:
    """Whether the split was made of what the item says now. An item that its owner has edited since is whole again."""
    return split is not None and item.change is not None and not item.space and equal(split.change, item.change)


def with_parts(items: Iterable[Item], splits: Mapping[str, Split], dropped: Callable[[Item], bool]) -> list[Item]:
    """The items, each with the parts that it was split into right behind it; without those of items that are `dropped`."""
    found: list[Item] = []
    for item in items:
        found.append(item)
        split = splits.get(item.id)
        if split is not None and concerns(split, item) and not dropped(item):
            others = {k: v for k, v in splits.items() if k != item.id}
            found += with_parts(_derived(split, item), others, dropped)
    return found


def _derived(split: Split, parent: Item) -> list[Item]:
    """The parts as items: what the parent needs, risks and asks for, and at most its gain."""
    most = parent.expected_gain[1] if parent.expected_gain is not None else 0.0
    gain = (0.0, most) if most > 0 else None
    return [
        replace(
            parent, id=p.id, title=p.title, prose="", status=Status.OPEN, change=p.change, space=(),
            expected_gain=gain, result="",
        )
        for p in split.parts
        if p.id != parent.id
    ]  # fmt: skip


def kept_together(splits: Mapping[str, Split], experiments: Mapping[str, Experiment]) -> tuple[Bundle, ...]:
    """Kept changes that surprised, as bundles: each of their parts is taken out again, to see whether it is missed."""
    return tuple(
        Bundle(s.experiment, tuple(p.id for p in s.parts), True, experiments[s.experiment].base)
        for s in splits.values()
        if s.kept and s.experiment in experiments
    )
