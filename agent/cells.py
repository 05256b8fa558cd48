"""Which run of an experiment comes next. One cell is one launch of one arm, with one benchmark run."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from optagent.agent.ledger import BASELINE, Experiment

RETRIES = 1
"""An invalid run is repeated this often before the experiment counts as invalid."""


@dataclass(frozen=True)
class Cell:
    """`name` identifies the cell in keys, file names and the server's launch."""

    experiment: str
    arm: str
    pair: int
    attempt: int = 0

    @property
    def name(self) -> str:
        return f"{self.experiment}-{self.arm}-{self.pair}" + (f"-retry{self.attempt}" if self.attempt else "")


def next_cell(experiment: Experiment, seed: int) -> Cell | None:
    """The next cell, or None when the baseline's goal is reached. The candidate of the first pair comes first, as the
    screen; in later pairs the order is drawn, from a seed, so that drift favours neither arm."""
    if experiment.kind == BASELINE:
        done = experiment.values("baseline")
        missing = next((n for n in range(1, experiment.goal + 1) if n not in done), None)
        return None if missing is None else _cell(experiment, "baseline", missing)
    base, candidate = experiment.values("baseline"), experiment.values("candidate")
    pair = 1 + len(base.keys() & candidate.keys())
    for arm in _order(experiment.id, pair, seed):
        if pair not in (base if arm == "baseline" else candidate):
            return _cell(experiment, arm, pair)
    raise AssertionError("a pair that is complete is counted as one")


def hopeless(experiment: Experiment) -> str | None:
    """Why the experiment cannot give a number: a cell whose runs stayed invalid."""
    for run in experiment.runs:
        bad = [r for r in experiment.runs if (r.arm, r.pair) == (run.arm, run.pair) and not r.valid]
        if len(bad) > RETRIES:
            return f"{run.arm} run {run.pair} was invalid {len(bad)} times: {bad[-1].because}"
    return None


def _cell(experiment: Experiment, arm: str, pair: int) -> Cell:
    attempt = sum(1 for r in experiment.runs if (r.arm, r.pair) == (arm, pair) and not r.valid)
    return Cell(experiment.id, arm, pair, attempt)


def _order(experiment: str, pair: int, seed: int) -> tuple[str, str]:
    if pair == 1:
        return ("candidate", "baseline")
    coin = hashlib.sha256(f"{seed}:{experiment}:{pair}".encode()).digest()[0] & 1
    return ("candidate", "baseline") if coin else ("baseline", "candidate")
