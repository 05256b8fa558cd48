"""That a run is measured once, after a load that is discarded, and that no old result is ever taken for a new one."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from optagent.tools.bench import DIED, OTHER_PROMPTS, LoadFailed, run_bench
from optagent.tools.bench_progress import REPORT_EVERY_S, Progress
from optagent.tools.calls.bench import Bench, BenchRun, Workload

WORKLOAD = Workload(output_len=100, num_prompts=4)
GOOD: dict[str, Any] = {
    "backend": "sglang", "duration": 2.0, "completed": 4, "total_output_tokens": 400, "output_throughput": 200.0,
    "median_ttft_ms": 20.0, "median_tpot_ms": 5.0, "errors": ["", "", "", ""], "accept_length": None,
    "input_lens": [10, 10, 10, 10], "cached_tokens": [0, 0, 0, 1],
}  # fmt: skip


def bench(key: str = "k1", discard_first: bool = False, workload: Workload = WORKLOAD) -> Bench:
    return Bench(
        key=key, run="r1", url="u", workload=workload, seed=7, result_file="r1.jsonl", discard_first=discard_first
    )


class Loads:
    """Loads that are put on nothing, and what was asked of each; from number `fails_at` on they fail."""

    def __init__(self, fails_at: int | None = None, **result: Any) -> None:
        self.asked: list[tuple[str, int, str]] = []
        self.said: list[str] = []
        self._fails_at, self._result = fails_at, GOOD | result

    def __call__(self, request: Bench, result_file: Path, progress: Progress) -> Mapping[str, Any]:
        self.asked.append((request.run, request.seed, result_file.name))
        progress.tell(3)
        if self._fails_at is not None and len(self.asked) >= self._fails_at:
            raise LoadFailed("the server went away")
        return self._result | {"output_throughput": 100.0 * len(self.asked)}

    def run(self, folder: Path, request: Bench, simulated: bool = False, alive: bool = True) -> BenchRun:
        return run_bench(request, folder / request.result_file, self, simulated, self.said.append, lambda: alive)


def test_a_good_run(tmp_path: Path) -> None:
    run = Loads().run(tmp_path, bench(), simulated=True)
    assert (run.valid, run.invalid_because, run.simulated) == (True, [], True)
    assert run.metrics["median_tpot_ms"] == 5.0
    assert "accept_length" not in run.metrics
    assert (run.cache, run.cached_share, run.repetitive) == ("flushed", 0.025, None)
    assert run.elapsed_s is not None
    kept = json.loads((tmp_path / "r1.jsonl").read_text())
    assert {key: kept[key] for key in GOOD if key != "output_throughput"} == {
        key: value for key, value in GOOD.items() if key != "output_throughput"
    }
    assert kept["optagent_cache"] == "flushed"


def test_a_cache_that_is_not_flushed_is_kept(tmp_path: Path) -> None:
    assert Loads().run(tmp_path, bench(workload=WORKLOAD.model_copy(update={"flush_cache": False}))).cache == "kept"


@pytest.mark.parametrize(
    ("says", "simulated"),
    [({"simulated": False}, False), ({"server_info": {"simulated": True}}, True), ({"server_info": None}, True)],
)
def test_a_result_says_itself_whether_it_is_simulated(tmp_path: Path, says: dict[str, Any], simulated: bool) -> None:
    assert Loads(**says).run(tmp_path, bench(), simulated=True).simulated is simulated


def test_the_first_load_is_discarded_and_lies_beside(tmp_path: Path) -> None:
    loads = Loads()
    run = loads.run(tmp_path, bench(discard_first=True))
    first, measured = loads.asked
    assert first == ("r1/first", 7 + OTHER_PROMPTS, "r1.first.jsonl")
    assert measured == ("r1", 7, "r1.jsonl")
    assert run.metrics["output_throughput"] == 200.0
    discarded = json.loads((tmp_path / "r1.first.jsonl").read_text())
    assert (discarded["output_throughput"], discarded["optagent_key"]) == (100.0, "k1:first")
    assert loads.said == [
        "benchmark, first load (discarded): 3 of 4 requests",
        "benchmark: 3 of 4 requests",
    ]


def test_a_finished_run_is_not_run_again(tmp_path: Path) -> None:
    loads = Loads()
    first = loads.run(tmp_path, bench(discard_first=True))
    assert loads.run(tmp_path, bench(discard_first=True)) == first
    assert len(loads.asked) == 2


def test_an_interrupted_run_begins_with_the_first_load_again(tmp_path: Path) -> None:
    """The server that the first load warmed up may be gone."""
    failed = Loads(fails_at=2).run(tmp_path, bench(discard_first=True))
    assert not failed.valid
    assert [path.name for path in tmp_path.iterdir()] == ["r1.first.jsonl"]
    again = Loads()
    assert again.run(tmp_path, bench(discard_first=True)).valid
    assert [run for run, _, _ in again.asked] == ["r1/first", "r1"]


def test_a_measured_run_without_its_first_load_is_still_measured(tmp_path: Path) -> None:
    loads = Loads()
    measured = loads.run(tmp_path, bench(discard_first=True))
    (tmp_path / "r1.first.jsonl").unlink()
    assert loads.run(tmp_path, bench(discard_first=True)) == measured
    assert len(loads.asked) == 2


def test_another_run_s_result_is_not_taken_nor_overwritten(tmp_path: Path) -> None:
    Loads().run(tmp_path, bench("k1"))
    before = (tmp_path / "r1.jsonl").read_bytes()
    loads = Loads()
    run = loads.run(tmp_path, bench("k2"))
    assert (run.valid, loads.asked) == (False, [])
    assert "another run" in run.invalid_because[0]
    assert (tmp_path / "r1.jsonl").read_bytes() == before


@pytest.mark.parametrize("discard_first", [False, True])
def test_a_failed_load_leaves_no_result(tmp_path: Path, discard_first: bool) -> None:
    run = Loads(fails_at=1).run(tmp_path, bench(discard_first=discard_first))
    assert (run.valid, run.invalid_because, run.metrics) == (False, ["the server went away"], {})
    assert (run.cache, run.cached_share) == ("unknown", None)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("loads", "alive", "because"),
    [
        (Loads(fails_at=1), True, ["the server went away"]),
        (Loads(fails_at=1), False, [f"{DIED}: the server went away"]),
        (Loads(errors=["", "refused", "", ""]), True, ["1 requests failed, the first with: refused"]),
        (Loads(errors=["", "refused", "", ""]), False, [DIED, "1 requests failed, the first with: refused"]),
        (Loads(), False, []),  # whoever has answered everything is not asked again
    ],
)
def test_the_end_of_the_server_is_said_first(tmp_path: Path, loads: Loads, alive: bool, because: list[str]) -> None:
    run = loads.run(tmp_path, bench(), alive=alive)
    assert (run.valid, run.invalid_because) == (not because, because)


def test_a_run_tells_how_its_answers_begin(tmp_path: Path) -> None:
    run = Loads(generated_texts=["a", "b", "a", "c"]).run(tmp_path, bench())
    assert run.openings[0] == run.openings[2]
    assert len(set(run.openings)) == 3


def test_progress_is_told_a_few_times_a_second_at_most() -> None:
    said: list[str] = []
    began = time.monotonic()
    progress = Progress(said.append, 10)
    for _ in range(10_000):
        progress.tell(None)
    assert 1 <= len(said) <= 1 + (time.monotonic() - began) / REPORT_EVERY_S
    assert said[0] == "benchmark: the client is starting"
