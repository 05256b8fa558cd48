"""What makes a benchmark run count, and that no old result is ever taken for a new one."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from optagent.tools.bench import LoadFailed, client_load, client_prompts, judge, metrics_of, run_bench
from optagent.tools.calls.bench import Bench, Workload
from optagent.tools.commands import Command

WORKLOAD = Workload(output_len=100, num_prompts=4)
GOOD: dict[str, Any] = {
    "backend": "sglang", "duration": 2.0, "completed": 4, "total_output_tokens": 400, "output_throughput": 200.0,
    "median_ttft_ms": 20.0, "median_tpot_ms": 5.0, "errors": ["", "", "", ""], "accept_length": None,
}  # fmt: skip


def bench(key: str = "k1") -> Bench:
    return Bench(key=key, run="r1", url="u", workload=WORKLOAD, seed=1, result_file="runs/r1.json")


def no_load() -> Mapping[str, Any]:
    raise AssertionError("no load was expected")


def test_a_good_run(tmp_path: Path) -> None:
    result_file = tmp_path / "runs" / "r1.json"
    run = run_bench(bench(), result_file, lambda: GOOD, simulated=True)
    assert (run.valid, run.invalid_because, run.simulated) == (True, [], True)
    assert run.metrics["median_tpot_ms"] == 5.0
    assert "accept_length" not in run.metrics
    assert run.elapsed_s is not None
    kept = json.loads(result_file.read_text())
    assert {key: kept[key] for key in GOOD} == GOOD


def test_a_finished_run_is_not_run_again(tmp_path: Path) -> None:
    result_file = tmp_path / "r1.json"
    first = run_bench(bench(), result_file, lambda: GOOD, simulated=False)
    assert run_bench(bench(), result_file, no_load, simulated=False) == first


def test_another_run_s_result_is_not_taken_nor_overwritten(tmp_path: Path) -> None:
    result_file = tmp_path / "r1.json"
    run_bench(bench("k1"), result_file, lambda: GOOD, simulated=False)
    run = run_bench(bench("k2"), result_file, no_load, simulated=False)
    assert not run.valid
    assert "another run" in run.invalid_because[0]


def test_a_failed_load_leaves_no_result(tmp_path: Path) -> None:
    def load() -> Mapping[str, Any]:
        raise LoadFailed("the server went away")

    run = run_bench(bench(), tmp_path / "r1.json", load, simulated=False)
    assert (run.valid, run.invalid_because, run.metrics) == (False, ["the server went away"], {})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"completed": 3}, "3 of 4 requests completed"),
        ({"errors": ["", "HTTP 500", "", ""]}, "1 requests failed"),
        ({"total_output_tokens": 380}, "380 output tokens instead of 400"),
        ({"median_tpot_ms": float("nan")}, "median_tpot_ms is missing"),
        ({"p99_itl_ms": float("inf")}, "p99_itl_ms is not a finite number"),
        ({"output_throughput": None}, "output_throughput is missing"),
    ],
)
def test_runs_that_do_not_count(change: dict[str, Any], reason: str) -> None:
    reasons = judge(GOOD | change, WORKLOAD)
    assert len(reasons) == 1
    assert reason in reasons[0]


def test_an_empty_result_counts_for_nothing() -> None:
    assert judge({}, WORKLOAD)
    assert metrics_of({"a": True, "b": "1", "c": None, "d": float("nan"), "e": 1}) == {"e": 1.0}


def client(tmp_path: Path, script: str) -> tuple[Command, Path, Path]:
    output = tmp_path / "out.part"
    command = Command((sys.executable, "-c", script, str(output)), {}, tmp_path)
    return command, output, tmp_path / "client.log"


def test_the_client_s_only_line_is_the_result(tmp_path: Path) -> None:
    command, output, log = client(tmp_path, "import sys; open(sys.argv[1], 'a').write('{\"completed\": 1}\\n')")
    output.write_text('{"completed": 999}\n')  # of an attempt that was interrupted
    assert client_load(command, output, log, timeout_s=60) == {"completed": 1}


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("", "wrote no result"),
        ("import sys; print('boom'); sys.exit(2)", "exit status 2: boom"),
        ("import sys; open(sys.argv[1], 'a').write('{}\\n{}\\n')", "2 results"),
        ("import sys; open(sys.argv[1], 'a').write('nonsense')", "not JSON"),
        ("import sys; open(sys.argv[1], 'a').write('[]')", "not a JSON object"),
    ],
)
def test_a_client_that_fails(tmp_path: Path, script: str, reason: str) -> None:
    with pytest.raises(LoadFailed, match=reason):
        client_load(*client(tmp_path, script), timeout_s=60)


def test_a_client_that_takes_too_long_is_stopped_with_its_children(tmp_path: Path) -> None:
    script = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(60)'])"
    with pytest.raises(LoadFailed, match="longer than"):
        client_load(*client(tmp_path, script), timeout_s=0.5)


def test_a_missing_client(tmp_path: Path) -> None:
    with pytest.raises(LoadFailed, match="/nowhere"):
        client_load(Command(("/nowhere",), {}, tmp_path), tmp_path / "o", tmp_path / "l", timeout_s=1)


def test_prompts_in_the_client_s_form(tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").write_text('{"prompt": "Grüße"}\n\n{"prompt": "b"}\n')
    written = client_prompts(tmp_path / "p.jsonl", tmp_path / "out.jsonl").read_text().splitlines()
    assert [json.loads(line)["conversations"][0]["content"] for line in written] == ["Grüße", "b"]
    (tmp_path / "p.jsonl").write_text('["no"]\n')
    with pytest.raises(LoadFailed, match="every line"):
        client_prompts(tmp_path / "p.jsonl", tmp_path / "out.jsonl")
