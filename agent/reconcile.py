"""Holding what the journal expects against what a probe saw. Pure."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from optagent.agent.conditions import WORKLOAD, as_value
from optagent.agent.ledger import Ledger
from optagent.tools.calls.configuration import Configuration
from optagent.tools.calls.world import World

GPU_MODEL = "gpu.model"
"""The fact that names the GPUs in a form that a condition can hold: without blanks."""


@dataclass(frozen=True)
class Leftover:
    """A process of ours that is still there: its launch, its pid and its start time."""

    launch: str
    pid: int
    start_time: float


@dataclass(frozen=True)
class Findings:
    """How the world differs from the known-good state. Empty fields mean that it does not.

    `foreign` and `unrecorded` are for the owner to settle; `leftovers`, `drifted` and `checkout_off` are ours to clean.
    """

    foreign: str = ""
    unrecorded: str = ""
    leftovers: tuple[Leftover, ...] = ()
    drifted: tuple[str, ...] = ()
    checkout_off: str = ""
    missing_environment: str = ""

    @property
    def clean(self) -> bool:
        return self == Findings()


def facts_of(world: World, environment: str, workload: str = "") -> dict[str, str]:
    """The facts that conditions such as `cuda>=13` speak of. What is unknown is absent."""
    facts = dict(world.versions)
    facts["environment"] = environment
    if workload:
        facts[WORKLOAD] = as_value(workload)
    if world.gpus:
        facts["gpu.count"] = str(len(world.gpus))
        facts["gpu.name"] = world.gpus[0].name
        facts[GPU_MODEL] = as_value(world.gpus[0].name)
        facts["gpu.memory_gb"] = f"{world.gpus[0].memory_total_gb:g}"
        if world.gpus[0].compute_capability:
            facts["compute_capability"] = world.gpus[0].compute_capability
    return facts


def find(world: World, known_good: Configuration, ledger: Ledger) -> Findings:
    """What is not as the known-good state says, with whose it is."""
    leftovers = tuple(
        Leftover(p.launch or ledger.processes[(p.pid, p.start_time)], p.pid, p.start_time)
        for p in world.processes
        if p.alive and (p.launch or (p.pid, p.start_time) in ledger.processes)
    )
    off, unrecorded = _checkout(world, known_good, ledger)
    if unrecorded in ledger.to_set_aside:
        off, unrecorded = unrecorded, ""
    return Findings(
        foreign="" if leftovers else _foreign(world),
        unrecorded=unrecorded,
        leftovers=leftovers,
        drifted=tuple(n for n, text in known_good.files.items() if world.files.get(n) != sha256(text)),
        checkout_off=off,
        missing_environment="" if world.environments.get(known_good.environment, True) else known_good.environment,
    )


def _foreign(world: World) -> str:
    server = world.server
    if server is not None and not server.known:
        who = f"pid {server.pid}" if server.pid else "a process that cannot be identified"
        return f"{who} listens on the deployment's port" + (f": {server.command[:120]}" if server.command else "")
    if world.port_open and server is None:
        return "something listens on the deployment's port"
    holders = sorted({pid for gpu in world.gpus or [] for pid in gpu.holders})
    if holders:
        return f"GPU memory is held by pid {', '.join(map(str, holders))}"
    return ""


def _checkout(world: World, known_good: Configuration, ledger: Ledger) -> tuple[str, str]:
    """(what is ours to put back, what nobody recorded)."""
    seen = world.checkout
    if seen is None:
        return "", ""
    if seen.problem:
        return "", f"the source checkout cannot be read: {seen.problem}"
    tried = {e.candidate.revision for e in ledger.experiments.values() if e.candidate}
    moved = bool(known_good.revision) and seen.revision != known_good.revision
    half_way = seen.branch is None and ledger.interrupted_in_checkout()  # git moves HEAD first, then onto its branch
    if moved and not half_way and seen.revision not in tried and not (seen.branch or "").startswith("optagent/"):
        return "", f"the checkout is at {seen.revision[:12]} ({seen.branch or 'detached'}), which nobody recorded"
    if seen.dirty:
        files = ", ".join(seen.dirty[:5]) + (" ..." if len(seen.dirty) > 5 else "")
        if ledger.interrupted_in_checkout():
            return f"a change was interrupted half-way in {files}", ""
        if seen.dirty_sha256 not in ledger.known_dirt:
            content = f" (content {seen.dirty_sha256[:12]})" if seen.dirty_sha256 else ""
            return "", f"uncommitted changes in {files}{content}"
        return f"experimental edits in {files}", ""
    if moved:
        return f"checkout is at {seen.revision[:12]}, not at {known_good.revision[:12]}", ""
    return "", ""


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
