"""The rules that an examination is held to: some hold by themselves, the others against an earlier examination. Pure.

G0 (every prompt answered, nothing cut, empty or degenerate), G1 (greedy answers agree), G2 (log-probabilities agree),
G3 (accept length). What is said is for a performance engineer: each number with its limit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from optagent.agent.gates.limits import CEILING, AnswerLimits, Asked, Limits
from optagent.tools.calls.gate import Agreement, Comparison, Examined, Pass

ENOUGH_TOKENS = 200
"""Fewer scored tokens than this say nothing about probabilities."""
EMPTY_SHARE = 0.10
"""Of a first examination: some prompts may be answered with nothing by the model itself."""
MORE_REPETITIVE = 0.25
"""As a share of the answers, on top of the reference's: greedy answers of any model run into a loop now and then."""
ACCEPT_LENGTH_STEP = 0.10
"""A drop beyond this with the same draft is corrupted verification, whatever the speed; a rise can be collapsed text."""
LOOPS_WITH_A_RISE = 2
CACHED_RATIO = 0.25
"""Of the latency of one of many answers at a time over that of one alone. Sharing a step never makes an answer faster."""
SHOWN = 6


@dataclass(frozen=True)
class Held:
    """The examination held against an earlier one. `whose` names the earlier one in messages, as in "the baseline's".
    With `whole` all rules apply, otherwise only the limits."""

    comparison: Comparison
    reference: Examined
    limits: Limits
    whose: str = "the baseline's"
    whole: bool = True
    same_draft: bool = True


@dataclass(frozen=True)
class GateResult:
    """`problems` are why the output is not right, `notes` what is worth knowing about output that is."""

    passed: bool
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def judge_examined(examined: Examined, asked: Asked, held: Sequence[Held] = ()) -> GateResult:
    """Whether the output is right. Without anything to hold it against only the rules apply that need nothing."""
    reference = next((h.reference for h in held if h.whole), None)
    problems = [*_by_itself(examined, asked, reference)]
    notes: list[str] = []
    for each in held:
        problems += _against(examined, asked, each)
        notes += _notes(examined, each)
    return GateResult(not problems, tuple(problems[:SHOWN]), tuple(notes))


def was_compared(comparison: Comparison, asked: Asked) -> bool:
    """Whether the answers of every pass were held against each other."""
    return {a.concurrency for a in comparison.agreement} >= set(asked.passes)


def how(concurrency: int) -> str:
    """A pass in words."""
    return "alone" if concurrency == 1 else f"{concurrency} at a time"


def _by_itself(examined: Examined, asked: Asked, reference: Examined | None) -> Iterator[str]:
    if examined.problem:
        yield examined.problem
    elif not examined.passes:
        yield "no answer at all"
    else:
        for concurrency in asked.passes:
            done = _pass(examined, concurrency)
            if done is None:
                yield f"{how(concurrency)}: no answer at all"
            else:
                yield from _answers(done, asked, _pass(reference, concurrency) if reference else None)
    if examined.accept_length is not None and examined.accept_length <= 1.0:
        yield "accept length is 1.00: every draft is rejected"


def _pass(examined: Examined, concurrency: int) -> Pass | None:
    return next((p for p in examined.passes if p.concurrency == concurrency), None)


def _answers(done: Pass, asked: Asked, before: Pass | None) -> Iterator[str]:
    way, count = how(done.concurrency), asked.prompts
    if done.failed:
        yield f"{way}: {done.failed} of {count} prompts were not answered"
    if done.short:
        yield f"{way}: {done.short} of {count} answers are shorter than asked although they ended by length"
    empty = before.empty if before else EMPTY_SHARE * count
    if done.empty > empty:
        yield f"{way}: {done.empty} of {count} answers are empty, at most {empty:.0f} may be"
    if before and done.repetitive > before.repetitive + MORE_REPETITIVE * count:
        yield f"{way}: {done.repetitive} of {count} answers repeat themselves, {before.repetitive} of the baseline's do"


def _against(examined: Examined, asked: Asked, held: Held) -> Iterator[str]:
    for agreement in held.comparison.agreement:
        if limits := held.limits.answers.get(agreement.concurrency):
            yield from _agreement(agreement, limits, asked, held.whose)
    yield from _probabilities(held)
    if held.whole:
        yield from _cached(examined, held.reference, asked)
        yield from _variety(examined, held.reference)
        yield from _accept_length(examined, held)


def _agreement(seen: Agreement, limits: AnswerLimits, asked: Asked, whose: str) -> Iterator[str]:
    way, count = how(seen.concurrency), asked.prompts
    if not seen.early <= limits.early:
        yield (
            f"{way}: {seen.early:.0%} of the answers part from {whose} within the first four tokens, "
            f"at most {limits.early:.0%} may"
        )
    if limits.exact is not None and not seen.exact >= limits.exact:
        yield (
            f"{way}: {seen.exact * count:.0f} of {count} answers are the same as {whose}, at least "
            f"{math.ceil(limits.exact * count)} should be: the change moves numbers that it should leave alone"
        )
    if limits.finish is not None and not seen.finish <= limits.finish:
        yield f"{way}: {seen.finish:.0%} of the answers end for another reason than {whose}, at most {limits.finish:.0%} may"
    if limits.length is not None and not 1 / limits.length <= seen.length <= limits.length:
        yield (
            f"{way}: the answers are {seen.length:.2f} times as long as {whose}, "
            f"{1 / limits.length:.2f} to {limits.length:.2f} is expected"
        )


def _probabilities(held: Held) -> Iterator[str]:
    seen, limits = held.comparison, held.limits
    if seen.scored >= ENOUGH_TOKENS:
        if seen.kl is not None and not seen.kl <= limits.kl:
            yield (
                f"KL {_nats(seen.kl)} nats a token, at most {_nats(limits.kl)}: the probabilities of given texts are not "
                f"{held.whose}"
            )
        if seen.far is not None and limits.far is not None and not seen.far <= limits.far:
            yield (
                f"{seen.far:.1%} of the tokens of given texts are more than e times as likely as to {held.whose}, or as "
                f"unlikely; at most {limits.far:.1%} may be"
            )
    if seen.decode_kl is not None and not seen.decode_kl <= limits.decode_kl:
        yield (
            f"KL {_nats(seen.decode_kl)} nats a token while generating, at most {_nats(limits.decode_kl)}: the probabilities "
            f"behind the answers are not {held.whose}"
        )


def _nats(value: float) -> str:
    return "below 0.0001" if 0 < value < 0.0001 else f"{value:.3g}"


def _cached(examined: Examined, reference: Examined, asked: Asked) -> Iterator[str]:
    now, before = _speed_up(examined, asked), _speed_up(reference, asked)
    if now is not None and before is not None and now < CACHED_RATIO and now < before / 2:
        yield (
            f"answers come from a cache, not from the model: asked again, {how(asked.concurrency)}, an answer takes "
            f"{now:.2f} of its time alone, {before:.2f} on the baseline"
        )


def _speed_up(examined: Examined, asked: Asked) -> float | None:
    """The latency of the last pass as a fraction of that of the first; None when there are no two to compare."""
    alone, together = _pass(examined, 1), _pass(examined, asked.concurrency)
    if alone is None or together is None or alone is together:
        return None
    if alone.latency_s is None or together.latency_s is None or alone.latency_s <= 0:
        return None
    return together.latency_s / alone.latency_s


def _variety(examined: Examined, reference: Examined) -> Iterator[str]:
    now, before = examined.variety, reference.variety
    if now is not None and before is not None and now < before / 2:
        yield (
            f"drawn at temperature 1, {now:.0%} of the answers to one prompt differ, {before:.0%} of the baseline's: they "
            "come from a cache, or are not drawn any more"
        )


def _accept_length(examined: Examined, held: Held) -> Iterator[str]:
    change = _accept_change(examined, held)
    if change is None:
        return
    now, before = examined.accept_length, held.reference.accept_length
    if change < -ACCEPT_LENGTH_STEP:
        yield f"accept length fell from {before:.2f} to {now:.2f} with the same draft: verification is corrupted"
    for done in examined.passes:
        earlier = _pass(held.reference, done.concurrency)
        loops = earlier.repetitive if earlier else 0
        if change > ACCEPT_LENGTH_STEP and done.repetitive > loops + LOOPS_WITH_A_RISE:
            yield (
                f"{how(done.concurrency)}: accept length rose from {before:.2f} to {now:.2f} while {done.repetitive} answers "
                f"repeat themselves, {loops} of the baseline's do: the text collapses"
            )


def _accept_change(examined: Examined, held: Held) -> float | None:
    """Relative; None when the accept lengths cannot be compared."""
    now, before = examined.accept_length, held.reference.accept_length
    return now / before - 1 if held.same_draft and now is not None and before else None


def _notes(examined: Examined, held: Held) -> Iterator[str]:
    change = _accept_change(examined, held) if held.whole else None
    if change is not None and change > ACCEPT_LENGTH_STEP:
        yield f"accept length rose by {change:.0%} with the same draft; the answers do not repeat themselves more"
    if held.comparison.problem:
        yield f"not all could be held against {held.whose}: {held.comparison.problem}"


def unlike_itself(comparison: Comparison) -> str | None:
    """What is worth knowing about a baseline that differs from its own earlier examination by more than any band allows."""
    parted = [a for a in comparison.agreement if a.early > CEILING.early]
    if parted:
        return (
            f"{how(parted[0].concurrency)}: {parted[0].early:.0%} of the baseline's answers part within the first four "
            "tokens from its own earlier ones: changes that move no more than this cannot be told from it"
        )
    if comparison.kl is not None and comparison.kl > CEILING.kl:
        return f"KL {_nats(comparison.kl)} nats a token between the baseline and itself: its probabilities do not hold still"
    return None


def summary(examined: Examined, asked: Asked, comparison: Comparison | None, as_what: str) -> str:
    """What a passed examination found, in one short line. `as_what` ends "31 of 32 answers ..."."""
    words = []
    if comparison is None or not comparison.agreement:
        words.append(f"{asked.prompts} prompts answered, with nothing to hold them against yet")
    else:
        same = [f"{how(a.concurrency)} {a.exact * asked.prompts:.0f}" for a in comparison.agreement]
        words.append(f"{', '.join(same)} of {asked.prompts} answers {as_what}")
        if comparison.kl is not None and comparison.scored >= ENOUGH_TOKENS:
            words.append(f"KL {_nats(comparison.kl)}")
    if examined.accept_length is not None:
        words.append(f"accept length {examined.accept_length:.2f}")
    return "; ".join(words)
