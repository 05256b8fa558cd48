"""`optagent verdict`: the rule on anybody's numbers, line by line, and on two files of results."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st

from optagent.agent.commands import cli
from optagent.agent.commands.giving_verdicts import answer, answers
from optagent.agent.errors import BadInput
from optagent.agent.metric_directions import direction_of

QUIET = {"launch_sd": 0.005, "run_sd": 0.002, "df": 12}
LONG = "1" + 400 * "0"
SEPARATOR = "\u2028"
"""Ends a line for Unicode, and not for JSON lines."""
numbers = st.floats(50.0, 200.0)
any_number = st.floats(0, exclude_min=True, allow_infinity=False)


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
        ([[100, 103]] * 2, {"guards": {"completed": [[40, 20]] * 2}}, "revert"),  # of these more is better
        ([[100, 103]] * 2, {"guards": {"completed": {"pairs": [[40, 20]] * 2, "direction": "min"}}}, "keep"),
        ([[100, 103]] * 2, {"guards": {"gpu_memory_gb": [[40, 80]] * 2}}, "revert"),
        ([[100, 103]] * 2, {"guards": {"anything": [[40, 80]] * 2}}, "revert"),
        ([[100, 103]] * 2, {"guards": None}, "keep"),
        ([[100, 103]] * 2, {"guards": {"ttft": []}}, "more"),  # nothing is kept unguarded
        ([[100, 103]] * 2, {"guards": {"itl": [[1, 1]] * 2, "ttft": {"pairs": []}}}, "more"),
        ([[100, 103]] * 2, {"guards": {"ttft": []}, "max_pairs": 2}, "inconclusive"),
        ([[100, 97]] * 2, {"guards": {"ttft": []}}, "revert"),
        ([[100, 103]] * 2, {"noise": {"launch_sd": 0.005, "df": 12}}, "keep"),
        ([[100, 103]] * 3, {"noise": {"launch_sd": 0.005, "df": None}}, "more"),
        ([[100, 103]] * 2, {"noise": {"launch_sd": 0.005, "df": 1e308}}, "keep"),
        ([[1e308, 1e-308]] * 4, {}, "revert"),
        ([[1e-308, 1e308]] * 4, {}, "keep"),
        ([[1e-308, 1e308]] * 4, {"direction": "min"}, "revert"),
        ([[1, 1e300], [1e300, 1]] * 2, {"noise": None}, "too-noisy"),
        ([[100, 103]] * 2, {"guards": {"ttft": [[1e-308, 1e308]] * 2}}, "revert"),
        ([[100, 101.0]] * 12, {"noise": {"launch_sd": 0.02, "run_sd": 0, "df": 12}}, "inconclusive"),
    ],
)
def test_verdicts(pairs: list[list[float]], more: dict[str, Any], verdict: str) -> None:
    found = answer({"id": 7, "direction": "max", "min_effect": 0.02, "noise": QUIET, "pairs": pairs} | more)
    assert (found["id"], found["verdict"]) == (7, verdict), found["because"]
    json.dumps(found, allow_nan=False)
    assert len(found["because"]) < 200


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


lists_of_pairs = st.lists(st.tuples(numbers, numbers), max_size=14) | st.lists(st.tuples(any_number, any_number))


def no_constant(name: str) -> None:
    raise AssertionError(f"{name} is no JSON")


@given(
    lists_of_pairs,
    lists_of_pairs,
    st.none() | st.just(QUIET) | st.fixed_dictionaries({"launch_sd": st.floats(0, 9), "df": st.floats(1, 1e308)}),
    st.sampled_from(["max", "min"]),
    st.floats(1e-6, 9.9),
    st.none() | st.integers() | st.text(),
)
@settings(deadline=None)
def test_every_answer_is_strict_json(
    pairs: Any, guard: Any, noise: Any, direction: str, min_effect: float, identity: Any
) -> None:
    asked = {"id": identity, "pairs": pairs, "noise": noise, "direction": direction, "min_effect": min_effect}
    (text,) = answers([json.dumps(asked | {"guards": {"ttft": guard}}).encode()], "numbers.jsonl")
    told = json.loads(text, parse_constant=no_constant)
    assert told["verdict"] in ("keep", "revert", "more", "inconclusive", "too-noisy")
    assert told["id"] == identity


@pytest.mark.parametrize("identity", ['"\\ud800"', '"ä\u2028"', "[1, {}]", "1" + 400 * "0"])
def test_an_id_comes_back_as_it_was(identity: str) -> None:
    done = run(given=f'{{"id": {identity}, "pairs": []}}')
    assert done.exit_code == 0
    assert json.loads(done.output)["id"] == json.loads(identity)


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
        ('{"pairs": [], "guards": {"a\\nb": 3}}', "guards.a ⏎ b: expected pairs"),
        ('{"pairs": [], "guards": []}', "guards: expected an object"),
        ('{"pairs": [], "guards": 0}', "guards: expected an object"),
        ('{"pairs": [], "guards": {"a": {}}}', "guards.a.pairs: expected a list"),
        ('{"pairs": [], "guards": {"a": null}}', "guards.a: expected pairs"),
        (
            '{"pairs": [], "noise": {"lauch_sd": 0.2, "df": 10}}',
            "noise: unknown key 'lauch_sd'; expected launch_sd, df",
        ),
        ('{"pairs": [], "noise": {"df": 10}}', "noise: launch_sd is missing; expected launch_sd, df"),
        ('{"pairs": [], "noise": {"launch_sd": 0.2}}', "noise: df is missing; expected launch_sd, df"),
        ('{"pairs": [], "noise": {}}', "noise: launch_sd is missing"),
        (f'{{"pairs": [[1, {LONG}]]}}', "pairs: pair 1: expected a number below 1.8e308, not 1000"),
        (f'{{"pairs": [], "noise": {{"launch_sd": 1, "df": {LONG}}}}}', "noise.df: expected a number below 1.8e308"),
        (f'{{"pairs": [], "max_pairs": {LONG}}}', "max_pairs: expected a whole number from 2 to 1000000"),
        (f'{{"pairs": [[1, {9000 * "1"}]]}}', "a number is too long"),
        (f'{{"id": {9000 * "["}{9000 * "]"}, "pairs": []}}', "lists lie too deep"),
        ('{"pairs": [], "min_effect": 1e-300}', "min_effect: expected a fraction such as 0.02, not 1e-300"),
        ('{"pairs": [], "min_effect": 0}', "min_effect: expected a number above 0, not 0"),
        ('{"pairs": [], "id": NaN}', "id: expected JSON without NaN"),
        ('{"pairs": [], "id": {"a": [1e999]}}', "id: expected JSON without NaN"),
        ('{"accept_length": 3.1, "median_ttft_ms": 9}', "a result of bench_serving; name a second file"),
        ('{"pairs": [], "nois": null}', "unknown key 'nois'"),
    ],
)
def test_a_line_that_is_wrong_is_named(line: str, problem: str) -> None:
    with pytest.raises(BadInput) as told:
        list(answers([b'{"pairs": []}', line.encode()], "numbers.jsonl"))
    assert str(told.value).startswith("numbers.jsonl:2: ")
    assert problem in str(told.value)
    assert told.value.exit_status == 2
    assert len(str(told.value)) < 250


def results(path: Path, *values: float) -> str:
    path.write_text("".join(json.dumps({"output_throughput": v, "median_tpot_ms": 1000 / v}) + "\n" for v in values))
    return str(path)


@pytest.mark.parametrize(
    ("after", "words", "said"),
    [
        ((110, 112, 111, 111), (), "The second is better: output_throughput 100.2 -> 111, 10.8 % better (95 %: "),
        (
            (110, 112, 111, 111),
            ("--metric", "median_tpot_ms"),
            "The second is better: median_tpot_ms 9.98 -> 9.009, 10.8 % better (95 %: ",
        ),
        ((90, 91, 89, 90), (), "The second is worse"),
        ((100, 101, 99.5, 100), (), "The second is not better by as much as asked"),
        ((110,), (), "It cannot be told: output_throughput 100 -> 110, 10.0 % better over 1 pair of runs. At least 4"),
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


@pytest.mark.parametrize(
    ("metric", "before", "after", "said"),
    [
        ("median_tpot_ms", 10, 9, "The second is better: median_tpot_ms 10 -> 9, 11.1 % better "),
        ("p99_itl_ms", 10, 1000, "The second is worse: p99_itl_ms 10 -> 1000, 100 times worse "),
        (
            "p99_itl_ms",
            1e-308,
            1e308,
            "The second is worse: p99_itl_ms 1e-308 -> 1e+308, more than 1000000 times worse ",
        ),
        ("output_throughput", 100, 1, "The second is worse: output_throughput 100 -> 1, 100 times worse "),
        ("output_throughput", 100, 90, "The second is worse: output_throughput 100 -> 90, 10.0 % worse "),
        ("total_throughput", 20000, 25000, "The second is better: total_throughput 20000 -> 25000, 25.0 % better "),
        (
            "output_throughput",
            5,
            5,
            "The second is not better by as much as asked: output_throughput 5 -> 5, the same ",
        ),
        ("gpu_memory_gb", 40, 80, "The second is worse: gpu_memory_gb 40 -> 80, 2 times worse "),
    ],
)
def test_a_report_reads_forwards(tmp_path: Path, metric: str, before: float, after: float, said: str) -> None:
    files = [tmp_path / "before.jsonl", tmp_path / "after.jsonl"]
    for file, value in zip(files, (before, after), strict=True):
        file.write_text(4 * (json.dumps({metric: value}) + "\n"))
    done = run(*map(str, files), "--metric", metric)
    assert done.output.startswith(said), done.output
    told = json.loads(run(*map(str, files), "--metric", metric, "--json").output, parse_constant=no_constant)
    assert math.isfinite(told["effect"]["high"])


@pytest.mark.parametrize(
    ("metric", "direction"),
    [
        ("median_tpot_ms", "min"),
        ("duration", "min"),
        ("gpu_memory_gb", "min"),
        ("request_throughput", "max"),
        ("request_goodput", "max"),
        ("max_output_tokens_per_s", "max"),
        ("completed", "max"),
        ("accept_length", "max"),
        ("concurrency", None),
        ("ttft", None),
    ],
)
def test_where_better_lies(metric: str, direction: str | None) -> None:
    assert direction_of(metric) == direction


@pytest.mark.parametrize(
    ("words", "verdict"),
    [((), None), (("--direction", "max"), "revert"), (("--direction", "min"), "keep")],
)
def test_a_metric_of_unknown_direction_is_asked_about(
    tmp_path: Path, words: tuple[str, ...], verdict: str | None
) -> None:
    before, after = tmp_path / "before.jsonl", tmp_path / "after.jsonl"
    before.write_text('{"power": 700}\n' * 4)
    after.write_text('{"power": 600}\n' * 4)
    done = run(str(before), str(after), "--metric", "power", "--json", *words)
    if verdict is None:
        assert str(done.exception) == (
            "--metric: whether more of power is better is not known; add --direction max or min"
        )
    else:
        assert json.loads(done.output)["verdict"] == verdict


@pytest.mark.parametrize("line", [f'{{"pairs": [], "id": "{SEPARATOR}"}}\n', '\ufeff{"pairs": []}\r\n', "\ufeff\n\n"])
def test_lines_are_read_alike_from_a_file_and_from_the_standard_input(tmp_path: Path, line: str) -> None:
    file = tmp_path / "lines.jsonl"
    file.write_bytes(line.encode())
    from_file, piped = run(str(file)), run(given=line)
    assert (from_file.exit_code, from_file.output) == (piped.exit_code, piped.output)
    assert from_file.exit_code == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f'{{"tag": "{SEPARATOR}", "output_throughput": 9}}', None),
        ('\ufeff{"output_throughput": 9}', None),
        (f'{{"output_throughput": {LONG}}}', ":2: output_throughput: expected a number above zero"),
        ('{"output_throughput": 1e999}', ":2: output_throughput: expected a number above zero"),
        ('{"output_throughput": 9', ":2: expected one JSON object a line"),
        ('{"tag": "\udc80", "output_throughput": 9}', ":2: expected one JSON object a line"),
        ("[9]", ":2: output_throughput: expected a number above zero"),
    ],
)
def test_lines_of_result_files(tmp_path: Path, text: str, said: str | None) -> None:
    before = results(tmp_path / "before.jsonl", 100)
    after = tmp_path / "after.jsonl"
    after.write_bytes(b"\n" + text.encode(errors="surrogateescape"))
    for files in ((before, str(after)), (str(after), before)):
        done = run(*files)
        if said is None:
            assert done.exit_code == 0, done.exception
        else:
            assert str(done.exception).startswith(f"{after}{said}")


@pytest.mark.parametrize(
    "option", ["--metric=output_throughput", "--min-effect=0.05", "--launch-sd=0.1", "--direction=max"]
)
def test_what_is_for_two_files_is_refused_for_one(option: str) -> None:
    done = run(option, given='{"pairs": []}')
    assert done.exit_code == 2
    assert "name the second one as well" in done.output


COMMAND = [sys.executable, "-m", "optagent", "verdict"]


@pytest.fixture(scope="module")
def big(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A file with more answers than a pipe holds."""
    file = tmp_path_factory.mktemp("verdicts") / "big.jsonl"
    file.write_text(json.dumps({"id": 100 * "x", "pairs": [], "noise": None}) + "\n")
    file.write_text(2000 * file.read_text())
    return str(file)


def test_a_reader_that_has_enough_ends_it_quietly(big: str) -> None:
    with subprocess.Popen([*COMMAND, big], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert json.loads(process.stdout.readline())["verdict"] == "more"
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize("many", [True, False])
def test_a_full_disk_is_not_blamed_on_the_input(tmp_path: Path, big: str, many: bool) -> None:
    one = results(tmp_path / "one.jsonl", 100)
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*COMMAND, *([big] if many else [one, one])], stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert done.stderr == "optagent: standard output: cannot be written: No space left on device\n"
    assert done.returncode == 1


def test_the_answers_before_a_wrong_line_are_printed() -> None:
    done = run(given='{"pairs": []}\n{"pairs": 1}\n')
    assert isinstance(done.exception, BadInput)
    assert json.loads(done.output)["verdict"] == "more"


def test_the_baseline_can_come_from_the_standard_input(tmp_path: Path) -> None:
    done = run(
        "-", results(tmp_path / "after.jsonl", 110), given='{"output_throughput": 100}\n{"output_throughput": 100}'
    )
    assert done.output.startswith("It cannot be told: output_throughput 100 -> 110")
    assert done.output.endswith("1 more run in standard input without a partner: not used\n")


@pytest.mark.parametrize("said", ["max_pairs", '"margin"', "run_sd is 0 unless", "nothing is kept", "--direction"])
def test_the_help_tells_the_format(said: str) -> None:
    assert said in " ".join(run("--help").output.split())
