"""How far output may lie from that of an earlier configuration, by what the change may move. Pure.

Each limit is the wider of a floor and the baseline's own band, and never wider than a ceiling: a baseline that differs
from itself by more than that cannot vouch for anything.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from optagent.agent.gates.band import agreements, least, most, p95
from optagent.agent.numerics import Numerics
from optagent.tools.calls.gate import Comparison


@dataclass(frozen=True)
class Asked:
    """What every examination is asked: how many prompts, and how many at a time besides one."""

    prompts: int
    concurrency: int

    @property
    def passes(self) -> tuple[int, ...]:
        """Each pass by how many are asked at a time."""
        return tuple(dict.fromkeys((1, self.concurrency)))


@dataclass(frozen=True)
class AnswerLimits:
    """Of one pass, as shares of its answers; `length` is the largest ratio of lengths, either way. None: not judged."""

    early: float
    exact: float | None = None
    finish: float | None = None
    length: float | None = None


@dataclass(frozen=True)
class Limits:
    """`answers` by how many are asked at a time; `kl` and `decode_kl` in nats a token, `far` as a share of tokens."""

    answers: Mapping[int, AnswerLimits]
    kl: float
    decode_kl: float
    far: float | None = None


@dataclass(frozen=True)
class _Floor:
    kl: float
    far: float
    early: float = 0.10
    finish: float = 0.15
    length: float = 1.15


_NUMBERS_STAY = _Floor(kl=0.001, far=0.002)
_NUMBERS_MOVE = _Floor(kl=0.005, far=0.01)
FLOORS: Mapping[Numerics, _Floor] = {
    Numerics.NONE: _NUMBERS_STAY,
    Numerics.BATCHING: _NUMBERS_MOVE,
    Numerics.ORDER: _NUMBERS_MOVE,
    Numerics.UNKNOWN: _NUMBERS_MOVE,
    Numerics.LAW: _Floor(kl=0.05, far=0.05, early=0.30, finish=0.30, length=1.30),
}
"""Another MoE backend moves the KL by about 0.0004 nats a token and below 0.01 counts as lossless; 4-bit weights move it
by 0.024 to 0.035, and above 0.1 a model is another one."""

CEILING = _Floor(kl=0.05, far=0.05, early=0.50, finish=0.50, length=1.50)

FROM_THE_FIRST_KL = 0.02
FROM_THE_FIRST_EARLY = 0.20
"""Of the first baseline, however many kept changes lie between: many small steps must not drift away unseen."""


def limits_for(numerics: Numerics, band: Sequence[Comparison], asked: Asked) -> Limits:
    """Against the configuration that the change was put on, whose comparisons with itself are the `band`."""
    floor = FLOORS[numerics]
    return Limits(
        {concurrency: _answers(numerics, floor, band, asked, concurrency) for concurrency in asked.passes},
        kl=_within(floor.kl, 2 * p95(band, lambda c: c.kl), CEILING.kl),
        decode_kl=_within(floor.kl, 2 * p95(band, lambda c: c.decode_kl), CEILING.kl),
        far=_within(floor.far, 2 * p95(band, lambda c: c.far), CEILING.far),
    )


def limits_from_the_first(numerics: Numerics, asked: Asked) -> Limits:
    """Against the first baseline. What the owner allowed to change the law of the output counts as in a single step."""
    law = numerics is Numerics.LAW
    early = FLOORS[Numerics.LAW].early if law else FROM_THE_FIRST_EARLY
    kl = FLOORS[Numerics.LAW].kl if law else FROM_THE_FIRST_KL
    return Limits({concurrency: AnswerLimits(early) for concurrency in asked.passes}, kl, kl)


def _answers(
    numerics: Numerics, floor: _Floor, band: Sequence[Comparison], asked: Asked, concurrency: int
) -> AnswerLimits:
    seen = agreements(band, concurrency)
    same = numerics is Numerics.NONE or (numerics is Numerics.BATCHING and concurrency == 1)
    stretch = min(max(_stretch(a.length) for a in seen), CEILING.length)
    return AnswerLimits(
        early=_within(floor.early, most([a.early for a in seen], asked.prompts), CEILING.early),
        exact=least([a.exact for a in seen], asked.prompts) if same else None,
        finish=_within(floor.finish, most([a.finish for a in seen], asked.prompts), CEILING.finish),
        length=_within(floor.length, stretch**2, CEILING.length),
    )


def _within(floor: float, wanted: float, ceiling: float) -> float:
    return min(max(floor, wanted), ceiling)


def _stretch(ratio: float) -> float:
    """A ratio of lengths either way, so 2 for half as well as for twice."""
    return max(ratio, 1 / ratio) if ratio > 0 else math.inf
