"""What a server said in one examination, as it is stored: values that can be saved, loaded and compared."""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from optagent.tools.calls.gate import Examine

FLOOR = -100.0
"""Log-probabilities (natural) are bounded by this: -inf, NaN and a missing value are no smaller, and differences stay
finite. A token that improbable is never sampled."""

LogProb = Annotated[float, Field(ge=FLOOR, le=0)]
Count = Annotated[int, Field(ge=0, lt=2**31)]
TokenId = Annotated[int, Field(ge=0, lt=2**31)]


class Stored(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class Answer(Stored):
    """One answer. `ids` are its tokens and `logprobs` theirs, None where the server tells none. `tokens` is how many
    it has. With an `error` there is no answer."""

    text: str = ""
    ids: list[TokenId] | None = None
    logprobs: list[LogProb] | None = None
    tokens: Count | None = None
    finish: str = ""
    latency_s: float | None = None
    error: str | None = None


class Reading(Stored):
    """A text as the server reads it: its tokens and their log-probabilities, None for the first, which follows nothing."""

    ids: list[TokenId] = []
    logprobs: list[LogProb | None] = []
    error: str | None = None


class Answers(Stored):
    """The answers to all prompts in their order, asked `concurrency` at a time."""

    concurrency: int
    answers: list[Answer]


class Examination(Stored):
    """`questions` tells examinations apart that asked something else; `draws` are at temperature 1. Another `format` is
    not read."""

    format: Literal[1]
    key: str
    questions: str
    simulated: bool = False
    passes: list[Answers] = []
    readings: list[Reading] = []
    draws: list[Answer] = []
    accept_length: float | None = None

    @property
    def answered(self) -> bool:
        """Whether the server answered anything at all."""
        answers = (answer for one in self.passes for answer in one.answers)
        return any(answer.error is None for answer in answers) or any(one.error is None for one in self.readings)


def questions_of(request: Examine) -> str:
    """A hash of everything that is asked; what it has in common, can be compared."""
    asked = [request.prompts, request.texts, request.max_tokens, request.concurrency]
    return hashlib.sha256(json.dumps(asked).encode()).hexdigest()
