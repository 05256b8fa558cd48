"""The load that the objective is measured under, as far as it says what a server can gain or lose by. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from optagent.tools.calls.configuration import Configuration

if TYPE_CHECKING:
    from optagent.agent.ledger import Ledger
    from optagent.agent.records import Room
    from optagent.tools.calls.bench import Workload


@dataclass(frozen=True)
class Load:
    """What the load asks for, and what configurations have for it.

    `clients` are the requests at a time, `tokens` those of one request's prompt and answer, `cached` the share of the
    prompts that was found in the prefix cache (None: not known). With `throughput` the objective is one, not a latency.
    `rooms` is what launches of a configuration said of their memory, by its fingerprint; `room` the tokens that the KV cache
    of the one at hand holds, `kv_gb` and `weights_gb` what that and the weights take.
    """

    clients: int
    tokens: float
    cached: float | None = None
    throughput: bool = True
    rooms: Mapping[str, Room] = field(default_factory=dict)
    room: int | None = None
    kv_gb: float | None = None
    weights_gb: float | None = None

    def on(self, configuration: Configuration) -> Load:
        """The load on this configuration."""
        seen = self.rooms.get(configuration.fingerprint())
        if seen is None:
            return replace(self, room=None, kv_gb=None, weights_gb=None)
        return replace(self, room=seen.tokens, kv_gb=seen.kv_gb, weights_gb=seen.weights_gb)

    def room_over(self, gpus: int, before: int) -> float | None:
        """Tokens in the KV cache of a replica that is spread over so many GPUs, where this one is over `before`: each GPU holds
        its part of the weights, and the rest is the cache. 0: not even the weights have room. None: not known."""
        if self.room is None or not self.kv_gb or self.weights_gb is None:
            return None
        left_gb = self.kv_gb + self.weights_gb * (1 - before / gpus)
        return max(0.0, self.room * (left_gb * gpus) / (self.kv_gb * before))


def load_of(ledger: Ledger, workload: Workload, metric: str, configuration: Configuration) -> Load | None:
    """The load of this workload as runs of the configuration showed it in this sitting; None before the first one."""
    launches = ledger.launches_of(configuration)
    if not len(launches):
        return None
    shown = launches.metrics[-1]
    output, total = shown.get("output_throughput"), shown.get("total_throughput")
    tokens = workload.output_len * total / output if output and total else workload.input_len + workload.output_len
    return Load(
        min(workload.max_concurrency, workload.num_prompts), tokens, _cached_share(ledger, configuration),
        metric.endswith("_throughput"), dict(ledger.rooms),
    )  # fmt: skip


def _cached_share(ledger: Ledger, configuration: Configuration) -> float | None:
    """What the configuration's own runs found in the prefix cache: another one may have none."""
    runs = (
        r
        for e in reversed(ledger.measured_here())
        for r in reversed(e.runs)
        if r.valid and (e.candidate if r.arm == "candidate" else e.base) == configuration
    )
    return next((r.metrics["cached_share"] for r in runs if "cached_share" in r.metrics), None)
