"""How the KV cache is shared out by an estimate, as SGLang does it (its schedule_policy and schedule_batch, 0.5).

Of what running requests may still produce only a share is set aside, which starts at 0.7 times
--schedule-conservativeness and decays; when the cache is full after all, those that have produced least are put back and
computed anew later. What came from the prefix tree is in the cache once for all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from optagent.tools.simulator.batching import Job

LONGEST_ESTIMATE = 4096
"""Tokens that one request is taken to produce at most (CLIP_MAX_NEW_TOKENS)."""
FIRST_SHARE, LEAST_SHARE, DECAY_STEPS = 0.7, 0.14, 600
"""The share at first; what is left of it after so many decode steps."""
AFTER_RETRACTION = 20
"""Tokens that every running request is sure to get after some were put back."""


@dataclass
class Room:
    """The room of one engine. `share` is what is now set aside of the tokens that requests may still produce."""

    kv_tokens: int
    conservativeness: float
    share: float = -1.0

    def __post_init__(self) -> None:
        self.share = self.first_share

    @property
    def first_share(self) -> float:
        return min(1.0, FIRST_SHARE * self.conservativeness)

    def free(self, running: Sequence[Job]) -> float:
        """Tokens that are neither held nor set aside."""
        expected = sum(min(job.max_new_tokens - job.produced, LONGEST_ESTIMATE) for job in running)
        return self.kv_tokens - held(running) - self.share * expected

    def decay(self, steps: int) -> None:
        first = self.first_share
        least = first * LEAST_SHARE
        self.share = max(least, self.share - steps * (first - least) / DECAY_STEPS)

    def put_back(self, running: list[Job], tokens_each: int) -> list[Job]:
        """Take those that have produced least out of `running`, until every other one has room for its next tokens."""
        out: list[Job] = []
        while len(running) > 1 and held(running) + len(running) * tokens_each > self.kv_tokens:
            least = min(range(len(running)), key=lambda at: (running[at].produced, -at))
            out.append(running.pop(least))
        if out:
            produced = sum(job.produced for job in running) + AFTER_RETRACTION * len(running)
            self.share = min(1.0, produced / max(1, sum(job.max_new_tokens for job in running)))
        return out


def held(running: Iterable[Job]) -> int:
    """Tokens in the cache: each request's own, and once what they have from the prefix tree."""
    own = shared = 0
    for job in running:
        own += job.prompt_tokens + job.produced - job.cached_tokens
        shared = max(shared, job.cached_tokens)
    return own + shared


def needed(job: Job) -> int:
    """Tokens that have to be free for a request to be admitted: its own and all that it may produce."""
    return (
        job.prompt_tokens + job.produced - job.cached_tokens + min(job.max_new_tokens - job.produced, LONGEST_ESTIMATE)
    )
