"""What a recorded call and the one that is asked now differ in, field by field, short enough to read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

from optagent.tools.redact import redact_json

MOST_FIELDS, MOST_LINES, WIDTH = 12, 8, 160
"""Of one difference: fields shown, lines of one field's text shown a side, characters a line."""

NOT_THERE = "(not there)"


@dataclass(frozen=True)
class Field:
    """One field that differs; `name` is its path, as in "configuration.flags.tp-size"."""

    name: str
    recorded: str
    asked: str


def differing(recorded: Mapping[str, Any], asked: Mapping[str, Any]) -> tuple[list[Field], int]:
    """The first fields that differ, in the order of their names, and how many more there are. Credentials are taken out,
    and nothing in the values moves a cursor."""
    found = list(_walk("", redact_json(dict(recorded)), redact_json(dict(asked))))
    return [_shown(name, one, other) for name, one, other in found[:MOST_FIELDS]], max(0, len(found) - MOST_FIELDS)


def whole(recorded: Mapping[str, Any], asked: Mapping[str, Any]) -> list[Field]:
    """Two requests that have nothing in common: each in one line."""
    return [Field("request", _bounded(_value(redact_json(dict(recorded)))), _bounded(_value(redact_json(dict(asked)))))]


def in_lines(fields: list[Field], more: int = 0) -> list[str]:
    """The fields for a person: what was recorded behind -, what is asked now behind +."""
    lines: list[str] = []
    for field in fields:
        lines.append(f"  {field.name}")
        lines += [f"- {line}" for line in field.recorded.split("\n")]
        lines += [f"+ {line}" for line in field.asked.split("\n")]
    return lines + ([f"  and {more} more field{'' if more == 1 else 's'}"] if more else [])


def printable(text: str) -> str:
    """The text without characters that move a cursor, but line ends."""
    return "".join(c if c.isprintable() or c == "\n" else f"\\x{ord(c):02x}" for c in text)


class _Nothing:
    """Stands for a field that one side does not have."""


_NOTHING = _Nothing()


def _walk(name: str, recorded: Any, asked: Any) -> Any:
    if isinstance(recorded, Mapping) and isinstance(asked, Mapping):
        for key in sorted(recorded.keys() | asked.keys()):
            inner = f"{name}.{key}" if name else str(key)
            yield from _walk(inner, recorded.get(key, _NOTHING), asked.get(key, _NOTHING))
    elif type(recorded) is not type(asked) or recorded != asked:
        yield name, recorded, asked


def _shown(name: str, recorded: Any, asked: Any) -> Field:
    label = printable(name)[:WIDTH]
    if isinstance(recorded, str) and isinstance(asked, str) and "\n" in recorded + asked:
        return _text_shown(label, recorded.split("\n"), asked.split("\n"))
    if isinstance(recorded, list) and isinstance(asked, list):
        return _text_shown(label, [_value(v) for v in recorded], [_value(v) for v in asked])
    return Field(label, _bounded(_value(recorded)), _bounded(_value(asked)))


def _text_shown(name: str, recorded: list[str], asked: list[str]) -> Field:
    """Of texts and lists: the first place where they part."""
    for tag, i1, i2, j1, j2 in SequenceMatcher(None, recorded, asked, autojunk=False).get_opcodes():
        if tag != "equal":
            return Field(f"{name}, from its line {i1 + 1} on", _cut(recorded[i1:i2]), _cut(asked[j1:j2]))
    return Field(name, _cut(recorded), _cut(asked))


def _cut(lines: list[str]) -> str:
    shown = [_bounded(line) for line in lines[:MOST_LINES]]
    if len(lines) > MOST_LINES:
        shown.append(f"... and {len(lines) - MOST_LINES} more lines")
    return "\n".join(shown) if shown else NOT_THERE


def _value(value: Any) -> str:
    if isinstance(value, _Nothing):
        return NOT_THERE
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)


def _bounded(text: str) -> str:
    line = printable(text).replace("\n", "\\n")
    return line if len(line) <= WIDTH else f"{line[: WIDTH - 1]}…"
