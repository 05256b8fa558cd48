"""What a pass of answers comes to: counts of what is wrong with them, and the first few in words."""

from __future__ import annotations

from statistics import median

from optagent.tools.calls.gate import Pass
from optagent.tools.examining.examination import Answer, Answers, Examination
from optagent.tools.repetition import repetitive

SHOWN_PROBLEMS = 5


def tally(asked: Answers, max_tokens: int) -> Pass:
    answers = asked.answers
    given = [answer for answer in answers if answer.error is None]
    latencies = [answer.latency_s for answer in given if answer.latency_s is not None]
    problems = [f"prompt {at}: {what}" for at, one in enumerate(answers, 1) if (what := _wrong(one, max_tokens))]
    return Pass(
        concurrency=asked.concurrency,
        problems=problems[:SHOWN_PROBLEMS],
        failed=len(answers) - len(given),
        empty=sum(_empty(answer) for answer in given),
        short=sum(_short(answer, max_tokens) for answer in given),
        stopped=sum(answer.finish == "stop" for answer in given),
        repetitive=sum(repetitive(answer.ids, answer.text) for answer in given),
        tokens=sum(answer.tokens or 0 for answer in given),
        latency_s=round(median(latencies), 6) if latencies else None,
    )


def variety(draws: list[Answer]) -> float | None:
    """The share of different answers; None when there are not two that can be told apart."""
    given = [draw.text if draw.ids is None else tuple(draw.ids) for draw in draws if draw.error is None]
    return len(set(given)) / len(given) if len(given) > 1 else None


def first_error(examination: Examination) -> str | None:
    errors = [answer.error for one in examination.passes for answer in one.answers]
    errors += [reading.error for reading in examination.readings]
    return next((error for error in errors if error is not None), None)


def _wrong(answer: Answer, max_tokens: int) -> str | None:
    if answer.error is not None:
        return answer.error
    if _empty(answer):
        return "an empty answer"
    if _short(answer, max_tokens):
        return f"{answer.tokens} tokens instead of {max_tokens}, although it ended by length"
    if repetitive(answer.ids, answer.text):
        return "the answer repeats itself"
    return None


def _empty(answer: Answer) -> bool:
    return not answer.text.strip()


def _short(answer: Answer, max_tokens: int) -> bool:
    return answer.finish == "length" and answer.tokens is not None and answer.tokens < max_tokens
