"""Is the output still right? Every rule of the gate from both sides, and that worse numbers never pass instead."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optagent.agent.gates.limits import FROM_THE_FIRST_KL, Asked, limits_for, limits_from_the_first
from optagent.agent.gates.rules import (
    GateResult,
    Held,
    judge_examined,
    summary,
    unlike_itself,
    was_compared,
)
from optagent.agent.numerics import Numerics
from optagent.tools.calls.gate import Agreement, Comparison, Examined, Pass

ASKED = Asked(prompts=32, concurrency=8)


def agreement(concurrency: int, **changed: float) -> Agreement:
    same: dict[str, float] = {"exact": 1.0, "early": 0.0, "prefix": 1.0, "finish": 0.0, "length": 1.0}
    return Agreement(concurrency=concurrency, **same | changed)


def compared(
    alone: dict[str, float] | None = None, together: dict[str, float] | None = None, **more: Any
) -> Comparison:
    seen = [agreement(1, **alone or {}), agreement(8, **together or {})]
    figures = {"kl": 0.0, "far": 0.0, "shift": 0.0, "scored": 9000, "decode_kl": 0.0}
    return Comparison(reference="reference.json.gz", agreement=seen, **figures | more)


def done(alone: dict[str, Any] | None = None, together: dict[str, Any] | None = None, **more: Any) -> Examined:
    figures: dict[str, Any] = {"tokens": 4096, "repetitive": 2, "empty": 1, "stopped": 9}
    passes = [
        Pass(concurrency=1, **{"latency_s": 2.0, **figures, **(alone or {})}),
        Pass(concurrency=8, **{"latency_s": 3.0, **figures, **(together or {})}),
    ]
    return Examined(passes=passes, **{"variety": 1.0, "accept_length": 2.5, "file": "now.json.gz", **more})


BASELINE = done()
BAND = (compared(),)


@dataclass(frozen=True)
class Case:
    """A candidate's examination beside the baseline's. `says` is in its only problem; "" when it must pass."""

    examined: Examined = BASELINE
    comparison: Comparison = BAND[0]
    says: str = ""
    numerics: Numerics = Numerics.ORDER
    band: tuple[Comparison, ...] = BAND
    same_draft: bool = True


def judged(case: Case) -> GateResult:
    limits = limits_for(case.numerics, case.band, ASKED)
    return judge_examined(case.examined, ASKED, [Held(case.comparison, BASELINE, limits, same_draft=case.same_draft)])


def shares(**figures: float) -> dict[str, float]:
    return figures


CASES: dict[str, Case] = {
    "as the baseline": Case(),
    "nothing answered": Case(Examined(problem="nothing was answered: connection refused"), says="connection refused"),
    "nothing asked": Case(Examined(), says="no answer at all"),
    "nothing answered together": Case(
        Examined(passes=BASELINE.passes[:1], file="f"), says="8 at a time: no answer at all"
    ),
    # G0
    "one prompt not answered": Case(done({"failed": 1}), says="alone: 1 of 32 prompts were not answered"),
    "not answered together": Case(done(together={"failed": 3}), says="8 at a time: 3 of 32 prompts were not answered"),
    "one answer cut": Case(done({"short": 1}), says="alone: 1 of 32 answers are shorter than asked"),
    "as many empty as the baseline's": Case(done({"empty": 1})),
    "one more empty": Case(done(together={"empty": 2}), says="8 at a time: 2 of 32 answers are empty, at most 1 may be"),
    "some more repeat themselves": Case(done({"repetitive": 10})),
    "many repeat themselves": Case(done({"repetitive": 11}), says="11 of 32 answers repeat themselves, 2 of the baseline's"),
    "no speculation": Case(done(accept_length=None)),
    # G1
    "numbers in another order drift": Case(comparison=compared(shares(exact=0.3, prefix=0.6), shares(exact=0.1))),
    "three part at once": Case(comparison=compared(shares(early=3 / 32))),
    "four part at once": Case(
        comparison=compared(together=shares(early=4 / 32)),
        says="8 at a time: 12% of the answers part from the baseline's within the first four tokens, at most 12% may",
    ),
    "four part at once, unknown code": Case(comparison=compared(shares(early=4 / 32)), says="12%", numerics=Numerics.UNKNOWN),
    "the baseline's own part at once": Case(
        comparison=compared(shares(early=8 / 32)), band=(compared(shares(early=5 / 32)), compared(shares(early=6 / 32)))
    ),
    "no numbers moved, three differ": Case(comparison=compared(shares(exact=29 / 32)), numerics=Numerics.NONE),
    "no numbers moved, four differ": Case(
        comparison=compared(shares(exact=28 / 32)), numerics=Numerics.NONE,
        says="alone: 28 of 32 answers are the same as the baseline's, at least 29 should be",
    ),
    "no numbers moved, as the baseline itself": Case(
        comparison=compared(together=shares(exact=0.4)), band=(compared(together=shares(exact=0.5)),),
        numerics=Numerics.NONE,
    ),
    "no numbers moved, unlike the baseline itself": Case(
        comparison=compared(together=shares(exact=0.2)), band=(compared(together=shares(exact=0.5)),),
        numerics=Numerics.NONE, says="8 at a time: 6 of 32 answers are the same",
    ),
    "other batches": Case(comparison=compared(together=shares(exact=0.2)), numerics=Numerics.BATCHING),
    "other batches do not matter alone": Case(
        comparison=compared(shares(exact=0.2)), numerics=Numerics.BATCHING, says="alone: 6 of 32 answers are the same"
    ),
    "some end otherwise": Case(comparison=compared(shares(finish=0.15))),
    "many end otherwise": Case(
        comparison=compared(shares(finish=0.2)), says="alone: 20% of the answers end for another reason"
    ),
    "a little longer": Case(comparison=compared(shares(length=1.14))),
    "much longer": Case(comparison=compared(shares(length=1.2)), says="1.20 times as long as the baseline's, 0.87 to 1.15"),
    "much shorter": Case(comparison=compared(together=shares(length=0.5)), says="8 at a time: the answers are 0.50 times"),
    "lengths vary by themselves": Case(comparison=compared(shares(length=1.2)), band=(compared(shares(length=0.9)),)),
    # G2
    "another MoE backend": Case(comparison=compared(kl=0.0004, decode_kl=0.0005), numerics=Numerics.UNKNOWN),
    "other probabilities": Case(
        comparison=compared(kl=0.031),
        says="KL 0.031 nats a token, at most 0.005: the probabilities of given texts are not the baseline's",
    ),
    "other probabilities, no numbers moved": Case(
        comparison=compared(kl=0.002), numerics=Numerics.NONE, says="KL 0.002 nats a token, at most 0.001"
    ),
    "as noisy as the baseline": Case(comparison=compared(kl=0.014, decode_kl=0.014), band=(compared(kl=0.008, decode_kl=0.008),)),
    "noisier than any baseline may be": Case(
        comparison=compared(kl=0.06), band=(compared(kl=0.9),), says="KL 0.06 nats a token, at most 0.05"
    ),
    "far tokens": Case(comparison=compared(far=0.02), says="2.0% of the tokens of given texts are more than e times as likely"),
    "other probabilities while generating": Case(
        comparison=compared(decode_kl=0.03), says="KL 0.03 nats a token while generating, at most 0.005"
    ),
    "too few tokens to say": Case(comparison=compared(kl=0.9, far=0.9, scored=100)),
    "probabilities are not told": Case(comparison=compared(kl=None, far=None, decode_kl=None, scored=0)),
    "not a number": Case(comparison=compared(kl=math.nan), says="KL nan nats a token"),
    "the owner allowed 4 bits": Case(comparison=compared(kl=0.03, decode_kl=0.03, far=0.02), numerics=Numerics.LAW),
    "the owner allowed 4 bits, not another model": Case(
        comparison=compared(kl=0.2), numerics=Numerics.LAW, says="KL 0.2 nats a token, at most 0.05"
    ),
    # G3
    "accepts a little less": Case(done(accept_length=2.3)),
    "accepts much less": Case(done(accept_length=2.2), says="accept length fell from 2.50 to 2.20 with the same draft"),
    "accepts less with another draft": Case(done(accept_length=1.4), same_draft=False),
    "accepts nothing": Case(done(accept_length=1.0), says="every draft is rejected", same_draft=False),
    "accepts more": Case(done(accept_length=3.4)),
    "accepts more, and repeats itself": Case(
        done(together={"repetitive": 5}, accept_length=3.4), says="8 at a time: accept length rose from 2.50 to 3.40"
    ),
    # caches
    "faster together, as a queue that went": Case(done(together={"latency_s": 0.6})),
    "asked again, answered at once": Case(
        done(together={"latency_s": 0.02}), says="answers come from a cache, not from the model: asked again, 8 at a time"
    ),
    "latencies are not told": Case(done({"latency_s": None})),
    "varies less": Case(done(variety=0.5)),
    "hardly varies": Case(done(variety=1 / 6), says="drawn at temperature 1, 17% of the answers to one prompt differ, 100% of"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_candidate_beside_its_baseline(name: str) -> None:
    case = CASES[name]
    result = judged(case)
    assert result.passed is (not result.problems)
    if case.says:
        assert [case.says in problem for problem in result.problems] == [True], result.problems
    else:
        assert result.problems == ()


FIRST_CASES: dict[str, tuple[Examined, str]] = {
    "whatever it says": (done({"repetitive": 32, "empty": 3}, accept_length=1.7), ""),
    "hardly anything": (done({"empty": 4}), "alone: 4 of 32 answers are empty, at most 3 may be"),
    "not answered": (done({"failed": 2}), "2 of 32 prompts were not answered"),
    "every draft rejected": (done(accept_length=1.0), "accept length is 1.00"),
    "a remembered answer, for all that is known": (done(together={"latency_s": 0.01}, variety=0.2), ""),
}


@pytest.mark.parametrize("name", FIRST_CASES)
def test_a_first_examination_is_held_to_what_needs_nothing_else(name: str) -> None:
    examined, says = FIRST_CASES[name]
    result = judge_examined(examined, ASKED)
    assert [says in problem for problem in result.problems] == ([True] if says else [])


@pytest.mark.parametrize(
    ("comparison", "numerics", "passes"),
    [
        (compared(shares(exact=0.0, early=0.2, length=2.0, finish=0.9), kl=0.02, decode_kl=0.02, far=0.3), Numerics.NONE, True),
        (compared(shares(early=0.25)), Numerics.UNKNOWN, False),
        (compared(kl=0.021), Numerics.UNKNOWN, False),
        (compared(decode_kl=0.021), Numerics.UNKNOWN, False),
        (compared(shares(early=0.25), kl=0.04), Numerics.LAW, True),
    ],
)  # fmt: skip
def test_kept_changes_together_may_differ_a_little_more(
    comparison: Comparison, numerics: Numerics, passes: bool
) -> None:
    """From the first baseline only the drift counts: what one step may do was judged in its own gate."""
    limits = limits_from_the_first(numerics, ASKED)
    other = done({"repetitive": 0, "empty": 0}, {"latency_s": 90.0}, variety=1.0, accept_length=9.0)
    held = Held(comparison, other, limits, "the first baseline's", whole=False)
    result = judge_examined(BASELINE, ASKED, [held])
    assert result.passed is passes
    assert all("the first baseline's" in problem for problem in result.problems)


def test_many_small_steps_do_not_drift_away() -> None:
    step = compared(kl=0.004)
    base = Held(step, BASELINE, limits_for(Numerics.ORDER, BAND, ASKED))
    far_off = Held(
        compared(kl=FROM_THE_FIRST_KL + 0.001), BASELINE, limits_from_the_first(Numerics.ORDER, ASKED),
        "the first baseline's", whole=False,
    )  # fmt: skip
    assert judge_examined(BASELINE, ASKED, [base]).passed
    assert not judge_examined(BASELINE, ASKED, [base, far_off]).passed


def test_all_problems_are_told_up_to_a_few() -> None:
    wrong = done({"failed": 1, "short": 1, "empty": 5}, {"failed": 1, "short": 1, "empty": 5, "repetitive": 32})
    result = judged(Case(wrong))
    assert len(result.problems) == 6
    assert result.problems[0].startswith("alone: 1 of 32 prompts")


def test_what_is_worth_knowing_is_noted() -> None:
    result = judged(Case(done(accept_length=3.0), compared(problem="2 of 24 texts cannot be compared")))
    assert result.passed
    assert result.notes == (
        "accept length rose by 20% with the same draft; the answers do not repeat themselves more",
        "not all could be held against the baseline's: 2 of 24 texts cannot be compared",
    )


@pytest.mark.parametrize(
    ("comparison", "is_one"),
    [
        (compared(), True),
        (Comparison(reference="r", problem="r is not there"), False),
        (Comparison(reference="r", agreement=[agreement(1)]), False),
        (Comparison(reference="r", agreement=[agreement(1), agreement(4)]), False),
    ],
)
def test_a_comparison_has_every_pass(comparison: Comparison, is_one: bool) -> None:
    assert was_compared(comparison, ASKED) is is_one


@pytest.mark.parametrize(
    ("comparison", "says"),
    [
        (compared(shares(exact=0.1, early=0.4), kl=0.04), ""),
        (compared(together=shares(early=0.6)), "8 at a time: 60% of the baseline's answers part"),
        (compared(kl=0.2), "KL 0.2 nats a token between the baseline and itself"),
    ],
)
def test_a_baseline_that_does_not_hold_still_is_told(comparison: Comparison, says: str) -> None:
    assert (unlike_itself(comparison) or "").startswith(says)
    assert bool(unlike_itself(comparison)) is bool(says)


def test_a_passed_gate_in_a_line() -> None:
    comparison = compared(shares(exact=31 / 32), shares(exact=20 / 32), kl=0.00021)
    assert summary(BASELINE, ASKED, comparison, "the same as the baseline's") == (
        "alone 31, 8 at a time 20 of 32 answers the same as the baseline's; KL 0.00021; accept length 2.50"
    )
    assert summary(done(accept_length=None), ASKED, None, "") == (
        "32 prompts answered, with nothing to hold them against yet"
    )


# Worse never passes instead

rates = st.floats(0, 1)
nats = st.floats(0, 1) | st.none()


@st.composite
def examinations(draw: st.DrawFn) -> Examined:
    def a_pass() -> dict[str, Any]:
        few = st.integers(0, 3) | st.integers(0, 32)
        return {"failed": draw(st.sampled_from([0, 0, 0, 1])), "short": draw(st.sampled_from([0, 0, 0, 2]))} | {
            "empty": draw(few), "repetitive": draw(few), "latency_s": draw(st.none() | st.floats(0.01, 10)),
        }  # fmt: skip

    accept_length = draw(st.none() | st.floats(1, 5))
    return done(a_pass(), a_pass(), variety=draw(rates | st.none()), accept_length=accept_length)


@st.composite
def comparisons(draw: st.DrawFn) -> Comparison:
    def an_agreement() -> dict[str, float]:
        close = st.floats(0.8, 1) | rates
        return {"exact": draw(close), "early": 1 - draw(close), "finish": 1 - draw(close), "length": 0.5 + draw(rates)}

    figures = {"kl": draw(nats), "far": draw(nats), "decode_kl": draw(nats), "scored": draw(st.integers(0, 400))}
    return compared(an_agreement(), an_agreement(), **figures)


WORSE_PASS = {"failed": +1, "short": +1, "empty": +1, "repetitive": +1}
WORSE_SHARE = {"exact": -0.1, "early": +0.1, "finish": +0.1}


def worse_examined(examined: Examined, name: str, concurrency: int) -> Examined:
    if name == "variety":
        return examined.model_copy(update={"variety": None if examined.variety is None else examined.variety / 2})
    passes = [
        p.model_copy(update={name: getattr(p, name) + WORSE_PASS[name]}) if p.concurrency == concurrency else p
        for p in examined.passes
    ]
    return examined.model_copy(update={"passes": passes})


def worse_comparison(comparison: Comparison, name: str, concurrency: int) -> Comparison:
    if name in ("kl", "far", "decode_kl"):
        value = getattr(comparison, name)
        return comparison.model_copy(update={name: None if value is None else value * 1.5 + 0.001})

    def worse(seen: Agreement) -> Agreement:
        if name == "length":
            return seen.model_copy(update={"length": seen.length * (1.1 if seen.length >= 1 else 0.9)})
        return seen.model_copy(update={name: min(1.0, max(0.0, getattr(seen, name) + WORSE_SHARE[name]))})

    seen = [worse(a) if a.concurrency == concurrency else a for a in comparison.agreement]
    return comparison.model_copy(update={"agreement": seen})


cases = st.builds(
    Case, examinations(), comparisons(), st.just(""), st.sampled_from(Numerics),
    st.lists(comparisons(), max_size=3).map(tuple), st.booleans(),
)  # fmt: skip
passes = st.sampled_from([1, 8])


@given(cases, st.sampled_from([*WORSE_PASS, "variety"]), passes)
def test_a_worse_examination_does_not_pass_instead(case: Case, name: str, concurrency: int) -> None:
    worse = replace(case, examined=worse_examined(case.examined, name, concurrency))
    assert judged(case).passed or not judged(worse).passed


@given(cases, st.sampled_from([*WORSE_SHARE, "length", "kl", "far", "decode_kl"]), passes)
def test_a_worse_comparison_does_not_pass_instead(case: Case, name: str, concurrency: int) -> None:
    worse = replace(case, comparison=worse_comparison(case.comparison, name, concurrency))
    assert judged(case).passed or not judged(worse).passed


@given(cases)
def test_answers_from_a_cache_do_not_pass_instead(case: Case) -> None:
    """Together an answer takes no time any more; with the same draft the accept length is lower."""
    slow = [p for p in case.examined.passes if p.concurrency == 1]
    fast = [p.model_copy(update={"latency_s": p.latency_s and p.latency_s / 9}) for p in case.examined.passes[1:]]
    worse = replace(case, examined=case.examined.model_copy(update={"passes": [*slow, *fast]}))
    assert judged(case).passed or not judged(worse).passed


@given(cases, st.sampled_from(Numerics))
def test_a_change_that_may_move_more_is_not_held_to_more(case: Case, other: Numerics) -> None:
    low, high = sorted((case.numerics, other))
    assert judged(replace(case, numerics=high)).passed or not judged(replace(case, numerics=low)).passed
