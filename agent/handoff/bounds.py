"""A handoff of bounded size: what the next sitting needs most, and where the rest is. Pure.

Every text is cut to a length, every section gets a share of the room, and what a section does not use goes to the others.
Data that something is decided by (ids, changes, conditions, expected values, configurations) is whole or left out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from optagent.agent.change import Change
from optagent.agent.handoff.model import Handoff, LeftOut, Place
from optagent.agent.handoff.render import render_handoff
from optagent.agent.jsonable import to_body
from optagent.agent.records import (
    Attempt,
    Baseline,
    Claim,
    DeadEnd,
    InFlight,
    Lesson,
    NextStep,
    Option,
    Part,
    Question,
)

LIMIT = 20_000
"""Bytes of a handoff."""
FEWEST_BYTES = 1_200
"""Of a configuration or change that is never left out for its size."""
CONFIGURATION_BYTES, CHANGE_BYTES, DATUM = 6_000, 1_500, 400
"""Of a baseline's configuration, of a change, and characters of a single value, at most."""
TRIES = 16
SHRINK = 0.75
WHOLE = "optagent handoff --full shows them"

R = TypeVar("R")


@dataclass(frozen=True)
class Section:
    """A part of the handoff that can grow: its field, what its records are called, its share of the room."""

    field: str
    called: str
    share: float


SECTIONS = (
    Section("in_flight", "experiments in flight", 0.1),
    Section("questions", "open questions", 0.13),
    Section("claims", "claims", 0.14),
    Section("dead_ends", "dead ends", 0.25),
    Section("next_steps", "next steps", 0.08),
    Section("attempts", "experiments", 0.22),
    Section("lessons", "lessons", 0.08),
)
"""The shares add up to one. In the order in which they get what is left over at last."""


def bounded(
    handoff: Handoff,
    weight: Callable[[DeadEnd], int] = lambda dead_end: 0,
    more: Mapping[str, int] | None = None,
    where: str = WHOLE,
    limit: int = LIMIT,
) -> Handoff:
    """The handoff in at most `limit` bytes as rendered, with a line for everything that it leaves out.

    Dead ends with more `weight` come first, then later ones; of attempts and lessons the latest stay, of the rest the first.
    `more` counts records by section that were left out before, `where` says where they all are.
    """
    ordered = _by_importance(handoff, weight)
    scale, room = 1.0, 1.0
    best: Handoff | None = None
    for _ in range(TRIES):
        small, size = _fitted(handoff, ordered, more or {}, where, limit, scale, room)
        if size <= limit:
            best = small
            if size >= 0.93 * limit or not small.left_out or room > 1.6:
                return small
            room = max(room + 0.02, room * 0.98 * limit / size)  # the estimate was too careful
        elif best is not None:
            return best
        else:
            room *= SHRINK
            scale = scale if room > 0.5 else scale * SHRINK
    return best or _skeleton(handoff, 0.0)


def _fitted(
    handoff: Handoff, ordered: Mapping[str, Sequence[Any]], more: Mapping[str, int], where: str, limit: int, scale: float,
    room: float,
) -> tuple[Handoff, int]:  # fmt: skip
    """The handoff for texts of this scale and this much room, and its size."""
    base = _skeleton(handoff, scale)
    left = max(0, limit - _size(base) - 120 * len(SECTIONS)) * room
    kept = _chosen(ordered, left, scale)
    fields: dict[str, Any] = {}
    gone = list(base.left_out)
    for section in SECTIONS:
        chosen = kept[section.field]
        fields[section.field] = tuple(chosen[index] for index in sorted(chosen))
        count = len(getattr(handoff, section.field)) - len(chosen) + more.get(section.field, 0)
        if count > 0:
            gone.append(LeftOut(section.called, count, where))
    small = replace(base, **fields, left_out=tuple(gone))
    return small, _size(small)


def _size(handoff: Handoff) -> int:
    return len(render_handoff(handoff).encode())


def _by_importance(handoff: Handoff, weight: Callable[[DeadEnd], int]) -> dict[str, Sequence[tuple[int, Any]]]:
    """The records of each section with their places, the most important first."""
    ordered: dict[str, Sequence[tuple[int, Any]]] = {}
    for section in SECTIONS:
        records = list(enumerate(getattr(handoff, section.field)))
        if section.field == "dead_ends":
            records.sort(key=lambda each: (weight(each[1]), each[0]), reverse=True)
        elif section.field in ("attempts", "lessons"):
            records.reverse()
        ordered[section.field] = records
    return ordered


def _chosen(ordered: Mapping[str, Sequence[tuple[int, Any]]], room: float, scale: float) -> dict[str, dict[int, Any]]:
    """By section, the records that fit, cut, by their place. Each section gets its share, what is left over is shared out
    again, and at last goes to whoever comes first."""
    kept: dict[str, dict[int, Any]] = {section.field: {} for section in SECTIONS}
    taken = dict.fromkeys(kept, 0)
    left = room
    for last in (False, False, False, True):
        shared = left
        for section in SECTIONS:
            rest = ordered[section.field][taken[section.field] :]
            found, looked, used = _fill(rest, left if last else section.share * shared, scale)
            kept[section.field] |= found
            taken[section.field] += looked
            left -= used
    return kept


def _fill(records: Sequence[tuple[int, Any]], room: float, scale: float) -> tuple[dict[int, Any], int, float]:
    """(records that fit, how many were looked at, bytes used): up to the first that does not fit."""
    found: dict[int, Any] = {}
    used, looked = 0.0, 0
    for place, record in records:
        small = cut(record, scale)
        size = 0 if small is None else _cost(small)
        if used + size > room:
            break
        looked += 1
        if small is not None:
            found[place] = small
            used += size
    return found, looked, used


def _cost(record: Any) -> int:
    """About how many bytes a record takes: as data, and for people."""
    return 2 * len(json.dumps(to_body(record), ensure_ascii=False).encode()) + 20


def _skeleton(handoff: Handoff, scale: float) -> Handoff:
    """The handoff without the sections that grow, its texts and configurations cut."""
    baseline, gone = _baseline(handoff.baseline, scale, "baseline")
    first, gone_first = _baseline(handoff.first_baseline, scale, "first baseline")
    empty: dict[str, Any] = {section.field: () for section in SECTIONS}
    return replace(
        handoff,
        campaign=clip(handoff.campaign, 120, scale),
        objective=clip(handoff.objective, 500, scale),
        principles=tuple(clip(p, 200, scale) for p in handoff.principles[: round(12 * scale) or 1]),
        ended=clip(handoff.ended, 300, scale),
        total_gain=clip(handoff.total_gain, 200, scale),
        notes=clip(handoff.notes, 600, scale),
        place=_place(handoff.place, scale),
        first_baseline=first,
        baseline=baseline,
        left_out=(*gone, *gone_first),
        **empty,
    )


def _place(place: Place | None, scale: float) -> Place | None:
    if place is None:
        return None
    return place if max(len(place.host), len(place.user), len(place.folder)) <= DATUM * scale else None


def _baseline(baseline: Baseline | None, scale: float, called: str) -> tuple[Baseline | None, list[LeftOut]]:
    """The baseline with a configuration of bounded size, and what of that was left out: the largest values first."""
    if baseline is None:
        return None, []
    c, gone = baseline.configuration, []
    parts: dict[str, dict[str, Any]] = {"file": dict(c.files), "variable": dict(c.env), "flag": dict(c.flags)}
    sizes = sorted(
        ((len(json.dumps([k, v])), kind, k) for kind, values in parts.items() for k, v in values.items()), reverse=True
    )
    total = sum(size for size, _, _ in sizes)
    for size, kind, name in sizes:
        if total <= max(CONFIGURATION_BYTES * scale, FEWEST_BYTES * min(1.0, 2 * scale)):
            break
        parts[kind].pop(name)
        total -= size
        gone.append(f"{kind} {name[:60]}")
    where = "the journal has its text, and so has the environment in which it was measured"
    left = [LeftOut(f"{called}: {', '.join(gone)[:300]}", len(gone), where)] if gone else []
    configuration = replace(c, files=parts["file"], env=parts["variable"], flags=parts["flag"])
    m = baseline.measurement
    small = None if m is None else replace(m, evidence=_evidence(m.evidence, scale, 4))
    return Baseline(configuration, small, clip(baseline.label, 160, scale)), left


def clip(text: str, length: int, scale: float = 1.0) -> str:
    """The text in at most so many characters."""
    most = max(1, round(length * scale))
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


def _evidence(evidence: Sequence[str], scale: float, most: int = 2) -> tuple[str, ...]:
    return tuple(e for e in evidence[:most] if len(e) <= DATUM * scale)


def cut(record: Any, scale: float) -> Any:
    """The record with its texts cut; None when something in it that is decided by is too large to be told."""
    return _CUTS[type(record)](record, scale)


def _short(*data: str | None) -> bool:
    return all(d is None or len(d) <= DATUM for d in data)


def _change(change: Change) -> Change | None:
    return change if len(json.dumps(to_body(change))) <= CHANGE_BYTES else None


def _claim(c: Claim, scale: float) -> Claim | None:
    if not _short(c.id, c.kind, c.subject, c.expected):
        return None
    return replace(c, text=clip(c.text, 160, scale), evidence=_evidence(c.evidence, scale))


def _lesson(lesson: Lesson, scale: float) -> Lesson:
    return replace(lesson, text=clip(lesson.text, 320, scale), evidence=_evidence(lesson.evidence, scale))


def _attempt(a: Attempt, scale: float) -> Attempt | None:
    if not _short(a.experiment, a.item, a.verdict, a.environment):
        return None
    return replace(
        a, title=clip(a.title, 120, scale), change=clip(a.change, 160, scale), because=clip(a.because, 200, scale),
        evidence=_evidence(a.evidence, scale),
    )  # fmt: skip


def _dead_end(d: DeadEnd, scale: float) -> DeadEnd | None:
    if not _short(d.id, d.item, d.retry_when, d.cause_kind, d.environment):
        return None
    return replace(
        d, title=clip(d.title, 120, scale), cause=clip(d.cause, 240, scale), evidence=_evidence(d.evidence, scale),
        change=_change(d.change) if d.change is not None else None,
    )  # fmt: skip


def _in_flight(f: InFlight, scale: float) -> InFlight | None:
    if not _short(f.experiment, f.log):
        return None
    parts = tuple(_part(p, scale) for p in f.parts[:12])
    return replace(
        f, title=clip(f.title, 160, scale), state=clip(f.state, 240, scale), parts=parts,
        evidence=_evidence(f.evidence, scale),
    )  # fmt: skip


def _part(p: Part, scale: float) -> Part:
    return replace(p, title=clip(p.title, 120, scale), change=_change(p.change) or Change())


def _next_step(step: NextStep, scale: float) -> NextStep | None:
    return replace(step, text=clip(step.text, 240, scale)) if _short(step.item) else None


def _question(q: Question, scale: float) -> Question | None:
    if not _short(q.id, q.reason, q.item, q.answer):
        return None
    options = tuple(Option(o.key, clip(o.leads_to, 160, scale)) for o in q.options[:8] if _short(o.key))
    return replace(
        q, text=clip(q.text, 400, scale), why=clip(q.why, 300, scale), options=options,
        facts=tuple(clip(f, 200, scale) for f in q.facts[:6]),
    )  # fmt: skip


_CUTS: dict[type, Callable[[Any, float], Any]] = {
    Claim: _claim,
    Lesson: _lesson,
    Attempt: _attempt,
    DeadEnd: _dead_end,
    InFlight: _in_flight,
    NextStep: _next_step,
    Question: _question,
}
