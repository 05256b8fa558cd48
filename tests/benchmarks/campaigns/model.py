"""What a configuration of a deployment comes to, without a process: whether it starts, and what it gives.

All of it is computed by the simulator's own functions, the same that its server process runs: flags are parsed, the launch
is planned with its memory and its failure, its log is written, and a load runs through the same engine. A result without
noise is the configuration's true value; noise multiplies every duration of a run alike, so it can be put on afterwards.
"""

from __future__ import annotations

import contextlib
import io
import json
import random
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from fnmatch import fnmatch
from functools import lru_cache
from pathlib import Path
from typing import Any

from campaigns.deployment import Deployment
from optagent.tools.bench_judging import metrics_of
from optagent.tools.calls.bench import Workload
from optagent.tools.calls.configuration import Configuration, flag_arguments
from optagent.tools.calls.logs import LogReading
from optagent.tools.load_metrics import Measured, summarise
from optagent.tools.loadgen import SIMULATED_IDS, read_prompts, request_bodies
from optagent.tools.logs import LogReader
from optagent.tools.simulator.__main__ import plan_launch
from optagent.tools.simulator.acceptance import looks_random
from optagent.tools.simulator.batching import Job, OutOfRoom
from optagent.tools.simulator.clock import VirtualClock
from optagent.tools.simulator.cost import decode_step
from optagent.tools.simulator.engines import Pace, engine_for
from optagent.tools.simulator.flags import parse
from optagent.tools.simulator.memory import most_prefill_tokens
from optagent.tools.simulator.startup import HANG, Plan, last_words, write_script
from optagent.tools.simulator.surroundings import SourceSeen, Surroundings
from optagent.tools.simulator.words import count_tokens, token_ids

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


@dataclass(frozen=True)
class Loaded:
    """A load on a server without noise: `metrics` by the names of a result line, in `seconds`."""

    metrics: dict[str, float]
    seconds: float
    cached_share: float


@dataclass(frozen=True)
class Death:
    """The server ends after so many seconds of the load, in a prefill batch of so many tokens."""

    seconds: float
    tokens: int = 0


class Dies(Exception):
    """The server does not stand the load."""

    def __init__(self, death: Death) -> None:
        super().__init__(f"out of memory after {death.seconds:.0f} s")
        self.death = death


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
        longest = self._longest_prompt(workload)
        if longest + workload.output_len > min(launch.plan.setup.context_len, launch.plan.memory.kv_tokens):
            raise Dies(Death(0.0))
        plan = _without_what_never_counts(launch.plan, workload, longest)
        key = _key(plan, workload)
        if key not in self.loads:
            self.loads[key] = self._run(plan, workload, workload.seed + 1)
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

    def _run(self, plan: Plan, workload: Workload, seed: int) -> Loaded | Death:
        jobs = jobs_of(plan, workload, seed, self.deployment.folder)
        engine = engine_for(plan.around, plan.setup, plan.memory, Pace(log_interval=NEVER))
        try:
            done = closed_loop(engine, jobs, min(workload.max_concurrency, len(jobs)))
        except OutOfRoom as out:
            return Death(engine.now_s, out.tokens)
        measured = [_measured(job, _tells_gaps(self.deployment.metric)) for job in done]
        seconds = max(one.finished_s for one in measured) - min(one.started_s for one in measured)
        prompts = sum(one.input_len for one in measured)
        return Loaded(
            metrics=metrics_of(summarise(measured, seconds)),
            seconds=engine.now_s,
            cached_share=sum(one.cached_tokens or 0 for one in measured) / prompts if prompts else 0.0,
        )

    def _longest_prompt(self, workload: Workload) -> int:
        if workload.dataset == "random-ids":
            return workload.input_len
        return max(count_tokens(text) for text in _prompts(self.deployment.folder / (workload.prompts or "")))


def closed_loop(engine: Any, jobs: Sequence[Job], clients: int) -> list[Job]:
    """All jobs done, by so many clients that each send their next request when one has been answered; in the order of the
    jobs. What is submitted in which order is as in the server's own loads (`loads.py`)."""
    left = deque(jobs)
    for _ in range(clients):
        engine.submit(left.popleft())
    while engine.outstanding:
        for _ in engine.advance():
            if left:
                engine.submit(left.popleft())
    return list(jobs)


def jobs_of(plan: Plan, workload: Workload, seed: int, root: Path) -> list[Job]:
    """The requests of a load, as the server makes jobs of them."""
    sharing = plan.around.scenario.scheduling.prefix_sharing
    drafts = plan.setup.speculation is not None
    if workload.dataset == "custom":
        texts = list(_prompts(root / (workload.prompts or "")))
        random.Random(seed).shuffle(texts)
        rows = [(text, count_tokens(text), _looks_random(text)) for text in texts]
        return [
            Job(n, tokens, workload.output_len, random_prompt=odd, seed=text, text=text if sharing else "")
            for n in range(workload.num_prompts)
            for text, tokens, odd in (rows[n % len(rows)],)
        ]
    if not drafts:
        return [Job(n, workload.input_len, workload.output_len) for n in range(workload.num_prompts)]
    return [
        Job(n, workload.input_len, workload.output_len, random_prompt=looks, seed=key)
        for n, (key, looks) in enumerate(_random_prompts(workload.input_len, workload.num_prompts, seed))
    ]


@lru_cache(maxsize=8)
def _random_prompts(input_len: int, count: int, seed: int) -> tuple[tuple[str, bool], ...]:
    """The key of each random prompt, and whether it looks random."""
    shape = Workload(name="own", input_len=input_len, num_prompts=count)
    bodies = request_bodies(shape, seed, Path(), SIMULATED_IDS)
    return tuple((repr(tuple(body["input_ids"])), looks_random(body["input_ids"])) for body in bodies)


@lru_cache(maxsize=64)
def _prompts(path: Path) -> tuple[str, ...]:
    return tuple(read_prompts(path))


@lru_cache(maxsize=4096)
def _looks_random(text: str) -> bool:
    return looks_random(token_ids(text))


def _measured(job: Job, gaps: bool) -> Measured:
    return Measured(
        input_len=job.prompt_tokens,
        output_len=job.max_new_tokens,
        started_s=job.arrived_s,
        first_token_s=job.first_token_s,
        finished_s=job.finished_s,
        itl_runs=job.itl_runs if gaps else [],
        verify_steps=job.verify_steps,
        cached_tokens=job.cached_tokens,
    )


def _tells_gaps(metric: str) -> bool:
    return "_itl_" in metric


def _without_what_never_counts(plan: Plan, workload: Workload, longest: int) -> Plan:
    """The plan without differences that this load cannot show, so that configurations alike for it are computed once: a
    KV cache larger than all its clients fill, and room for more requests than there are clients."""
    clients = min(workload.max_concurrency, workload.num_prompts)
    setup, memory = plan.setup, plan.memory
    pools = setup.kv_pools if plan.around.scenario.model.shape is not None else 1
    enough = -(-clients * (longest + workload.output_len + _drafted(plan)) // pools)
    running = -(-clients // setup.replicas)
    return replace(
        plan,
        setup=replace(
            setup,
            mem_fraction_static=0.0,
            max_total_tokens=None,
            max_running_requests=min(setup.max_running_requests, running),
        ),
        memory=replace(memory, kv_tokens=min(memory.kv_tokens, enough)),
    )


def _drafted(plan: Plan) -> int:
    return plan.setup.speculation.verify_tokens if plan.setup.speculation else 1


def _key(plan: Plan, workload: Workload) -> str:
    around, memory = plan.around, plan.memory
    shape = workload.model_dump_json(exclude={"name"})
    faults = [n for n, fault in enumerate(around.scenario.faults.injected) if fnmatch(around.launch, fault.launch)]
    limit = most_prefill_tokens(around.scenario.costs, memory)
    if limit is not None and limit >= min(plan.setup.chunked_prefill_size, memory.kv_tokens):
        limit = None
    return json.dumps([repr(plan.setup), memory.kv_tokens, limit, shape, faults])


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


def scaled(metrics: Mapping[str, float], factor: float) -> dict[str, float]:
    """The metrics of a run whose every duration is so many times as long."""
    found = dict(metrics)
    for name in metrics:
        if name.endswith("_ms") or name == "duration":
            found[name] = metrics[name] * factor
        elif name.endswith("_throughput"):
            found[name] = metrics[name] / factor
    return found
