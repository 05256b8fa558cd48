"""Looking at what is really there, before anybody believes what was written about it."""

from __future__ import annotations

import getpass
import shutil
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from optagent.tools import processes
from optagent.tools.calls.world import CheckoutSeen, Gpu, KnownProcess, ProbeWorld, ProcessSeen, ServerSeen, World
from optagent.tools.commands import Mark, mark_of
from optagent.tools.files import file_sha256
from optagent.tools.network import Address, healthy, listeners
from optagent.tools.paths import OutsideCampaign, inside
from optagent.tools.processes import ProcessId, command_line, look_at

HEALTH_TIMEOUT_S = 3.0
"""An idle SGLang answers /health within one decode step; its own limit of 20 s is for a busy one."""


@dataclass(frozen=True)
class Surroundings:
    """What differs between a simulated deployment and a real one, as questions that can be asked."""

    gpus: Callable[[], list[Gpu] | None]
    versions: Callable[[], dict[str, str]]
    environments: Callable[[], dict[str, bool]]
    checkout: Callable[[], CheckoutSeen | None]
    simulated: bool


def probe(request: ProbeWorld, root: Path, address: Address, folder: Path, around: Surroundings) -> World:
    """Everything the request asks about. `folder` is the environment's; slow questions are asked at the same time."""
    with ThreadPoolExecutor(max_workers=4) as pool:
        gpus, versions = pool.submit(around.gpus), pool.submit(around.versions)
        checkout = pool.submit(around.checkout)
        server = pool.submit(_server, address, request.known, {mark_of(root, launch) for launch in request.launches})
        seen = [_process(known) for known in request.known]
        seen += [found for launch in request.launches if (found := _launch(mark_of(root, launch))) is not None]
        files = {name: _file(folder, name) for name in request.files}
        port_open, listening = server.result()
        return World(
            port_open=port_open,
            server=listening,
            processes=seen,
            gpus=gpus.result(),
            versions=versions.result(),
            environments=around.environments(),
            checkout=checkout.result(),
            files=files,
            disk_free_gb=_disk_free_gb(root),
            host="" if around.simulated else socket.gethostname(),
            user="" if around.simulated else _user(),
            folder=str(root),
            simulated=around.simulated,
        )


def _server(address: Address, known: list[KnownProcess], marks: set[Mark]) -> tuple[bool, ServerSeen | None]:
    if not address.local:
        up = healthy(address, HEALTH_TIMEOUT_S)
        return up, ServerSeen(healthy=True) if up else None
    found = listeners(address)
    if not found:
        return False, None
    up = healthy(address, HEALTH_TIMEOUT_S)
    pid = next((listener.pid for listener in found if listener.pid is not None), None)
    process = None if pid is None else look_at(pid)
    if process is None:
        return True, ServerSeen(healthy=up)
    return True, ServerSeen(
        pid=process.id.pid,
        start_time=process.id.start_time,
        command=command_line(process.id.pid),
        known=_belongs(process.id, {ProcessId(k.pid, k.start_time) for k in known if _is_still(k)})
        or processes.mark_of(process.id.pid) in marks,
        healthy=up,
    )


def _belongs(process: ProcessId, known: set[ProcessId]) -> bool:
    """Whether it is one of the known processes, or a living one of them is an ancestor or leads its session."""
    seen = look_at(process.pid)
    while seen is not None:
        if seen.id in known:
            return True
        leader = look_at(seen.session)
        if leader is not None and leader.id in known:
            return True
        seen = look_at(seen.parent) if seen.parent > 1 else None
    return False


def _is_still(known: KnownProcess) -> bool:
    """Whether the process lives and is the one that is remembered."""
    if not processes.is_alive(ProcessId(known.pid, known.start_time)):
        return False
    return known.command_sha256 in ("", processes.command_sha256(known.pid))


def _process(known: KnownProcess) -> ProcessSeen:
    alive = _is_still(known)
    command = command_line(known.pid) if alive else ""
    return ProcessSeen(pid=known.pid, start_time=known.start_time, alive=alive, command=command)


def _launch(mark: Mark) -> ProcessSeen | None:
    """The first process of a launch that is known by its mark alone: whoever stops it, stops them all."""
    living = processes.marked(mark).living()
    if not living:
        return None
    first = min((process.id for process in living), key=lambda process: (process.start_time, process.pid))
    command = command_line(first.pid)
    return ProcessSeen(pid=first.pid, start_time=first.start_time, alive=True, launch=mark.launch, command=command)


def _file(folder: Path, name: str) -> str | None:
    """The hash of a file of the environment, None when it is not there or cannot be read."""
    try:
        return file_sha256(inside(folder, name))
    except (OSError, OutsideCampaign):
        return None


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a number that has no name, as in containers
        return ""


def _disk_free_gb(root: Path) -> float | None:
    try:
        return round(shutil.disk_usage(root).free / 1e9, 1)
    except OSError:
        return None
