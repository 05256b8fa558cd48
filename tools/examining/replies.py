"""Answers and readings out of what servers reply: SGLang's own form and OpenAI's. All of it may be anything."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, TypeGuard

from optagent.tools.examining.examination import FLOOR, Answer, Reading

DIGITS = 6
LONGEST_TEXT = 20_000
"""Characters of an answer that are stored; what is compared are its tokens."""

LONGEST_ERROR = 300


def generated(reply: object, wall_s: float) -> Answer:
    """An answer of `/generate`, which took `wall_s` seconds; a simulated server tells its own time."""
    body = _object(reply)
    if not isinstance(body.get("text"), str):
        return Answer(error=f"the server answered without a text: {_text(reply, LONGEST_ERROR)}")
    meta = _object(body.get("meta_info"))
    reason = meta.get("finish_reason")
    finish = _text(_object(reason).get("type") if isinstance(reason, dict) else reason, LONGEST_ERROR)
    if finish == "abort":
        return Answer(error=f"the server gave it up: {_text(_object(reason).get('message'), LONGEST_ERROR)}")
    ids, logprobs = _ids(body.get("output_ids")), _scored(meta.get("output_token_logprobs"))
    if ids is None and logprobs is not None:
        ids = [token for token, _ in logprobs]
    told = _count(meta.get("completion_tokens"))
    # The smaller one is believed: a server that cuts its answers short may still count what was asked for.
    counts = [count for count in (told, None if ids is None else len(ids)) if count is not None]
    return Answer(
        text=_text(body["text"], LONGEST_TEXT),
        ids=ids,
        logprobs=[value for _, value in logprobs] if logprobs and [token for token, _ in logprobs] == ids else None,
        tokens=min(counts, default=None),
        finish=finish,
        latency_s=_virtual_s(meta) if meta.get("simulated") is True else round(wall_s, DIGITS),
    )


def completed(reply: object, wall_s: float) -> Answer:
    """An answer of `/v1/completions`, whose tokens stay unknown."""
    body = _object(reply)
    choices = body.get("choices")
    choice = _object(choices[0] if isinstance(choices, list) and choices else None)
    if not isinstance(choice.get("text"), str):
        return Answer(error=f"the server answered without a text: {_text(reply, LONGEST_ERROR)}")
    return Answer(
        text=_text(choice["text"], LONGEST_TEXT),
        tokens=_count(_object(body.get("usage")).get("completion_tokens")),
        finish=_text(choice.get("finish_reason"), LONGEST_ERROR),
        latency_s=round(wall_s, DIGITS),
    )


def read(reply: object) -> Reading:
    """A text of `/generate` with the log-probabilities of its tokens."""
    told = _object(_object(reply).get("meta_info")).get("input_token_logprobs")
    scored = _scored(told)
    if not scored:
        return Reading(error="the server gave no log-probabilities of it")
    logprobs = [value for _, value in scored[1:]]
    return Reading(ids=[token for token, _ in scored], logprobs=[None, *logprobs])


def accept_length(reply: object) -> float | None:
    """The server's own mean accept length in its `/server_info`; None without speculation."""
    states = _object(reply).get("internal_states")
    value = _object(states[0] if isinstance(states, list) and states else None).get("avg_spec_accept_length")
    return _number(value)


def first_model(reply: object) -> str:
    """The name of the model that is served, "default" where the server does not say."""
    models = _object(reply).get("data")
    return str(_object(models[0] if isinstance(models, list) and models else None).get("id", "default"))


def says_simulated(reply: object) -> bool:
    return _object(_object(reply).get("meta_info")).get("simulated") is True


def _scored(told: object) -> list[tuple[int, float]] | None:
    """(token, log-probability) of SGLang's [[log-probability, token, text], ...]; None when it is anything else."""
    if not isinstance(told, list):
        return None
    scored = []
    for entry in told:
        if not isinstance(entry, list) or len(entry) < 2 or not _is_natural(entry[1]):
            return None
        scored.append((entry[1], _bounded(entry[0])))
    return scored


def _bounded(value: object) -> float:
    number = _number(value)
    return FLOOR if number is None else round(min(0.0, max(FLOOR, number)), DIGITS)


def _virtual_s(meta: Mapping[str, Any]) -> float | None:
    virtual = _object(meta.get("virtual"))
    arrived, finished = _number(virtual.get("arrived_s")), _number(virtual.get("finished_s"))
    return None if arrived is None or finished is None else round(finished - arrived, DIGITS)


def _ids(told: object) -> list[int] | None:
    return told if isinstance(told, list) and all(map(_is_natural, told)) else None


def _count(value: object) -> int | None:
    return value if _is_natural(value) else None


def _is_natural(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31


def _number(value: object) -> float | None:
    """A finite number; NaN, infinities and everything else are None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def _text(value: object, longest: int) -> str:
    """At most `longest` characters, and none that cannot be stored."""
    text = "" if value is None else str(value)
    return text[:longest].encode("utf-8", "replace").decode()


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
