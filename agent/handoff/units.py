"""The statements of a document: bullets with what belongs to them, rows of tables, paragraphs, small sections."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from optagent.agent.handoff.sections import About, about
from optagent.agent.markdown import Document, is_rule, plain

LONGEST = 600
"""Characters of one statement that are kept."""

_BULLET = re.compile(r"(\s*)(?:[-*+•]|\d{1,3}[.)])\s+(?:\[([ xX/~-])\]\s+)?(.*)\Z")
_LABEL = re.compile(r"\s*(?:[-*+]\s+)?\*\*([^*:]{2,80}?):?\*\*:?\s*(.*)\Z", re.DOTALL)
_FOOTER = re.compile(r"\W*(?:last (?:refreshed|updated)|created|generated)\W*:", re.IGNORECASE)
_DELIMITER = re.compile(r"\s*\|?[\s:|-]*-[\s:|-]*\|?\s*\Z")
_ONE_STATEMENT = frozenset({About.NEXT, About.DEAD_ENDS, About.LEARNED, About.QUESTIONS, About.IN_FLIGHT})


class Unit(NamedTuple):
    """One statement: what it is about, its head (a title, a label, a first cell), the rest, its 1-based line, its
    checkbox, and the heading it stands under."""

    about: About | None
    head: str
    text: str
    line: int
    box: str | None = None
    section: str = ""

    @property
    def whole(self) -> str:
        return f"{self.head}: {self.text}" if self.head and self.text else self.head or self.text


def units(document: Document) -> Iterator[Unit]:
    """The statements of the document in order."""
    first = document.headings[0].line if document.headings else len(document.lines)
    yield from _plain_units(document, 0, first, None)
    roles: list[About | None] = []
    end = 0
    for index, heading in enumerate(document.headings):
        role = about(heading.text) if index or heading.level > 1 else None
        above = document.above(index)
        inherited = next((r for h in above if (r := roles[document.headings.index(h)])), None) if above else None
        if inherited in _ONE_STATEMENT and role not in _ONE_STATEMENT:
            role = None
        roles.append(role or inherited)
        if heading.line < end:
            continue
        if role is None and inherited in _ONE_STATEMENT:
            end = document.section_end(index)
            yield _small_section(document, index, inherited, end)
        else:
            for unit in _plain_units(document, heading.body, document.own_end(index), roles[-1]):
                yield unit._replace(section=plain(heading.text)[:LONGEST])


def _small_section(document: Document, index: int, role: About | None, end: int) -> Unit:
    """A section inside one of statements is one statement: its heading says what, its text why."""
    heading = document.headings[index]
    body = [
        plain(document.lines[n])
        for n in range(heading.body, end)
        if n not in document.hidden and not is_rule(document.lines[n])
    ]
    title = re.sub(r"\A\W*(?:(?:priority|step|phase)\s+)?\d*[.):]*\s*", "", plain(heading.text), flags=re.IGNORECASE)
    return Unit(
        role, title[:LONGEST] or plain(heading.text), _clip(" ".join(line for line in body if line)), heading.line + 1
    )


def _plain_units(document: Document, start: int, end: int, role: About | None) -> Iterator[Unit]:
    number = start
    while number < end:
        line = document.lines[number]
        if number in document.hidden or not line.strip() or is_rule(line):
            number += 1
        elif (
            "|" in line
            and number + 1 < end
            and "|" in document.lines[number + 1]
            and _DELIMITER.match(document.lines[number + 1])
        ):
            stop = _table_end(document, number, end)
            yield from _rows(document, number, stop, role)
            number = stop
        else:
            stop = _statement_end(document, number, end)
            if _FOOTER.match(line):
                number = stop
                continue
            if role is About.DEAD_ENDS and stop < end and line.rstrip(" *").endswith(":") and not _BULLET.match(line):
                stop = _list_end(document, stop, end)
            yield _statement(document, number, stop, role)
            number = stop


def _statement_end(document: Document, start: int, end: int) -> int:
    """Where a bullet with its nested lines, or a paragraph, ends."""
    bullet = _BULLET.match(document.lines[start])
    depth = len(bullet[1]) if bullet else 0
    number = start + 1
    while number < end and number not in document.hidden and not is_rule(document.lines[number]):
        line = document.lines[number]
        other = _BULLET.match(line)
        if not line.strip():
            after = document.lines[number + 1] if number + 1 < end else ""
            if not bullet or len(after) - len(after.lstrip()) <= depth:
                break
        elif other and (not bullet or len(other[1]) <= depth):
            break
        number += 1
    return number


def _list_end(document: Document, start: int, end: int) -> int:
    """Where the list that starts at `start` ends; `start` itself when none does."""
    while start < end and _BULLET.match(document.lines[start]):
        start = _statement_end(document, start, end)
    return start


def _statement(document: Document, start: int, stop: int, role: About | None) -> Unit:
    first = _BULLET.match(document.lines[start])
    lines = [first[3] if first else document.lines[start].strip(" >")]
    for line in document.lines[start + 1 : stop]:
        nested = _BULLET.match(line)
        lines.append((nested[3] if nested else line).strip(" >"))
    text = " ".join(line for line in lines if line)
    label = _LABEL.match(text)
    box = first[2] if first else None
    if label is None:
        return Unit(role, "", _clip(plain(text)), start + 1, box)
    named = about(label[1])
    own = named if named in (About.DEAD_ENDS, About.NEXT, About.QUESTIONS, About.LEARNED) else None
    if own and own is not role and label[2].strip():
        return Unit(own, "", _clip(plain(label[2])), start + 1, box)
    return Unit(role, plain(label[1])[:LONGEST], _clip(plain(label[2].lstrip(" -–—:"))), start + 1, box)


def _table_end(document: Document, start: int, end: int) -> int:
    number = start + 2
    while number < end and "|" in document.lines[number]:
        number += 1
    return number


def _rows(document: Document, header: int, stop: int, role: About | None) -> Iterator[Unit]:
    for number in range(header + 2, stop):
        cells = [plain(c) for c in re.split(r"(?<!\\)\|", document.lines[number].strip().strip("|"))]
        cells = [c for c in cells if c and c not in ("-", "—", "–")]
        if cells and re.fullmatch(r"#?\d{1,3}\.?|P\d", cells[0]) and len(cells) > 1:
            cells = cells[1:]
        if cells:
            yield Unit(role, cells[0][:LONGEST], _clip("; ".join(cells[1:])), number + 1)


def _clip(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 1].rstrip() + "…"
