"""The server behind its endpoints: turns a request into a job, lets its load run, and words the answer."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from typing import Any

from optagent.tools.simulator.acceptance import looks_random
from optagent.tools.simulator.batching import BatchSeen, Engine, Job
from optagent.tools.simulator.loads import Announcement, Load, announcement
from optagent.tools.simulator.memory import MemoryPlan
from optagent.tools.simulator.noise import slowdown
from optagent.tools.simulator.setup import Setup
from optagent.tools.simulator.surroundings import Surroundings
from optagent.tools.simulator.words import answer_words, count_tokens, natural_length, token_ids


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


@dataclass(frozen=True)
class Generated:
    """An answer, with the words it is streamed in."""

    prompt: Prompt
    words: list[str]
    job: Job
    stopped: bool

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
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _numbers: Any = field(default_factory=itertools.count)

    @property
    def numerics(self) -> tuple[str | None, ...]:
        """What the text depends on beside the prompt."""
        fields = self.fields
        return (
            self.setup.attention_backend,
            self.setup.kv_dtype,
            fields["quantization"],
            fields["dtype"],
            fields["load_format"],
        )

    def generate(self, prompts: Sequence[Prompt], sampling: Mapping[str, Any], header: str | None) -> list[Generated]:
        """The answers in the order of the prompts; a load's announcement goes with a single prompt.

        Raises BadRequest for a prompt that is too long, LoadStalled when the load stands still.
        """
        wanted = [self._length(prompt, sampling) for prompt in prompts]
        load = self._load(prompts, header)
        first = announcement(header).index if header else 0
        jobs = [
            self._job(first + at, prompt, sampling, length, load)
            for at, (prompt, length) in enumerate(zip(prompts, wanted, strict=True))
        ]
        if header:
            load.serve(jobs[0])
        else:
            load.serve_all(jobs)
        answers = []
        for prompt, job, length in zip(prompts, jobs, wanted, strict=True):
            self._count(prompt, job, load)
            words = answer_words(prompt.key, job.max_new_tokens, self.numerics)
            answers.append(Generated(prompt, words, job, stopped=job.max_new_tokens < length))
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

    def _length(self, prompt: Prompt, sampling: Mapping[str, Any]) -> int:
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
        return wanted

    def _job(self, index: int, prompt: Prompt, sampling: Mapping[str, Any], length: int, load: Load) -> Job:
        stops = length if sampling.get("ignore_eos") else min(length, natural_length(prompt.key))
        return Job(
            index=index,
            prompt_tokens=prompt.tokens,
            max_new_tokens=max(1, stops),
            cached_tokens=prompt.tokens - 1 if self.setup.radix_cache and prompt.key in load.cached else 0,
            random_prompt=looks_random(prompt.ids if prompt.ids is not None else token_ids(prompt.text)),
            seed=prompt.key,
        )

    def _load(self, prompts: Sequence[Prompt], header: str | None) -> Load:
        with self._lock:
            if not header:
                number = next(self._numbers)
                return self._new_load(Announcement(f"unannounced-{number}", len(prompts), len(prompts), 0))
            if len(prompts) != 1:
                raise BadRequest("a load's request has one prompt")
            told = announcement(header)
            if told.load not in self._loads:
                self._loads[told.load] = self._new_load(told)
            return self._loads[told.load]

    def _new_load(self, told: Announcement) -> Load:
        return Load(told, self._engine(told), self.now_s(), self.advance_clock, frozenset(self._cached))

    def _engine(self, told: Announcement) -> Engine:
        scenario = self.around.scenario
        launch = slowdown(scenario.noise.launch_sd, scenario.seed, self.around.launch, "launch")
        run = slowdown(scenario.noise.run_sd, scenario.seed, self.around.launch, "run", told.run, told.seed)
        return Engine(
            model=scenario.model,
            costs=scenario.costs,
            setup=self.setup,
            kv_tokens=self.memory.kv_tokens,
            slowdown=launch * run * injected_slowdown(self.around),
            log_interval=max(1, int(self.fields["decode_log_interval"])),
            report=self.report,
        )

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


def injected_slowdown(around: Surroundings) -> float:
    """The product of the scenario's injected slow faults for this launch."""
    factor = 1.0
    for fault in around.scenario.faults.injected:
        if fault.kind == "slow" and fnmatch(around.launch, fault.launch):
            factor *= fault.factor
    return factor
