"""Which run of an experiment comes next. One cell is one launch of one arm, with one benchmark run."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from optagent.agent.experiments import BASELINE, SURVEY, TRIAL, Experiment

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


@dataclass(frozen=True)
class Wanted:
    """Which arm would tell more now, where launches are not made in pairs; with `baseline_due` the baseline has to be
    launched in this experiment before anything is said: its last launch is long ago, or its output is not known."""

    arm: str = "candidate"
    baseline_due: bool = False


def next_cell(experiment: Experiment, seed: int, wanted: Wanted = Wanted()) -> Cell | None:
    """The next cell, or None when the goal is reached. The candidate of the first pair comes first, as the screen.

    In later pairs the order is drawn, from a seed, so that drift favours neither arm. Without pairs, the arm comes next
    that is `wanted`.
    """
    if experiment.kind == BASELINE:
        return _missing(experiment, "baseline")
    if experiment.kind in (TRIAL, SURVEY):
        return _missing(experiment, "candidate")
    if experiment.pooled:
        return _unpaired(experiment, wanted)
    base, candidate = experiment.values("baseline"), experiment.values("candidate")
    complete = base.keys() & candidate.keys()
    pair = 1 + len(complete)
    for arm in _order(experiment.id, pair, seed):
        if pair not in (base if arm == "baseline" else candidate):
            return cell_of(experiment, arm, pair)
    raise AssertionError("a pair that is complete is counted as one")


def _missing(experiment: Experiment, arm: str) -> Cell | None:
    done = experiment.values(arm)
    missing = next((n for n in range(1, experiment.goal + 1) if n not in done), None)
    return None if missing is None else cell_of(experiment, arm, missing)


def _unpaired(experiment: Experiment, wanted: Wanted) -> Cell:
    base, candidate = experiment.values("baseline"), experiment.values("candidate")
    if candidate and (wanted.arm == "baseline" or (wanted.baseline_due and not base)):
        return cell_of(experiment, "baseline", len(base) + 1)
    return cell_of(experiment, "candidate", len(candidate) + 1)


def hopeless(experiment: Experiment) -> str | None:
    """Why the experiment cannot give a number: a cell whose runs stayed invalid."""
    for run in experiment.runs:
        bad = [r for r in experiment.runs if (r.arm, r.pair) == (run.arm, run.pair) and not r.valid]
        if len(bad) > RETRIES:
            return f"{run.arm} run {run.pair} was invalid {len(bad)} times: {bad[-1].because}"
    return None


def cell_of(experiment: Experiment, arm: str, pair: int) -> Cell:
    """The cell of this arm and pair, with as many retries as it had invalid runs."""
    attempt = sum(1 for r in experiment.runs if (r.arm, r.pair) == (arm, pair) and not r.valid)
    return Cell(experiment.id, arm, pair, attempt)


def _order(experiment: str, pair: int, seed: int) -> tuple[str, str]:
    if pair == 1:
        return ("candidate", "baseline")
    coin = hashlib.sha256(f"{seed}:{experiment}:{pair}".encode()).digest()[0] & 1
    return ("candidate", "baseline") if coin else ("baseline", "candidate")
