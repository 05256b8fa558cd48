"""Keep or revert: a sequential test on log ratios, in pairs or on a series of launches, by one rule for both.

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
from optagent.agent.log_percent import fraction, log_percent, signed
from optagent.agent.noise import Noise, with_pairs
from optagent.agent.series import Series

ALPHA, BETA = 0.05, 0.10
KEEP_AT = math.log((1 - BETA) / ALPHA)
REVERT_AT = math.log(BETA / (1 - ALPHA))
KEEP_AT_THE_END = math.log(6)
"""At the last pair a change is kept at odds of six to one; a simpler configuration wins ties."""
KEEP_AT_THE_END_OF_SERIES = math.log(8)
"""At the last launch, where noise and drift were not known beforehand."""
MIN_PAIRS = 2
MIN_PAIRS_ALONE = 4
"""Of pairs that have to tell their own noise as well."""
SCREEN_SIGMAS = 3.0
HOPELESS = 4.0
SURE_OF_NOISE = 5
"""Degrees of freedom from which on an estimate of the noise may say that no verdict is possible."""


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
    """A verdict with what it rests on. `effect`, `low`, `high` are fractions (0.09 = 9 % better), 95 % interval. `pairs` is
    how many pairs it took, or launches of the candidate where they were held against all of the baseline's."""

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
    ratio = log_percent(baseline, candidate)
    return ratio if direction == "max" else -ratio


def expected_pairs(noise: Noise, min_effect: float) -> float:
    """How many pairs the test needs on average when the change gives exactly the minimum effect (Wald's formula)."""
    delta = 100 * math.log1p(min_effect)
    drift = delta**2 / (2 * noise.pair_sd**2)
    return max(float(MIN_PAIRS), ((1 - BETA) * KEEP_AT + BETA * REVERT_AT) / drift) if drift else math.inf


def expected_launches(noise: Noise, min_effect: float, pool: int) -> float:
    """How many launches it takes on average to tell a change that gives exactly the minimum effect, when `pool` launches
    of the baseline are there already: of the candidate alone, or of both where the pool is too small for that."""
    pairs = expected_pairs(noise, min_effect)
    room = 2 / pairs - 1 / pool if pool else 0.0
    alone = 1 / room if room > 0 else math.inf
    return max(float(MIN_PAIRS), min(alone, 2 * pairs - pool))


def too_noisy(noise: Noise, min_effect: float, max_pairs: int) -> bool:
    """Whether no verdict can be expected within the pairs that are allowed. An estimate of few degrees of freedom says so
    only where it cannot have come out so high by chance."""
    return expected_pairs(_at_least(noise), min_effect) > max_pairs


def _at_least(noise: Noise) -> Noise:
    """The noise that there is at least (one-sided 95 %), while it is not known well."""
    if noise.df >= SURE_OF_NOISE:
        return noise
    from scipy.special import chdtri

    return Noise(noise.launch_sd * math.sqrt(noise.df / float(chdtri(noise.df, 0.05))), noise.df)


def hopeless(noise: Noise, min_effect: float, max_pairs: int) -> bool:
    """Whether even several times the allowed pairs would hardly tell: the pairs are better spent on finding the cause."""
    return expected_pairs(noise, min_effect) > HOPELESS * max_pairs


def screen(baseline: Sequence[float], candidate: float, noise: Noise, direction: str) -> Judgement | None:
    """A clear loss at the first run, which needs no pairs; None when the change deserves them."""
    loss = gain(geometric_mean(baseline), candidate, direction)
    if loss >= -SCREEN_SIGMAS * noise.pair_sd:
        return None
    because = (
        f"the first run is {_percent(loss)} against the baseline, {-loss / noise.pair_sd:.0f} times the noise of a pair"
    )
    return Judgement(Verdict.REVERT, because, fraction(loss), *_bounds(loss, noise.pair_sd**2, noise.df), None, 0)


def judge(
    pairs: Sequence[tuple[float, float]],
    noise: Noise | None,
    *,
    direction: str,
    min_effect: float,
    max_pairs: int,
    guards: Mapping[str, Guard] | None = None,
    min_pairs: int = MIN_PAIRS,
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
    known = with_pairs(noise, gains)
    mean, variance, delta = sum(gains) / n, known.pair_sd**2 / n, 100 * math.log1p(min_effect)
    needed = max(min_pairs, MIN_PAIRS_ALONE if noise is None else MIN_PAIRS)
    sure = n >= needed and (noise is None or known.df >= SURE_OF_NOISE)
    few = f"{n} pairs cannot tell their own noise" if n > 1 and noise is None else "one pair is never enough"
    evidence = _Evidence(
        mean=mean,
        bounds=_bounds(mean, variance, known.df) if math.isfinite(variance) else (None, None),
        llr=delta / variance * (mean - delta / 2),
        words=f"over {n} pair{'s' if n > 1 else ''}",
        count=n,
        limit=f"{max_pairs} pairs",
        last=n >= max_pairs,
        keep_at_the_end=KEEP_AT_THE_END,
        too_few=few if n < needed else "",
        hopeless_sd=known.launch_sd if sure and hopeless(known, min_effect, max_pairs) else None,
    )
    return _rule(evidence, min_effect, guards or {}, noise)


def judge_series(
    series: Series,
    counts: tuple[int, int, int],
    *,
    min_effect: float,
    max_launches: int,
    guards: Mapping[str, Guard] | None = None,
    noise: Noise | None = None,
) -> Judgement:
    """The same test for launches that were not made in pairs: all of the baseline's count, the nearer in time the more.

    `counts` are the launches without the change, with it, and those that count towards `max_launches`. Two of each are
    needed to keep a change; one can be enough to revert it. `noise` is what guards are tested with.
    """
    without, with_it, spent = counts
    if not series.known:
        return Judgement(Verdict.MORE, f"nothing measured {'with' if without else 'without'} the change yet")
    sure = spent > MIN_PAIRS and hopeless(Noise(series.launch_sd, SURE_OF_NOISE), min_effect, max_launches)
    evidence = _Evidence(
        mean=series.effect,
        bounds=(fraction(series.quantile(0.025)), fraction(series.quantile(0.975))),
        llr=series.log_ratio(100 * math.log1p(min_effect)),
        words=f"over {with_it} launch{'es' if with_it > 1 else ''} against {without} without the change",
        count=spent,
        limit=f"{max_launches} launches",
        last=spent >= max_launches,
        keep_at_the_end=KEEP_AT_THE_END_OF_SERIES,
        too_few_to_keep="one launch is never enough" if min(without, with_it) < MIN_PAIRS else "",
        hopeless_sd=series.launch_sd if sure else None,
    )
    return _rule(evidence, min_effect, guards or {}, noise)


@dataclass(frozen=True)
class _Evidence:
    """What has been measured of a change. `mean` is its effect in log per cent, `bounds` its 95 % interval as fractions,
    `llr` the log of how much likelier the minimum effect is than none.

    `last`: the `limit` is reached, and `keep_at_the_end` is enough. `too_few` is why nothing may be said yet, and
    `too_few_to_keep` why it may not be kept ("" when it may). `hopeless_sd` is the noise of a launch (per cent), where that
    is known to be too much for any verdict.
    """

    mean: float
    bounds: tuple[float | None, float | None]
    llr: float
    words: str
    count: int
    limit: str
    last: bool
    keep_at_the_end: float
    too_few: str = ""
    too_few_to_keep: str = ""
    hopeless_sd: float | None = None


def _rule(evidence: _Evidence, min_effect: float, guards: Mapping[str, Guard], noise: Noise | None) -> Judgement:
    """`noise` is what was learnt before, which guards are tested with."""
    llr, last = evidence.llr, evidence.last
    span = f"{_percent(evidence.mean)} {evidence.words}"

    def give(verdict: Verdict, because: str) -> Judgement:
        return Judgement(verdict, because, fraction(evidence.mean), *evidence.bounds, llr, evidence.count)

    if evidence.too_few:
        return give(Verdict.MORE, f"{span}; {evidence.too_few}")
    if llr >= KEEP_AT or (last and llr >= evidence.keep_at_the_end):
        if evidence.too_few_to_keep:
            return give(Verdict.MORE, f"{span}; {evidence.too_few_to_keep}")
        if worse := harmful(guards, noise, last=last):
            return give(Verdict.REVERT, f"{span}, but {worse}")
        if not last and (name := still_open(guards, noise)):
            return give(Verdict.MORE, f"{span}; whether {name} got worse is not decided yet")
        return give(Verdict.KEEP, f"{span}; a gain of {min_effect:.1%} is {_odds(llr)} likelier than none")
    if llr <= REVERT_AT:
        return give(Verdict.REVERT, f"{span}: no gain of {min_effect:.1%}")
    if last:
        because = f"{span}: no verdict within {evidence.limit}, so the simpler configuration stays"
        return give(Verdict.INCONCLUSIVE, because)
    if evidence.hopeless_sd is not None:
        because = f"{span}; one launch varies by {evidence.hopeless_sd:.1f} %, too much to tell {min_effect:.1%}"
        return give(Verdict.TOO_NOISY, because)
    return give(Verdict.MORE, f"{span}; not decided yet")


def _bounds(mean: float, variance: float, df: int) -> tuple[float, float]:
    from scipy.special import stdtrit

    half = float(stdtrit(df, 0.975)) * math.sqrt(variance)
    return fraction(mean - half), fraction(mean + half)


def _odds(llr: float) -> str:
    return "more than 1000 times" if llr > math.log(1000) else f"{math.exp(llr):.0f} times"


def _percent(log_percent: float) -> str:
    return signed(fraction(log_percent))
