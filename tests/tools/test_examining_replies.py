"""Whatever a server replies becomes an answer that can be stored, or an error."""

from __future__ import annotations

import json
import math
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optagent.tools.examining import replies
from optagent.tools.examining.compare import compare
from optagent.tools.examining.examination import FLOOR, Answer, Answers, Examination
from optagent.tools.examining.file import Unreadable, load, save

NUMBERS = st.integers() | st.floats() | st.just(10**400)
LEAVES = st.none() | st.booleans() | NUMBERS | st.text(max_size=5)
ANYTHING = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3)
)
SCORED = st.lists(st.tuples(ANYTHING, st.integers(0, 9) | ANYTHING, st.none()).map(list), max_size=4)
META = st.fixed_dictionaries({}, optional={
    "finish_reason": ANYTHING | st.fixed_dictionaries({"type": ANYTHING}), "completion_tokens": ANYTHING,
    "output_token_logprobs": ANYTHING | SCORED, "input_token_logprobs": ANYTHING | SCORED, "simulated": st.booleans(),
    "virtual": ANYTHING | st.fixed_dictionaries({"arrived_s": ANYTHING, "finished_s": ANYTHING}),
})  # fmt: skip
CHOICES = st.lists(st.fixed_dictionaries({"text": ANYTHING, "finish_reason": ANYTHING}), max_size=1)
REPLIES = ANYTHING | st.fixed_dictionaries({}, optional={
    "text": ANYTHING, "output_ids": ANYTHING | st.lists(st.integers(0, 9), max_size=4), "meta_info": ANYTHING | META,
    "choices": ANYTHING | CHOICES, "usage": ANYTHING, "data": ANYTHING, "internal_states": ANYTHING,
})  # fmt: skip


@given(REPLIES)
def test_any_reply_can_be_stored_and_compared(tmp_path_factory: pytest.TempPathFactory, reply: Any) -> None:
    reply = json.loads(json.dumps(reply))
    answers = [replies.generated(reply, 0.1), replies.completed(reply, 0.1)]
    for answer in answers:
        assert answer.logprobs is None or answer.ids is None or len(answer.logprobs) == len(answer.ids)
    examination = Examination(
        format=1, key="k", questions="q", passes=[Answers(concurrency=1, answers=answers)],
        readings=[replies.read(reply)], accept_length=replies.accept_length(reply),
    )  # fmt: skip
    file = tmp_path_factory.getbasetemp() / "any.gz"
    save(file, examination)
    assert load(file) == examination
    compare(examination, examination, "itself").model_dump_json()
    assert isinstance(replies.first_model(reply), str)


def test_an_answer_in_sglang_s_form() -> None:
    reply = {
        "text": "b readible",
        "output_ids": [68, 663],
        "meta_info": {
            "finish_reason": {"type": "length", "length": 2},
            "completion_tokens": 2,
            "output_token_logprobs": [[-0.7859698534011841, 68, None], [-0.3668939173221588, 663, None]],
        },
    }
    assert replies.generated(reply, 0.25) == Answer(
        text="b readible", ids=[68, 663], logprobs=[-0.78597, -0.366894], tokens=2, finish="length", latency_s=0.25
    )


@pytest.mark.parametrize(
    ("told", "kept"),
    [
        (-0.5, -0.5),
        (0, 0.0),
        (0.25, 0.0),  # no log-probability is above zero
        (-1e300, FLOOR),
        (None, FLOOR),  # what JSON makes of NaN and of -inf
        (math.nan, FLOOR),
        (-math.inf, FLOOR),
        (math.inf, FLOOR),
        ("-0.5", FLOOR),
    ],
)
def test_log_probabilities_are_bounded(told: object, kept: float) -> None:
    reply = {"text": "t", "meta_info": {"input_token_logprobs": [[None, 1, None], [told, 2, None]]}}
    assert replies.read(reply).logprobs == [None, kept]


@pytest.mark.parametrize(
    ("ids", "scored", "kept_ids", "kept"),
    [
        ([1, 2], [[-1.0, 1], [-2.0, 2]], [1, 2], [-1.0, -2.0]),
        (None, [[-1.0, 1], [-2.0, 2]], [1, 2], [-1.0, -2.0]),
        ([1, 3], [[-1.0, 1], [-2.0, 2]], [1, 3], None),  # they belong to other tokens
        ([1], [[-1.0, 1], [-2.0, 2]], [1], None),
        ([1, 2], None, [1, 2], None),
        ([1, -2], "?", None, None),
    ],
)
def test_log_probabilities_belong_to_the_tokens(
    ids: object, scored: object, kept_ids: list[int] | None, kept: list[float] | None
) -> None:
    answer = replies.generated({"text": "t", "output_ids": ids, "meta_info": {"output_token_logprobs": scored}}, 0.0)
    assert (answer.ids, answer.logprobs) == (kept_ids, kept)


def test_an_answer_that_was_given_up_is_none() -> None:
    reason = {"type": "abort", "message": "out of memory", "status_code": 503}
    answer = replies.generated({"text": "", "meta_info": {"finish_reason": reason}}, 0.0)
    assert answer.error == "the server gave it up: out of memory"


def test_half_a_character_can_be_stored(tmp_path: Path) -> None:
    answer = replies.generated(json.loads('{"text": "a\\ud83d"}'), 0.0)
    assert answer.text == "a?"
    refused = replies.generated(json.loads('{"no text": "\\ud83d"}'), 0.0)
    answers = [Answers(concurrency=1, answers=[answer, refused])]
    save(tmp_path / "a.gz", Examination(format=1, key="k", questions="q", passes=answers))


def test_what_is_stored_is_bounded() -> None:
    long = "x" * 100_000
    assert len(replies.generated({"text": long}, 0.0).text) == 20_000
    assert len(replies.generated({"no": long}, 0.0).error or "") < 400


@given(st.binary(max_size=200), st.binary(max_size=200), st.integers(0, 400))
def test_a_damaged_file_is_unreadable_and_nothing_else(
    tmp_path_factory: pytest.TempPathFactory, noise: bytes, other: bytes, at: int
) -> None:
    file = tmp_path_factory.getbasetemp() / "damaged.gz"
    answers = [Answer(text=f"answer {number}", ids=[number], tokens=1) for number in range(20)]
    whole = Examination(format=1, key="k", questions="q", passes=[Answers(concurrency=1, answers=answers)])
    save(file, whole)
    content = file.read_bytes()
    for damaged in (noise, content[:at] + other, content[:at] + other + content[at + len(other) :]):
        file.write_bytes(damaged)
        with suppress(Unreadable):
            assert load(file) == whole


def test_the_same_examination_is_the_same_bytes_at_any_time(tmp_path: Path) -> None:
    save(tmp_path / "a.gz", Examination(format=1, key="k", questions="q"))
    assert (tmp_path / "a.gz").read_bytes()[4:8] == bytes(4), "the time in gzip's header"
