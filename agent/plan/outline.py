"""Which headings of a document are items: those with a block of their own, and ranked ones."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from optagent.agent.markdown import Document, Heading, is_rule
from optagent.agent.plan.blocks import Block, Unreadable, item_block
from optagent.agent.plan.draft import AfterProse, Draft
from optagent.agent.plan.fields import Fields, read_fields
from optagent.agent.plan.headings import Kind, Ranked, read_heading

_ABOUT_THE_PAST = re.compile(
    r"root cause|analysis|background|\bcontext\b|\bproblems?\b|bottleneck|findings|lessons|references|appendix|"
    r"current (?:state|status|situation|performance)|success criteria|open questions|benchmark|\bresults\b|how to|"
    r"runbook|\bsteps\b|instructions|lessons|technical debt|code changes|checklist",
    re.IGNORECASE,
)
_CHAPTER = re.compile(
    r"(?:executive )?summary|overview|background|introduction|goals?\b|objectives?\b|scope|method|references|"
    r"conclusion|current|environment|setup|architecture|timeline|risks?\b|success criteria|appendix|next steps|"
    r"results?\b|baseline|what\b|how\b|why\b|the problem|problem|headline|commands|outstanding|key\b|notes|open questions|"
    r"metrics|status|benchmark|testing|validation|deployment|monitoring|roadmap|recommendations?\b|"
    r"implementation (?:plan|order)|analysis",
    re.IGNORECASE,
)
_TIER = re.compile(
    r"\W*(?:\Z|(?:quick wins?|critical|must|should|could|nice to have|high|medium|low|now|next|later|immediate|"
    r"(?:short|medium|mid|long)[- ]term|do first|big(?:ger)? bets?)\b)",
    re.IGNORECASE,
)


class Seen(NamedTuple):
    """Heading number `number` with its place in the ranking, the blocks directly under it, and the headings above it."""

    number: int
    heading: Heading
    ranked: Ranked
    blocks: tuple[Block | Unreadable, ...]
    above: tuple[Heading, ...]

    @property
    def in_the_past(self) -> bool:
        """Whether it stands in a section that looks back, where numbers count findings and not ideas."""
        return any(_ABOUT_THE_PAST.search(above.text) for above in self.above if above.level > 1)

    @property
    def row(self) -> tuple[int, int]:
        """The row of headings it belongs to: those of its level under the same heading."""
        return (self.above[0].line if self.above else -1, self.heading.level)


class Outline(NamedTuple):
    """The items that stand under headings. `structured`: at least one has a block. `stray` are blocks under no item."""

    title: str
    items: tuple[Draft, ...]
    structured: bool
    stray: tuple[int, ...] = ()


def outline(document: Document) -> Outline:
    """The items under headings, in document order."""
    seen = [_see(document, n) for n in range(len(document.headings))]
    titled = bool(seen) and seen[0].heading.level == 1 and seen[0].ranked.kind is None
    candidates = seen[1:] if titled else seen
    structured = any(s.blocks for s in candidates)
    chosen = _with_blocks(candidates) if structured else _without_blocks(candidates)
    tiers = [s for s in chosen if _is_tier(document, s, chosen, structured)]
    items = tuple(_draft(document, s, tiers) for s in _outermost(document, chosen, tiers))
    first = document.headings[0].line if document.headings else len(document.lines)
    loose = [f for f in document.fences if f.first < first and item_block(document, f, ranked=False)]
    stray = tuple(f.first for f in loose) + tuple(b.fence.first for b in (seen[0].blocks if titled else ()))
    return Outline(seen[0].ranked.title if titled else "", items, structured, stray)


def _see(document: Document, number: int) -> Seen:
    heading = document.headings[number]
    ranked = read_heading(heading.text)
    blocks = _blocks(document, heading.body, document.own_end(number), ranked.kind is not None)
    return Seen(number, heading, ranked, tuple(blocks), tuple(document.above(number)))


def _blocks(document: Document, start: int, end: int, ranked: bool) -> Iterator[Block | Unreadable]:
    for fence in document.fences:
        if start <= fence.first < end and (block := item_block(document, fence, ranked)):
            yield block


def _with_blocks(seen: list[Seen]) -> list[Seen]:
    """In a document with blocks: whatever has one, and whatever is ranked; phases and steps only if one has a block."""
    kinds = {Kind.PRIORITY, Kind.ORDINAL} | {s.ranked.kind for s in seen if s.blocks}
    return [s for s in seen if s.blocks or (s.ranked.kind and s.ranked.kind in kinds and not s.in_the_past)]


def _without_blocks(seen: list[Seen]) -> list[Seen]:
    """In a document without blocks: the headings of the kind that ranks ideas most surely. Chapters are not among them."""
    usable = [s for s in seen if s.ranked.kind and not s.in_the_past]
    chapters = _chapters(usable)
    ideas = [
        s for s in usable if s.row not in chapters or s.ranked.kind is not Kind.ORDINAL or len(s.ranked.place or ()) > 1
    ]
    named = {s.ranked.kind for s in ideas if s.ranked.kind and not _is_tier_title(s)}
    if not named:
        return [s for s in ideas if s.ranked.kind is Kind.PRIORITY]
    kinds = {min(named), Kind.PRIORITY} if min(named) is Kind.ORDINAL else {min(named)}
    return [s for s in ideas if s.ranked.kind in kinds]


def _chapters(seen: list[Seen]) -> set[tuple[int, int]]:
    """The rows of numbered headings that are chapters (`1. Goal`, `2. Results`) rather than ideas."""
    rows: dict[tuple[int, int], list[bool]] = {}
    for s in seen:
        if s.ranked.kind is Kind.ORDINAL:
            rows.setdefault(s.row, []).append(bool(_CHAPTER.match(s.ranked.title)))
    return {row for row, found in rows.items() if sum(found) >= 2 or sum(found) * 3 > len(found)}


def _is_tier_title(seen: Seen) -> bool:
    return seen.ranked.kind is Kind.PRIORITY and bool(_TIER.match(seen.ranked.title))


def _is_tier(document: Document, seen: Seen, chosen: list[Seen], structured: bool) -> bool:
    """Whether the heading is a section (`P0: quick wins`) whose items stand under headings of their own."""
    if seen.blocks or seen.ranked.kind is None:
        return False
    end = document.section_end(seen.number)
    inner = [s for s in chosen if s.ranked.kind and seen.heading.line < s.heading.line < end]
    if structured and sum(1 for s in inner if s.blocks) > 1:
        return True
    return bool(_TIER.match(seen.ranked.title)) and bool(inner)


def _outermost(document: Document, chosen: list[Seen], tiers: list[Seen]) -> Iterator[Seen]:
    """Chosen headings that are no tier and stand inside no other item."""
    end = 0
    for seen in chosen:
        if seen in tiers or seen.heading.line < end:
            continue
        end = document.section_end(seen.number)
        yield seen


def _draft(document: Document, seen: Seen, tiers: list[Seen]) -> Draft:
    start, end = seen.heading.body, document.section_end(seen.number)
    blocks = list(_blocks(document, start, end, seen.ranked.kind is not None))
    first = next((b for b in blocks if isinstance(b, Block)), None)
    fields = read_fields(first) if first else Fields()
    kept = [n for n in range(start, end) if not any(b.fence.first <= n <= b.fence.last for b in blocks)]
    last = _last_prose_line(document, seen, end)
    if not fields.values.get("change"):
        own = [document.lines[n] for n in range(start, document.own_end(seen.number)) if n not in document.hidden]
        from optagent.agent.plan.labels import read_labels

        fields.values = {**read_labels(own), **fields.values}
    above = seen.above
    return Draft(
        title=seen.ranked.title,
        line=seen.heading.line + 1,
        place=first or (None if blocks else AfterProse(last)),
        rank=seen.ranked.place,
        kind=seen.ranked.kind,
        tier=next((t.ranked.place or () for t in tiers if t.heading in above), ()),
        parent=above[0].line + 1 if above else 0,
        prose=_prose(document, kept),
        marks=seen.ranked.marks,
        fields=fields,
        extra_blocks=tuple(b for b in blocks if b is not first),
    )


def _last_prose_line(document: Document, seen: Seen, end: int) -> int:
    """The last line of the item that is neither empty nor a rule."""
    body = range(seen.heading.body, end)
    filled = (n for n in reversed(body) if n in document.hidden or not _empty(document.lines[n]))
    return next(filled, seen.heading.body - 1)


def _empty(line: str) -> bool:
    return not line.strip() or is_rule(line)


def _prose(document: Document, kept: list[int]) -> str:
    """The lines as text, without empty lines and rules at either end, and without the gap a block leaves."""
    pieces: list[list[str]] = []
    before = None
    for number in kept:
        if before is None or number != before + 1:
            pieces.append([])
        pieces[-1].append(document.lines[number])
        before = number
    texts = ["\n".join(piece).strip() for piece in pieces]
    lines = "\n\n".join(text for text in texts if text).split("\n")
    while lines and _empty(lines[-1]):
        lines.pop()
    while lines and _empty(lines[0]):
        lines.pop(0)
    return "\n".join(lines).strip()
