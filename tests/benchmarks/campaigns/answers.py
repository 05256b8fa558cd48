"""What the gate finds on a virtual server: how far its answers lie from those of an earlier launch.

It is not asked word by word: how far two launches lie apart follows from what the simulator says that their arithmetic
differs in, with its own widths (`arithmetic.py`), and how many answers that changes from how it draws them (`language.py`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from optagent.tools.calls.gate import Agreement, Comparison
from optagent.tools.simulator.acceptance import accept_probability, expected_accept_length, longest_draft
from optagent.tools.simulator.arithmetic import ORDER, Choice, corrupts
from optagent.tools.simulator.engines import CORRUPT_ACCEPTANCE
from optagent.tools.simulator.language import GAP
from optagent.tools.simulator.noise import generator
from optagent.tools.simulator.startup import Plan

TOKENS_A_TEXT = 90
"""About as many tokens as the gate's texts have."""
FLIPS_A_WIDTH = 0.8
"""Of a logit's offset: how often a token is another one, for gaps that are exponential with the mean GAP (0.8 is the mean
of |x| of a standard normal x; offsets of two tokens count on both sides, and only one side flips)."""


@dataclass(frozen=True)
class Kept:
    """An examination: what the launch's arithmetic chose, and its name."""

    launch: str
    choices: tuple[Choice, ...]
    prompts: int
    max_tokens: int
    concurrency: int


def compared(ours: Kept, theirs: Kept | None, name: str, texts: int) -> Comparison:
    """An examination held against the earlier one of this name, over so many texts."""
    if theirs is None:
        return Comparison(reference=name, problem="it was never made")
    apart = distance(ours.choices, theirs.choices)
    return Comparison(
        reference=name,
        agreement=[
            _agreement(ours, theirs, concurrency, math.hypot(apart, ORDER if concurrency > 1 else 0.0))
            for concurrency in dict.fromkeys((1, ours.concurrency))
        ],
        kl=apart**2 / 2,
        far=math.erfc(1 / (apart * math.sqrt(2))) if apart else 0.0,
        shift=0.0,
        scored=texts * TOKENS_A_TEXT,
        decode_kl=(apart**2 + ORDER**2) / 2,
    )


def distance(ours: tuple[Choice, ...], theirs: tuple[Choice, ...]) -> float:
    """Standard deviation by which the logits of two launches differ, in nats: of all choices that are not the same."""
    mine, others = ({what: (which, width) for what, which, width in one} for one in (ours, theirs))
    differing = [
        max((side.get(what, (None, 0.0))[1] for side in (mine, others)), default=0.0)
        for what in mine.keys() | others.keys()
        if mine.get(what) != others.get(what)
    ]
    return math.sqrt(sum(width**2 for width in differing))


def _agreement(ours: Kept, theirs: Kept, concurrency: int, apart: float) -> Agreement:
    """How many answers are still the same when each token is another one with a small chance, drawn for this pair."""
    flips = min(1.0, FLIPS_A_WIDTH * apart / GAP)
    changed = 1 - (1 - flips) ** ours.max_tokens
    early = 1 - (1 - flips) ** 4
    draws = generator("answers", ours.launch, theirs.launch, concurrency)
    rolled = [draws.random() for _ in range(ours.prompts)]
    differ = sum(one < changed for one in rolled) / ours.prompts
    return Agreement(
        concurrency=concurrency,
        exact=1 - differ,
        early=sum(one < early for one in rolled) / ours.prompts,
        prefix=1 - differ / 2,
        finish=0.0,
        length=1.0,
    )


def accept_length(plan: Plan) -> float | None:
    """The mean that a server reports on real prompts; None without speculation."""
    if plan.setup.speculation is None:
        return None
    how = plan.setup.speculation
    chance = accept_probability(plan.around.scenario.costs, how, random_prompt=False)
    if corrupts(plan.around):
        chance *= CORRUPT_ACCEPTANCE
    return expected_accept_length(chance, longest_draft(how))
