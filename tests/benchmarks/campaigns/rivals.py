"""Other ways to search a plan's parts, on the same machine and at the same price a launch: what optagent is held against.

Each of them measures a configuration in one launch with one run, the baseline first, and holds the one with the best
measured value so far. None of them looks at output. A configuration that was measured or failed before is not launched
again: its result is known, and costs nothing.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from campaigns.machine import Machine, Spent
from campaigns.model import Model
from campaigns.space import Part, Point, Space
from campaigns.trace import Keeper, Trace

MOST_REPEATS = 200
"""Suggestions in a row that are known already after which a search has nothing new to say."""


@dataclass
class Bench:
    """Measures points; the best so far is what the campaign holds."""

    machine: Machine
    space: Space
    keeper: Keeper = field(default_factory=Keeper)
    known: dict[str, float | None] = field(default_factory=dict)
    best: float | None = None
    repeats: int = 0

    def measure(self, point: Point) -> float | None:
        """The measured value of the objective; None when the launch, or the server under its load, failed.

        Raises Spent when the GPU-hours are used up, or the search says nothing new any more.
        """
        configuration = self.space.configuration(point)
        mark = configuration.fingerprint()
        if mark in self.known:
            self.repeats += 1
            if self.repeats > MOST_REPEATS:
                raise Spent
            return self.known[mark]
        self.repeats = 0
        value = self.known[mark] = self._launch_and_run(point, f"{self.machine.launches + 1:04d}")
        if value is not None and (self.best is None or self.better(value, self.best)):
            self.best = value
            self.keeper.hold(self.machine.gpu_hours, configuration)
        return value

    def better(self, one: float, other: float) -> bool:
        return self.machine.model.deployment.better(one, other)

    def _launch_and_run(self, point: Point, name: str) -> float | None:
        config = self.machine.model.deployment.config
        started = self.machine.launch(self.space.configuration(point), name)
        if started.server is None:
            return None
        workload = config.workload
        ran = self.machine.run(
            started.server, workload, name, workload.seed + 1, discard_first=config.measuring.discard_first
        )
        return None if ran.metrics is None else ran.metrics[config.objective.metric]


Rival = Callable[[Bench, int], None]
"""Searches until it has nothing more to try; the number seeds its own draws."""


def random_search(bench: Bench, seed: int) -> None:
    """Each part's choice drawn evenly, off among them."""
    draws = random.Random(seed)
    bench.measure(bench.space.nothing)
    while True:
        bench.measure(tuple(draws.randrange(1 + len(part.choices)) for part in bench.space.parts))


def greedy(bench: Bench, seed: int) -> None:
    """Part by part in the plan's order, each value once on top of what was kept: what measures better stays."""
    held = bench.space.nothing
    best = bench.measure(held)
    for place, part in enumerate(bench.space.parts):
        for choice in range(1, 1 + len(part.choices)):
            tried = with_choice(held, place, choice)
            value = bench.measure(tried)
            if value is not None and (best is None or bench.better(value, best)):
                held, best = tried, value


def one_factor_then_products(bench: Bench, seed: int) -> None:
    """A grid as SGLang's own auto-benchmark makes it: every value of every factor alone on the baseline (its tier 1), then
    the products of those that helped (its tier 3, of `build_candidates` in python/sglang/auto_benchmark_lib.py, taken out
    of SGLang in July 2026 with #31941). Charitably, the product goes from what helped most,
    with everything that helped on first."""
    space = bench.space
    base = bench.measure(space.nothing)
    helped: list[tuple[float, int, int]] = []
    for place, part in enumerate(space.parts):
        tried = [
            (value, choice)
            for choice in range(1, 1 + len(part.choices))
            if (value := bench.measure(with_choice(space.nothing, place, choice))) is not None
        ]
        good = [(value, choice) for value, choice in tried if base is None or bench.better(value, base)]
        if good:
            value, choice = next(one for one in good if not any(bench.better(other[0], one[0]) for other in good))
            helped.append((value, place, choice))
    rising = bench.better(1.0, 2.0)
    helped.sort(key=lambda one: one[0] if rising else -one[0])
    for row in itertools.product(*([choice, 0] for _, _, choice in helped)):
        point = space.nothing
        for (_, place, _), choice in zip(helped, row, strict=True):
            point = with_choice(point, place, choice)
        bench.measure(point)


def tpe(bench: Bench, seed: int) -> None:
    """Optuna's TPE sampler with its own defaults; the baseline is its first trial. Numbers on a line are told as such."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    minimise = bench.better(1.0, 2.0)
    study = optuna.create_study(
        direction="minimize" if minimise else "maximize", sampler=optuna.samplers.TPESampler(seed=seed)
    )
    parts = bench.space.parts
    lines = [line_of(part, bench.space) for part in parts]
    study.enqueue_trial({_name(n, part): line.index(0) if line else 0 for n, (part, line) in _numbered(parts, lines)})
    while True:
        trial = study.ask()
        point = tuple(_suggested(trial, n, part, line) for n, (part, line) in _numbered(parts, lines))
        value = bench.measure(point)
        if value is None:
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
        else:
            study.tell(trial, value)


def line_of(part: Part, space: Space) -> list[int]:
    """The choices by their numbers, the baseline's own (0) among them; empty where they lie on no line."""
    before = baseline_number(part, space)
    if part.numbers is None or before is None:
        return []
    return [choice for _, choice in sorted([(before, 0), *((number, n) for n, number in enumerate(part.numbers, 1))])]


def baseline_number(part: Part, space: Space) -> float | None:
    names = [*part.choices[0].flags, *part.choices[0].env]
    value = space.base.flags.get(names[0], space.base.env.get(names[0])) if len(names) == 1 else None
    try:
        return None if value is None or isinstance(value, bool) else float(value)
    except ValueError:
        return None


def _numbered(parts: Sequence[Part], lines: list[list[int]]) -> Iterator[tuple[int, tuple[Part, list[int]]]]:
    return enumerate(zip(parts, lines, strict=True))


def _suggested(trial: Any, n: int, part: Part, line: list[int]) -> int:
    if line:
        return line[int(trial.suggest_int(_name(n, part), 0, len(line) - 1))]
    return int(trial.suggest_categorical(_name(n, part), list(range(1 + len(part.choices)))))


def _name(n: int, part: Part) -> str:
    return f"{n:02d} {part.name}"[:120]


def with_choice(point: Point, place: int, choice: int) -> Point:
    return (*point[:place], choice, *point[place + 1 :])


RIVALS: dict[str, Rival] = {
    "Optuna TPE": tpe,
    "random": random_search,
    "grid": one_factor_then_products,
    "greedy": greedy,
}


def search(name: str, model: Model, space: Space, seed: int, budget_hours: float) -> Trace:
    """One campaign of a rival, until it is through or the GPU-hours are used up."""
    machine = Machine(model, budget_hours)
    bench = Bench(machine, space)
    bench.keeper.hold(0.0, space.base)
    try:
        RIVALS[name](bench, seed)
        ended = "finished"
    except Spent:
        ended = "budget" if machine.gpu_hours >= budget_hours else "finished"
    held = tuple(bench.keeper.held)
    return Trace(name, seed, held, machine.gpu_hours, machine.launches, machine.runs, len(machine.failures), ended)


def points(space: Space) -> Iterator[Point]:
    """Every point of the space."""
    return itertools.product(*(range(1 + len(part.choices)) for part in space.parts))
