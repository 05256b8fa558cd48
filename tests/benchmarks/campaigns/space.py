"""What a plan leaves to choose, as a search sees it: parts that are on or off, some of them with several values.

An item that bundles several things is so many parts. Flags that mean something only together are one part: those of
speculation, those that lay the model out over the GPUs, and torch.compile's.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from optagent.agent.change import Change, apply_change, describe
from optagent.agent.principles import PrinciplesLike, conflicts
from optagent.tools.calls.configuration import Configuration

STEPS = 9
"""Values that are looked at of a range of numbers."""

LAYOUT = frozenset(
    {
        "tp-size", "dp-size", "ep-size", "attn-dp-size", "enable-dp-attention", "enable-dp-lm-head", "moe-a2a-backend",
        "moe-dp-size", "enable-two-batch-overlap",
    }
)  # fmt: skip
_BLOCK = re.compile(r"^```ya?ml\n(.*?)^```", re.MULTILINE | re.DOTALL)
_RANGE = re.compile(r"([\d.]+)\s*\.\.\s*([\d.]+?)(?:\s+step\s+([\d.]+))?\s*\Z")

Point = tuple[int, ...]
"""For each part which choice is taken, counted from 1; 0: the part is off."""


@dataclass(frozen=True)
class Part:
    """`choices` are the ways in which the part can be on. `numbers` are their values where they lie on a line."""

    item: str
    choices: tuple[Change, ...]
    numbers: tuple[float, ...] | None = None

    @property
    def name(self) -> str:
        return f"{self.item}: {describe(self.choices[0])}"


@dataclass(frozen=True)
class Space:
    base: Configuration
    parts: tuple[Part, ...]

    @property
    def nothing(self) -> Point:
        return (0,) * len(self.parts)

    def configuration(self, point: Point) -> Configuration:
        """The baseline with the chosen parts put on, in the plan's order."""
        found = self.base
        for part, choice in zip(self.parts, point, strict=True):
            if choice:
                found = apply_change(found, part.choices[choice - 1])
        return found

    def size(self) -> int:
        total = 1
        for part in self.parts:
            total *= 1 + len(part.choices)
        return total


def space_of(plan: str, base: Configuration, principles: PrinciplesLike) -> Space:
    """The parts of a plan's open items, without what the owner's principles speak against."""
    parts: list[Part] = []
    for item in items_of(plan):
        for part in parts_of(item):
            kept = [n for n, change in enumerate(part.choices) if not conflicts(change, principles, base)]
            if kept:
                numbers = tuple(part.numbers[n] for n in kept) if part.numbers else None
                parts.append(Part(part.item, tuple(part.choices[n] for n in kept), numbers))
    return Space(base, tuple(parts))


def items_of(plan: str) -> list[Mapping[str, Any]]:
    """The blocks of a plan that describe an open item with a change, in the order in which they stand."""
    blocks = [yaml.safe_load(text) for text in _BLOCK.findall(plan)]
    return [b for b in blocks if isinstance(b, Mapping) and b.get("change") and b.get("status", "open") == "open"]


def parts_of(item: Mapping[str, Any]) -> list[Part]:
    """The item's parts. Raises ValueError for a change that is not modelled here."""
    change, name = item["change"], str(item["id"])
    unknown = set(change) - {"flags", "env", "environment"}
    if unknown:
        raise ValueError(f"{name}: a change of {sorted(unknown)[0]} has no effect here")
    groups: dict[str, list[tuple[str, str, list[Any]]]] = {}
    for kind in ("flags", "env"):
        for key, value in (change.get(kind) or {}).items():
            plain = str(key).lstrip("-")
            group = family(plain) if kind == "flags" else plain
            groups.setdefault(group, []).append((kind, plain, values_of(value)))
    parts = [_part(name, group) for group in groups.values()]
    if change.get("environment"):
        parts.append(Part(name, (Change(environment=str(change["environment"])),)))
    return parts


def family(flag: str) -> str:
    """What a flag belongs together with: itself alone, mostly."""
    if flag.startswith("speculative-"):
        return "speculation"
    if flag in LAYOUT:
        return "layout"
    return "torch-compile" if "torch-compile" in flag else flag


def values_of(value: Any) -> list[Any]:
    """One value, all of a list, or a few of a range such as 0.3..1.3 or 8..64 step 8."""
    if isinstance(value, list):
        return value
    match = _RANGE.match(value) if isinstance(value, str) else None
    if match is None:
        return [value]
    whole = all("." not in text for text in match.groups() if text)
    low, high = float(match[1]), float(match[2])
    if match[3]:
        count = int((high - low) / float(match[3]) + 1e-9) + 1
        stepped = [low + n * float(match[3]) for n in range(count)]
        found = stepped if count <= STEPS else [stepped[round(n * (count - 1) / (STEPS - 1))] for n in range(STEPS)]
    else:
        found = [low + (high - low) * n / (STEPS - 1) for n in range(STEPS)]
    return list(dict.fromkeys(round(x) for x in found)) if whole else [round(x, 6) for x in found]


def _part(item: str, group: Sequence[tuple[str, str, list[Any]]]) -> Part:
    choices = tuple(_changes(group))
    numbers = None
    if len(group) == 1 and len(choices) > 1:
        values = [float(v) if _is_number(v) else None for v in group[0][2]]
        known = [v for v in values if v is not None]
        numbers = tuple(known) if len(known) == len(values) else None
    return Part(item, choices, numbers)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _changes(group: Sequence[tuple[str, str, list[Any]]]) -> Iterator[Change]:
    for row in itertools.product(*(values for _, _, values in group)):
        named = [(kind, key, value) for (kind, key, _), value in zip(group, row, strict=True)]
        yield Change(
            flags={key: value for kind, key, value in named if kind == "flags"},
            env={key: None if value is None else str(value) for kind, key, value in named if kind == "env"},
        )
