"""What the keys of an item's block say, checked key by key. Every complaint names its line."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from optagent.agent.change import Change
from optagent.agent.plan.blocks import KEYS, Block, Entry, entries_of, nearest
from optagent.agent.plan.model import Problem, Risk, Status
from optagent.agent.plan.nodes import bool_of, flag_value_of, kind_of, number_of, text_of
from optagent.agent.search.space import Axis, Value, in_order

if TYPE_CHECKING:
    from yaml.nodes import MappingNode

    from optagent.agent.plan.nodes import Node

CHANGE_KEYS = ("flags", "env", "files", "patch", "environment")

_ID = re.compile(r"[^\W_][\w.-]{0,79}\Z")
_FLAG = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]*\Z")
_VARIABLE = re.compile(r"[A-Za-z_]\w*\Z", re.ASCII)


class Fields:
    """The values a block gives, by name of the item's field; `lines` says where each key stands."""

    def __init__(self, values: dict[str, Any] | None = None) -> None:
        self.values: dict[str, Any] = values or {}
        self.lines: dict[str, int] = {}
        self.problems: list[Problem] = []


class _Wrong(Exception):
    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.line = line


def read_fields(block: Block) -> Fields:
    """The fields of the block; a key that cannot be read is left out and complained about."""
    fields = Fields()
    for entry in block.entries:
        if entry.key in fields.lines:
            said = f"{entry.key} stands here a second time; the first is in line {fields.lines[entry.key]}"
            fields.problems.append(Problem(entry.line, said, ambiguous=True))
            continue
        fields.lines[entry.key] = entry.line
        if (read := _READERS.get(entry.key)) is None:
            fields.problems.append(Problem(entry.line, _unknown(entry.key, KEYS)))
            continue
        try:
            value = read(entry.value, block.offset)
        except _Wrong as wrong:
            fields.problems.append(Problem(wrong.line or entry.line, f"{entry.key}: {wrong}"))
            continue
        if entry.key == "change":
            fields.values["change"], fields.values["space"] = value
        else:
            fields.values[entry.key] = value
    return fields


def _unknown(key: str, known: tuple[str, ...]) -> str:
    guess = nearest(key, known)
    advice = f"did you mean {guess}?" if guess else f"known are {', '.join(known)}"
    return f"unknown key {key[:60]!r}; {advice}"


def _id(node: Node, offset: int) -> str:
    text = _line(node, offset)
    if not _ID.match(text):
        raise _Wrong(f"an id is made of letters, digits, '-', '_' and '.', at most 80 of them; found {text[:60]!r}")
    return text


def _status(node: Node, offset: int) -> Status:
    text = _line(node, offset).lower()
    try:
        return Status(text)
    except ValueError:
        names = tuple(status.value for status in Status)
        guess = nearest(text, names)
        hint = f"; did you mean {guess}?" if guess else ""
        raise _Wrong(f"expected one of {', '.join(names)}; found {text[:60]!r}{hint}") from None


def _risk(node: Node, offset: int) -> Risk:
    text = _line(node, offset).lower()
    try:
        return Risk(text)
    except ValueError:
        raise _Wrong(f"expected low, medium or high; found {text[:60]!r}") from None


def _approval(node: Node, offset: int) -> bool:
    if (value := bool_of(node)) is None:
        raise _Wrong(f"expected true or false, found {kind_of(node)}")
    return value


def _line(node: Node, offset: int) -> str:
    text = _text(node, offset)
    if not text:
        raise _Wrong("expected text, found nothing")
    return text


def _text(node: Node, offset: int) -> str:
    if (text := text_of(node)) is None:
        raise _Wrong(f"expected text, found {kind_of(node)}")
    return text.strip()


def _gain(node: Node, offset: int) -> tuple[float, float]:
    from optagent.agent.plan.gains import fraction, read_gain

    try:
        if node.id == "sequence":
            if len(node.value) != 2:
                raise ValueError(f"expected two ends, such as [0.1, 0.18]; found {len(node.value)} values")
            low, high = (_end(end) for end in node.value)
            if low > high:
                raise ValueError(f"the gain runs from {low:g} down to {high:g}; the lower end comes first")
            return low, high
        low, high = (
            (fraction(number),) * 2 if (number := number_of(node)) is not None else read_gain(_line(node, offset))
        )
    except ValueError as error:
        raise _Wrong(str(error)) from None
    return low, high


def _end(node: Node) -> float:
    from optagent.agent.plan.gains import fraction, read_gain

    number = number_of(node)
    return fraction(number) if number is not None else read_gain(text_of(node) or "")[0]


def _condition(node: Node, offset: int) -> str | None:
    if not (text := _text(node, offset)):
        return None
    from optagent.agent.conditions import parse_condition

    try:
        parse_condition(text)
    except ValueError as error:
        raise _Wrong(str(error)) from None
    return text


def _needs(node: Node, offset: int) -> tuple[str, ...]:
    """Ids and conditions; whether they can be met is checked when all items are known."""
    if node.id == "sequence":
        return tuple(_line(part, offset) for part in node.value)
    return tuple(part.strip() for part in _text(node, offset).split(",") if part.strip())


def _change(node: Node, offset: int) -> tuple[Change | None, tuple[Axis, ...]]:
    """The fixed part of the change, and the axes it leaves open."""
    if kind_of(node) == "nothing":
        return None, ()
    parts: dict[str, Any] = {}
    axes: dict[str, Axis] = {}
    for entry in _entries(node, offset):
        if entry.key in parts:
            raise _Wrong(f"{entry.key} stands here a second time", entry.line)
        if entry.key not in _CHANGE_READERS:
            raise _Wrong(_unknown(entry.key, CHANGE_KEYS), entry.line)
        try:
            read = _CHANGE_READERS[entry.key](entry.value, offset)
        except _Wrong as wrong:
            raise _Wrong(f"{entry.key}: {wrong}", wrong.line or entry.line) from None
        if not isinstance(read, dict):
            parts[entry.key] = read
            continue
        parts[entry.key] = {name: value for name, value in read.items() if not isinstance(value, Axis)}
        opened = {name: value for name, value in read.items() if isinstance(value, Axis)}
        if twice := sorted(axes.keys() & opened.keys()):
            raise _Wrong(
                f"{twice[0]} has a range as a flag and as a variable; search one of them at a time", entry.line
            )
        axes |= opened
    return Change(**parts), in_order(tuple(axes.values()))


def _entries(node: Node, offset: int) -> tuple[Entry, ...]:
    if kind_of(node) == "nothing":
        return ()
    if node.id != "mapping":
        raise _Wrong(f"expected a mapping, found {kind_of(node)}")
    return entries_of(cast("MappingNode", node), offset)


def _flags(node: Node, offset: int) -> dict[str, Value | Axis]:
    from optagent.agent.plan.ranges import axis_of

    flags: dict[str, Value | Axis] = {}
    for entry in _entries(node, offset):
        name = entry.key.lstrip("-").replace("_", "-")
        if not _FLAG.match(name):
            raise _Wrong(f"{entry.key[:60]!r} is no name of a flag", entry.line)
        if name in flags:
            raise _Wrong(f"the flag {name} is given twice", entry.line)
        try:
            axis = axis_of("flag", name, entry.value)
        except ValueError as error:
            raise _Wrong(f"the flag {name}: {error}", entry.line) from None
        try:
            flags[name] = axis or flag_value_of(entry.value)
        except ValueError as error:
            raise _Wrong(f"the flag {name} takes one value, found {error}", entry.line) from None
    return flags


def _env(node: Node, offset: int) -> dict[str, str | Axis | None]:
    from optagent.agent.plan.ranges import axis_of

    env: dict[str, str | Axis | None] = {}
    for entry in _entries(node, offset):
        text = text_of(entry.value)
        if not _VARIABLE.match(entry.key) or entry.key in env:
            raise _Wrong(f"{entry.key[:60]!r} is given twice or is no name of a variable", entry.line)
        try:
            axis = axis_of("env", entry.key, entry.value)
        except ValueError as error:
            raise _Wrong(f"the variable {entry.key}: {error}", entry.line) from None
        if axis is None and text is None:
            raise _Wrong(f"the variable {entry.key} takes one value, found {kind_of(entry.value)}", entry.line)
        env[entry.key] = axis or (None if kind_of(entry.value) == "nothing" else text)
    return env


def _files(node: Node, offset: int) -> dict[str, str]:
    files: dict[str, str] = {}
    for entry in _entries(node, offset):
        text = text_of(entry.value)
        if not _inside(entry.key) or entry.key in files:
            raise _Wrong(f"{entry.key[:60]!r} is given twice or is no path inside the environment's folder", entry.line)
        _no_range(entry.value, f"the file {entry.key} takes its whole text", entry.line)
        if text is None or kind_of(entry.value) == "nothing":
            raise _Wrong(f"the file {entry.key} takes its whole text, found {kind_of(entry.value)}", entry.line)
        files[entry.key] = text
    return files


def _patch(node: Node, offset: int) -> str:
    _no_range(node, "expected one path")
    path = _line(node, offset)
    if not _inside(path):
        raise _Wrong(f"expected a path inside the plan's folder, found {path[:80]!r}")
    return path


def _environment(node: Node, offset: int) -> str:
    _no_range(node, "expected one name")
    return _line(node, offset)


def _no_range(node: Node, expected: str, line: int | None = None) -> None:
    from optagent.agent.plan.ranges import names_range

    if names_range(node):
        found = kind_of(node) if node.id != "scalar" else repr(text_of(node))
        raise _Wrong(f"{expected}, found {found}; only flags and env can have a range", line)


def _inside(path: str) -> bool:
    return bool(path) and not path.startswith(("/", "~", "\\")) and ".." not in path.split("/") and "\0" not in path


_Reader = Callable[[Any, int], Any]
_READERS: dict[str, _Reader] = {
    "id": _id,
    "status": _status,
    "change": _change,
    "needs": _needs,
    "expected_gain": _gain,
    "cost": _text,
    "risk": _risk,
    "approval": _approval,
    "may_break": _text,
    "undo": _text,
    "retry_when": _condition,
    "result": _text,
}
_CHANGE_READERS: dict[str, _Reader] = {
    "flags": _flags,
    "env": _env,
    "files": _files,
    "patch": _patch,
    "environment": _environment,
}
