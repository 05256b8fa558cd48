"""Tables of ranked ideas: columns such as Rank or Priority, Idea, Expected gain, Effort, Risk, Status."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from optagent.agent.markdown import Document, plain
from optagent.agent.plan.draft import Draft, InCell
from optagent.agent.plan.fields import Fields
from optagent.agent.plan.headings import Kind
from optagent.agent.plan.labels import read_value
from optagent.agent.plan.marks import take_marks

_COLUMNS: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (name, re.compile(pattern, re.IGNORECASE))
    for name, pattern in (
        ("rank", r"(?:rank|ranking|priority|prio|pri|p|#|no\.?|nr\.?|order|tier)\Z"),
        ("status", r"(?:status|state|done\??)\b"),
        ("result", r"(?:result|outcome|measured|actual)\b"),
        ("risk", r"(?:quality )?risk\b"),
        ("cost", r"(?:effort|cost|complexity|difficulty|time)\b"),
        ("expected_gain", r".*\b(?:gain|impact|speed-?up|improvement|benefit)\b"),
        (
            "title",
            r"(?:the )?(?:idea|change|optimi[sz]ation|title|item|task|what|lever|approach|technique|experiment|action|"
            r"feature|description|name|proposal|work|step)\b",
        ),
    )
)
_DELIMITER = re.compile(r"\s*\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?\s*\Z")
_TIERS = {"critical": 0, "urgent": 0, "highest": 0, "high": 1, "medium": 2, "med": 2, "low": 3, "lowest": 4}


class Cell(NamedTuple):
    """A cell's text, and where it stands in its line."""

    text: str
    start: int
    end: int


def tabled(document: Document, surely: bool = False) -> tuple[Draft, ...]:
    """The items of the tables that rank ideas; `surely`: of those alone that give both ranks and expected gains."""
    drafts: list[Draft] = []
    for header, rows in _tables(document):
        columns = _columns(_cells(document.lines[header]))
        gainful = "expected_gain" in columns and ("cost" in columns or "status" in columns)
        if surely:
            gainful = "rank" in columns and "expected_gain" in columns
        elif "rank" in columns:
            gainful = True
        if "title" in columns and gainful:
            drafts += [d for row in rows if (d := _draft(document, header, row, columns))]
    return tuple(drafts)


def _tables(document: Document) -> Iterator[tuple[int, range]]:
    """(line of the header, lines of the rows) of every table."""
    number = 0
    while number + 1 < len(document.lines):
        header, rule = document.lines[number], document.lines[number + 1]
        if number in document.hidden or "|" not in header or "|" not in rule or not _DELIMITER.match(rule):
            number += 1
            continue
        end = number + 2
        while end < len(document.lines) and "|" in document.lines[end]:
            end += 1
        yield number, range(number + 2, end)
        number = end


def _cells(line: str) -> list[Cell]:
    pieces: list[Cell] = []
    start = len(line) - len(line.lstrip())
    if line[start : start + 1] == "|":
        start += 1
    for match in re.finditer(r"(?<!\\)\||\Z", line):
        if match.start() < start or (match.start() == len(line) and not line[start:].strip()):
            continue
        text = line[start : match.start()]
        left = start + (len(text) - len(text.lstrip()) if text.strip() else min(1, len(text)))
        pieces.append(Cell(text.strip(), left, left + len(text.strip())))
        start = match.end()
    return pieces


def _columns(header: Sequence[Cell]) -> dict[str, int]:
    found: dict[str, int] = {}
    for index, cell in enumerate(header):
        text = plain(cell.text)
        name = next((n for n, pattern in _COLUMNS if n not in found and pattern.match(text)), None)
        if name:
            found[name] = index
    return found


def _draft(document: Document, header: int, row: int, columns: dict[str, int]) -> Draft | None:
    cells = _cells(document.lines[row])

    def cell(name: str) -> Cell | None:
        index = columns.get(name)
        return cells[index] if index is not None and index < len(cells) else None

    title = cell("title")
    if title is None or not plain(title.text):
        return None
    text, marks = take_marks(title.text[:500])
    named = {n: c.text for n in ("expected_gain", "cost", "risk", "status") if (c := cell(n))}
    values = {n: v for n, t in named.items() if (v := read_value(n, t)) is not None}
    status, result, rank = cell("status"), cell("result"), cell("rank")
    if result and plain(result.text).strip("-—–"):
        values["result"] = _unescaped(result.text)
    place, kind = _rank(rank.text if rank else "")
    if rank and (meant := read_value("status", rank.text)):
        values.setdefault("status", meant)
    known = {columns[n] for n in columns}
    return Draft(
        title=_unescaped(text),
        line=row + 1,
        place=InCell(row, (status.start, status.end), (result.start, result.end) if result else None)
        if status
        else None,
        rank=place,
        kind=kind,
        parent=header + 1,
        prose="\n".join(c.text for n, c in enumerate(cells) if n not in known and c.text),
        marks=marks,
        fields=Fields(values=values),
    )


def _unescaped(text: str) -> str:
    return plain(text).replace("\\|", "|").replace("\\\\", "\\")


def _rank(text: str) -> tuple[tuple[int, ...] | None, Kind]:
    """The rank of a cell such as `1.`, `**P0**` or `🔴 High`."""
    word = plain(text).strip(" .#")
    if match := re.fullmatch(r"\W*P\s?(\d)", word, re.IGNORECASE):
        return (int(match[1]),), Kind.PRIORITY
    if match := re.fullmatch(r"\W*(\d{1,3})[.)]?", word):
        return (int(match[1]),), Kind.ORDINAL
    tier = next((t for name, t in _TIERS.items() if re.search(rf"\b{name}\b", word, re.IGNORECASE)), None)
    return (None, Kind.PRIORITY) if tier is None else ((tier,), Kind.PRIORITY)
