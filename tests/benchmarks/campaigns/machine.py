"""A deployment's machine in virtual time: launches, runs, and what they cost. Everybody measures on the same one.

A launch takes what its log says it takes, also one that fails or hangs; a run takes its warm-up and its load. Each launch
and each run draws its noise as the simulated server does, from the scenario's seed and its own name.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from campaigns.loading import Dies, scaled
from campaigns.model import Ending, Launch, Model
from optagent.tools.calls.bench import Workload
from optagent.tools.calls.configuration import Configuration
from optagent.tools.simulator.engines import injected_slowdown
from optagent.tools.simulator.noise import slowdown

OTHER_PROMPTS = 10_000
"""Added to the seed of a load that is put on once before and counts for nothing, as the benchmark tool does."""


class Spent(Exception):
    """The campaign has used up its GPU-hours."""


@dataclass
class Server:
    """One that serves. `slow` is what this launch's durations are multiplied by; the first load finds it cold."""

    name: str
    configuration: Configuration
    launch: Launch
    slow: float
    cold: bool = True
    dead: bool = False


@dataclass(frozen=True)
class Started:
    """How a launch ended: `server` is None when it failed. `seconds` is what it took."""

    server: Server | None
    ending: Ending
    failure: str


@dataclass(frozen=True)
class Ran:
    """A run: `metrics` is None when the server died of it. `seconds` are those of warm-up and measured load;
    `died_of` are the tokens of the batch that found no memory."""

    metrics: dict[str, float] | None
    seconds: float
    cached_share: float = 0.0
    died_of: int = 0


@dataclass
class Machine:
    """`budget_hours` are GPU-hours: what would begin after them raises Spent."""

    model: Model
    budget_hours: float = float("inf")
    now_s: float = 0.0
    launches: int = 0
    runs: int = 0
    failures: list[str] = field(default_factory=list)

    @property
    def gpu_hours(self) -> float:
        return self.now_s / 3600 * self.model.deployment.gpus

    def launch(self, configuration: Configuration, name: str) -> Started:
        self._check()
        self.launches += 1
        launch, ending = self.model.launch(configuration, name), self.model.ending(configuration, name)
        self.now_s += ending.seconds
        if not launch.ready:
            self.failures.append(launch.failure)
            return Started(None, ending, launch.failure)
        scenario = self.model.deployment.scenario
        drawn = slowdown(scenario.noise.launch_sd, scenario.seed, name, "launch")
        assert launch.plan is not None
        return Started(Server(name, configuration, launch, drawn * injected_slowdown(launch.plan.around)), ending, "")

    def run(self, server: Server, workload: Workload, name: str, seed: int, *, discard_first: bool) -> Ran:
        """A run, after the same load with other prompts where the first one is to be discarded."""
        self._check()
        if discard_first:
            first = self._load(server, workload, f"{name}/first", seed + OTHER_PROMPTS)
            if first.metrics is None:
                return first
        return self._load(server, workload, name, seed)

    def spend(self, seconds: float) -> None:
        self.now_s += seconds

    def _check(self) -> None:
        if self.gpu_hours >= self.budget_hours:
            raise Spent

    def _load(self, server: Server, workload: Workload, name: str, seed: int) -> Ran:
        scenario = self.model.deployment.scenario
        warmth = scenario.cold_first_cell if server.cold else 1.0
        server.cold = False
        factor = server.slow * slowdown(scenario.noise.run_sd, scenario.seed, server.name, "run", name, seed) / warmth
        self.runs += 1
        try:
            warm_up_s = self.model.warm_up_s(server.launch, workload)
            found = self.model.load(server.launch, workload)
        except Dies as dies:
            server.dead = bool(dies.death.tokens)
            seconds = dies.death.seconds * factor
            self.now_s += seconds
            self.failures.append("oom-serving")
            return Ran(None, seconds, died_of=dies.death.tokens)
        seconds = (warm_up_s + found.seconds) * factor
        self.now_s += seconds
        return Ran(scaled(found.metrics, factor), seconds, found.cached_share)
