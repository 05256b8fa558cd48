"""Two examinations held against each other: the laws of it, and what cannot be compared."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optagent.tools.calls.gate import Agreement
from optagent.tools.examining.compare import compare, k3
from optagent.tools.examining.examination import FLOOR, Answer, Answers, Examination, Reading

LOGPROBS = st.floats(FLOOR, 0, allow_nan=False)
IDS = st.lists(st.integers(0, 3), max_size=12)


@st.composite
def answers(draw: st.DrawFn) -> Answer:
    ids = draw(IDS)
    logprobs = draw(st.lists(LOGPROBS, min_size=len(ids), max_size=len(ids)))
    told = draw(st.booleans())
    return Answer(
        text=" ".join(map(str, ids)),
        ids=ids if told else None,
        logprobs=logprobs if told else None,
        tokens=draw(st.sampled_from([None, len(ids)])),
        finish=draw(st.sampled_from(["length", "stop", ""])),
        error=draw(st.sampled_from([None, None, None, "HTTP 500"])),
    )


@st.composite
def readings(draw: st.DrawFn) -> Reading:
    ids = draw(st.lists(st.integers(0, 3), min_size=1, max_size=8))
    logprobs = draw(st.lists(LOGPROBS, min_size=len(ids) - 1, max_size=len(ids) - 1))
    return Reading(ids=ids, logprobs=[None, *logprobs], error=draw(st.sampled_from([None, None, None, "HTTP 500"])))


@st.composite
def examinations(draw: st.DrawFn) -> Examination:
    passes = [Answers(concurrency=c, answers=draw(st.lists(answers(), max_size=4))) for c in (1, 8)]
    return examination(passes, draw(st.lists(readings(), max_size=4)))


def examination(passes: list[Answers], texts: list[Reading] | None = None, questions: str = "q") -> Examination:
    return Examination(format=1, key="k", questions=questions, passes=passes, readings=texts or [])


def said(*ids: int, finish: str = "length", logprobs: list[float] | None = None) -> Answer:
    return Answer(text="t", ids=list(ids), logprobs=logprobs, tokens=len(ids), finish=finish)


def alone(*asked: Answer) -> Examination:
    return examination([Answers(concurrency=1, answers=list(asked))])


def texts(*logprobs: list[float | None], ids: list[int] | None = None) -> Examination:
    return examination([], [Reading(ids=ids or list(range(len(one))), logprobs=one) for one in logprobs])


@given(examinations())
def test_an_examination_agrees_with_itself(one: Examination) -> None:
    itself = compare(one, one, "itself")
    for agreement in itself.agreement:
        assert agreement == Agreement(concurrency=agreement.concurrency, exact=1, early=0, prefix=1, finish=0, length=1)
    assert {itself.kl, itself.shift, itself.far, itself.decode_kl} <= {0, None}
    assert (itself.kl is None) is (itself.scored == 0)


@given(examinations(), examinations())
def test_two_of_any_kind_give_shares_and_no_kl_below_zero(one: Examination, other: Examination) -> None:
    compared = compare(one, other, "other")
    for agreement in compared.agreement:
        assert 0 <= agreement.exact <= 1
        assert 0 <= agreement.early <= 1 - agreement.exact + 1e-9
        assert agreement.exact <= agreement.prefix + 1e-9
        assert agreement.prefix <= 1
        assert 0 <= agreement.finish <= 1
        assert math.isfinite(agreement.length)
    for kl in (compared.kl, compared.decode_kl):
        assert kl is None or 0 <= kl < math.inf
    assert compared.far is None or 0 <= compared.far <= 1
    assert compared.problem or compared.kl is not None or not one.readings
    assert compared.problem or compared.decode_kl is not None or not any(asked.answers for asked in one.passes)


@given(
    st.lists(st.tuples(st.floats(-20, -5), st.floats(-1, 1)), min_size=1, max_size=30), st.floats(0, 3), st.floats(0, 2)
)
def test_more_noise_is_never_less_kl(tokens: list[tuple[float, float]], scale: float, more: float) -> None:
    def noisy(by: float) -> float:
        kl = k3([(logprob + by * noise, logprob) for logprob, noise in tokens])
        assert kl is not None
        return kl

    assert noisy(scale + more) >= noisy(scale) - 1e-9


@pytest.mark.parametrize(
    ("ours", "theirs", "exact", "early", "prefix", "length"),
    [
        ([1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 5, 6], 1, 0, 1, 1),
        ([1, 2, 3, 4, 5, 9], [1, 2, 3, 4, 5, 6], 0, 0, 5 / 6, 1),
        ([1, 2, 3, 4, 9, 9], [1, 2, 3, 4, 5, 6], 0, 0, 4 / 6, 1),
        ([1, 2, 3, 9, 5, 6], [1, 2, 3, 4, 5, 6], 0, 1, 3 / 6, 1),
        ([9, 2, 3, 4, 5, 6], [1, 2, 3, 4, 5, 6], 0, 1, 0, 1),
        ([1, 2, 3], [1, 2, 3, 4, 5, 6], 0, 1, 3 / 6, 1 / 2),  # one that ends is parting too
        ([1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 6], 0, 0, 5 / 6, 5 / 6),
        ([1, 2, 3, 4, 5, 6, 7], [1, 2, 3, 4, 5, 6], 0, 0, 1, 7 / 6),
        ([], [1, 2, 3, 4], 0, 1, 0, 0),
        ([1, 2], [], 0, 1, 0, 3),
        ([], [], 1, 0, 1, 1),
        ([1, 2], [1, 2], 1, 0, 1, 1),
    ],
)
def test_one_answer(
    ours: list[int], theirs: list[int], exact: float, early: float, prefix: float, length: float
) -> None:
    (agreement,) = compare(alone(said(*ours)), alone(said(*theirs)), "r").agreement
    expected = Agreement(concurrency=1, exact=exact, early=early, prefix=prefix, finish=0, length=length)
    assert agreement == expected


def test_several_answers_are_counted_where_both_answered() -> None:
    ours = alone(said(1, 2, 3, 4, 5), said(1, 9, finish="stop"), Answer(error="HTTP 500"), said(7))
    theirs = alone(said(1, 2, 3, 4, 5), said(1, 2), said(5), Answer(error="HTTP 500"))
    (agreement,) = compare(ours, theirs, "r").agreement
    assert agreement == Agreement(concurrency=1, exact=0.5, early=0.5, prefix=0.75, finish=0.5, length=1)


def test_words_stand_in_for_unknown_tokens() -> None:
    ours = alone(Answer(text="a b c d  e"), Answer(text="a b x", tokens=3))
    theirs = alone(Answer(text="a b c d e"), Answer(text="a b c d", ids=[1, 2, 3, 4], tokens=4))
    (agreement,) = compare(ours, theirs, "r").agreement
    assert (agreement.exact, agreement.early, agreement.prefix, agreement.length) == (0.5, 0.5, 0.75, 8 / 9)


def test_log_probabilities_of_texts() -> None:
    compared = compare(texts([None, -1.0, -2.0], [None, -3.0]), texts([None, -1.5, -2.0], [None, -1.0]), "r")
    assert compared.scored == 3
    assert compared.shift == pytest.approx((0.5 + 0 - 2) / 3)
    assert compared.far == pytest.approx(1 / 3)
    assert compared.kl == pytest.approx(((math.exp(0.5) - 1.5) + 0 + (math.exp(-2) + 1)) / 3)
    assert compared.problem is None


def test_an_impossible_token_makes_it_large_and_finite() -> None:
    for ours, theirs in ((FLOOR, -0.1), (-0.1, FLOOR)):
        kl = compare(texts([None, ours]), texts([None, theirs]), "r").kl
        assert kl is not None
        assert 50 < kl < math.inf


def test_answers_that_lost_their_log_probabilities_are_named() -> None:
    """As when tokens are put in after sampling."""
    ours = alone(said(1, 2, logprobs=[-1.0, -2.0]), said(1, 2))
    theirs = alone(*[said(1, 2, logprobs=[-1.0, -2.0])] * 2)
    compared = compare(ours, theirs, "r")
    assert (compared.decode_kl, compared.problem) == (0, "1 answers came without the log-probabilities of their tokens")
    assert compare(theirs, ours, "r").problem is None


def test_generated_tokens_count_until_the_answers_part() -> None:
    ours = alone(said(1, 2, 3, logprobs=[-1.0, -2.0, -0.1]), said(9, logprobs=[-50.0]))
    theirs = alone(said(1, 2, 4, logprobs=[-1.0, -1.0, -9.0]), said(8, logprobs=[-0.1]))
    compared = compare(ours, theirs, "r")
    assert compared.decode_kl == pytest.approx(math.exp(-1) / 2)
    assert (compared.kl, compared.scored, compared.problem) == (None, 0, None)


@pytest.mark.parametrize(
    ("ours", "theirs", "says"),
    [
        (alone(said(1)), "is not there", "is not there"),
        (alone(said(1)), examination([], questions="other"), "other questions"),
        (alone(said(1)), alone(said(1)).model_copy(update={"simulated": True}), "simulated"),
        (alone(said(1)), examination([]), "no prompt was answered by both, 1 at a time"),
        (alone(Answer(error="e")), alone(said(1)), "no prompt was answered by both"),
        (alone(said(1)), alone(said(1)), "no generated token with a log-probability"),
        (alone(said(1, logprobs=[-1.0])), alone(said(2, logprobs=[-1.0])), "no generated token"),
        (texts([None, -1.0]), texts([None, -1.0], ids=[0, 7]), "text 1 is tokenised differently"),
        (examination([], [Reading(error="HTTP 500")]), texts([None, -1.0]), "text 1 was not read: HTTP 500"),
        (texts([None, -1.0]), examination([], [Reading(error="late")]), "text 1 was not read by the reference: late"),
        (
            texts([None, -1.0], [None, -1.0]),
            examination([], [Reading(error="late"), Reading(error="late")]),
            "2 of 2 texts cannot be compared, the first because text 1 was not read by the reference: late",
        ),
    ],
)
def test_what_cannot_be_compared_is_none_with_a_reason(ours: Examination, theirs: Examination | str, says: str) -> None:
    compared = compare(ours, theirs, "r")
    assert says in (compared.problem or "")
    assert (compared.reference, compared.kl, compared.far, compared.shift) == ("r", None, None, None)
    assert (compared.scored, compared.decode_kl) == (0, None)


def test_other_texts_are_compared_all_the_same() -> None:
    ours = examination([], [Reading(error="HTTP 500"), Reading(ids=[1, 2], logprobs=[None, -1.0])])
    theirs = examination([], [Reading(ids=[1], logprobs=[None]), Reading(ids=[1, 2], logprobs=[None, -1.0])])
    compared = compare(ours, theirs, "r")
    assert (compared.kl, compared.scored) == (0, 1)
    assert compared.problem == "text 1 was not read: HTTP 500"
