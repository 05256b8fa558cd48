"""Ranked headings: `## 1. Title`, `### Priority 2: Title`, `## P0 - Title`, `### 1.2 Title`, `### Phase A: Title`."""

from __future__ import annotations

import re
from enum import IntEnum
from typing import NamedTuple

from optagent.agent.markdown import plain
from optagent.agent.plan.marks import Mark, take_marks

LONGEST = 500
"""Characters of a heading that are looked at."""


class Kind(IntEnum):
    """How a heading states its place; the lower, the surer it is that an idea of a ranking is meant."""

    PRIORITY = 1
    ORDINAL = 2
    STAGE = 3


class Ranked(NamedTuple):
    """A heading's place in the ranking: (2,) for `2.`, (1, 3) for `1.3`; its title and marks. `place` is None when the
    heading states none."""

    kind: Kind | None
    place: tuple[int, ...] | None
    title: str
    marks: tuple[Mark, ...] = ()


_SEPARATOR = r"(?:\s*[:.)\]—–]+|\s+-+(?=\s)|\s*\([^()]{1,60}\)\s*[:.—–-]+)"
_FORMS: tuple[tuple[Kind, re.Pattern[str]], ...] = (
    (Kind.PRIORITY, re.compile(rf"\[?P(\d)(?![\w.]){_SEPARATOR}?(?:\s+|\Z)", re.IGNORECASE)),
    (
        Kind.PRIORITY,
        re.compile(rf"(?:priority|prio|rank)\s*#?(\d{{1,3}})(?![\w.]*\d){_SEPARATOR}?(?:\s+|\Z)", re.IGNORECASE),
    ),
    (Kind.ORDINAL, re.compile(r"#(\d{1,3})(?!\w)\s*[:.)—–-]*(?:\s+|\Z)")),
    (Kind.ORDINAL, re.compile(r"([1-9]\d?\.\d{1,2})\.?(?=\s)\s+(?:[:—–-]\s+)?")),
    (Kind.ORDINAL, re.compile(r"(\d{1,3})(?:[.):]+|\s*[—–]|\s+-+(?=\s))(?:\s+|\Z)")),
    (
        Kind.ORDINAL,
        re.compile(
            rf"(?:idea|item|experiment|optimi[sz]ation|opt|candidate|change|task)\s*#?(\d{{1,3}}){_SEPARATOR}(?:\s+|\Z)",
            re.IGNORECASE,
        ),
    ),
    (
        Kind.STAGE,
        re.compile(
            rf"(?:phase|step|stage|tier|solution|option|strategy|approach)\s*#?(\d{{1,3}}|[A-Z]){_SEPARATOR}(?:\s+|\Z)",
            re.IGNORECASE,
        ),
    ),
)
_SUFFIX = re.compile(r"\s*\((?:priority|prio|rank|P)\s*#?(\d{1,3})\)", re.IGNORECASE)
_TRAILING_SIGNS = re.compile(r"[^\w()\[\].,;:!?%+'\"/*=<>~&$@-]+\Z")
_DECORATION = re.compile(r"\A(?:[^\w\s#\[(~*`_$<>/\\-]+\s+)+")


def read_heading(text: str) -> Ranked:
    """The place, title and marks of a heading's text."""
    text, marks = take_marks(text[:LONGEST])
    text = _undecorated(text)
    form = _form(text)
    if form is None and marks:
        text, more = take_marks(text)
        marks, form = marks + more, _form(text)
    if form is None:
        return Ranked(None, None, plain(text), marks)
    kind, place, rest = form
    rest, more = take_marks(rest)
    if suffix := _SUFFIX.search(rest):
        kind, place = Kind.PRIORITY if kind is Kind.STAGE else kind, (int(suffix[1]),)
        rest = rest[: suffix.start()] + rest[suffix.end() :]
    return Ranked(kind, place, _title(rest), marks + more)


def _form(text: str) -> tuple[Kind, tuple[int, ...], str] | None:
    for kind, pattern in _FORMS:
        if match := pattern.match(text):
            return kind, _place(match[1]), text[match.end() :]
    return None


def _place(text: str) -> tuple[int, ...]:
    if text.isalpha():
        return (ord(text.upper()) - ord("A") + 1,)
    return tuple(int(part) for part in text.split("."))


def _undecorated(text: str) -> str:
    """Without leading emoji and the emphasis around a whole heading."""
    text = _DECORATION.sub("", text)
    for quote in ("**", "__"):
        if text.startswith(quote) and text.rstrip().endswith(quote) and len(text) > 4:
            text = text.rstrip()[2:-2]
        elif text.startswith(quote):
            text = text[2:].replace(quote, "", 1)
    return text.strip()


def _title(text: str) -> str:
    """Without the emoji at its end."""
    return _TRAILING_SIGNS.sub("", plain(text)).strip()
