"""Is the output still right? One wrong answer is enough to measure nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optagent.agent.gates import GateResult, judge_samples, repetition
from optagent.tools.calls.bench import Answer, Sampled

TOKENS = 16
FINE = Answer(
    text="The cache holds keys and values of earlier tokens so that each step computes only the new one.",
    tokens=TOKENS,
    finish_reason="length",
)


def judged(*answers: Answer, accept_length: float | None = None, before: float | None = None) -> GateResult:
    sampled = Sampled(answers=list(answers), accept_length=accept_length)
    return judge_samples(sampled, max_tokens=TOKENS, reference_accept_length=before)


def test_answers_in_order_pass() -> None:
    assert judged(FINE, FINE) == GateResult(True)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (Answer(error="HTTP 500: overloaded"), "HTTP 500: overloaded"),
        (Answer(text=""), "an empty answer"),
        (Answer(text=" \n"), "an empty answer"),
        (Answer(text="Yes.", tokens=1, finish_reason="length"), "1 tokens instead of 16"),
        (Answer(text="!! " * 40, tokens=TOKENS, finish_reason="length"), "the answer repeats itself"),
    ],
)
def test_one_wrong_answer_fails_the_gate(answer: Answer, says: str) -> None:
    result = judged(FINE, answer)
    assert not result.passed
    assert result.problems == (f"prompt 2: {says}",)


@pytest.mark.parametrize(
    "answer",
    [
        Answer(text="Four.", tokens=2, finish_reason="stop"),  # it had said all
        Answer(text="Four.", tokens=None, finish_reason="length"),  # a server that does not count
        Answer(text="no no no", tokens=TOKENS, finish_reason="length"),  # too short to be called degenerate
    ],
)
def test_what_is_not_wrong(answer: Answer) -> None:
    assert judged(answer).passed


def test_nothing_sampled_is_not_a_pass() -> None:
    assert judged().problems == ("no answer at all",)
    assert judge_samples(Sampled(problem="no prompt was answered"), max_tokens=TOKENS).problems == (
        "no prompt was answered",
    )


@pytest.mark.parametrize(
    ("now", "before", "passes"),
    [
        (2.3, 2.3, True),
        (2.08, 2.3, True),
        (2.05, 2.3, False),  # more than a tenth lower with the same draft: verification is suspect
        (3.0, 2.3, True),
        (2.3, None, True),
        (1.0, None, False),  # no draft is ever accepted
        (None, 2.3, True),
        (None, None, True),
    ],
)
def test_accept_length(now: float | None, before: float | None, passes: bool) -> None:
    assert judged(FINE, accept_length=now, before=before).passed is passes


def test_a_long_list_of_problems_is_cut() -> None:
    assert len(judged(*[Answer(text="")] * 8).problems) == 6


@given(st.text(max_size=300))
def test_repetition_is_a_share(text: str) -> None:
    assert 0 <= repetition(text) <= 1


def test_repetition() -> None:
    assert repetition("a b c " * 4) == pytest.approx(0.4)
    assert repetition("same " * 50) == 1.0
    assert repetition(" ".join(map(str, range(50)))) < 0.05
