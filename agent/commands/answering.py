"""`optagent answer`: the owner's word on an open question."""

from __future__ import annotations

import json
from difflib import get_close_matches
from pathlib import Path

from optagent.agent.commands.printable import clip, optagent_in
from optagent.agent.commands.workspace import Silent, find_workspace, read_journal, writing
from optagent.agent.errors import BadInput
from optagent.agent.ledger import Ledger
from optagent.agent.records import Question

LONGEST = 4000
"""Characters of an answer in words."""


def give_answer(root: Path, question_id: str, text: str, *, as_json: bool) -> int:
    """Record the answer. Raises BadInput when there is no such question or it was answered, before anything is opened."""
    space = find_workspace(root)
    found = _check(read_journal(space).ledger, question_id, text)
    with writing(space, f"answer {found.id}", Silent()) as session:
        question = _check(session.ledger, question_id, text)
        text = meant(question, text)
        session.note("answer", {"id": question.id, "answer": text}, question.id)
    chosen = next((o for o in question.options if o.key == text), None)
    if as_json:
        print(json.dumps({"id": question.id, "answer": text.strip(), "option": chosen is not None}))
    elif chosen is not None:
        print(f"{question.id}: {chosen.key} - {chosen.leads_to}\nNext: {optagent_in(root)} continue")
    else:
        keys = ", ".join(o.key for o in question.options)
        print(
            f"{question.id}: recorded in your words. The ranked planner acts only on its options ({keys}),\n"
            "so what it asked about stays aside until a person or a model has read it."
        )
    return 0


def meant(question: Question, text: str) -> str:
    """The option that was typed, whatever its case, or an answer in words. A single word that is no option is a slip of
    the keyboard rather than an answer: BadInput."""
    said = text.strip()
    keys = [o.key for o in question.options]
    if said.lower() in keys:
        return said.lower()
    if keys and len(said.split()) == 1:
        near = get_close_matches(said.lower(), keys, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        none = f"{clip(said, 40)!r} is none of the options: {', '.join(keys)}{hint}"
        raise BadInput(question.id, f"{none} (an answer in your own words has two words or more)")
    return said


def _check(ledger: Ledger, question_id: str, text: str) -> Question:
    question = next((q for q in ledger.questions.values() if q.id.lower() == question_id.strip().lower()), None)
    waiting = ", ".join(q.id for q in ledger.open_questions()) or "none"
    if question is None:
        raise BadInput(question_id, f"there is no such question; open: {waiting}")
    if question.withdrawn:
        raise BadInput(question_id, f"was withdrawn, its reason is gone; open: {waiting}")
    if question.answer is not None:
        raise BadInput(question_id, f"was answered already ({question.answer}); open: {waiting}")
    if not text.strip() or len(text) > LONGEST:
        raise BadInput(question_id, f"an answer is 1 to {LONGEST} characters long")
    meant(question, text)
    return question
