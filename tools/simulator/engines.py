"""The engine that a launch serves a load with: the same for the server process and for whoever only computes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fnmatch import fnmatch

from optagent.tools.simulator.arithmetic import corrupts
from optagent.tools.simulator.batching import BatchSeen, Engine
from optagent.tools.simulator.memory import MemoryPlan, most_prefill_tokens
from optagent.tools.simulator.setup import Setup
from optagent.tools.simulator.surroundings import Surroundings

CORRUPT_ACCEPTANCE = 0.1
"""What is left of the accept probability when the target's values are wrong: 0.6 fell to 0.059 where a fused all-reduce
lacked its end barrier."""


@dataclass(frozen=True)
class Pace:
    """What multiplies every duration, and how often batches are reported (in decode steps) and to whom."""

    slowdown: float = 1.0
    log_interval: int = 40
    report: Callable[[BatchSeen], None] = lambda seen: None


def engine_for(around: Surroundings, setup: Setup, memory: MemoryPlan, pace: Pace, seen: Iterable[str] = ()) -> Engine:
    """An engine at rest. `seen` are the prompts in the prefix cache, where a scenario shares prefixes."""
    scenario = around.scenario
    shaped = scenario.model.shape is not None
    return Engine(
        model=scenario.model,
        costs=scenario.costs,
        setup=setup,
        kv_tokens=memory.kv_tokens * (setup.kv_pools if shaped else 1),
        slowdown=pace.slowdown,
        accept_factor=CORRUPT_ACCEPTANCE if corrupts(around) else 1.0,
        log_interval=pace.log_interval,
        report=pace.report,
        estimated=scenario.scheduling.reserve == "estimated",
        prefix_sharing=scenario.scheduling.prefix_sharing,
        most_prefill_tokens=most_prefill_tokens(scenario.costs, memory),
        seen=sorted(seen) if scenario.scheduling.prefix_sharing else [],
    )


def injected_slowdown(around: Surroundings) -> float:
    """The product of the scenario's injected slow faults for this launch."""
    factor = 1.0
    for fault in around.scenario.faults.injected:
        if fault.kind == "slow" and fnmatch(around.launch, fault.launch):
            factor *= fault.factor
    return factor
