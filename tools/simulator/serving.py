"""The server behind its endpoints: turns a request into a job, lets its load run, and words the answer."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from optagent.tools.simulator.acceptance import looks_random
from optagent.tools.simulator.batching import BatchSeen, Engine, Job
from optagent.tools.simulator.engines import Pace, engine_for, injected_slowdown
from optagent.tools.simulator.loads import Announcement, Load, announcement, is_warm_up
from optagent.tools.simulator.memory import MemoryPlan
from optagent.tools.simulator.noise import slowdown
from optagent.tools.simulator.setup import Setup
from optagent.tools.simulator.speaking import DEFAULT_TEMPERATURE, Said, Speaker
from optagent.tools.simulator.surroundings import Surroundings
from optagent.tools.simulator.words import count_tokens, natural_length, pieces, token_id, token_ids

ALONE_S = 0.0015
"""How long (s of the wall) a single request waits to see whether others come that would share its batches."""


class BadRequest(ValueError):
    """The request cannot be served; the message is for the client."""


@dataclass(frozen=True)
class Prompt:
    """A prompt as text or as token ids."""

    text: str
    ids: tuple[int, ...] | None = None

    @property
    def tokens(self) -> int:
        return len(self.ids) if self.ids is not None else count_tokens(self.text)

    @property
    def key(self) -> str:
        return self.text if self.ids is None else repr(self.ids)

    @property
    def token_ids(self) -> Sequence[int]:
        return self.ids if self.ids is not None else [token_id(piece) for piece in pieces(self.text)]


@dataclass(frozen=True)
class Asked:
    """What is wanted of one prompt: at most `count` tokens, and log-probabilities of the prompt's tokens from
    `scored_from` on (-1: of the answer only; None: none at all)."""

    prompt: Prompt
    count: int
    temperature: float
    ignore_eos: bool
    scored_from: int | None


@dataclass(frozen=True)
class Generated:
    """An answer, with the words it is streamed in: one a token."""

    prompt: Prompt
    said: Said
    job: Job
    stopped: bool

    @property
    def words(self) -> list[str]:
        return self.said.words

    @property
    def text(self) -> str:
        return " ".join(self.words)


@dataclass
class Counters:
    """Totals since the server started."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    generated_tokens: int = 0
    requests: int = 0
    verify_steps: int = 0
    verified_tokens: int = 0
    last_throughput: float = 0.0


@dataclass
class Service:
    """What is served: the setup's engine, its prefix cache and its totals."""

    around: Surroundings
    setup: Setup
    memory: MemoryPlan
    fields: Mapping[str, Any]
    advance_clock: Callable[[float], None]
    now_s: Callable[[], float]
    report: Callable[[BatchSeen], None]
    totals: Counters = field(default_factory=Counters)
    _cached: set[str] = field(default_factory=set)
    _loads: dict[tuple[str, int, int, int], Load] = field(default_factory=dict)
    _cold: bool = True
    _present: list[threading.Event] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _numbers: Any = field(default_factory=itertools.count)

    def generate(
        self,
        prompts: Sequence[Prompt],
        sampling: Mapping[str, Any],
        header: str | None,
        scored_from: Sequence[int | None] | None = None,
    ) -> list[Generated]:
        """The answers in the order of the prompts; a load's announcement goes with a single prompt.

        `scored_from` has a value for each prompt; without it no log-probabilities are wanted.

        Raises BadRequest for a prompt that is too long, LoadStalled when the load stands still.
        """
        starts = [None] * len(prompts) if scored_from is None else scored_from
        asked = [self._asked(prompt, sampling, start) for prompt, start in zip(prompts, starts, strict=True)]
        load = self._load(prompts, header)
        first = announcement(header).index if header else 0
        jobs = [self._job(first + at, one, load) for at, one in enumerate(asked)]
        if header:
            load.serve(jobs[0])
            shared = load.announced.clients > 1
        else:
            with self._company() as company:
                load.serve_all(jobs)
            shared = len(jobs) > 1 or company.is_set()
        answers = []
        for one, job in zip(asked, jobs, strict=True):
            self._count(one.prompt, job, load)
            answers.append(self._answer(one, job, shared))
        return answers

    def flush(self) -> None:
        with self._lock:
            self._cached.clear()

    @property
    def accept_length(self) -> float | None:
        """Mean tokens of a verify step since the start; None without speculation."""
        if self.setup.speculation is None:
            return None
        return self.totals.verified_tokens / self.totals.verify_steps if self.totals.verify_steps else 1.0

    @cached_property
    def _speaker(self) -> Speaker:
        return Speaker(self.around, self.setup, self.fields)

    @contextmanager
    def _company(self) -> Iterator[threading.Event]:
        """An event that is set once another request was there as well, unannounced like this one."""
        met = threading.Event()
        with self._lock:
            self._present.append(met)
            if len(self._present) > 1:
                for one in self._present:
                    one.set()
        try:
            time.sleep(ALONE_S)
            yield met
        finally:
            with self._lock:
                self._present.remove(met)

    def _answer(self, asked: Asked, job: Job, shared: bool) -> Generated:
        said = self._speaker.say(
            asked.prompt.token_ids,
            min(asked.count, job.max_new_tokens),
            asked.temperature,
            scored_from=asked.scored_from,
            shared=shared,
        )
        return Generated(asked.prompt, said, job, stopped=job.max_new_tokens < asked.count)

    def _asked(self, prompt: Prompt, sampling: Mapping[str, Any], start: int | None) -> Asked:
        wanted = int(sampling.get("max_new_tokens", 128))
        if wanted < 0:
            raise BadRequest(f"max_new_tokens must be at least 0, got {wanted}.")
        limit = min(self.setup.context_len, self.memory.kv_tokens)
        if prompt.tokens >= limit:
            raise BadRequest(
                f"The input ({prompt.tokens} tokens) is longer than the model's context length ({limit} tokens)."
            )
        if prompt.tokens + wanted > limit:
            raise BadRequest(
                f"Requested token count exceeds the model's maximum context length of {limit} tokens. You requested a "
                f"total of {prompt.tokens + wanted} tokens: {prompt.tokens} tokens from the input messages and {wanted} "
                "tokens for the completion."
            )
        if start is not None and start > prompt.tokens:
            raise BadRequest(
                f"req.logprob_start_len={start} is higher than the number of input tokens "
                f"len(req.origin_input_ids)={prompt.tokens}. Please use a smaller logprob_start_len."
            )
        temperature = sampling.get("temperature")
        return Asked(
            prompt=prompt,
            count=wanted,
            temperature=DEFAULT_TEMPERATURE if temperature is None else float(temperature),
            ignore_eos=bool(sampling.get("ignore_eos")),
            scored_from=start,
        )

    def _job(self, index: int, asked: Asked, load: Load) -> Job:
        prompt, start = asked.prompt, asked.scored_from
        sharing = self.around.scenario.scheduling.prefix_sharing
        whole = self.setup.radix_cache and prompt.key in load.cached and not sharing
        cached = prompt.tokens - 1 if whole else 0
        stops = asked.count if asked.ignore_eos else min(asked.count, natural_length(prompt.key))
        return Job(
            index=index,
            prompt_tokens=prompt.tokens,
            max_new_tokens=max(1, stops),
            cached_tokens=cached if start is None or start < 0 else min(cached, start),
            random_prompt=looks_random(prompt.ids if prompt.ids is not None else token_ids(prompt.text)),
            seed=prompt.key,
            text=prompt.text if sharing else "",
        )

    def _load(self, prompts: Sequence[Prompt], header: str | None) -> Load:
        with self._lock:
            if not header:
                number = next(self._numbers)
                told = Announcement(f"unannounced-{number}", len(prompts), len(prompts), 0)
                return self._new_load(told)
            if len(prompts) != 1:
                raise BadRequest("a load's request has one prompt")
            told = announcement(header)
            if told.load not in self._loads:
                self._loads[told.load] = self._new_load(told, self._warmth(told))
            return self._loads[told.load]

    def _new_load(self, told: Announcement, warmth: float = 1.0) -> Load:
        cached = frozenset(self._cached)
        return Load(told, self._engine(told, warmth, cached), self.now_s(), self.advance_clock, cached)

    def _warmth(self, told: Announcement) -> float:
        """How fast an announced load runs: the first after the launch that is no warm-up is slower."""
        if is_warm_up(told) or not self._cold:
            return 1.0
        self._cold = False
        return self.around.scenario.cold_first_cell

    def _engine(self, told: Announcement, warmth: float, cached: frozenset[str]) -> Engine:
        scenario = self.around.scenario
        launch = slowdown(scenario.noise.launch_sd, scenario.seed, self.around.launch, "launch")
        run = slowdown(scenario.noise.run_sd, scenario.seed, self.around.launch, "run", told.run, told.seed)
        factor = launch * run * injected_slowdown(self.around) / warmth
        pace = Pace(factor, max(1, int(self.fields["decode_log_interval"])), self.report)
        return engine_for(self.around, self.setup, self.memory, pace, cached)

    def _count(self, prompt: Prompt, job: Job, load: Load) -> None:
        with self._lock:
            self._cached.add(prompt.key)
            if load.over and self._loads.get(load.announced.load) is load:
                del self._loads[load.announced.load]
            totals = self.totals
            totals.requests += 1
            totals.prompt_tokens += job.prompt_tokens
            totals.cached_tokens += job.cached_tokens
            totals.generated_tokens += job.produced
            totals.verify_steps += job.verify_steps
            totals.verified_tokens += job.produced if job.verify_steps else 0
            totals.last_throughput = job.produced / max(1e-9, job.finished_s - job.arrived_s)
