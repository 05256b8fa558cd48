"""`optagent verdict`: the rule on anybody's numbers, line by line, and on two files of results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st

from optagent.agent.commands import cli
from optagent.agent.commands.giving_verdicts import answer, answers
from optagent.agent.errors import BadInput

QUIET = {"launch_sd": 0.005, "run_sd": 0.002, "df": 12}
numbers = st.floats(50.0, 200.0)


def run(*words: str, given: str | None = None) -> Result:
    return CliRunner().invoke(cli, ["verdict", *words], input=given, catch_exceptions=True)


@pytest.mark.parametrize(
    ("pairs", "more", "verdict"),
    [
        ([], {}, "more"),
        ([[100, 110]], {}, "more"),
        ([[100, 103]] * 2, {}, "keep"),
        ([[100, 97]] * 2, {}, "revert"),
        ([[100, 97]] * 2, {"direction": "min"}, "keep"),
        ([[100, 100.1]] * 3, {}, "revert"),
        ([[100, 103]] * 3, {"noise": None}, "more"),  # three pairs cannot tell their own noise
        ([[100, 103], [100, 103.2], [100, 102.9], [100, 103.1]], {"noise": None}, "keep"),
        ([[100, 103]] * 2, {"noise": {"launch_sd": 0.2, "run_sd": 0.0, "df": 5}}, "too-noisy"),
        ([[100, 103]] * 2, {"guards": {"p99_ttft_ms": [[10, 20], [10, 20]]}}, "revert"),
        ([[100, 103]] * 2, {"guards": {"p99_ttft_ms": [[10, 9.9], [10, 9.9]]}}, "keep"),
        ([[100, 103]] * 2, {"guards": {"completed": {"pairs": [[40, 40]] * 2, "direction": "max"}}}, "keep"),
        ([[100, 101.0]] * 12, {"noise": {"launch_sd": 0.02, "run_sd": 0, "df": 12}}, "inconclusive"),
    ],
)
def test_verdicts(pairs: list[list[float]], more: dict[str, Any], verdict: str) -> None:
    found = answer({"id": 7, "direction": "max", "min_effect": 0.02, "noise": QUIET, "pairs": pairs} | more)
    assert (found["id"], found["verdict"]) == (7, verdict), found["because"]


def test_a_line_in_and_a_line_out() -> None:
    lines = [{"id": name, "noise": QUIET, "pairs": [[100, value]] * 2} for name, value in (("a", 104), ("b", 99))]
    done = run(given="\n".join(map(json.dumps, lines)) + "\n\n")
    assert done.exit_code == 0
    told = [json.loads(line) for line in done.output.splitlines()]
    assert [(one["id"], one["verdict"]) for one in told] == [("a", "keep"), ("b", "revert")]
    assert set(told[0]) == {"id", "verdict", "effect", "llr", "pairs_expected", "because"}
    effect = told[0]["effect"]
    assert effect["estimate"] == pytest.approx(0.04)
    assert effect["low"] < effect["estimate"] < effect["high"]


@given(st.lists(st.tuples(numbers, numbers), max_size=14), st.none() | st.just(QUIET), st.sampled_from(["max", "min"]))
@settings(deadline=None)
def test_every_answer_is_strict_json(pairs: list[tuple[float, float]], noise: Any, direction: str) -> None:
    asked = {"pairs": [list(pair) for pair in pairs], "noise": noise, "direction": direction}
    text = json.dumps(answer(json.loads(json.dumps(asked))), allow_nan=False)
    assert json.loads(text)["verdict"] in ("keep", "revert", "more", "inconclusive", "too-noisy")


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{", "not a JSON object"),
        ("[1]", "expected a JSON object with `pairs`"),
        ('{"id": 1}', "pairs: expected a list"),
        ('{"pairs": [[1, 0]]}', "pairs: pair 1: expected a number above 0, not 0"),
        ('{"pairs": [[1, NaN]]}', "pairs: pair 1: expected a number above 0"),
        ('{"pairs": [[1]]}', "pairs: pair 1: expected [baseline, candidate]"),
        ('{"pairs": [], "direction": "up"}', 'direction: expected "max" or "min"'),
        ('{"pairs": [], "min_effect": 20}', "min_effect: expected a fraction"),
        (
            '{"pairs": [], "noise": {"launch_sd": -1, "run_sd": 0, "df": 3}}',
            "noise.launch_sd: expected a number from 0",
        ),
        ('{"pairs": [], "noise": 0.01}', "noise: expected null or an object"),
        ('{"pairs": [], "guards": {"a": 3}}', "guards.a: expected pairs"),
        ('{"pairs": [], "nois": null}', "unknown key 'nois'"),
    ],
)
def test_a_line_that_is_wrong_is_named(line: str, problem: str) -> None:
    with pytest.raises(BadInput) as told:
        list(answers([b'{"pairs": []}', line.encode()], "numbers.jsonl"))
    assert str(told.value).startswith("numbers.jsonl:2: ")
    assert problem in str(told.value)
    assert told.value.exit_status == 2


def results(path: Path, *values: float) -> str:
    path.write_text("".join(json.dumps({"output_throughput": v, "median_tpot_ms": 1000 / v}) + "\n" for v in values))
    return str(path)


@pytest.mark.parametrize(
    ("after", "words", "said"),
    [
        ((110, 112, 111, 111), (), "The second is better: output_throughput +"),
        ((110, 112, 111, 111), ("--metric", "median_tpot_ms"), "The second is better: median_tpot_ms +"),
        ((90, 91, 89, 90), (), "The second is worse"),
        ((100, 101, 99.5, 100), (), "The second is not better by as much as asked"),
        ((110,), (), "It cannot be told: output_throughput +10.0% over 1 pair of runs. At least 4"),
        ((110, 109), ("--launch-sd", "0.01"), "The second is better"),
        ((100, 140, 80, 120), (), "It cannot be told yet"),
    ],
)
def test_two_files_of_results(tmp_path: Path, after: tuple[float, ...], words: tuple[str, ...], said: str) -> None:
    before = results(tmp_path / "before.jsonl", 100, 101, 100, 99.8)
    done = run(before, results(tmp_path / "after.jsonl", *after), *words)
    assert done.exit_code == 0
    assert done.output.startswith(said), done.output


@pytest.mark.parametrize("option", ["--min-effect", "--launch-sd"])
@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("-1", "expected a number above 0, not -1.0"),
        ("0", "expected a number above 0, not 0.0"),
        ("nan", "expected a number above 0, not nan"),
        ("inf", "expected a number above 0, not inf"),
        ("20", "expected a fraction such as 0.02, not 20.0"),
    ],
)
def test_an_option_that_is_wrong_is_named(tmp_path: Path, option: str, given: str, says: str) -> None:
    same = results(tmp_path / "same.jsonl", 100)
    done = run(same, same, option, given)
    assert isinstance(done.exception, BadInput)
    assert str(done.exception) == f"{option}: {says}"
    assert done.output == ""


def test_a_result_without_the_metric_is_named(tmp_path: Path) -> None:
    before = results(tmp_path / "before.jsonl", 100)
    done = run(before, before, "--metric", "median_ttft_ms")
    assert isinstance(done.exception, BadInput)
    assert "before.jsonl:1: median_ttft_ms: expected a number above zero" in str(done.exception)
