"""The questions: enough of them, of many kinds, and never another set under the same numbers."""

from __future__ import annotations

import hashlib

import pytest
from pydantic import ValidationError

from optagent.agent.config import Gate
from optagent.agent.gates.prompts import PROMPTS
from optagent.agent.gates.texts import TEXTS


def test_there_are_as_many_as_can_be_asked_for() -> None:
    settings = Gate()
    assert len(PROMPTS) == settings.prompts == 32
    assert len(TEXTS) == settings.texts == 24
    for more in ({"prompts": 33}, {"texts": 25}):
        with pytest.raises(ValidationError):
            Gate(**more)


def test_no_question_is_asked_twice_or_empty() -> None:
    assert len(set(PROMPTS)) == len(PROMPTS)
    assert len({text[:40] for text in TEXTS}) == len(TEXTS)
    assert all(prompt.strip() for prompt in PROMPTS)


def test_texts_are_long_enough_to_score() -> None:
    assert all(90 <= len(text.split()) <= 230 for text in TEXTS)


def test_questions_that_were_asked_stay_as_they_are() -> None:
    """Files of earlier examinations are compared question by question: new ones go to the end."""
    marks = [hashlib.sha256("\0".join(q).encode()).hexdigest()[:12] for q in (PROMPTS[:32], TEXTS[:24])]
    assert marks == ["81db1e0087e8", "2a9806d06d4a"]
