"""Dead ends: when a failed change is one, what would make it worth another look, and which change is to blame."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from optagent.agent.change import Change, change_body, describe
from optagent.agent.conditions import holds, parse_condition
from optagent.agent.records import DeadEnd, Part

if TYPE_CHECKING:
    from optagent.tools.calls.logs import Cause, LogReading


def is_same_or_more(change: Change, dead: Change) -> bool:
    """Whether `change` does all that the dead change did (and perhaps more)."""
    if dead.empty:
        return False
    mine, theirs = change_body(change), change_body(dead)
    for part, wanted in theirs.items():
        have = mine.get(part)
        if isinstance(wanted, dict):
            if not isinstance(have, dict) or any(k not in have or have[k] != v for k, v in wanted.items()):
                return False
        elif have != wanted:
            return False
    return True


def matching(change: Change | None, item: str | None, dead_ends: Sequence[DeadEnd]) -> list[DeadEnd]:
    """The dead ends that this item, or this change, runs into."""
    return [
        d
        for d in dead_ends
        if (item is not None and d.item == item)
        or (change is not None and d.change is not None and is_same_or_more(change, d.change))
    ]


def worth_another_look(dead_end: DeadEnd, facts: Mapping[str, str]) -> bool:
    """Whether the condition of a dead end is met now. Without a condition, or with an unknown fact, it is not."""
    return dead_end.retry_when is not None and met(dead_end.retry_when, facts)


def met(condition: str, facts: Mapping[str, str]) -> bool:
    """Whether the condition is known to hold; one that cannot be read does not."""
    try:
        return holds(parse_condition(condition), facts) is True
    except ValueError:
        return False


_ARCHITECTURE_KINDS = frozenset({"unsupported-arch", "allreduce-unsupported", "attention-backend-unsupported"})
_MEMORY_KINDS = frozenset({"gpu-oom-weights", "gpu-oom-pool", "gpu-oom-graph-capture", "gpu-oom-runtime"})
_PACKAGE_KINDS = frozenset(
    {"package-mismatch", "model-unsupported", "graph-capture-incompatible", "illegal-memory-access"}
)


def retry_condition(kind: str, facts: Mapping[str, str]) -> str | None:
    """What would have to change for a failure of this kind to be worth another look, as a condition on facts.

    Missing kernels for an architecture come with the next CUDA major version, room comes with larger GPUs, and a
    defect of the server goes away with another release of it; None when nothing of the kind can be said.
    """
    if kind in _ARCHITECTURE_KINDS and (major := re.match(r"\d+", facts.get("cuda", ""))):
        return f"cuda>={int(major[0]) + 1}"
    if kind in _MEMORY_KINDS and (size := facts.get("gpu.memory_gb")):
        return f"gpu.memory_gb>{size}"
    if kind in _PACKAGE_KINDS and (release := facts.get("sglang")):
        return f"sglang>{release}"
    return None


_MEMORY_FLAG = "mem-fraction-static"


def no_value_works(change: Change, kind: str, earlier: Sequence[tuple[Change, str]]) -> str | None:
    """Why another value of the same memory setting cannot help either; None when it may.

    `earlier` are changes that failed before, each with its kind of cause. When one value leaves no room for the weights
    and another none for what comes after them, the room between the two is empty.
    """
    if _MEMORY_FLAG not in change.flags:
        return None
    for other, cause in earlier:
        value = other.flags.get(_MEMORY_FLAG)
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
    if len(parts) == 1:
        return Blame(parts[0], "it was the only change")
    text = " ".join([cause.summary, *(e.text for e in cause.evidence)]).lower()
    words = [_words(part.change) for part in parts]
    found = []
    for index, mine in enumerate(words):
        others = set().union(*(w for i, w in enumerate(words) if i != index))
        found.append(sorted(w for w in mine - others if w in text))
    best = max(range(len(parts)), key=lambda i: len(found[i]))
    if not found[best] or sum(len(f) == len(found[best]) for f in found) > 1:
        return Blame(None, "the evidence does not tell the changes apart")
    return Blame(parts[best], f"its evidence speaks of {', '.join(found[best][:4])}")


def _words(change: Change) -> set[str]:
    text = describe(change) + " " + " ".join(change.files.values())
    return set(re.findall(r"[a-z]{4,}", text.lower().replace("_", " "))) - _COMMON_WORDS


_COMMON_WORDS = frozenset(
    {"enable", "disable", "backend", "file", "patch", "environment", "without", "size", "python", "import", "environ"}
    | {"setdefault", "sitecustomize", "diff", "changes"}
)


def cause_text(reading: LogReading) -> str:
    """A cause in one line: kind, phase and rank, and the line that says it."""
    if reading.cause is None:
        return f"{reading.status} during {reading.phase}, and the log names no cause"
    return reading.cause.summary


def log_evidence(log: str, reading: LogReading) -> tuple[str, ...]:
    """The lines that prove it, as `path:line: text`."""
    lines = reading.cause.evidence if reading.cause else []
    return tuple(f"{log}:{e.line}: {e.text.strip()[:200]}" for e in lines)
