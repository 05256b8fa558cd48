"""Words and signs by which a person marks where an idea stands: DONE, (reverted), a tick, a struck title."""

from __future__ import annotations

import re
from enum import Enum
from typing import NamedTuple

from optagent.agent.plan.model import Status


class Family(Enum):
    """What a status amounts to. Marks contradict a status only across families; `OPEN` contradicts nothing."""

    GOOD = "kept"
    BAD = "given up"
    OPEN = "not settled"
    DONE = "done, one way or the other"


class Mark(NamedTuple):
    """A mark as it was written, the status it stands for, and what it excludes."""

    text: str
    status: Status
    family: Family

    def contradicts(self, status: Status) -> bool:
        if self.family is Family.OPEN:
            return False
        if self.family is Family.DONE:
            return FAMILIES[status] is Family.OPEN
        return FAMILIES[status] is not self.family


FAMILIES = {
    Status.OPEN: Family.OPEN,
    Status.TRYING: Family.OPEN,
    Status.PARKED: Family.OPEN,
    Status.KEPT: Family.GOOD,
    Status.REVERTED: Family.BAD,
    Status.INCONCLUSIVE: Family.BAD,
    Status.INVALID: Family.BAD,
    Status.DEAD: Family.BAD,
    Status.DROPPED: Family.BAD,
}

_PHRASES = {
    Status.KEPT: "kept|keep|adopted|done|completed?|shipped|landed|merged|implemented|resolved|fixed",
    Status.REVERTED: "reverted|rolled back|undone",
    Status.DEAD: "dead end|dead|failed|rejected|ruled out|incompatible|unsupported|not supported|broken|crashed",
    Status.DROPPED: "dropped|abandoned|skipped|skip|cancell?ed|won't do|wontfix|removed|obsolete|superseded",
    Status.PARKED: "parked|blocked|on hold|deferred|deprioriti[sz]ed|postponed|paused|waiting",
    Status.TRYING: "in progress|wip|ongoing|trying|started|testing|running|partially done|partial",
    Status.OPEN: "open|to-?do|to do|pending|planned|not started|not tested|untested|proposed|queued|backlog",
    Status.INCONCLUSIVE: "inconclusive|no change|no effect|no gain|neutral|mixed",
    Status.INVALID: "invalid",
}
_DONE = frozenset(["done", "complete", "completed", "shipped", "landed", "merged", "implemented", "resolved", "fixed"])
_SIGNS = {
    "✅": Status.KEPT,
    "✔": Status.KEPT,
    "☑": Status.KEPT,
    "❌": Status.DEAD,
    "✗": Status.DEAD,
    "✘": Status.DEAD,
    "⛔": Status.DEAD,
    "🚫": Status.DROPPED,
    "⏸": Status.PARKED,
    "🚧": Status.TRYING,
    "🔄": Status.TRYING,
    "⏳": Status.OPEN,
    "⬜": Status.OPEN,
    "☐": Status.OPEN,
    "🔲": Status.OPEN,
}
_BOXES = {" ": Status.OPEN, "x": Status.KEPT, "-": Status.DROPPED, "/": Status.TRYING, "~": Status.TRYING}

_PHRASE = re.compile(rf"(?:{'|'.join(f'(?P<{s.name}>{p})' for s, p in _PHRASES.items())})(?![\w'-])", re.IGNORECASE)
_SIGN = re.compile(rf"[{''.join(_SIGNS)}]\ufe0f?\s*")
_BRACKETED = re.compile(r"\s*[\[(]\s*([^\[\]()]{1,80})\s*[\])](?!\()")
_TAIL = re.compile(r"\s+(?:—|–|--?|→|->|=>|\|)\s+|\s*:\s+")
_SHOUTED = re.compile(r"\s+([A-Z][A-Z ]{2,})\Z")
_AFTER = re.compile(r"\s*(?:\Z|[:;,(.—–+→-]|\d|(?:in|on|by|due|because|after|since)\b)", re.IGNORECASE)
_AT_ONCE_AFTER = re.compile(r"\s*(?:\Z|\()")
_STRUCK = re.compile(r"~~(.+?)~~")
_BOX = re.compile(r"\[([ xX/~-])\](?=\s|\Z)\s*")


def status_of_words(text: str) -> Status | None:
    """The status that a cell or a label such as `✅ **DONE** (12 May)` gives; None when it gives none."""
    text = text.strip().strip("*_`[]() ")
    sign = _SIGN.match(text)
    words = _phrase(_SIGN.sub("", text).strip("*_`[]() "))
    if words:
        return words.status
    return _SIGNS[sign[0][0]] if sign else None


def box_status(box: str) -> Status:
    """The status of a checkbox from what stands between its brackets."""
    return _BOXES[box.lower()]


def take_marks(text: str) -> tuple[str, tuple[Mark, ...]]:
    """`text` without its marks, and the marks, words before signs."""
    found: list[Mark] = []
    text = _take_box(text, found)
    text = _take_words(text, found)
    signs = [Mark(m[0].strip(), s, FAMILIES[s]) for m in _SIGN.finditer(text) for s in (_SIGNS[m[0][0]],)]
    text = _SIGN.sub("", text)
    if struck := _STRUCK.search(text):
        rest = _STRUCK.sub("", text)
        if not re.search(r"\w", re.sub(r"\d+", "", rest)):
            found.append(Mark(struck[0], Status.DROPPED, Family.BAD))
        text = text.replace("~~", "")
    return text.strip(" \t—–-→:|"), tuple(_sorted(found + signs))


def telling(marks: tuple[Mark, ...]) -> tuple[Mark, ...]:
    """The marks that count: words where there are any, since a tick beside them only says that it is over."""
    return tuple(m for m in marks if not _is_sign(m)) or marks


def clashing(marks: tuple[Mark, ...]) -> tuple[Mark, Mark] | None:
    """Two marks that exclude each other."""
    settled = [m for m in telling(marks) if m.family in (Family.GOOD, Family.BAD)]
    return next(((settled[0], m) for m in settled[1:] if m.family is not settled[0].family), None)


def _sorted(marks: list[Mark]) -> list[Mark]:
    """A word says more than a sign, and a settled mark more than an open one."""
    return sorted(marks, key=lambda m: (m.family is Family.OPEN, _is_sign(m)))


def _is_sign(mark: Mark) -> bool:
    return mark.text[:1] in _SIGNS or mark.text.startswith("~~")


def _phrase(text: str, alone: bool = False) -> Mark | None:
    """The mark that `text` starts with. Words of an idea not settled yet must stand `alone`, they are common ones."""
    match = _PHRASE.match(text)
    if match is None or match.lastgroup is None:
        return None
    status = Status[match.lastgroup]
    family = Family.DONE if match[0].lower() in _DONE else FAMILIES[status]
    after = _AT_ONCE_AFTER if alone or family is Family.OPEN else _AFTER
    return Mark(match[0], status, family) if after.match(text, match.end()) else None


def _take_box(text: str, found: list[Mark]) -> str:
    if (box := _BOX.match(text)) is None:
        return text
    status = box_status(box[1])
    family = Family.DONE if status is Status.KEPT else FAMILIES[status]
    found.append(Mark(box[0].strip(), status, family))
    return text[box.end() :]


def _take_words(text: str, found: list[Mark]) -> str:
    for match in list(_BRACKETED.finditer(text))[::-1]:
        if mark := _phrase(_bare(match[1])):
            found.append(mark)
            text = text[: match.start()] + text[match.end() :]
    for match in list(_TAIL.finditer(text))[::-1]:
        if mark := _phrase(_bare(text[match.end() :]), alone=":" in match[0]):
            found.append(mark)
            return text[: match.start()] + _signs_of(text[match.end() :])
    shouted = _SHOUTED.search(text.rstrip("* "))
    if shouted and (mark := _phrase(shouted[1].strip())):
        found.append(mark)
        text = text[: shouted.start()]
    return text


def _bare(text: str) -> str:
    return _SIGN.sub("", text).strip("*_` ")


def _signs_of(text: str) -> str:
    return "".join(m[0] for m in _SIGN.finditer(text))
