"""Putting the questions to the server, over HTTP, a few at a time."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TypeVar

from optagent.tools.calls.gate import Examine
from optagent.tools.examining.conversation import Conversation
from optagent.tools.examining.examination import Answer, Answers, Examination, questions_of
from optagent.tools.network import client

DRAWS = 6
REPORT_EVERY_S = 0.3

T = TypeVar("T")
Tell = Callable[[str], None]


def ask_everything(request: Examine, timeout_s: float, simulated: bool, report: Tell) -> Examination:
    """All of `request` asked once. What the server did not answer is in it as an error.

    The cache is emptied before each pass, so that every examination reads its prompts anew, whatever was asked before;
    texts are read without the cache anyway (SGLang takes nothing from it before `logprob_start_len`).
    """
    tell = _a_few_times_a_second(report)
    with client(request.url, timeout_s) as http:
        talk = Conversation(http, timeout_s)
        passes = [_pass(talk, request, concurrency, tell) for concurrency in dict.fromkeys((1, request.concurrency))]
        accept_length = talk.accept_length()
        readings = _each(talk.read, request.texts, 1, lambda done: tell(f"gate: {done} of {len(request.texts)} texts"))
        draws = _draws(talk, request, tell)
    return Examination(
        format=1,
        key=request.key,
        questions=questions_of(request),
        simulated=simulated or talk.simulated,
        passes=passes,
        readings=readings,
        draws=draws,
        accept_length=accept_length,
    )


def _pass(talk: Conversation, request: Examine, concurrency: int, tell: Tell) -> Answers:
    talk.empty_cache()
    how = "alone" if concurrency == 1 else f"{concurrency} at a time"
    answers = _each(
        lambda prompt: talk.answer(prompt, request.max_tokens, temperature=0),
        request.prompts,
        concurrency,
        lambda done: tell(f"gate: {done} of {len(request.prompts)} {how}"),
    )
    return Answers(concurrency=concurrency, answers=answers)


def _draws(talk: Conversation, request: Examine, tell: Tell) -> list[Answer]:
    """The first prompt at temperature 1: once, then several times at once, so that a remembered answer shows."""

    def draw(prompt: str) -> Answer:
        return talk.answer(prompt, request.max_tokens, temperature=1)

    first = _each(draw, request.prompts[:1], 1, lambda done: tell(f"gate: {done} of {DRAWS} drawn"))
    rest = request.prompts[:1] * (DRAWS - 1)
    return first + _each(draw, rest, len(rest), lambda done: tell(f"gate: {done + 1} of {DRAWS} drawn"))


def _each(ask: Callable[[str], T], questions: Sequence[str], concurrency: int, done: Callable[[int], None]) -> list[T]:
    """The answers in the order of the questions. An interruption does not wait for what is being asked."""
    pool = ThreadPoolExecutor(max(1, concurrency))
    try:
        asked = [pool.submit(ask, question) for question in questions]
        for number, _ in enumerate(as_completed(asked), 1):
            done(number)
        return [one.result() for one in asked]
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _a_few_times_a_second(report: Tell) -> Tell:
    told_at = -math.inf

    def tell(text: str) -> None:
        nonlocal told_at
        now = time.monotonic()
        if now - told_at >= REPORT_EVERY_S:
            told_at = now
            report(text)

    return tell
