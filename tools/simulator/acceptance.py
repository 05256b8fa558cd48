"""How many draft tokens a verify step accepts: by the algorithm and by what kind of text is continued."""

from __future__ import annotations

import random
from collections.abc import Sequence

from optagent.tools.simulator.scenario import Costs
from optagent.tools.simulator.setup import Speculation


def looks_random(token_ids: Sequence[int]) -> bool:
    """Whether a prompt is a stream of random tokens: real text of some length repeats its words."""
    return len(token_ids) >= 64 and len(set(token_ids)) > 0.9 * len(token_ids)


def accept_probability(costs: Costs, how: Speculation, random_prompt: bool) -> float:
    """The chance that the next draft token is accepted when all before it were.

    Real prompts 2.1-2.5 accepted tokens a step with 3 draft steps, random ones 1.3-1.5; n-grams rarely find anything.
    A wider tree (top-k above 1) offers alternatives at each level.
    """
    if how.algorithm == "NGRAM":
        return costs.accept_ngram_random if random_prompt else costs.accept_ngram_real
    chance = costs.accept_random if random_prompt else costs.accept_real
    return min(0.95, chance * (1 + 0.08 * (how.topk - 1)))


def longest_draft(how: Speculation) -> int:
    """The most draft tokens one step can accept: bounded by the depth of the draft and by the verified tokens."""
    depth = how.verify_tokens - 1
    return depth if how.algorithm == "NGRAM" else min(how.steps, depth)


def expected_accept_length(chance: float, longest: int) -> float:
    """Mean tokens a verify step yields, the target's own token included."""
    return sum(chance**i for i in range(longest + 1))


def draw_accept_length(draws: random.Random, chance: float, longest: int) -> int:
    """The tokens one verify step yields: at least the target's own."""
    length = 1
    while length <= longest and draws.random() < chance:
        length += 1
    return length
