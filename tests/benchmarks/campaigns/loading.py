"""One load on a planned launch, as the server process would run it, without noise and without a process."""

from __future__ import annotations

import json
import random
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from functools import lru_cache
from pathlib import Path

from optagent.tools.bench_judging import metrics_of
from optagent.tools.calls.bench import Workload
from optagent.tools.load_metrics import Measured, summarise
from optagent.tools.loadgen import SIMULATED_IDS, read_prompts, request_bodies
from optagent.tools.simulator.acceptance import looks_random
from optagent.tools.simulator.batching import Engine, Job, OutOfRoom
from optagent.tools.simulator.engines import Pace, engine_for
from optagent.tools.simulator.memory import most_prefill_tokens
from optagent.tools.simulator.startup import Plan
from optagent.tools.simulator.words import count_tokens, token_ids

NEVER = 1 << 60
"""Steps between two reports of an engine that nobody listens to."""


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


def run_load(plan: Plan, workload: Workload, seed: int, root: Path, *, gaps: bool) -> Loaded | Death:
    """The load of this seed; `root` is the folder of its prompts. With `gaps` the times between tokens are told as well."""
    jobs = jobs_of(plan, workload, seed, root)
    engine = engine_for(plan.around, plan.setup, plan.memory, Pace(log_interval=NEVER))
    try:
        done = closed_loop(engine, jobs, min(workload.max_concurrency, len(jobs)))
    except OutOfRoom as out:
        return Death(engine.now_s, out.tokens)
    measured = [_measured(job, gaps) for job in done]
    seconds = max(one.finished_s for one in measured) - min(one.started_s for one in measured)
    prompts = sum(one.input_len for one in measured)
    return Loaded(
        metrics=metrics_of(summarise(measured, seconds)),
        seconds=engine.now_s,
        cached_share=sum(one.cached_tokens or 0 for one in measured) / prompts if prompts else 0.0,
    )


def closed_loop(engine: Engine, jobs: Sequence[Job], clients: int) -> list[Job]:
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


def without_what_never_counts(plan: Plan, workload: Workload, longest: int) -> Plan:
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


def load_key(plan: Plan, workload: Workload) -> str:
    """The same for all that a load depends on."""
    around, memory = plan.around, plan.memory
    shape = workload.model_dump_json(exclude={"name"})
    faults = [n for n, fault in enumerate(around.scenario.faults.injected) if fnmatch(around.launch, fault.launch)]
    limit = most_prefill_tokens(around.scenario.costs, memory)
    if limit is not None and limit >= min(plan.setup.chunked_prefill_size, memory.kv_tokens):
        limit = None
    return json.dumps([repr(plan.setup), memory.kv_tokens, limit, shape, faults])


def longest_prompt(workload: Workload, root: Path) -> int:
    """In tokens."""
    if workload.dataset == "random-ids":
        return workload.input_len
    return max(count_tokens(text) for text in _prompts(root / (workload.prompts or "")))


def scaled(metrics: Mapping[str, float], factor: float) -> dict[str, float]:
    """The metrics of a run whose every duration is so many times as long."""
    found = dict(metrics)
    for name in metrics:
        if name.endswith("_ms") or name == "duration":
            found[name] = metrics[name] * factor
        elif name.endswith("_throughput"):
            found[name] = metrics[name] / factor
    return found
