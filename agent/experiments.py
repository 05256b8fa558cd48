"""Experiments as the journal tells of them: launches, runs and failures of a change on the baseline."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from optagent.agent.change import Change
from optagent.agent.records import Under
from optagent.agent.spread import Spread, spread_of
from optagent.agent.verdict import geometric_mean
from optagent.tools.calls.configuration import Configuration

BASELINE, ITEM, CONFIRM, TRIAL = "baseline", "item", "confirm", "trial"
SURVEY, BUNDLE = "survey", "bundle"
"""Kinds of experiments: measuring the baseline, trying an item, holding the best against the first baseline, looking at
one point of an item's search; looking at one combination of several items, and giving the best of them a verdict."""


@dataclass(frozen=True)
class Run:
    """One valid or invalid benchmark run: of which arm (baseline or candidate), in which pair, with which value. Runs of
    the same arm and pair were made in one launch. `elapsed_s` is what it took, warm-up included. `openings` has a hash of how
    each of the first answers begins, and `seed` fixed the prompts."""

    arm: str
    pair: int
    value: float | None
    valid: bool = True
    because: str = ""
    metrics: dict[str, float] = field(default_factory=dict)
    evidence: str = ""
    elapsed_s: float | None = None
    openings: tuple[str, ...] = ()
    seed: int | None = None


@dataclass(frozen=True)
class Launches:
    """What launches of one configuration gave in this sitting, in the order of time: a value each, the mean over its runs,
    and the means of its other metrics. `experiments` says which experiment each belongs to, `at` which launch of the
    campaign it was, of those that were measured."""

    values: tuple[float, ...] = ()
    metrics: tuple[dict[str, float], ...] = ()
    experiments: tuple[str, ...] = ()
    at: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.values)

    def of(self, experiment: str) -> Launches:
        """Those of one experiment alone."""
        return self._at([i for i, name in enumerate(self.experiments) if name == experiment])

    def before(self, experiment: str) -> Launches:
        """Those of other experiments, which came before it."""
        return self._at([i for i, name in enumerate(self.experiments) if name != experiment])

    def _at(self, kept: Sequence[int]) -> Launches:
        return Launches(
            tuple(self.values[i] for i in kept),
            tuple(self.metrics[i] for i in kept),
            tuple(self.experiments[i] for i in kept),
            tuple(self.at[i] for i in kept),
        )

    @property
    def spread(self) -> Spread:
        """What the launches of each experiment differ by, as an experiment's verdict adds it to what is known."""
        names = dict.fromkeys(self.experiments)
        return sum((spread_of([[v] for v in self.of(name).values]) for name in names), Spread())


@dataclass(frozen=True)
class Failure:
    """A launch or a gate that did not pass."""

    arm: str
    stage: str
    kind: str
    summary: str
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outlook:
    """What a survey expected of a combination before it was launched, in differences of logarithms where more is better: how
    far it lies ahead of the baseline, what both are, and how well that was known (variances, and their covariance)."""

    level: float
    baseline: float
    level_var: float
    baseline_var: float
    covariance: float

    @property
    def ahead(self) -> float:
        """How far it lies ahead of the baseline, before any launch."""
        return self.level - self.baseline

    @property
    def ahead_sd(self) -> float:
        """Standard deviation of `ahead`."""
        return math.sqrt(max(self.level_var + self.baseline_var - 2 * self.covariance, 0.0))

    def after(self, value: float, noise: float) -> tuple[float, float]:
        """(how far it is ahead of the baseline, standard deviation of that) after one launch with this logarithm of its
        result and this noise: the update of two normal variables of which one was observed."""
        surprise, total = value - self.level, self.level_var + noise**2
        gained, moved = self.level_var / total, self.covariance / total
        ahead = self.ahead + (gained - moved) * surprise
        between = self.level_var - self.covariance
        left = self.level_var + self.baseline_var - 2 * self.covariance - between**2 / total
        return ahead, math.sqrt(max(left, 0.0))


@dataclass(frozen=True)
class Experiment:
    """A change on the baseline, and all that happened to it. `verdict` is empty until it is settled, `latest` says
    whether a run or a failure came last. `gated` has an arm for each examination that it passed, `candidate_gate` is the
    entry of the candidate's as long as there is no verdict.

    `repeats` is how many runs a launch gets. With `pooled` the candidate is held against all of the baseline's launches
    of this sitting, otherwise against those it makes pairs with. With `removal` the item is in the base already, and the
    candidate is what is left without it. `items` are those that a combination is made of, `among` those that its survey
    chooses from, `root` is the configuration without any of them, `outlook` what the survey expected. `versions` are
    those that the candidate's environment ran on, where they were recorded. `under` is what its runs were measured under
    (None: not known)."""

    id: str
    kind: str
    title: str
    base: Configuration
    sitting: str
    item: str | None = None
    change: Change = field(default_factory=Change)
    candidate: Configuration | None = None
    goal: int = 0
    repeats: int = 1
    pooled: bool = False
    removal: bool = False
    items: tuple[str, ...] = ()
    among: tuple[str, ...] = ()
    root: Configuration | None = None
    outlook: Outlook | None = None
    runs: tuple[Run, ...] = ()
    failures: tuple[Failure, ...] = ()
    gated: tuple[str, ...] = ()
    candidate_gate: dict[str, Any] | None = None
    verdict: str = ""
    because: str = ""
    effect: float | None = None
    low: float | None = None
    high: float | None = None
    began: str = ""
    latest: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    under: Under | None = None

    @property
    def candidate_waits(self) -> bool:
        """Whether the candidate's output still has to be held against the baseline's."""
        waits = self.candidate_gate is not None and not self.candidate_gate.get("held", True)
        return waits and "baseline" not in self.gated

    def launches(self, arm: str) -> dict[int, list[Run]]:
        """Valid runs of one arm by pair: those of one launch together."""
        found: dict[int, list[Run]] = {}
        for r in self.runs:
            if r.arm == arm and r.valid and r.value is not None:
                found.setdefault(r.pair, []).append(r)
        return found

    def values(self, arm: str) -> dict[int, float]:
        """Valid results of one arm by pair: the geometric mean of a launch's runs."""
        return {n: _mean_value(runs) for n, runs in self.launches(arm).items()}

    def pairs(self) -> list[tuple[float, float]]:
        """Complete (baseline, candidate) pairs in order."""
        base, candidate = self.values("baseline"), self.values("candidate")
        return [(base[n], candidate[n]) for n in sorted(base.keys() & candidate.keys())]


def _mean_value(runs: Sequence[Run]) -> float:
    values = [r.value for r in runs if r.value is not None]
    return values[0] if len(values) == 1 else geometric_mean(values)
