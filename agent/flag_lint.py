"""A change's flags held against the installed server's own help and against what is known, before a launch is spent.

A finding refuses the change, or warns of it. What a change of the source may bring along is never refused, and neither
is what the baseline runs with already: both are better evidence than a table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from optagent.agent.change import Change, apply_change
from optagent.agent.flag_combinations import DOUBTFUL, EXCLUDED, WITHOUT_EFFECT, Setup, setup_of
from optagent.agent.flag_facts import (
    HIDDEN,
    LOOKED_UP,
    RENAMED,
    UNREAD,
    VALUE_OPTIONAL,
    Renamed,
    canonical,
    related,
)
from optagent.agent.flag_fit import misfits
from optagent.agent.principles import PrinciplesLike, conflicts
from optagent.tools.calls.configuration import Configuration, FlagValue, flag_arguments
from optagent.tools.calls.server import FlagsListed, FlagTold

Severity = Literal["refuse", "warn"]
SHOWN = 6
"""How many names or values a finding lists."""
_GIVEN_APART = frozenset({"host", "port"})  # from the deployment's own settings, whatever the flags say


@dataclass(frozen=True)
class Finding:
    severity: Severity
    text: str


@dataclass(frozen=True)
class Case:
    """What the rules look at. `facts` are the facts about the machine that conditions speak of."""

    base: Configuration
    candidate: Configuration
    change: Change
    told: Mapping[str, FlagTold]
    version: str | None
    facts: Mapping[str, str] = field(default_factory=dict)
    principles: PrinciplesLike | None = None

    @property
    def server(self) -> str:
        return f"the installed server ({self.version})" if self.version else "the installed server"

    @property
    def elsewhere(self) -> bool:
        """Whether the candidate runs on another environment, so that the baseline's flags are new to its server."""
        return self.candidate.environment != self.base.environment

    def changed(self) -> dict[str, FlagValue]:
        """The flags of the candidate that the change is answerable for."""
        mine, before = self.candidate.flags, self.base.flags
        return {
            name: value
            for name, value in mine.items()
            if name not in _GIVEN_APART and (self.elsewhere or name not in before or _differ(before[name], value))
        }


FlagRule = Callable[[str, FlagValue, Case], Iterator[Finding]]


def names_to_ask(*configurations: Configuration) -> list[str]:
    """The flags about which the server has to be asked so that `configurations` can be judged, sorted."""
    given = [(name, value) for c in configurations for name, value in c.flags.items()]
    names = {name for name, _ in given}
    names |= {other for name, _ in given for other in related(name)}
    names |= {f"no-{name}" for name, value in given if value is False}
    return sorted(names)


def lint(
    base: Configuration,
    change: Change,
    listed: FlagsListed,
    facts: Mapping[str, str] | None = None,
    principles: PrinciplesLike | None = None,
) -> list[Finding]:
    """What is wrong, or to be known, about `change` put on `base`: refusals first, each text once.

    `listed` is what the candidate's own server says about `names_to_ask(base, candidate)`.
    """
    candidate = apply_change(base, change)
    case = Case(base, candidate, change, listed.flags or {}, listed.version, facts or {}, principles)
    found = {*_of_flags(case), *_of_the_whole(case)}
    return sorted(found, key=lambda f: (f.severity != "refuse", f.text))


def refused_flag(baseline: Configuration, listed: FlagsListed) -> tuple[str, str] | None:
    """The first flag of a baseline that never ran which its server's own help refuses, with why. What tables say of it is
    for its owner to know: only a change has to be worth its launch.

    `listed` is what the server says about `names_to_ask(baseline)`.
    """
    change = Change(flags=dict(baseline.flags))
    nothing = Configuration(baseline.environment, env=baseline.env)
    case = Case(nothing, baseline, change, listed.flags or {}, listed.version)
    for name, value in case.changed().items():
        for rule in FLAG_RULES:
            for finding in rule(name, value, case):
                if finding.severity == "refuse":
                    return name, finding.text
    return None


def is_of(version: str | None, releases: str) -> bool:
    """Whether the version is one of `releases` (a specifier such as `>=0.5.23,<0.5.24`); False when it is not known."""
    try:
        return version is not None and SpecifierSet(releases).contains(Version(version), prereleases=True)
    except InvalidVersion:
        return False


def _of_flags(case: Case) -> Iterator[Finding]:
    for name, value in case.changed().items():
        for rule in FLAG_RULES:
            for finding in rule(name, value, case):
                yield _mildly(finding) if _excused(rule, name, case) else finding
        for rule in (*WASTED, _hides_a_principle):
            yield from rule(name, value, case)


def _excused(rule: FlagRule, name: str, case: Case) -> bool:
    """Whether the baseline runs with the same flaw, or a patch may make up for it."""
    if case.change.patch:
        return True
    before = case.base.flags.get(name)
    return before is not None and not case.elsewhere and any(True for _ in rule(name, before, case))


def _mildly(finding: Finding) -> Finding:
    return Finding("warn", finding.text)


def _known(name: str, value: FlagValue, case: Case) -> Iterator[Finding]:
    told = case.told.get(name)
    if value is False or told is None or told.known or name in HIDDEN:
        return
    now = _other_name(name, case)
    if len(told.begins) == 1:
        meant = not now or told.begins[0] in related(name)
        how = "write the full name" if meant else now
        yield Finding("warn" if meant else "refuse", f"--{name} is taken as --{told.begins[0]}: {how}")
    elif len(told.begins) > 1:
        could = _list([f"--{n}" for n in told.begins], "or")
        yield Finding("refuse", f"--{name} could be {could}: the server would exit with 2{now and f'; {now}'}")
    else:
        similar = _list([f"--{n}" for n in told.similar], "or")
        did_you_mean = now or (f"did you mean {similar}?" if similar else "")
        text = f"{case.server} does not know --{name}"
        yield Finding("refuse", f"{text}; {did_you_mean}" if did_you_mean else text)


def _other_name(name: str, case: Case) -> str:
    """What the server at hand calls a flag that was renamed; "" when it was not, or is not known there either way."""
    for row in RENAMED:
        other = row.new if row.old == name else row.old if row.new == name else ""
        if other and other in case.told and case.told[other].known:
            return _renamed(row, name)
    return ""


def _renamed(row: Renamed, name: str) -> str:
    return f"it is now --{row.instead or row.new}" if row.old == name else f"it is still --{row.old} there"


def _retired(name: str, value: FlagValue, case: Case) -> Iterator[Finding]:
    told = case.told.get(name)
    if value is False or told is None or not told.deprecated:
        return
    gone = told.deprecated.lstrip("([").lower().startswith("removed")
    yield Finding("refuse" if gone else "warn", f'--{name}: the server\'s help says "{told.deprecated}"')


def _shape(name: str, value: FlagValue, case: Case) -> Iterator[Finding]:
    told = case.told.get(name)
    if told is None or not (told.known or len(told.begins) == 1) or value is False:
        return
    if told.switch and value is not True:
        yield Finding("refuse", f"--{name} is a switch and takes no value, but is given {str(value)[:40]!r}")
    full = name if told.known else told.begins[0]
    if not told.switch and value is True and full not in VALUE_OPTIONAL:
        yield Finding("refuse", f"--{name} needs a value, and is given none")


def _choices(name: str, value: FlagValue, case: Case) -> Iterator[Finding]:
    told = case.told.get(name)
    if told is None or told.choices is None or isinstance(value, bool):
        return
    if str(value) not in told.choices and not any(_same_number(value, choice) for choice in told.choices):
        takes = _list(told.choices, "or")
        yield Finding("refuse", f"--{name} {str(value)[:40]}: {case.server} takes {takes}")


def _same_number(value: FlagValue, choice: str) -> bool:
    try:
        return float(value) == float(choice)
    except (ValueError, OverflowError):
        return False


FLAG_RULES: tuple[FlagRule, ...] = (_known, _retired, _shape, _choices)


def _unread(name: str, value: FlagValue, case: Case) -> Iterator[Finding]:
    for row in UNREAD:
        if row.flag == _full(name, case) and value is not False and is_of(case.version, row.of):
            severity: Severity = "warn" if case.change.patch else "refuse"
            yield Finding(severity, f"nothing reads --{row.flag} in SGLang {case.version}: a trial of it is wasted")


def _left_out(name: str, value: FlagValue, case: Case) -> Iterator[Finding]:
    if value is not False or case.elsewhere or case.base.flags.get(name, False) is not False:
        return
    off = case.told.get(f"no-{name}")
    way = f"; --no-{name} is what switches it off" if off is not None and off.known else ""
    yield Finding("warn", f"--{name} false only leaves the flag out, which the baseline does already{way}")


def _on_this_hardware(name: str, value: FlagValue, case: Case) -> Iterator[Finding]:
    model = str(case.candidate.flags.get("model-path", ""))
    for text in misfits(canonical(_full(name, case)), value, case.facts, model):
        yield Finding("warn", text)


def _from_a_file(name: str, value: FlagValue, case: Case) -> Iterator[Finding]:
    if name == "config" and value is not False:
        yield Finding(
            "warn", "--config: the flags in that file are not checked, neither here nor against the principles"
        )


WASTED: tuple[FlagRule, ...] = (_unread, _left_out, _on_this_hardware, _from_a_file)
"""Rules for which it says nothing that the baseline runs with the flag as well."""


def _hides_a_principle(name: str, value: FlagValue, case: Case) -> Iterator[Finding]:
    """An abbreviation that the server would take for a flag which the owner has to be asked about."""
    full = _full(name, case)
    if full == name or case.principles is None:
        return
    for broken in conflicts(Change(flags={full: value}), case.principles, case.base):
        yield Finding("refuse", f"--{name} is taken as --{full}: write the full name, since {broken}")


def _full(name: str, case: Case) -> str:
    """The flag that the server takes a name for."""
    told = case.told.get(name)
    return told.begins[0] if told is not None and not told.known and len(told.begins) == 1 else name


def _of_the_whole(case: Case) -> Iterator[Finding]:
    before, after = setup_of(case.base, case.told), setup_of(case.candidate, case.told)
    yield from _given_twice(case)
    looked_up = is_of(case.version, LOOKED_UP)
    for exclusion in EXCLUDED:
        said, earlier = exclusion(after), exclusion(before)
        if said and (case.elsewhere or said != earlier):
            blamed = case.elsewhere or not earlier
            yield _judged(said, looked_up and blamed and not case.change.patch, looked_up)
    for rules, certain in ((WITHOUT_EFFECT, True), (DOUBTFUL, False)):
        for name, rule in rules:
            said = rule(after) if _is_on(name, after) else ""
            if said and (case.elsewhere or not _is_on(name, before) or said != rule(before)):
                mine = _value(name, after) != _value(name, before)
                yield _judged(said, certain and looked_up and mine and not case.change.patch, looked_up)


def _given_twice(case: Case) -> Iterator[Finding]:
    names: dict[str, list[str]] = {}
    for name, value in case.candidate.flags.items():
        if value is not False:
            names.setdefault(canonical(_full(name, case)), []).append(name)
    for same in names.values():
        if len(same) > 1 and not case.changed().keys().isdisjoint(same):
            yield Finding("warn", f"{_list(sorted(f'--{n}' for n in same), 'and')} are one flag: the last one counts")


def _judged(said: str, refused: bool, looked_up: bool) -> Finding:
    known_of = "" if looked_up else " (so it is in SGLang 0.5.23)"
    return Finding("refuse" if refused else "warn", said + known_of)


def _is_on(name: str, setup: Setup) -> bool:
    return setup.variable(name) if name.isupper() else setup.has(name)


def _value(name: str, setup: Setup) -> FlagValue | None:
    return setup.env.get(name) if name.isupper() else setup.flags.get(name)


def _differ(one: FlagValue, other: FlagValue) -> bool:
    """Whether the two are other words on a command line."""
    return flag_arguments({"": one}) != flag_arguments({"": other})


def _list(names: Sequence[str], last: str) -> str:
    """Names as a person would list them, the first few of many."""
    shown = [n[:60] for n in names[:SHOWN]]
    if len(names) > SHOWN:
        return f"{', '.join(shown)} or one of {len(names) - SHOWN} more"
    return f" {last} ".join(filter(None, (", ".join(shown[:-1]), *shown[-1:])))
