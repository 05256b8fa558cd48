"""Ranked ideas in a free-form list: `1. **Title** - text`, `- [ ] Title`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from optagent.agent.markdown import Document, plain
from optagent.agent.plan.draft import Draft, InBox
from optagent.agent.plan.fields import Fields
from optagent.agent.plan.headings import Kind, read_heading
from optagent.agent.plan.labels import read_labels
from optagent.agent.plan.marks import FAMILIES, Family, Mark, box_status, take_marks
from optagent.agent.plan.model import Status

LONGEST = 2_000
"""Characters of an entry's first line that are looked at."""

_ENTRY = re.compile(r"( {0,3})(?:[-*+]|(\d{1,3})[.)])\s+(?:(\[([ xX/~-])\])(?=\s|\Z)\s*)?(.*)\Z")
_PRIORITY = re.compile(r"\[?(?:P|(?:priority|prio)\s+)(\d)(?!\w)\]?\s*[:.)—–-]*\s+", re.IGNORECASE)
_BOLD = re.compile(r"(~{0,2})\*\*(?!\s)(.+?)\*\*")
_FIRST_PHRASE = re.compile(r"\s+(?:—|–|--?)\s+|:\s+|\.\s+|\s+\|\s+")
_ABOUT_PLANS = re.compile(
    r"plan\b|priorit|next|to-?do|optimi[sz]ation|ideas?\b|experiments?\b|queue|backlog|roadmap|candidates|"
    r"to try|actions?\b|remaining|recommend|rank|wins?\b|P\d\b",
    re.IGNORECASE,
)
_NO_PLANS = re.compile(
    r"analysis|background|findings|lessons|references|appendix|current (?:state|status)|success criteria|"
    r"open questions|conclusions?\b|benchmark|\bresults\b|how to|runbook|set-?up|what not to do|"
    r"read first|known issues|root cause",
    re.IGNORECASE,
)


class Entry(NamedTuple):
    """One entry of a list with its whole text; `section` is the index of the heading it stands under, or -1."""

    line: int
    end: int
    number: int | None
    box: str | None
    box_column: int
    text: str
    section: int


def listed(document: Document) -> tuple[Draft, ...]:
    """The items of the document's lists: checkboxes and bold numbered entries, else one plain numbered list.

    Markdown numbers a list by itself, so the order counts and not the numbers; only `P0`, `P1` are ranks of their own.
    """
    entries = [e for e in _entries(document) if not _NO_PLANS.search(_heading(document, e.section))]
    strong = [e for e in entries if e.box or (e.number is not None and _BOLD.match(e.text))]
    if not strong:
        numbered = [e for e in entries if e.number is not None]
        strong = [e for e in numbered if _about_plans(document, e)]
        if not strong and len({e.section for e in numbered}) == 1:
            strong = numbered
    planned = [e for e in strong if _about_plans(document, e)]
    drafts = [_draft(document, e) for e in planned or strong]
    if drafts and all(d.kind is Kind.PRIORITY for d in drafts):
        return tuple(drafts)
    return tuple(d._replace(kind=Kind.ORDINAL, rank=(n,)) for n, d in enumerate(drafts, start=1))


def _about_plans(document: Document, entry: Entry) -> bool:
    if entry.section < 0:
        return False
    above = [h.text for h in document.above(entry.section) if h.level > 1]
    return any(_ABOUT_PLANS.search(text) for text in (_heading(document, entry.section), *above))


def _heading(document: Document, section: int) -> str:
    return document.headings[section].text if section >= 0 else ""


def _entries(document: Document) -> Iterator[Entry]:
    starts = [h.line for h in document.headings]
    section = -1
    for number, line in enumerate(document.lines):
        while section + 1 < len(starts) and starts[section + 1] <= number:
            section += 1
        if number in document.hidden or (match := _ENTRY.match(line)) is None or not match[5].strip():
            continue
        yield Entry(
            line=number,
            end=_end(document, number, len(match[1])),
            number=int(match[2]) if match[2] else None,
            box=match[4],
            box_column=match.start(4) if match[4] else -1,
            text=match[5].strip()[:LONGEST],
            section=section,
        )


def _end(document: Document, start: int, indent: int) -> int:
    """Where the entry ends: before the next entry of its depth, a heading, or text that is not indented after a gap."""
    headings = {h.line for h in document.headings}
    gap = False
    for number in range(start + 1, len(document.lines)):
        line = document.lines[number]
        if not line.strip():
            gap = True
            continue
        depth = len(line) - len(line.lstrip())
        if number in headings or (depth <= indent and (gap or _ENTRY.match(line))):
            return number
        gap = False
    return len(document.lines)


def _draft(document: Document, entry: Entry) -> Draft:
    prefix = _PRIORITY.match(entry.text)
    title, rest, marks = _split(entry.text[prefix.end() :] if prefix else entry.text)
    if entry.box:
        status = box_status(entry.box)
        marks = (*marks, Mark(f"[{entry.box}]", status, Family.DONE if status is Status.KEPT else FAMILIES[status]))
    ranked = read_heading(title)
    body = [line.strip() for line in document.lines[entry.line + 1 : entry.end]]
    priority = (int(prefix[1]),) if prefix else ranked.place if ranked.kind is Kind.PRIORITY else None
    section = document.headings[entry.section] if entry.section >= 0 else None
    tier = read_heading(section.text) if section else None
    return Draft(
        title=ranked.title if ranked.kind else plain(title)[:200],
        line=entry.line + 1,
        place=InBox(entry.line, entry.box_column) if entry.box else None,
        rank=priority,
        kind=Kind.ORDINAL if priority is None else Kind.PRIORITY,
        tier=(tier.place or ()) if tier and tier.kind is Kind.PRIORITY else (),
        parent=section.line + 1 if section else 0,
        prose="\n".join([rest, *body]).strip(),
        marks=ranked.marks + marks,
        fields=Fields(values=read_labels([rest, *body])),
    )


def _split(text: str) -> tuple[str, str, tuple[Mark, ...]]:
    """(title, what follows it, marks) of an entry's first line."""
    if bold := _BOLD.match(text):
        rest = text[bold.end() :]
        left, marks = take_marks("x " + rest) if rest.strip() else ("", ())
        title, more = take_marks(f"{bold[1]}{bold[2]}{bold[1]}")
        return title, left.removeprefix("x").lstrip(" :—–-.~").strip(), more + marks
    text, marks = take_marks(text)
    if cut := _FIRST_PHRASE.search(text, 1):
        return text[: cut.start()], text[cut.end() :].strip(), marks
    return text, "", marks
