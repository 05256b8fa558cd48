"""Dead ends: when a failed change is one, what would make it worth another look, and which change is to blame."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from optagent.agent.canonical import canonical, equal, flag_name, present_flag, variable
from optagent.agent.change import Change, describe
from optagent.agent.conditions import WORKLOAD, Term, conjunction, holds, parse_condition
from optagent.agent.records import DeadEnd, Part
from optagent.tools.calls.configuration import FlagValue

if TYPE_CHECKING:
    from optagent.agent.experiments import Failure
    from optagent.tools.calls.logs import Cause, LogReading


def is_same_or_more(change: Change, dead: Change, release: str | None = None) -> bool:
    """Whether `change` does all that the dead change did (and perhaps more), however the two are written.

    With the `release` of the server, a flag's retired name and its new one count as one where that release has the new one.
    """
    return _covers(canonical(change), _flags(change, release), dead, release)


def _flags(change: Change, release: str | None) -> dict[str, FlagValue | None]:
    return dict(present_flag(name, value, release) for name, value in change.flags.items())


def _covers(mine: Change, flags: Mapping[str, FlagValue | None], dead: Change, release: str | None) -> bool:
    """The same for a change in its one form, and its flags as the release writes them. Ends at the first difference."""
    if dead.empty:
        return False
    wanted: dict[str, FlagValue | None] = {}
    for name, value in dead.flags.items():
        name, value = present_flag(name, value, release)
        if name not in flags:
            return False
        wanted[name] = value
    if any(flags[name] != value for name, value in wanted.items()):
        return False
    if any(k not in mine.env or mine.env[k] != variable(v) for k, v in dead.env.items()):
        return False
    if not (dead.files or dead.patch or dead.environment):
        return True
    rest = canonical(Change(files=dead.files, patch=dead.patch, environment=dead.environment))
    return (
        all(mine.files.get(k) == v for k, v in rest.files.items())
        and rest.patch in (None, mine.patch)
        and rest.environment in (None, mine.environment)
    )


def matching(
    change: Change | None, item: str | None, dead_ends: Sequence[DeadEnd], release: str | None = None
) -> list[DeadEnd]:
    """The dead ends that this item, or this change, runs into. `release` as in `is_same_or_more`; it says nothing about
    changes that were refused for how they were written."""
    mine = canonical(change) if change is not None else None
    plain, present = (_flags(mine, None), _flags(mine, release)) if mine is not None else ({}, {})

    def met_by(dead_end: DeadEnd) -> bool:
        if mine is None or dead_end.change is None:
            return False
        if dead_end.cause_kind == "config-error":
            return _covers(mine, plain, dead_end.change, None)
        return _covers(mine, present, dead_end.change, release)

    return [d for d in dead_ends if (item is not None and d.item == item) or met_by(d)]


def is_of(dead_end: DeadEnd, item: str, change: Change | None) -> bool:
    """Whether the dead end is the item's own: recorded for it, or for exactly its change."""
    if dead_end.item == item:
        return True
    return change is not None and dead_end.change is not None and equal(dead_end.change, change)


def worth_another_look(dead_end: DeadEnd, facts: Mapping[str, str]) -> bool:
    """Whether the condition of a dead end is met now. Without a condition, or with an unknown fact, it is not."""
    return dead_end.retry_when is not None and met(dead_end.retry_when, facts)


def met(condition: str, facts: Mapping[str, str]) -> bool:
    """Whether the condition is known to hold; one that cannot be read does not."""
    try:
        return holds(parse_condition(condition), facts) is True
    except ValueError:
        return False


SLOW = "slow"
"""The kind of a dead end that ran and gained nothing."""
_ARCHITECTURE_KINDS = frozenset({"unsupported-arch", "allreduce-unsupported", "attention-backend-unsupported"})
_MEMORY_KINDS = frozenset({"gpu-oom-weights", "gpu-oom-pool", "gpu-oom-graph-capture", "gpu-oom-runtime"})
_PACKAGE_KINDS = frozenset(
    {"package-mismatch", "model-unsupported", "graph-capture-incompatible", "illegal-memory-access"}
)


def retry_condition(kind: str, facts: Mapping[str, str]) -> str | None:
    """What would have to change for a failure of this kind to be worth another look, as a condition on facts.

    Missing kernels for an architecture come with the next CUDA major version, room comes with larger GPUs, a defect of
    the server goes away with another release of it, and what gains nothing under one workload may gain under another;
    None when nothing of the kind can be said.
    """
    if kind in _ARCHITECTURE_KINDS and (major := re.match(r"\d+", facts.get("cuda", ""))):
        return f"cuda>={int(major[0]) + 1}"
    if kind in _MEMORY_KINDS and (size := facts.get("gpu.memory_gb")):
        return f"gpu.memory_gb>{size}"
    if kind in _PACKAGE_KINDS and (release := facts.get("sglang")):
        return f"sglang>{release}"
    if kind == SLOW and (workload := facts.get(WORKLOAD)):
        return f"{WORKLOAD}!={workload}"
    return None


def with_earlier(condition: str | None, earlier: str | None) -> str | None:
    """The condition of a change that was tried under another workload before: that workload is none to try it under again."""
    if condition is None or earlier is None:
        return condition
    now, before = _terms(condition), _terms(earlier)
    if not any(_is_other_workload(t) for t in now):
        return condition
    return conjunction([*now, *(t for t in before if _is_other_workload(t) and t not in now)])


def _terms(condition: str) -> list[Term]:
    try:
        return list(parse_condition(condition).terms)
    except ValueError:
        return []


def _is_other_workload(term: Term) -> bool:
    return (term.fact, term.operator) == (WORKLOAD, "!=")


def of_software(condition: str | None) -> bool:
    """Whether a condition speaks of what an environment brings along, and of neither the machine nor the workload."""
    facts = [t.fact for t in _terms(condition or "")]
    return bool(facts) and not any(f.startswith(("gpu.", "compute_capability", WORKLOAD)) for f in facts)


PASSING = frozenset({"port-in-use", "peer-died", "download-failed", "environment"})
"""Kinds of failures that another try may not meet again."""


def says_nothing(failure: Failure) -> bool:
    """Whether the failure says nothing about the change: the baseline's own, or one that another try may not meet."""
    return failure.arm == "baseline" or (failure.kind in PASSING and failure.stage == "launch")


_MEMORY_FLAG = "mem-fraction-static"


def no_value_works(change: Change, kind: str, earlier: Sequence[tuple[Change, str]]) -> str | None:
    """Why another value of the same memory setting cannot help either; None when it may.

    `earlier` are changes that failed before, each with its kind of cause. When one value leaves no room for the weights
    and another none for what comes after them, the room between the two is empty.
    """
    if not any(flag_name(name) == _MEMORY_FLAG for name in change.flags):
        return None
    for other, cause in earlier:
        value = next((v for name, v in other.flags.items() if flag_name(name) == _MEMORY_FLAG), None)
        if value is not None and {kind, cause} & {"memory-fraction-too-low"} and {kind, cause} & _MEMORY_KINDS:
            return (
                f"--{_MEMORY_FLAG} {value} failed the other way round ({cause}): no value works, "
                "so fewer tokens, a shorter context or more memory are needed"
            )
    return None


@dataclass(frozen=True)
class Blame:
    """Which part of a bundle a failure points to. `part` is None when it cannot be told from the evidence."""

    part: Part | None
    because: str


def blame(parts: Sequence[Part], cause: Cause | None) -> Blame:
    """The part whose own words stand in the evidence of the failure. Words that several parts share count for none."""
    if cause is None:
        return Blame(None, "the log names no cause")
    return blame_words(parts, " ".join([cause.summary, *(e.text for e in cause.evidence)]))


def blame_failure(parts: Sequence[Part], failure: Failure) -> Blame:
    """The same for a failure as it stands in the journal. A patch or an environment that cannot be prepared is the part
    that brings it."""
    if failure.stage == "prepare":
        own = [p for p in parts if (p.change.patch if failure.kind == "patch" else p.change.environment)]
        if len(own) == 1:
            return Blame(own[0], "it could not be prepared")
    evidence = [_PLACE.sub("", line) for line in failure.evidence]
    return blame_words(parts, " ".join([failure.summary, *evidence]))


_PLACE = re.compile(r"\A\S{1,300}:\d{1,9}: ")
"""Where a line of evidence stands, in front of what it says."""


def blame_words(parts: Sequence[Part], words_of_failure: str) -> Blame:
    """The part whose own words stand in `words_of_failure`."""
    if len(parts) == 1:
        return Blame(parts[0], "it was the only change")
    text = words_of_failure.lower()
    for says, settings, about in _SPEAKS_OF:
        meant = [p for p in parts if any(re.fullmatch(settings, flag_name(name)) for name in p.change.flags)]
        if says in text and len(meant) == 1:
            return Blame(meant[0], f"{says!r} is about {about}")
    words = [_words(part.change) for part in parts]
    found = []
    for index, mine in enumerate(words):
        others = set().union(*(w for i, w in enumerate(words) if i != index))
        found.append(sorted(w for w in mine - others if _speaks_of(text, w)))
    best = max(range(len(parts)), key=lambda i: len(found[i]))
    if not found[best] or sum(len(f) == len(found[best]) for f in found) > 1:
        return Blame(None, "the evidence does not tell the changes apart")
    return Blame(parts[best], f"its evidence speaks of {', '.join(found[best][:4])}")


def _speaks_of(text: str, word: str) -> bool:
    """Whether the text has the word, in any of its forms, or the flag's name, which is not part of a longer one."""
    begins = r"(?<![a-z0-9])(?<![a-z0-9][-_])" if "-" in word or "_" in word else r"(?<![a-z])"
    ends = r"(?![a-z0-9])(?![-_][a-z0-9])" if "-" in word or "_" in word else ""
    return re.search(begins + re.escape(word) + ends, text) is not None


def _words(change: Change) -> set[str]:
    text = describe(change) + " " + " ".join(change.files.values())
    words = set(re.findall(r"[a-z]{4,}", text.lower().replace("_", " "))) - _COMMON_WORDS
    names = {flag_name(name) for name in change.flags}
    return words | names | {name.replace("-", "_") for name in names}


_SPEAKS_OF = (
    ("invalid device ordinal", r"(?:tp|dp|pp)-size", "how many GPUs are used"),
    ("msccl++", r"enable-mscclpp", "the library of --enable-mscclpp"),
)
"""What some failures are about without naming the flag: words of the failure, the flags that they speak of, and what that is."""
_COMMON_WORDS = frozenset(
    {"enable", "disable", "backend", "file", "patch", "environment", "without", "size", "python", "import", "environ"}
    | {"setdefault", "sitecustomize", "diff", "changes", "cuda", "memory"}
)
"""Words that failures speak of whatever was changed: every lack of memory is one of CUDA."""


def cause_text(reading: LogReading) -> str:
    """A cause in one line: kind, phase and rank, and the line that says it."""
    if reading.cause is None:
        return f"{reading.status} during {reading.phase}, and the log names no cause"
    return reading.cause.summary


def log_evidence(log: str, reading: LogReading) -> tuple[str, ...]:
    """The lines that prove it, as `path:line: text`."""
    lines = reading.cause.evidence if reading.cause else []
    return tuple(f"{log}:{e.line}: {e.text.strip()[:200]}" for e in lines)
