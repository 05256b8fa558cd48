"""Continuous batching in virtual time: requests are prefilled first, then decoded together, as SGLang schedules them.

A closed world of one load: it advances only when it is told to, from one finished request to the next.

With `estimated` admission the KV cache is shared out as `room.py` has it, and requests may be put back.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

from optagent.tools.simulator.acceptance import accept_probability, draw_accept_length, longest_draft
from optagent.tools.simulator.cost import decode_step, padded_batch, prefill_s
from optagent.tools.simulator.room import Room, held, needed
from optagent.tools.simulator.scenario import Costs, Model
from optagent.tools.simulator.setup import Setup
from optagent.tools.simulator.words import common_tokens

BLOCK_STEPS = 32
"""Decode steps that are taken at once at the cost of the first: the context grows by 32 tokens at most meanwhile."""


NOT_DRAWN_YET = random.Random(0)
"""Stands for the draws of a request that has no first token yet."""


class OutOfRoom(RuntimeError):
    """The activations of a prefill batch found no memory, which ends the server. `tokens` is the batch's size."""

    def __init__(self, tokens: int) -> None:
        super().__init__(f"a prefill batch of {tokens} tokens found no memory")
        self.tokens = tokens


@dataclass
class Job:
    """One request. Times in virtual seconds; `itl_runs` are pairs of a gap and how often it came in a row.

    `text` is the prompt's, where beginnings that prompts have in common are looked at. `left_s` is when it was put back.
    """

    index: int
    prompt_tokens: int
    max_new_tokens: int
    cached_tokens: int = 0
    random_prompt: bool = False
    seed: str = ""
    arrived_s: float = 0.0
    first_token_s: float = 0.0
    finished_s: float = 0.0
    produced: int = 0
    verify_steps: int = 0
    itl_runs: list[tuple[float, int]] = field(default_factory=list)
    draws: random.Random = NOT_DRAWN_YET
    chance: float = 0.0
    text: str = ""
    left_s: float = 0.0

    @property
    def context(self) -> int:
        return self.prompt_tokens + self.produced


@dataclass(frozen=True)
class BatchSeen:
    """What the scheduler reports about a batch, for the log."""

    kind: str
    at_s: float
    running: int
    queued: int
    tokens: int
    new_tokens: int = 0
    cached_tokens: int = 0
    new_requests: int = 0
    throughput: float = 0.0
    in_graph: bool = False
    accept_length: float | None = None


@dataclass
class Engine:
    """The scheduler and what it works on. `slowdown` multiplies every duration, `accept_factor` the accept chance.

    `estimated` and `prefix_sharing` are the scenario's (`Scheduling`). A prefill batch of more than `most_prefill_tokens`
    raises OutOfRoom. `seen` are the prompts in the prefix tree.
    """

    model: Model
    costs: Costs
    setup: Setup
    kv_tokens: int
    slowdown: float = 1.0
    accept_factor: float = 1.0
    now_s: float = 0.0
    log_interval: int = 40
    report: Callable[[BatchSeen], None] = lambda seen: None
    waiting: deque[Job] = field(default_factory=deque)
    running: list[Job] = field(default_factory=list)
    estimated: bool = False
    prefix_sharing: bool = False
    most_prefill_tokens: int | None = None
    seen: list[str] = field(default_factory=list)
    _steps: int = 0
    _step_costs: dict[tuple[int, int], float] = field(default_factory=dict)

    def submit(self, job: Job) -> None:
        """Queue a request that arrives now."""
        job.arrived_s = self.now_s
        self.waiting.append(job)

    @property
    def outstanding(self) -> int:
        return len(self.waiting) + len(self.running)

    def advance(self) -> list[Job]:
        """Go on until at least one request finishes; the finished ones. Nothing to do gives an empty list."""
        while self.outstanding:
            finished = self._prefill() if self._admissible() else self._decode()
            if finished:
                return finished
        return []

    @cached_property
    def _kv_room(self) -> Room:
        return Room(self.kv_tokens, self.setup.conservativeness)

    def _admissible(self, free: float | None = None) -> bool:
        """Whether the next request may start; `free` are the tokens of room where they are known already."""
        if not self.waiting or len(self.running) >= self.setup.max_running_requests * self.setup.replicas:
            return False
        if self.prefix_sharing and self.setup.radix_cache:
            self._match(self.waiting[0])
        return not self.running or self._fits(self.waiting[0], free)

    def _fits(self, job: Job, free: float | None) -> bool:
        if self.estimated:
            return needed(job) <= (self._kv_room.free(self.running) if free is None else free)
        reserved = sum(one.prompt_tokens + one.max_new_tokens for one in self.running)
        return reserved + job.prompt_tokens + job.max_new_tokens <= self.kv_tokens

    def _prefill(self) -> list[Job]:
        batch: list[Job] = []
        tokens = 0
        before = len(self.running)
        free = self._kv_room.free(self.running) if self.estimated else None
        while self._admissible(free):
            job = self.waiting[0]
            new = job.context - job.cached_tokens
            if batch and tokens + new > self._batch_tokens:
                break
            batch.append(self.waiting.popleft())
            self.running.append(job)
            tokens += new
            if free is not None:
                free -= needed(job)
        self._check_memory(tokens)
        seconds = self._prefill_seconds(tokens, max(job.cached_tokens for job in batch))
        self.now_s += seconds
        if self.estimated and self.setup.mixed_chunk:
            self._decode_along(tokens, before, seconds)
        if self.prefix_sharing and self.setup.radix_cache:
            self._remember(batch)
        self._report_prefill(batch, tokens, before, seconds)
        for job in batch:
            self._first_token(job)
        return self._finish()

    def _prefill_seconds(self, tokens: int, cached: int) -> float:
        seconds, done = 0.0, 0
        while True:
            chunk = min(tokens - done, self._chunk_tokens)
            seconds += prefill_s(self.model, self.costs, self.setup, chunk, cached + done)
            done += chunk
            if done >= tokens:
                return seconds * self.slowdown

    def _first_token(self, job: Job) -> None:
        if job.produced:
            job.produced += 1
            job.itl_runs.append((self.now_s - job.left_s, 1))
            return
        job.first_token_s = self.now_s
        job.produced = 1
        how = self.setup.speculation
        if how is not None:
            job.draws = random.Random(job.seed)
            chance = accept_probability(self.costs, how, job.random_prompt) * self.accept_factor
            job.chance = chance + job.draws.uniform(-0.03, 0.03)

    def _decode(self) -> list[Job]:
        if self.estimated:
            self._put_back()
        batch = len(self.running)
        context = sum(job.context for job in self.running) / batch
        step_s = self._step_s(batch, context)
        if self.setup.speculation is None:
            steps = min(BLOCK_STEPS, min(job.max_new_tokens - job.produced for job in self.running))
            if self.estimated:
                steps = max(1, min(steps, (self.kv_tokens - held(self.running)) // batch))
            self._plain_steps(steps, step_s)
        else:
            steps = 1
            self._verify_step(step_s)
        if self.estimated:
            self._kv_room.decay(steps)
        self._report_decode(steps, batch)
        return self._finish()

    def _step_s(self, batch: int, context: float) -> float:
        """The cost of one iteration, computed once for contexts that differ by less than a block."""
        key = batch, int(context) // BLOCK_STEPS
        if key not in self._step_costs:
            middle = (key[1] + 0.5) * BLOCK_STEPS
            self._step_costs[key] = decode_step(self.model, self.costs, self.setup, batch, middle).total_us * 1e-6
        return self._step_costs[key] * self.slowdown

    def _plain_steps(self, steps: int, step_s: float) -> None:
        self.now_s += steps * step_s
        for job in self.running:
            job.produced += steps
            job.itl_runs.append((step_s, steps))

    def _verify_step(self, step_s: float) -> None:
        how = self.setup.speculation
        assert how is not None
        longest = longest_draft(how)
        self.now_s += step_s
        for job in self.running:
            gained = draw_accept_length(job.draws, job.chance, longest)
            job.produced = min(job.max_new_tokens, job.produced + gained)
            job.verify_steps += 1
            job.itl_runs.append((step_s, 1))

    def _finish(self) -> list[Job]:
        finished = [job for job in self.running if job.produced >= job.max_new_tokens]
        if finished:
            self.running = [job for job in self.running if job.produced < job.max_new_tokens]
            for job in finished:
                job.finished_s = self.now_s
        return finished

    @property
    def _chunk_tokens(self) -> int:
        """The most tokens of one prefill pass: every replica has its own."""
        return self.setup.chunked_prefill_size * self.setup.replicas

    @property
    def _batch_tokens(self) -> int:
        if not self.estimated:
            return self._chunk_tokens
        return min(self._chunk_tokens, self.setup.max_prefill_tokens * self.setup.replicas)

    def _check_memory(self, tokens: int) -> None:
        largest = min(tokens, self._chunk_tokens) // self.setup.replicas
        if self.most_prefill_tokens is not None and largest > self.most_prefill_tokens:
            raise OutOfRoom(largest)

    def _put_back(self) -> None:
        how = self.setup.speculation
        for job in self._kv_room.put_back(self.running, how.verify_tokens if how else 1):
            job.cached_tokens = 0
            job.left_s = self.now_s
            self.waiting.append(job)

    def _decode_along(self, tokens: int, before: int, seconds: float) -> None:
        """With mixed chunks, those that run get a token in each prefill pass."""
        passes = math.ceil(tokens / self._chunk_tokens)
        for job in self.running[:before]:
            gained = min(passes, job.max_new_tokens - job.produced)
            job.produced += gained
            job.itl_runs.append((seconds / passes, gained))

    def _match(self, job: Job) -> None:
        """Take what the prefix tree has of the prompt; its last token is always computed."""
        longest = max((common_tokens(job.text, text) for text in self.seen), default=0) if job.text else 0
        job.cached_tokens = min(longest, job.prompt_tokens - 1)

    def _remember(self, batch: list[Job]) -> None:
        known = set(self.seen)
        self.seen += [job.text for job in batch if job.text and job.text not in known]

    def _report_prefill(self, batch: list[Job], tokens: int, before: int, seconds: float) -> None:
        self.report(
            BatchSeen(
                kind="Prefill",
                at_s=self.now_s,
                running=before,
                queued=len(self.waiting),
                tokens=sum(job.context for job in self.running),
                new_tokens=tokens,
                cached_tokens=sum(job.cached_tokens for job in batch),
                new_requests=len(batch),
                throughput=tokens / seconds,
            )
        )

    def _report_decode(self, steps: int, batch: int) -> None:
        before, self._steps = self._steps // self.log_interval, self._steps + steps
        if self._steps // self.log_interval == before:
            return
        produced = sum(job.produced for job in self.running)
        verified = sum(job.verify_steps for job in self.running)
        self.report(
            BatchSeen(
                kind="Decode",
                at_s=self.now_s,
                running=batch,
                queued=len(self.waiting),
                tokens=sum(job.context for job in self.running),
                throughput=self._throughput(),
                in_graph=padded_batch(self.setup, batch)[1],
                accept_length=produced / verified if verified else None,
            )
        )

    def _throughput(self) -> float:
        """Tokens a second of the running requests over their last gap."""
        rate = 0.0
        for job in self.running:
            gap, _ = job.itl_runs[-1]
            rate += (job.produced / max(1, job.verify_steps) if job.verify_steps else 1.0) / gap
        return rate
