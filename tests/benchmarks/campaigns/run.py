"""optagent beside Optuna's TPE, random search, a grid and greedy search, on simulated deployments: `python run.py`.

README.md says what is measured, and how to write another deployment.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from campaigns import deployment as deployments
from campaigns import ours, rivals
from campaigns.known import at_hand, prepare
from campaigns.model import Model
from campaigns.report import Done, as_json, overall, table
from campaigns.trace import Score, Trace, score

SEEDS = 20
OURS_AT_MOST = 3.0
"""optagent ends its campaigns itself. What it holds after the budget does not count as having got there."""
METHODS = (ours.NAME, *rivals.RIVALS)


def main(arguments: Sequence[str] | None = None) -> None:
    asked = options().parse_args(arguments)
    folders = [deployments.find(name) for name in asked.deployment] or deployments.all_of_them()
    print(f"{len(folders)} simulated deployments, {asked.seeds} seeds, {', '.join(asked.methods)}", flush=True)
    began = time.monotonic()
    with ProcessPoolExecutor(asked.jobs) as pool:
        all_done = list(benchmark(pool, folders, asked.seeds, asked.methods))
    if len(all_done) > 1:
        print(overall(all_done))
    print(f"\n{time.monotonic() - began:.0f} s on {asked.jobs} processes", flush=True)
    if asked.json:
        asked.json.write_text(json.dumps([as_json(done) for done in all_done], indent=1) + "\n", encoding="utf-8")


def options() -> argparse.ArgumentParser:
    words = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    words.add_argument("--seeds", type=int, default=SEEDS, help="campaigns of each method on each deployment")
    words.add_argument(
        "--deployment", action="append", default=[], metavar="NAME|FOLDER", help="these only; may come again"
    )
    words.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS, metavar="METHOD")
    words.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    words.add_argument("--json", type=Path, metavar="FILE", help="write every number there as well")
    return words


def benchmark(pool: ProcessPoolExecutor, folders: Sequence[Path], seeds: int, methods: Sequence[str]) -> Iterator[Done]:
    """Deployment by deployment, as they are finished."""
    progress = Progress(len(folders) * (1 + seeds * len(methods)))
    preparing = {folder: pool.submit(prepare, folder) for folder in folders}
    running: dict[Path, dict[Future[tuple[Trace, Score]], tuple[str, int]]] = {}
    for folder in folders:
        preparing[folder].result()
        progress.step(folder.name)
        running[folder] = {
            pool.submit(campaign, folder, method, seed): (method, seed) for method in methods for seed in range(seeds)
        }
    for folder in folders:
        found: dict[tuple[str, int], tuple[Trace, Score]] = {}
        for future in as_completed(running[folder]):
            found[running[folder][future]] = future.result()
            progress.step(folder.name)
        known, model, _ = at_hand(folder)
        done = Done(
            name=folder.name,
            unit=model.deployment.metric,
            goal=known.goal,
            best_gain=model.deployment.gain(known.goal.best, known.goal.base),
            found=known.best.how,
            scores={method: [found[method, seed][1] for seed in range(seeds)] for method in methods},
            problems=[f"{t.method}, seed {t.seed}: {t.problem}" for t, _ in found.values() if t.problem],
        )
        progress.clear()
        print(table(done), flush=True)
        yield done


def campaign(folder: Path, method: str, seed: int) -> tuple[Trace, Score]:
    """One campaign of one method."""
    known, model, space = at_hand(folder)
    drawn = model.deployment.with_seed(seed)
    machine_model = Model(drawn)
    machine_model.loads = model.loads
    if method == ours.NAME:
        with tempfile.TemporaryDirectory(dir=quick_folder()) as temporary:
            limit = OURS_AT_MOST * known.goal.budget_hours
            trace = ours.carry(drawn, machine_model, seed, limit, Path(temporary))
    else:
        trace = rivals.search(method, machine_model, space, seed, known.goal.budget_hours)
    return trace, score(trace, model, known.goal)


def quick_folder() -> str | None:
    """Where files need not reach a disk, if there is such a place: a journal syncs every entry."""
    memory = Path("/dev/shm")
    return str(memory) if os.access(memory, os.W_OK) else None


class Progress:
    """A line on the terminal that says how far it is; nothing where nobody looks."""

    def __init__(self, steps: int) -> None:
        self._steps, self._done, self._began = steps, 0, time.monotonic()

    def step(self, name: str) -> None:
        self._done += 1
        if sys.stderr.isatty():
            left_s = (time.monotonic() - self._began) / self._done * (self._steps - self._done)
            sys.stderr.write(f"\r\x1b[2K{self._done} of {self._steps}, {name}, about {left_s:.0f} s left")
            sys.stderr.flush()

    def clear(self) -> None:
        if sys.stderr.isatty():
            sys.stderr.write("\r\x1b[2K")
            sys.stderr.flush()


if __name__ == "__main__":
    main()
