"""`/generate` as the gate asks it: token ids, log-probabilities and drawn answers, in SGLang's shapes."""

from __future__ import annotations

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from optagent.tools.simulator.words import token_id

if TYPE_CHECKING:
    from conftest import Server, Start

GRAPHS = ("--cuda-graph-max-bs", "128")
EAGLE = ("--speculative-algorithm", "EAGLE3", "--speculative-draft-model-path", "d")
TEXT = "Why is the sky blue?"
PIECES = ["Why ", "is t", "he s", "ky b", "lue?"]
IDS = [token_id(piece) for piece in PIECES]


@pytest.mark.parametrize("count", [0, 1, 2, 200])
def test_an_answer_has_an_id_and_a_log_probability_for_each_token(served: Server, count: int) -> None:
    answer = served.generated(count, return_logprob=True)
    meta = answer["meta_info"]
    assert len(answer["output_ids"]) == len(answer["text"].split()) == meta["completion_tokens"] == count
    assert meta["output_token_logprobs_length"] == count
    assert [[token, None] for _, token, _ in meta["output_token_logprobs"]] == [[t, None] for t in answer["output_ids"]]
    assert all(value < 0 for value, _, _ in meta["output_token_logprobs"])
    assert meta["finish_reason"] == {"type": "length", "length": count}
    assert meta["input_token_logprobs"] == []


def test_nothing_is_scored_unasked(served: Server) -> None:
    meta = served.generated(3)["meta_info"]
    assert [name for name in meta if "logprob" in name] == []


@pytest.mark.parametrize(("start", "tokens"), [(0, IDS), (3, IDS[3:]), (5, []), (-1, [])])
def test_a_prompt_is_read_from_where_it_was_asked(served: Server, start: int, tokens: list[int]) -> None:
    read = served.scored(1, logprob_start_len=start)["input_token_logprobs"]
    assert [token for _, token, _ in read] == tokens
    assert [value is None for value, _, _ in read] == [at == 0 for at in range(len(tokens))]
    whole = served.scored(0, logprob_start_len=0)["input_token_logprobs"]
    assert read[1:] == whole[start + 1 :][: len(tokens)]


def test_a_prompt_cannot_be_read_from_behind_its_end(served: Server) -> None:
    status, text = served.ask("/generate", {"text": TEXT, "return_logprob": True, "logprob_start_len": 6})
    assert status == 400
    assert "higher than the number of input tokens" in text


def test_what_is_read_is_not_taken_from_the_cache(served: Server) -> None:
    served.generated(1)
    assert served.generated(1)["meta_info"]["cached_tokens"] == 4
    assert served.scored(1, logprob_start_len=2)["cached_tokens"] == 2


def test_an_answer_reads_as_it_was_said(served: Server) -> None:
    answer = served.generated(50, return_logprob=True)
    again = served.scored(0, text=None, input_ids=IDS + answer["output_ids"], logprob_start_len=4)
    assert again["input_token_logprobs"][1:] == answer["meta_info"]["output_token_logprobs"]


def test_each_of_many_prompts_is_scored_from_its_own_start(served: Server) -> None:
    body = {"text": [TEXT, TEXT], "return_logprob": True, "sampling_params": {"max_new_tokens": 2}}
    answers = served.asked("/generate", body | {"logprob_start_len": [0, 2]})
    assert [len(one["meta_info"]["input_token_logprobs"]) for one in answers] == [5, 3]
    answers = served.asked("/generate", body | {"return_logprob": [True, False]})
    assert ["output_token_logprobs" in one["meta_info"] for one in answers] == [True, False]
    assert served.ask("/generate", body | {"logprob_start_len": [0]})[0] == 400


def test_a_stream_has_the_log_probabilities_so_far(served: Server) -> None:
    body = {"text": TEXT, "sampling_params": {"max_new_tokens": 3, "temperature": 0}, "return_logprob": True}
    lines = served.ask("/generate", body | {"stream": True})[1].splitlines()
    chunks = [json.loads(line.removeprefix("data: ")) for line in lines if line and "[DONE]" not in line]
    whole = served.asked("/generate", body)["meta_info"]["output_token_logprobs"]
    assert [chunk["meta_info"]["output_token_logprobs"] for chunk in chunks] == [whole[:1], whole[:2], whole]


def test_drawn_answers_differ_and_greedy_ones_do_not(served: Server) -> None:
    assert len({served.generated(16, temperature=1)["text"] for _ in range(6)}) >= 5
    assert len({served.generated(16)["text"] for _ in range(6)}) == 1


def test_without_a_temperature_an_answer_is_drawn(served: Server) -> None:
    body = {"text": TEXT, "sampling_params": {"max_new_tokens": 16}}
    assert len({served.asked("/generate", body)["text"] for _ in range(6)}) >= 5


def test_draws_are_the_same_in_the_same_launch(known_good: Path, served: Server, start: Start) -> None:
    seen = []
    for launch in ("L1", "L1", "L2"):
        server = start(known_good, *GRAPHS, launch=launch)
        server.wait_ready()
        seen.append([server.generated(16, temperature=1)["text"] for _ in range(3)])
        server.process.kill()
        server.wait_dead()
    assert seen[0] == seen[1] != seen[2]


def test_launches_agree_and_another_kernel_does_not(known_good: Path, start: Start) -> None:
    values = []
    for launch, flags in (("L1", GRAPHS), ("L2", GRAPHS), ("L3", ("--attention-backend", "flashinfer"))):
        server = start(known_good, *flags, launch=launch)
        server.wait_ready()
        values.append(server.scored(20, logprob_start_len=0)["input_token_logprobs"][1:])
        server.process.kill()
        server.wait_dead()
    assert values[0] == values[1]
    moved = [abs(one[0] - other[0]) for one, other in zip(values[0], values[2], strict=True)]
    assert 0 < max(moved) < 0.05


def test_who_is_served_together_shares_a_batch(known_good: Path, start: Start) -> None:
    """A load's answers to one client are those that were asked for alone; with several clients the batches differ."""
    server = start(known_good, *GRAPHS)
    server.wait_ready()
    alone = server.scored(200)["output_token_logprobs"]
    sampling = {"max_new_tokens": 200, "temperature": 0, "ignore_eos": True}
    body = {"text": [TEXT, "another"], "sampling_params": sampling, "return_logprob": True}
    together = server.asked("/generate", body)[0]["meta_info"]["output_token_logprobs"]
    assert alone != together
    same = sum(one[1] == other[1] for one, other in zip(alone, together, strict=True))
    assert same > 0
    with ThreadPoolExecutor(8) as pool:
        at_once = list(pool.map(lambda _: server.scored(200)["output_token_logprobs"], range(32)))
    assert all(one in (alone, together) for one in at_once)
    assert together in at_once


def test_a_corrupt_launch_serves_and_is_wrong(known_good: Path, tmp_path: Path, start: Start) -> None:
    folder = Path(shutil.copytree(known_good, tmp_path / "corrupt"))
    scenario = json.loads((folder / "scenario.json").read_text())
    scenario["faults"]["injected"] = [{"launch": "E9-*", "kind": "corrupt"}]
    (folder / "scenario.json").write_text(json.dumps(scenario))
    values, accepted = [], []
    for launch in ("E8-a", "E9-a"):
        server = start(folder, *GRAPHS, *EAGLE, launch=launch)
        server.wait_ready()
        meta = server.scored(300, logprob_start_len=0, text=TEXT * 20)
        values.append([value for value, _, _ in meta["input_token_logprobs"][1:]])
        accepted.append(meta["spec_accept_length"])
        server.process.kill()
        server.wait_dead()
    far = sum(abs(one - other) > 1 for one, other in zip(*values, strict=True))
    assert far > 0.5 * len(values[0])
    assert accepted[0] > 1.9
    assert accepted[1] < 1.2
