"""The simulated model: which token follows a prefix, and with which log-probability. Pure and deterministic.

A prefix is a number of 64 bits. It names two candidates for the next token, how far apart their logits are, and how much
probability is left for everything else. Arithmetic moves the logits: where the candidates are close, another one comes
out, and all that follows is different.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from optagent.tools.simulator.arithmetic import Arithmetic
from optagent.tools.simulator.noise import MASK, generator, scramble
from optagent.tools.simulator.words import WORDS, token_id

WORD_IDS = tuple(token_id(word) for word in WORDS)
GAP = 24.0
"""Mean distance of the two candidates' logits, in nats. With it one answer of 128 tokens in about 25 changes with a
kernel, and more than half with the precision (assumed)."""

GAP_BITS = 24
MULTIPLIER = 6364136223846793005
INCREMENT = 1442695040888963407


@dataclass(frozen=True)
class Candidates:
    """What may follow a prefix: two words by their place in WORDS. `others` is minus the logarithm of what the two have
    of all probability."""

    first: int
    second: int
    gap: float
    others: float


def prefix(model: str, token_ids: Iterable[int]) -> int:
    """The prefix that a model has read when it begins to answer."""
    state = generator("model", model).getrandbits(64)
    for token in token_ids:
        state = after(state, token)
    return state


def after(state: int, token: int) -> int:
    """The prefix with one more token."""
    return ((state ^ token) * MULTIPLIER + INCREMENT) & MASK


def candidates(bits: int) -> Candidates:
    """From the scrambled prefix: 24 bits for the gap, 16 for the others, 12 for each word."""
    gap = -GAP * math.log1p(-(bits & ((1 << GAP_BITS) - 1)) / (1 << GAP_BITS))
    share = (bits >> 24 & 0xFFFF) / 0x10000
    first = (bits >> 52) % len(WORDS)
    second = (first + 1 + (bits >> 40 & 0xFFF) % (len(WORDS) - 1)) % len(WORDS)
    return Candidates(first, second, gap, 0.01 + 0.6 * share * share)


def greedy(state: int, count: int, arithmetic: Arithmetic) -> list[int]:
    """The most probable continuation, `count` words by their places in WORDS."""
    places: list[int] = []
    # Few gaps are so small that arithmetic matters, and only those are looked at.
    close = (1 << GAP_BITS) * -math.expm1(-2 * arithmetic.largest_shift / GAP)
    for _ in range(count):
        bits = scramble(state)
        place = (bits >> 52) % len(WORDS)
        if bits & ((1 << GAP_BITS) - 1) <= close:
            place = _closer_look(state, candidates(bits), arithmetic)
        places.append(place)
        state = after(state, WORD_IDS[place])
    return places


def sampled(state: int, count: int, temperature: float, draws: random.Random) -> list[int]:
    """A continuation drawn at a temperature above 0."""
    places: list[int] = []
    for _ in range(count):
        near = candidates(scramble(state))
        likely = math.exp(-near.others * temperature)
        of_first = likely / (1 + math.exp(-near.gap / temperature))
        drawn = draws.random()
        if drawn < of_first:
            place = near.first
        elif drawn < likely:
            place = near.second
        else:
            place = draws.randrange(len(WORDS))
        places.append(place)
        state = after(state, WORD_IDS[place])
    return places


def log_probabilities(state: int, token_ids: Sequence[int], arithmetic: Arithmetic) -> list[float]:
    """Of each token after the prefix and the tokens before it, in nats; below 0."""
    found = []
    for token in token_ids:
        found.append(round(_log_probability(state, token, arithmetic), 6))
        state = after(state, token)
    return found


def _closer_look(state: int, near: Candidates, arithmetic: Arithmetic) -> int:
    first = arithmetic.shift(state, WORD_IDS[near.first])
    second = arithmetic.shift(state, WORD_IDS[near.second])
    return near.second if second - first > near.gap else near.first


def _log_probability(state: int, token: int, arithmetic: Arithmetic) -> float:
    near = candidates(scramble(state))
    first, second = WORD_IDS[near.first], WORD_IDS[near.second]
    if token in (first, second):
        share = math.exp(-near.others) / (1 + math.exp(-near.gap))
        firsts = share * math.exp(arithmetic.shift(state, first))
        seconds = share * math.exp(arithmetic.shift(state, second) - near.gap)
        total = firsts + seconds - math.expm1(-near.others)
        return math.log((firsts if token == first else seconds) / total)
    # What is no candidate has -0.05 to -6, as tokens of a text have. Its logit moves, and the sum over all with it.
    drawn = scramble((state ^ (token << 40)) & MASK) / (MASK + 1)
    plain, moved = -0.05 - 5.95 * drawn * drawn, arithmetic.shift(state, token)
    return plain + moved - math.log1p(math.exp(plain) * math.expm1(moved))
