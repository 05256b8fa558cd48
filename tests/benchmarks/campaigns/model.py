"""What a configuration of a deployment comes to, without a process: whether it starts, and what it gives.

All of it is computed by the simulator's own functions, the same that its server process runs: flags are parsed, the launch
is planned with its memory and its failure, its log is written, and a load runs through the same engine. A result without
noise is the configuration's true value; noise multiplies every duration of a run alike, so it can be put on afterwards.
"""

from __future__ import annotations

import contextlib
import io
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatch

from campaigns.deployment import Deployment
from campaigns.loading import Death, Dies, Loaded, load_key, longest_prompt, run_load, without_what_never_counts
from optagent.tools.calls.bench import Workload
from optagent.tools.calls.configuration import Configuration, flag_arguments
from optagent.tools.calls.logs import LogReading
from optagent.tools.logs import LogReader
from optagent.tools.simulator.__main__ import plan_launch
from optagent.tools.simulator.clock import VirtualClock
from optagent.tools.simulator.cost import decode_step
from optagent.tools.simulator.flags import parse
from optagent.tools.simulator.startup import HANG, Plan, last_words, write_script
from optagent.tools.simulator.surroundings import SourceSeen, Surroundings

BEGAN = datetime(2026, 1, 5, 8, 0, 0)
USUAL_SILENCE_S = 900.0
"""The `launch_silence_s` with which a launch's phases are given the patience that the log reader names."""
IMPORTS_S = 15.0
"""Importing SGLang takes some 12 s before a word is said, and longer with its arguments."""
NEVER = 1 << 60

GATE_CONTEXT = 150.0
"""Tokens of context at which the gate's questions are answered, on average."""


@dataclass(frozen=True)
class Launch:
    """How a launch ends: ready, or with a `failure` (the kind that the simulator names it by) in `phase`. Without a `plan`
    argparse ended it, with the words `refused`."""

    plan: Plan | None
    failure: str = ""
    phase: str = ""
    refused: str = ""

    @property
    def ready(self) -> bool:
        return not self.failure


@dataclass(frozen=True)
class Ending:
    """`seconds` until it serves, has died, or was taken for hung, and the log until then. `silence_s` is how long a launch
    that hangs was waited for."""

    seconds: float
    log: str
    hangs: bool = False
    silence_s: float = 0.0


class Model:
    """The deployment's configurations, each looked at once."""

    def __init__(self, deployment: Deployment) -> None:
        self.deployment = deployment
        self.loads: dict[str, Loaded | Death] = {}
        """By what a load depends on."""
        self._launches: dict[tuple[str, tuple[int, ...]], Launch] = {}
        self._readings: dict[str, LogReading] = {}
        self._endings: dict[tuple[str, tuple[int, ...]], Ending] = {}

    def launch(self, configuration: Configuration, name: str = "") -> Launch:
        """How a launch of this name ends. The name matters only to faults that are injected into launches."""
        if configuration.files or configuration.revision:
            raise ValueError("environment files and patches are not modelled")
        key = self._key(configuration, name)
        if key not in self._launches:
            plan, refused = self._planned(configuration, name)
            failure = None if plan is None else plan.failure
            if plan is None:
                self._launches[key] = Launch(None, "arguments-refused", "arguments", refused)
            else:
                kind, phase = (failure.kind, failure.phase) if failure else ("", "")
                self._launches[key] = Launch(plan, kind, phase)
        return self._launches[key]

    def ending(self, configuration: Configuration, name: str = "") -> Ending:
        """How long the launch takes, and its log."""
        key = self._key(configuration, name)
        if key not in self._endings:
            self._endings[key] = self._end(self.launch(configuration, name))
        return self._endings[key]

    def reading(self, ending: Ending, *, ready: bool) -> LogReading:
        """How the log of a launch is read when it has ended so."""
        if ending.log not in self._readings:
            reader = LogReader()
            reader.feed(ending.log.encode())
            if not (ready or ending.hangs):
                reader.finish()
            silent_s = ending.silence_s + 1 if ending.hangs else None
            self._readings[ending.log] = reader.reading(alive=ready or ending.hangs, silent_s=silent_s)
        return self._readings[ending.log]

    def log(self, configuration: Configuration, name: str) -> str:
        """The launch's log, as the server process writes it."""
        plan, refused = self._planned(configuration, name)
        return refused if plan is None else _announced(plan) + _written(plan)[0]

    def last_words(self, launch: Launch, tokens: int) -> str:
        """What is added to the log of a server that dies under a load."""
        assert launch.plan is not None
        stamp = VirtualClock(BEGAN, 1.0).stamp(_written(launch.plan)[1])
        return "".join(
            f"[{stamp}{'' if rank is None else f' TP{rank}'}] {text}\n"
            for text, rank in last_words(launch.plan, tokens)
        )

    def load(self, launch: Launch, workload: Workload) -> Loaded:
        """The load on a ready server without noise. Raises Dies.

        Its prompts are those of the workload's first run, whatever the seed of a run is: by how much other prompts would
        differ is left to the noise of runs.
        """
        assert launch.plan is not None
        folder = self.deployment.folder
        longest = longest_prompt(workload, folder)
        if longest + workload.output_len > min(launch.plan.setup.context_len, launch.plan.memory.kv_tokens):
            raise Dies(Death(0.0))
        plan = without_what_never_counts(launch.plan, workload, longest)
        key = load_key(plan, workload)
        if key not in self.loads:
            self.loads[key] = run_load(
                plan, workload, workload.seed + 1, folder, gaps="_itl_" in self.deployment.metric
            )
        found = self.loads[key]
        if isinstance(found, Death):
            raise Dies(found)
        return found

    def warm_up_s(self, launch: Launch, workload: Workload) -> float:
        """How long the requests before a load take: the first ones of it, with as many clients."""
        if not workload.warmup_requests:
            return 0.0
        count = workload.warmup_requests
        clients = min(workload.max_concurrency, workload.num_prompts, count)
        warm = workload.model_copy(update={"num_prompts": count, "max_concurrency": clients})
        return self.load(launch, warm).seconds

    def value(self, configuration: Configuration) -> float | None:
        """The true value of the objective; None for a configuration that does not start, or does not stand its load."""
        launch = self.launch(configuration)
        if not launch.ready or launch.plan is None:
            return None
        try:
            return self.load(launch, self.deployment.config.workload).metrics[self.deployment.metric]
        except Dies:
            return None

    def gate_s(self, launch: Launch, prompts: int, max_tokens: int, concurrency: int, texts: int) -> float:
        """How long the gate's questions take: each prompt alone, all again so many at a time, texts, and a few draws."""
        assert launch.plan is not None
        alone = self._step_s(launch.plan, 1)
        together = self._step_s(launch.plan, concurrency) * -(-prompts // concurrency)
        read = texts * (self.deployment.scenario.costs.prefill_fixed_s + alone)
        return max_tokens * (prompts * alone + together + 2 * alone) + read

    def step_s(self, launch: Launch, batch: int) -> float:
        assert launch.plan is not None
        return self._step_s(launch.plan, batch)

    def _step_s(self, plan: Plan, batch: int) -> float:
        scenario = self.deployment.scenario
        return decode_step(scenario.model, scenario.costs, plan.setup, batch, GATE_CONTEXT).total_us * 1e-6

    def _around(self, configuration: Configuration, name: str) -> Surroundings:
        scenario, told = self.deployment.scenario, self.deployment.config.deployment
        environment = told.environments.get(configuration.environment)
        return Surroundings(
            scenario=scenario,
            world=None,
            versions=dict(scenario.environments[configuration.environment]),
            env={**(environment.env if environment else {}), **configuration.env},
            source=SourceSeen(),
            launch=name or "0",
        )

    def _planned(self, configuration: Configuration, name: str) -> tuple[Plan | None, str]:
        """The planned launch, or what argparse says before it ends the process."""
        around, said = self._around(configuration, name), io.StringIO()
        try:
            with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
                fields = parse(flag_arguments(configuration.flags), around.versions["sglang"])
        except SystemExit:
            return None, said.getvalue()
        return plan_launch(fields, around), ""

    def _key(self, configuration: Configuration, name: str) -> tuple[str, tuple[int, ...]]:
        faults = self.deployment.scenario.faults.injected
        return configuration.fingerprint(), tuple(n for n, fault in enumerate(faults) if fnmatch(name, fault.launch))

    def _end(self, launch: Launch) -> Ending:
        plan = launch.plan
        if plan is None:
            return Ending(IMPORTS_S, launch.refused)
        text, seconds, hangs = _written(plan)
        text, seconds = _announced(plan) + text, IMPORTS_S + seconds
        if not hangs:
            return Ending(seconds, text)
        reader = LogReader()
        reader.feed(text.encode())
        patience = self.deployment.config.deployment.timeouts.launch_silence_s / USUAL_SILENCE_S
        silence_s = reader.allowed_silence_s * patience
        return Ending(seconds + silence_s, text, hangs=True, silence_s=silence_s)


def _announced(plan: Plan) -> str:
    return (
        f"This deployment is simulated: scenario {plan.around.scenario.name}, times from a cost model. No GPU, no model "
        "and no SGLang is involved.\n"
    )


def _written(plan: Plan) -> tuple[str, float, bool]:
    """(the log, when its last line is written, whether it then stands still)."""
    clock = VirtualClock(BEGAN, 1.0)
    words: list[str] = []
    last_s, hangs = 0.0, False
    for line in write_script(plan).lines():
        last_s = max(last_s, line.at_s)
        if line.raw:
            words.append(line.text)
        elif line.text:
            rank = "" if line.rank is None else f" TP{line.rank}"
            words.append(f"[{clock.stamp(last_s)}{rank}] {line.text}\n")
        hangs = hangs or line.action == HANG
    return "".join(words), last_s, hangs
