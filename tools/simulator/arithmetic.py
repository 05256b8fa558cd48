"""How a launch computes moves what it says: the order of its sums a little, less precision more. Pure.

Floating-point sums depend on their order, so every kernel, number of ranks and batch shape has logits of its own. Each
choice adds an offset to a token's logit that looks random and is always the same for the same choice: configurations
that choose alike agree exactly, those that differ in one choice differ by that choice's width.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cached_property
from typing import Any

from optagent.tools.simulator.noise import MASK, generator, scramble
from optagent.tools.simulator.setup import Setup
from optagent.tools.simulator.surroundings import Surroundings

# Standard deviations of a logit's offset, in nats. Two configurations that differ in a choice of width s are about
# 0.5 s^2 apart in KL per token of a text.
KERNEL = 0.010
"""An attention kernel, a CUDA version (assumed: a fifth of what another MoE kernel does)."""
MOE_KERNEL = 0.026
"""Another MoE backend: a KL of about 0.0004 was measured."""
ORDER = 0.006
"""How many ranks a sum is split over, how they are added up, how many tokens go through a kernel at once (assumed)."""
PRECISION = 0.26
"""Fewer bits: 4-bit weights have a KL of 0.024 to 0.035."""
CORRUPT = 5.0
"""Values of another step or of nothing at all."""

DRAWN_BITS = 24
GOLDEN = 0x9E3779B97F4A7C15

Choice = tuple[str, object, float]
"""What is chosen, which, and how wide that moves a logit."""


@dataclass(frozen=True)
class Arithmetic:
    """`parts` are a salt and the width of a uniform offset for each choice."""

    parts: tuple[tuple[int, float], ...]

    @cached_property
    def largest_shift(self) -> float:
        """No logit is moved further than this, in nats."""
        return sum(width for _, width in self.parts) / 2

    def shift(self, state: int, token: int) -> float:
        """By how much the logit of `token` after the prefix `state` is moved, in nats."""
        place = scramble(state ^ (token * GOLDEN & MASK))
        total = 0.0
        for salt, width in self.parts:
            total += width * (((place ^ salt) * GOLDEN & MASK) >> (64 - DRAWN_BITS))
        return total / (1 << DRAWN_BITS) - self.largest_shift


def arithmetic_of(choices: Iterable[Choice]) -> Arithmetic:
    """The arithmetic of a launch that chose so."""
    uniform = math.sqrt(12)
    return Arithmetic(
        tuple((generator("arithmetic", what, which).getrandbits(64), uniform * sd) for what, which, sd in choices)
    )


def choices_of(setup: Setup, fields: Mapping[str, Any], around: Surroundings) -> list[Choice]:
    """Everything of a launch that its numbers depend on, but for who shares a batch with whom."""
    reduce, how = setup.all_reduce, setup.speculation
    runner = fields["moe_runner_backend"] if around.scenario.model.shape is None else setup.moe_runner
    thresholds = fields["speculative_accept_threshold_single"], fields["speculative_accept_threshold_acc"]
    choices: list[Choice] = [
        ("attention", setup.attention_backend, KERNEL),
        ("verify", how.attention_mode if how else None, ORDER),
        ("tokens per request", how.verify_tokens if how else 1, ORDER),
        ("moe", "marlin" if runner == "auto" else runner, MOE_KERNEL),
        ("experts", (setup.ep_size, setup.all_to_all), ORDER),
        ("ranks", setup.tp_size, ORDER),
        ("all-reduce", (reduce.algorithm, reduce.fused), ORDER),
        ("nccl", (around.env.get("NCCL_ALGO", ""), reduce.protocols), ORDER),
        ("cuda", (around.versions["cuda"], around.versions["torch"]), KERNEL),
        ("release", around.versions["sglang"], ORDER),
        ("compiled", setup.torch_compile, ORDER),
        ("kv cache", setup.kv_dtype, PRECISION),
        ("weights", fields["quantization"], PRECISION),
        ("activations", "bfloat16" if fields["dtype"] == "auto" else fields["dtype"], PRECISION),
        ("acceptance", thresholds if how else (1.0, 1.0), PRECISION),
    ]
    if fields["load_format"] == "dummy":
        choices.append(("random weights", fields["random_seed"], CORRUPT))
    if corrupts(around):
        choices.append(("corrupt", around.launch, CORRUPT))
    return choices


def batch_choice(around: Surroundings, shared: bool) -> Choice:
    """Whether a request has its batches for itself. With others, their shape is another one in every launch."""
    return ("batch", around.launch if shared else None, ORDER)


def corrupts(around: Surroundings) -> bool:
    """Whether the scenario makes this launch compute wrongly, as a kernel with a missing barrier does."""
    return any(
        fault.kind == "corrupt" and fnmatch(around.launch, fault.launch) for fault in around.scenario.faults.injected
    )
