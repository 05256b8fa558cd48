"""Reads a ranked plan from markdown: headed items with YAML blocks, or the lists and tables a person wrote instead."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from optagent.agent.markdown import Document, scan, slug
from optagent.agent.plan.blocks import Unreadable
from optagent.agent.plan.draft import Draft, Place
from optagent.agent.plan.marks import clashing, telling
from optagent.agent.plan.model import Item, Plan, Problem, Status
from optagent.agent.plan.needs import Needing, check_needs
from optagent.agent.plan.outline import outline
from optagent.agent.plan.ranks import order

_NOTHING = (
    "no item found: an item is a heading with a rank (## 1. Title) and prose, best with a ```yaml block that gives "
    "its id, status and change"
)


class Reading(NamedTuple):
    """A plan, and for every item id the place in the document where its status stands."""

    plan: Plan
    places: dict[str, Place]
    document: Document


def read_plan(text: str, name: str = "plan") -> Plan:
    """The plan in `text`. Never raises: what cannot be read one way is in `Plan.problems`, by line.

    `name` is the title of a document that has none.
    """
    return read(text, name).plan


def read(text: str, name: str = "plan") -> Reading:
    """The plan with the places of its items, for a writer."""
    document = scan(text)
    found = outline(document)
    drafts = found.items or _free_form(document)
    ordered = order(drafts, found.structured)
    named = _named(drafts)
    items = [_item(draft, rank, named[id(draft)]) for draft, rank in ordered.drafts]
    lines = {named[id(d)]: d.fields.lines.get("needs", d.line) for d in drafts}
    problems = [
        *_about_document(document, found.stray, bool(drafts)),
        *(p for draft in drafts for p in _about_draft(draft)),
        *_duplicate_ids(drafts),
        *ordered.problems,
        *check_needs([Needing(item, lines[item.id]) for item in items]),
    ]
    plan = Plan(found.title or name, tuple(items), tuple(sorted(problems, key=lambda p: p.line)))
    places: dict[str, Place] = {}
    for draft in drafts:
        places.setdefault(named[id(draft)], draft.place)
    return Reading(plan, places, document)


def _free_form(document: Document) -> tuple[Draft, ...]:
    from optagent.agent.plan.lists import listed
    from optagent.agent.plan.tables import tabled

    return tabled(document, surely=True) or listed(document) or tabled(document)


def _named(drafts: Sequence[Draft]) -> dict[int, str]:
    """The id of every draft: its block's, or one made of its title that nobody else has."""
    names = {id(d): str(d.fields.values["id"]) for d in drafts if "id" in d.fields.values}
    taken = set(names.values())
    for draft in drafts:
        if id(draft) in names:
            continue
        base = slug(draft.title) or f"item-{'-'.join(map(str, draft.rank)) if draft.rank else draft.line}"
        name, count = base, 1
        while name in taken:
            count += 1
            name = f"{base}-{count}"
        names[id(draft)] = name
        taken.add(name)
    return names


def _item(draft: Draft, rank: int | None, name: str) -> Item:
    values: dict[str, Any] = {k: v for k, v in draft.fields.values.items() if k not in ("id", "status", "retry_when")}
    return Item(
        id=name,
        title=draft.title,
        line=draft.line,
        rank=rank,
        prose=draft.prose,
        status=_status(draft),
        retry_when=draft.fields.values.get("retry_when"),
        **values,
    )


def _status(draft: Draft) -> Status:
    if "status" in draft.fields.values:
        status: Status = draft.fields.values["status"]
        return status
    return draft.marks[0].status if draft.marks else Status.OPEN


def _about_document(document: Document, stray: Sequence[int], any_items: bool) -> Iterator[Problem]:
    if not any_items:
        yield Problem(1, _NOTHING)
    if document.swallowed is not None:
        yield Problem(document.swallowed + 1, "what opens here is never closed, and swallows the headings after it")
    for line in stray:
        yield Problem(line + 1, "this block stands under no item's heading, and is not read", fatal=False)


def _about_draft(draft: Draft) -> Iterator[Problem]:
    yield from draft.fields.problems
    for block in draft.extra_blocks:
        if isinstance(block, Unreadable):
            yield Problem(block.line, block.message)
        else:
            yield Problem(block.offset, f"a second yaml block in {draft.title[:60]!r}; an item has one", ambiguous=True)
    if clash := clashing(draft.marks):
        said = f"{draft.title[:60]!r} is marked both {clash[0].text!r} and {clash[1].text!r}"
        yield Problem(draft.line, said, ambiguous=True)
    stated = draft.fields.values.get("status")
    against = next((m for m in telling(draft.marks) if m.contradicts(stated)), None) if stated else None
    if against:
        said = f"the status is {stated}, but line {draft.line} marks {draft.title[:60]!r} as {against.text[:40]!r}"
        yield Problem(draft.fields.lines.get("status", draft.line), said, ambiguous=True)


def _duplicate_ids(drafts: Sequence[Draft]) -> Iterator[Problem]:
    first: dict[str, Draft] = {}
    for draft in drafts:
        name = draft.fields.values.get("id")
        if name in first:
            line = draft.fields.lines.get("id", draft.line)
            yield Problem(line, f"the id {name} is given twice: here and by the item of line {first[name].line}")
        elif name:
            first[name] = draft
