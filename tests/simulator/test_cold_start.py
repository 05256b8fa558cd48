"""The first benchmark after a launch is slower, and nothing but a benchmark uses that up."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from optagent.tools.calls.bench import Workload
from optagent.tools.loadgen import generate_load
from optagent.tools.simulator.scenario import load, packaged

if TYPE_CHECKING:
    from conftest import Server, Start

COLD = load(packaged("kimi-k2.5-8x-rtx-pro-6000")).cold_first_cell
GRAPHS = ("--cuda-graph-max-bs", "128")
EAGLE = ("--speculative-algorithm", "EAGLE3", "--speculative-draft-model-path", "d")
WORKLOAD = Workload(input_len=64, output_len=64, num_prompts=5, max_concurrency=2, warmup_requests=2)


def rate(server: Server, run: str, seed: int = 1) -> float:
    return float(generate_load(server.url, WORKLOAD, seed, run=run)["output_throughput"])


def rates(start: Start, world: Path, runs: list[tuple[str, int]], burst: bool = False) -> list[float]:
    """The rates of loads one after the other on a fresh launch of one name."""
    server = start(world, *GRAPHS, *EAGLE)
    server.wait_ready()
    if burst:
        ask_as_the_gate_does(server)
    seen = [rate(server, run, seed) for run, seed in runs]
    server.process.kill()
    server.wait_dead()
    return seen


def ask_as_the_gate_does(server: Server) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: server.generated(16, text=f"Ready {number}?"), range(8)))
    server.scored(1, logprob_start_len=0)
    for _ in range(3):
        server.generated(16, temperature=1)


def test_the_packaged_scenario_is_cold_at_first() -> None:
    assert 0.62 < COLD < 0.70


def test_the_first_run_is_slower_and_those_after_it_are_as_on_a_warm_server(
    known_good: Path, cold: Path, start: Start
) -> None:
    first, second, third = rates(start, cold, [("r/first", 9), ("r", 1), ("s", 2)])
    warm = rates(start, known_good, [("r", 1)]) + rates(start, known_good, [("s", 2), ("r/first", 9)])
    assert [second, third] == warm[:2]
    assert first == pytest.approx(COLD * warm[2])


def test_questions_of_the_gate_change_no_run_and_do_not_warm_up(cold: Path, start: Start) -> None:
    runs = [("r/first", 9), ("r", 1)]
    assert rates(start, cold, runs, burst=True) == rates(start, cold, runs)
