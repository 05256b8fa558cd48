"""Reads what somebody else wrote as a handoff, as far as it goes. Nothing in it counts as verified."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime

from optagent.agent.handoff.model import Handoff
from optagent.agent.handoff.sections import About
from optagent.agent.handoff.statements import effect, guesses, log_path, retry_condition, verdict
from optagent.agent.handoff.units import Unit, units
from optagent.agent.markdown import Document, plain, scan, slug
from optagent.agent.records import Attempt, Claim, DeadEnd, InFlight, Lesson, NextStep, Question

MOST = 200
"""Records of one kind that are kept of one document."""
MOST_LINES = 20_000
LINE_LENGTH = 4_000

_DATE = re.compile(
    r"\b(20\d\d-[01]\d-[0-3]\d)(?:[T ]([0-2]\d:[0-5]\d(?::[0-5]\d)?)(?:\.\d{1,6})?\s*(Z|UTC|[+-]\d\d:?\d\d)?)?(?!\d)"
)
_DATE_WORD = re.compile(r"date|updated|written|as of|refreshed|session|created|fecha|datum", re.IGNORECASE)
_BECAUSE = re.compile(r"\s+(?:—|–|--?|→|=>)\s+|:\s+|\s+\(|\s+because\s+|;\s+|,\s+(?:since|as)\s+")
_LABELS = re.compile(
    r"\W*(?:impact|status|validation|results?|verdict|expected|prompt|speed-?up|improvement|evidence|note|fix|cause|reason|symptom|"
    r"gain|effect|potential gain|measured|performance)\b",
    re.IGNORECASE,
)
_LIST = re.compile(r"[,;]\s+(?![^()]*\))")


def read_free_form(text: str, name: str) -> Handoff:
    """The handoff in `text`, bounded in number and length; evidence is `name:line`. Never raises."""
    lines = text.split("\n")[:MOST_LINES]
    document = scan("\n".join(line[:LINE_LENGTH] for line in lines))
    said = list(units(document))
    title = _title(document)
    return Handoff(
        id=slug(name) or "handoff",
        campaign=title[:200],
        written=_written(document),
        objective=next((u.whole for u in said if u.about is About.OBJECTIVE), "")[:600],
        principles=tuple(u.whole for u in said if u.about is About.PRINCIPLES)[:MOST],
        claims=_numbered(_claims(said, name)),
        lessons=tuple(Lesson(u.whole, (_at(u, name),)) for u in said if u.about is About.LEARNED)[:MOST],
        attempts=tuple(_attempts(said, name))[:MOST],
        dead_ends=_dead_ends(said, name),
        in_flight=tuple(_in_flight(said, name))[:MOST],
        next_steps=tuple(_next_steps(said))[:MOST],
        questions=tuple(_questions(said))[:MOST],
        structured=False,
    )


def _at(unit: Unit, name: str) -> str:
    return f"{name}:{unit.line}"


def _title(document: Document) -> str:
    first = next(iter(document.headings), None)
    return plain(first.text) if first else next((plain(line) for line in document.lines if line.strip()), "")


def _written(document: Document) -> str:
    """The document's date: in a line that says so, else in its title, else the first of its opening lines; or ""."""
    opening = list(document.lines[:40])
    closing = list(document.lines[-8:])
    dated = [line for line in opening + closing if _DATE.search(line)]
    named = [line for line in dated if _DATE_WORD.search(line)]
    titles = [line for line in dated if line.startswith("# ")]
    line = next(iter(named or titles or dated), "")
    return _iso(match) if (match := _DATE.search(line)) else ""


def _iso(match: re.Match[str]) -> str:
    """ISO 8601, in UTC where the document names a zone; the date alone otherwise."""
    if not match[2] or not match[3]:
        return match[1]
    zone = "+00:00" if match[3] in ("Z", "UTC") else match[3]
    try:
        when = datetime.fromisoformat(f"{match[1]}T{match[2]}{zone}")
        return when.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError):
        return match[1]


def _claims(said: list[Unit], name: str) -> Iterator[Claim]:
    for unit in said:
        if unit.about not in (About.STATE, About.TRIED, None) or not unit.whole:
            continue
        for guess in guesses(unit.whole):
            bare = guess.kind == "note" and not guess.subject
            if bare and (unit.about is None or not unit.text or unit.text.endswith(":") or _is_attempt(unit)):
                continue
            yield Claim("", unit.whole, guess.kind, guess.subject, guess.expected, (_at(unit, name),))


def _numbered(claims: Iterator[Claim]) -> tuple[Claim, ...]:
    numbered = []
    for number, claim in enumerate(claims, start=1):
        if number > MOST:
            break
        numbered.append(Claim(f"c{number}", claim.text, claim.kind, claim.subject, claim.expected, claim.evidence))
    return tuple(numbered)


def _is_attempt(unit: Unit) -> bool:
    return unit.about is About.TRIED and (verdict(unit.whole) is not None or effect(unit.whole) is not None)


def _attempts(said: list[Unit], name: str) -> Iterator[Attempt]:
    for number, unit in enumerate((u for u in said if _is_attempt(u)), start=1):
        title, because = _split(unit)
        if _LABELS.match(title):
            title, because = unit.section or title, unit.whole
        yield Attempt(
            experiment=f"told-{number}",
            title=title,
            verdict=verdict(unit.whole) or "unknown",
            effect=effect(unit.whole),
            because=because,
            evidence=(_at(unit, name),),
        )


def _dead_ends(said: list[Unit], name: str) -> tuple[DeadEnd, ...]:
    found: dict[str, DeadEnd] = {}
    for unit in (u for u in said if u.about is About.DEAD_ENDS):
        for title, cause in _several(unit):
            base = slug(title) or f"line-{unit.line}"
            key, count = base, 1
            while key in found:
                count += 1
                key = f"{base}-{count}"
            retry = retry_condition(f"{title}; {cause}")
            found[key] = DeadEnd(key, title, cause, retry_when=retry, evidence=(_at(unit, name),))
            if len(found) == MOST:
                return tuple(found.values())
    return tuple(found.values())


def _several(unit: Unit) -> Iterator[tuple[str, str]]:
    """The (title, cause) pairs of a statement; one that lists three or more short names is as many dead ends."""
    sentence = unit.text.rstrip(".")
    parts = [p for p in re.split(r";\s+(?![^()]*\))", sentence) if p]
    if len(parts) < 3:
        parts = _LIST.split(sentence)
    if not unit.head and len(parts) >= 3 and all(len(part) <= 120 for part in parts):
        for part in parts:
            title, _, cause = part.partition(" (")
            yield title.strip(), cause.rstrip(")").strip()
    elif unit.whole:
        yield _split(unit)


def _split(unit: Unit) -> tuple[str, str]:
    """(what, why): the head and the text, or the text cut where the reason starts."""
    if unit.head:
        return _clean(unit.head), unit.text
    cut = _BECAUSE.search(unit.text)
    if cut is None or cut.start() < 3:
        return _clean(unit.text), ""
    why = unit.text[cut.end() :].strip()
    return _clean(unit.text[: cut.start()]), why[:-1] if cut[0].endswith("(") and why.endswith(")") else why


def _clean(title: str) -> str:
    """A title without the signs in front and the colon behind."""
    return re.sub(r"\A(?:[^\w\s`/~.(\-\"'\[]+\s*)+", "", title).rstrip(" :")[:200] or title[:200]


def _in_flight(said: list[Unit], name: str) -> Iterator[InFlight]:
    for number, unit in enumerate((u for u in said if u.about is About.IN_FLIGHT and u.whole), start=1):
        yield InFlight(f"pending-{number}", unit.whole, log=log_path(unit.whole), evidence=(_at(unit, name),))


def _next_steps(said: list[Unit]) -> Iterator[NextStep]:
    """Steps still to be taken: what is ticked off is not one."""
    for unit in said:
        if (
            unit.about is About.NEXT
            and unit.whole
            and unit.box not in ("x", "X")
            and not unit.whole.startswith(("✅", "☑"))
        ):
            yield NextStep(unit.whole)


def _questions(said: list[Unit]) -> Iterator[Question]:
    for number, unit in enumerate((u for u in said if u.about is About.QUESTIONS and u.whole), start=1):
        yield Question(f"q{number}", "left-open", unit.whole, "the handoff leaves it open")
