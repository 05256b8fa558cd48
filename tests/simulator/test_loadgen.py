"""The load generator against simulated servers: keys, closed loop, and the same numbers again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optagent.tools.bench import run_bench
from optagent.tools.bench_progress import Progress
from optagent.tools.calls.bench import Bench, BenchRun, Workload
from optagent.tools.load_http import LoadError
from optagent.tools.load_metrics import Measured, most_at_once, percentile, spread, summarise
from optagent.tools.load_requests import Load as ClosedLoop
from optagent.tools.loadgen import closed_loop, generate_load, request_bodies

if TYPE_CHECKING:
    from conftest import Server, Start

GRAPHS = ("--cuda-graph-max-bs", "128")
EAGLE = (
    "--speculative-algorithm", "EAGLE3", "--speculative-draft-model-path", "d", "--speculative-num-steps", "3",
    "--speculative-eagle-topk", "1", "--speculative-num-draft-tokens", "4",
)  # fmt: skip
SINGLE = Workload(input_len=256, output_len=64, num_prompts=5)
KEYS = [
    "duration", "completed", "total_input_tokens", "total_output_tokens", "request_throughput", "input_throughput",
    "output_throughput", "total_throughput", "concurrency", "accept_length", "max_concurrency",
    *(
        f"{kind}_{what}_ms"
        for what in ("e2e_latency", "ttft", "tpot", "itl")
        for kind in ("mean", "median", "std", "p90", "p95", "p99")
    ),
    "input_lens", "output_lens", "ttfts", "errors", "generated_texts", "cached_tokens",
]  # fmt: skip


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    lines = [json.dumps({"prompt": f"Explain number {number}, and then explain it again."}) for number in range(6)]
    (tmp_path / "prompts.jsonl").write_text("\n".join(lines) + "\n")
    return tmp_path


def numbers(line: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in line.items() if isinstance(value, int | float)}


def test_keys_and_totals(served: Server) -> None:
    line = generate_load(served.url, SINGLE, 42, run="keys")
    assert [key for key in KEYS if key not in line] == []
    assert line["completed"] == 5
    assert line["total_output_tokens"] == 5 * 64
    assert line["total_input_tokens"] == 5 * 256
    assert line["errors"] == [""] * 5
    assert line["output_throughput"] == pytest.approx(line["total_output_tokens"] / line["duration"])
    assert line["concurrency"] == pytest.approx(1.0)
    assert line["simulated"] is True
    assert line["accept_length"] is None


@pytest.mark.parametrize("clients", [1, 8, 64])
@pytest.mark.parametrize("flags", [GRAPHS, (*GRAPHS, *EAGLE)], ids=["plain", "eagle"])
def test_same_seed_and_launch_give_the_same_numbers(
    known_good: Path, start: Start, clients: int, flags: tuple[str, ...]
) -> None:
    workload = Workload(
        input_len=64, output_len=48, num_prompts=2 * clients + 3, max_concurrency=clients, warmup_requests=2
    )
    lines = []
    for _ in range(2):
        server = start(known_good, *flags)
        server.wait_ready()
        lines.append(generate_load(server.url, workload, 7, run="same"))
        server.process.kill()
        server.wait_dead()
    assert lines[0] == lines[1]
    assert lines[0]["completed"] == workload.num_prompts
    assert lines[0]["max_concurrent_requests"] == clients


def test_runs_and_launches_differ_a_little(known_good: Path, start: Start) -> None:
    seen = []
    for launch in ("E0001-a", "E0001-b"):
        server = start(known_good, *GRAPHS, launch=launch)
        server.wait_ready()
        seen += [generate_load(server.url, SINGLE, 42, run=run)["output_throughput"] for run in ("r1", "r2")]
        server.process.kill()
        server.wait_dead()
    assert len(set(seen)) == 4
    assert max(seen) / min(seen) < 1.03


def test_what_is_discarded_leaves_the_measured_run_as_it_is(known_good: Path, start: Start, tmp_path: Path) -> None:
    """On a server without a cold start: with a load before it that is discarded, with another one, and with none."""

    def measured(discard_first: bool, *before: str) -> BenchRun:
        server = start(known_good, *GRAPHS, launch="E0001-a")
        server.wait_ready()
        for run in before:
            generate_load(server.url, SINGLE, 99, run=run)
        name = f"{discard_first}-{len(before)}.jsonl"
        request = Bench(
            key="k", run="R1", url=server.url, workload=SINGLE, seed=42, result_file=name, discard_first=discard_first
        )
        done = run_bench(request, tmp_path / name, own_load, True, lambda text: None)
        server.process.kill()
        server.wait_dead()
        assert done.valid, done.invalid_because
        return done

    alone, discarded, after_another = measured(False), measured(True), measured(False, "another")
    assert alone.metrics == discarded.metrics == after_another.metrics
    assert (discarded.cache, discarded.cached_share, discarded.repetitive) == ("flushed", 0.0, 0.0)


def own_load(request: Bench, result_file: Path, progress: Progress) -> dict[str, Any]:
    return generate_load(request.url, request.workload, request.seed, run=request.run, progress=progress)


def test_concurrency_raises_throughput_and_tpot(served: Server) -> None:
    lines = [
        generate_load(
            served.url,
            Workload(input_len=64, output_len=64, num_prompts=3 * clients, max_concurrency=clients),
            1,
            run="scale",
        )
        for clients in (1, 8, 32)
    ]
    rates = [line["output_throughput"] for line in lines]
    assert rates == sorted(rates)
    tpots = [line["median_tpot_ms"] for line in lines]
    assert tpots == sorted(tpots)


def test_custom_prompts_are_accepted_more_often_than_random_tokens(
    known_good: Path, start: Start, prompts: Path
) -> None:
    server = start(known_good, *GRAPHS, *EAGLE)
    server.wait_ready()
    real = Workload(dataset="custom", prompts="prompts.jsonl", output_len=256, num_prompts=6)
    random_ids = Workload(input_len=128, output_len=256, num_prompts=6)
    lengths = [generate_load(server.url, one, 1, root=prompts)["accept_length"] for one in (real, random_ids)]
    assert 2.0 < lengths[0] < 2.5
    assert 1.2 < lengths[1] < 1.6


def test_measured_by_the_wall_where_nothing_is_announced(served: Server) -> None:
    bodies = request_bodies(SINGLE, 3, Path())
    load = ClosedLoop(served.url, bodies, 2, "wall", 3, 20.0, simulated=False)
    measured, wall_s = closed_loop(load)
    line = summarise(measured, wall_s)
    assert line["completed"] == 5
    assert line["total_output_tokens"] == 5 * 64
    assert 0 < line["mean_ttft_ms"] <= line["mean_e2e_latency_ms"]


def test_failed_requests_are_counted_as_failed(served: Server) -> None:
    workload = Workload(input_len=16, output_len=10_000_000, num_prompts=2, warmup_requests=0)
    line = generate_load(served.url, workload, 1)
    assert line["completed"] == 0
    assert all("maximum context length" in error for error in line["errors"])


def test_no_server() -> None:
    with pytest.raises(LoadError, match="cannot be reached"):
        generate_load("http://127.0.0.1:9", SINGLE, 1, timeout_s=2)


def test_no_prompts(served: Server, tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="holds no prompts"):
        generate_load(served.url, Workload(dataset="custom", prompts="none.jsonl"), 1, root=tmp_path)


def test_seed_fixes_the_prompts(prompts: Path) -> None:
    custom = Workload(dataset="custom", prompts="prompts.jsonl", num_prompts=9)
    for workload in (SINGLE, custom):
        assert request_bodies(workload, 1, prompts) == request_bodies(workload, 1, prompts)
        assert request_bodies(workload, 1, prompts) != request_bodies(workload, 2, prompts)


VALUES = st.lists(st.tuples(st.floats(0, 1e3), st.integers(1, 5)), min_size=1)


@given(VALUES)
def test_runs_are_the_same_as_their_values(runs: list[tuple[float, int]]) -> None:
    flat = [(value, 1) for value, times in runs for _ in range(times)]
    folded, unfolded = spread("x", runs), spread("x", flat)
    assert folded == pytest.approx(unfolded, abs=1e-6)  # a spread of nothing is rounded otherwise
    assert folded["median_x_ms"] <= folded["p90_x_ms"] <= folded["p99_x_ms"]


def test_percentiles_as_numpy_takes_them() -> None:
    ordered = [(1.0, 1), (2.0, 1), (3.0, 1), (4.0, 1)]
    assert percentile(ordered, 4, 50) == 2.5
    assert percentile(ordered, 4, 90) == pytest.approx(3.7)


def test_most_at_once() -> None:
    spans = [
        Measured(started_s=0, finished_s=2),
        Measured(started_s=1, finished_s=3),
        Measured(started_s=2, finished_s=4),
    ]
    assert most_at_once(spans) == 2
    assert most_at_once([]) == 0
