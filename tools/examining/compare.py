"""Two examinations with the same questions, held against each other. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import takewhile

from optagent.tools.calls.gate import Agreement, Comparison
from optagent.tools.examining.examination import Answer, Answers, Examination, Reading

EARLY_TOKENS = 4
FAR = 1.0
"""In nats: a token that is e times as likely to one as to the other."""

SHOWN_PROBLEMS = 3

Pair = tuple[Answer, Answer]
Scores = list[tuple[float, float]]
"""Log-probabilities of the same token: ours, the reference's."""


def compare(ours: Examination, reference: Examination | str, name: str) -> Comparison:
    """`ours` held against the `reference` from the file `name`; instead of one there may be the reason why it is missing."""
    if isinstance(reference, str):
        return Comparison(reference=name, problem=reference)
    if ours.questions != reference.questions:
        return Comparison(reference=name, problem="it was asked other questions")
    if ours.simulated != reference.simulated:
        return Comparison(reference=name, problem="one of the two servers is simulated, the other is not")
    paired, problems = _paired(ours.passes, reference.passes)
    generated = [score for _, pairs in paired for pair in pairs for score in _generated(*pair)]
    bare = sum(ours.logprobs is None and theirs.logprobs is not None for _, pairs in paired for ours, theirs in pairs)
    if paired and not generated:
        problems.append("no generated token with a log-probability is in both")
    elif bare:
        problems.append(f"{bare} answers came without the log-probabilities of their tokens")
    read, unread = _read(ours.readings, reference.readings)
    problems += unread
    changes = [a - b for a, b in read]
    return Comparison(
        reference=name,
        agreement=[_agreement(concurrency, pairs) for concurrency, pairs in paired],
        kl=k3(read),
        far=_mean(abs(change) > FAR for change in changes),
        shift=_mean(changes),
        scored=len(read),
        decode_kl=k3(generated),
        problem="; ".join(problems[:SHOWN_PROBLEMS]) or None,
    )


def k3(scores: Scores) -> float | None:
    """Mean of exp(d) - 1 - d with d = ours - reference, in nats a token: 0 when all are equal, never below.

    Schulman's third estimator of the KL divergence, http://joschu.net/blog/kl-approx.html.
    """
    return _mean(max(0.0, math.expm1(ours - theirs) - (ours - theirs)) for ours, theirs in scores)


def common_prefix(ours: Sequence[object], theirs: Sequence[object]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(ours, theirs, strict=False)))


def _paired(ours: list[Answers], theirs: list[Answers]) -> tuple[list[tuple[int, list[Pair]]], list[str]]:
    """By concurrency the prompts that both answered, and which passes have none."""
    earlier = {one.concurrency: one.answers for one in theirs}
    paired, problems = [], []
    for one in ours:
        both = zip(one.answers, earlier.get(one.concurrency, []), strict=False)
        pairs = [(a, b) for a, b in both if a.error is None and b.error is None]
        if pairs:
            paired.append((one.concurrency, pairs))
        elif one.answers:
            problems.append(f"no prompt was answered by both, {one.concurrency} at a time")
    return paired, problems


def _agreement(concurrency: int, pairs: list[Pair]) -> Agreement:
    units = [_units(*pair) for pair in pairs]
    prefixes = [common_prefix(ours, theirs) for ours, theirs in units]
    equal = [ours == theirs for ours, theirs in units]
    return Agreement(
        concurrency=concurrency,
        exact=_share(equal),
        early=_share(not same and prefix < EARLY_TOKENS for same, prefix in zip(equal, prefixes, strict=True)),
        prefix=_share(
            prefix / len(theirs) if theirs else not ours for prefix, (ours, theirs) in zip(prefixes, units, strict=True)
        ),
        finish=_share(ours.finish != theirs.finish for ours, theirs in pairs),
        length=_ratio(*(sum(lengths) for lengths in zip(*(_lengths(*pair) for pair in pairs), strict=True))),
    )


def _units(ours: Answer, theirs: Answer) -> tuple[Sequence[object], Sequence[object]]:
    """Tokens where both servers tell them, else words."""
    if ours.ids is not None and theirs.ids is not None:
        return ours.ids, theirs.ids
    return ours.text.split(), theirs.text.split()


def _lengths(ours: Answer, theirs: Answer) -> tuple[int, int]:
    if ours.tokens is not None and theirs.tokens is not None:
        return ours.tokens, theirs.tokens
    mine, others = _units(ours, theirs)
    return len(mine), len(others)


def _ratio(ours: int, theirs: int) -> float:
    """Of lengths; where the reference has none, as if each had one token more."""
    return ours / theirs if theirs else 1.0 + ours


def _generated(ours: Answer, theirs: Answer) -> Scores:
    """The tokens up to where the answers part: from there on they follow different texts."""
    if ours.ids is None or theirs.ids is None or ours.logprobs is None or theirs.logprobs is None:
        return []
    same = common_prefix(ours.ids, theirs.ids)
    return list(zip(ours.logprobs[:same], theirs.logprobs[:same], strict=False))


def _read(ours: list[Reading], theirs: list[Reading]) -> tuple[Scores, list[str]]:
    """The tokens of all texts that both read alike, and what could not be compared."""
    scores: Scores = []
    problems = []
    for number, (one, other) in enumerate(zip(ours, theirs, strict=False), 1):
        if one.error is not None:
            problems.append(f"text {number} was not read: {one.error}")
        elif other.error is not None:
            problems.append(f"text {number} was not read by the reference: {other.error}")
        elif one.ids != other.ids:
            problems.append(f"text {number} is tokenised differently")
        else:
            both = zip(one.logprobs, other.logprobs, strict=False)
            scores += [(a, b) for a, b in both if a is not None and b is not None]
    if ours and not scores and not problems:
        problems.append("no text has a token to compare")
    return scores, _counted(problems, len(ours))


def _counted(problems: list[str], asked: int) -> list[str]:
    """One line for many texts, which mostly fail for the same reason."""
    if len(problems) < 2:
        return problems
    return [f"{len(problems)} of {asked} texts cannot be compared, the first because {problems[0]}"]


def _share(values: Iterable[float]) -> float:
    shares = list(values)
    return math.fsum(shares) / len(shares)


def _mean(values: Iterable[float]) -> float | None:
    """None of nothing."""
    numbers = list(values)
    return math.fsum(numbers) / len(numbers) if numbers else None
