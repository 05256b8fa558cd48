"""Keep or revert: a paired sequential test on log ratios, with noise that was measured on the baseline itself.

Wald, "Sequential Tests of Statistical Hypotheses" (1945): H0 no gain, H1 a gain of the minimum effect, at a false-keep
rate of 5 % and a miss rate of 10 %. All ratios are 100·ln(candidate/baseline), with the sign turned so that plus is
better; for small changes that is the gain in per cent.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from optagent.agent.guards import Guard, harmful, still_open
from optagent.agent.noise import Noise, with_pairs

ALPHA, BETA = 0.05, 0.10
KEEP_AT = math.log((1 - BETA) / ALPHA)
REVERT_AT = math.log(BETA / (1 - ALPHA))
KEEP_AT_THE_END = math.log(6)
"""At the last pair a change is kept at odds of six to one; a simpler configuration wins ties."""
MIN_PAIRS = 2
MIN_PAIRS_ALONE = 4
"""Of pairs that have to tell their own noise as well."""
SCREEN_SIGMAS = 3.0
HOPELESS = 4.0


class Verdict(StrEnum):
    KEEP = "keep"
    REVERT = "revert"
    INCONCLUSIVE = "inconclusive"
    INVALID = "invalid"
    FAILED = "failed"
    MORE = "more"
    TOO_NOISY = "too-noisy"


@dataclass(frozen=True)
class Judgement:
    """A verdict with what it rests on. `effect`, `low`, `high` are fractions (0.09 = 9 % better), 95 % interval."""

    verdict: Verdict
    because: str
    effect: float | None = None
    low: float | None = None
    high: float | None = None
    llr: float | None = None
    pairs: int = 0


def geometric_mean(values: Sequence[float]) -> float:
    return math.exp(sum(math.log(v) for v in values) / len(values))


def gain(baseline: float, candidate: float, direction: str) -> float:
    """100·ln(candidate/baseline), turned so that plus is better. Both values must be above zero."""
    ratio = 100 * math.log(candidate / baseline)
    return ratio if direction == "max" else -ratio


def expected_pairs(noise: Noise, min_effect: float) -> float:
    """How many pairs the test needs on average when the change gives exactly the minimum effect (Wald's formula)."""
    delta = 100 * math.log1p(min_effect)
    drift = delta**2 / (2 * noise.pair_sd**2)
    return max(float(MIN_PAIRS), ((1 - BETA) * KEEP_AT + BETA * REVERT_AT) / drift)


def too_noisy(noise: Noise, min_effect: float, max_pairs: int) -> bool:
    """Whether no verdict can be expected within the pairs that are allowed."""
    return expected_pairs(noise, min_effect) > max_pairs


def hopeless(noise: Noise, min_effect: float, max_pairs: int) -> bool:
    """Whether even several times the allowed pairs would hardly tell: the pairs are better spent on finding the cause."""
    return expected_pairs(noise, min_effect) > HOPELESS * max_pairs


def screen(baseline: Sequence[float], candidate: float, noise: Noise, direction: str) -> Judgement | None:
    """A clear loss at the first run, which needs no pairs; None when the change deserves them."""
    reference = math.exp(sum(math.log(b) for b in baseline) / len(baseline))
    loss = gain(reference, candidate, direction)
    if loss >= -SCREEN_SIGMAS * noise.pair_sd:
        return None
    because = (
        f"the first run is {_percent(loss)} against the baseline, {-loss / noise.pair_sd:.0f} times the noise of a pair"
    )
    return Judgement(Verdict.REVERT, because, _fraction(loss), *_interval(loss, noise, 1), None, 0)


def judge(
    pairs: Sequence[tuple[float, float]],
    noise: Noise | None,
    *,
    direction: str,
    min_effect: float,
    max_pairs: int,
    guards: Mapping[str, Guard] | None = None,
) -> Judgement:
    """The verdict on (baseline, candidate) pairs so far; `more` while another pair is worth its cost.

    `noise` is None where nothing was learnt before: the pairs then have to tell it, and four of them are needed.
    `too-noisy` means that no number of pairs near `max_pairs` can be expected to tell.

    `guards` are metrics that must not get worse: what would be kept is reverted when one did, and waits for more pairs
    while that cannot be told.
    """
    n = len(pairs)
    if n == 0:
        return Judgement(Verdict.MORE, "nothing measured yet")
    gains = [gain(b, c, direction) for b, c in pairs]
    learnt, noise = noise, with_pairs(noise, gains)
    mean, delta = sum(gains) / n, 100 * math.log1p(min_effect)
    llr = delta / noise.pair_sd**2 * (sum(gains) - n * delta / 2)
    low, high = _interval(mean, noise, n) if math.isfinite(noise.launch_sd) else (None, None)

    def give(verdict: Verdict, because: str) -> Judgement:
        return Judgement(verdict, because, _fraction(mean), low, high, llr, n)

    span = f"{_percent(mean)} over {n} pair{'s' if n > 1 else ''}"
    if n < (MIN_PAIRS_ALONE if learnt is None else MIN_PAIRS):
        few = f"{n} pairs cannot tell their own noise" if n > 1 else "one pair is never enough"
        return give(Verdict.MORE, f"{span}; {few}")
    if llr >= KEEP_AT or (n >= max_pairs and llr >= KEEP_AT_THE_END):
        if worse := harmful(guards or {}, learnt, last=n >= max_pairs):
            return give(Verdict.REVERT, f"{span}, but {worse}")
        if n < max_pairs and (name := still_open(guards or {}, learnt)):
            return give(Verdict.MORE, f"{span}; whether {name} got worse is not decided yet")
        return give(Verdict.KEEP, f"{span}; a gain of {min_effect:.1%} is {_odds(llr)} likelier than none")
    if llr <= REVERT_AT:
        return give(Verdict.REVERT, f"{span}: no gain of {min_effect:.1%}")
    if n >= max_pairs:
        return give(
            Verdict.INCONCLUSIVE, f"{span}: no verdict within {max_pairs} pairs, so the simpler configuration stays"
        )
    if hopeless(noise, min_effect, max_pairs):
        return give(
            Verdict.TOO_NOISY,
            f"{span}; one launch varies by {noise.launch_sd:.1f} %, too much to tell {min_effect:.1%}",
        )
    return give(Verdict.MORE, f"{span}; not decided yet")


def _interval(mean: float, noise: Noise, n: int) -> tuple[float, float]:
    from scipy.special import stdtrit

    half = float(stdtrit(noise.df, 0.975)) * noise.pair_sd / math.sqrt(n)
    return _fraction(mean - half), _fraction(mean + half)


def _odds(llr: float) -> str:
    return "more than 1000 times" if llr > math.log(1000) else f"{math.exp(llr):.0f} times"


def _fraction(log_percent: float) -> float:
    return math.expm1(log_percent / 100)


def _percent(log_percent: float) -> str:
    return f"{_fraction(log_percent):+.1%}"
