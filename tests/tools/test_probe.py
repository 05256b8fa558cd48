"""Probing this very machine: processes, port, environment files."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from optagent.tools import processes
from optagent.tools.calls.world import CheckoutSeen, KnownProcess, ProbeWorld, World
from optagent.tools.files import sha256
from optagent.tools.gpus import look_at_gpus, parse_smi
from optagent.tools.network import Address
from optagent.tools.probe import Surroundings, probe
from optagent.tools.server import launch

if TYPE_CHECKING:
    from conftest import Stubs

NOTHING_ELSE = Surroundings(
    gpus=lambda: None,
    versions=lambda: {"torch": "2.13.0"},
    environments=lambda: {"default": True, "cu130": False},
    checkout=lambda: CheckoutSeen(revision="abc"),
    simulated=True,
)


def look(folder: Path, port: int, known: list[KnownProcess] | None = None, files: list[str] | None = None) -> World:
    request = ProbeWorld(environment="default", known=known or [], files=files or [])
    return probe(request, folder, Address("127.0.0.1", port), folder, NOTHING_ELSE)


def test_an_empty_machine(tmp_path: Path, free_port: int) -> None:
    (tmp_path / "sitecustomize.py").write_text("x")
    world = look(tmp_path, free_port, files=["sitecustomize.py", "none.py", "../outside"])
    assert (world.port_open, world.server, world.gpus) == (False, None, None)
    assert world.files == {"sitecustomize.py": sha256(b"x"), "none.py": None, "../outside": None}
    assert world.versions == {"torch": "2.13.0"}
    assert world.environments == {"default": True, "cu130": False}
    assert world.checkout == CheckoutSeen(revision="abc")
    assert world.disk_free_gb is not None
    assert world.simulated


def test_our_server_is_known(stubs: Stubs, quiet: Callable[[str], None]) -> None:
    launched = launch(stubs.start("healthy"), quiet)
    known = KnownProcess(pid=launched.pid or 0, start_time=launched.start_time or 0)
    world = look(stubs.folder, stubs.port, [known])
    assert world.server is not None
    assert (world.server.pid, world.server.known, world.server.healthy) == (known.pid, True, True)
    assert "stub_server" in world.server.command
    assert [(p.pid, p.alive) for p in world.processes] == [(known.pid, True)]


def test_a_server_with_another_command_line_is_not_the_one_that_is_remembered(
    stubs: Stubs, quiet: Callable[[str], None]
) -> None:
    launched = launch(stubs.start("healthy"), quiet)
    assert launched.pid is not None
    assert launched.command_sha256 == sha256(Path(f"/proc/{launched.pid}/cmdline").read_bytes())
    same = KnownProcess(pid=launched.pid, start_time=launched.start_time or 0, command_sha256=launched.command_sha256)
    for known, is_ours in ((same, True), (same.model_copy(update={"command_sha256": sha256(b"another")}), False)):
        world = look(stubs.folder, stubs.port, [known])
        assert world.server is not None
        assert (world.server.known, [p.alive for p in world.processes]) == (is_ours, [is_ours])


def test_a_launch_whose_beginner_was_killed_is_found_by_its_mark(stubs: Stubs, quiet: Callable[[str], None]) -> None:
    start = stubs.start("leaves-orphan")
    launched = launch(start, quiet)
    request = ProbeWorld(environment="default", launches=[start.mark.launch, "another"])
    world = probe(request, stubs.folder, start.address, stubs.folder, NOTHING_ELSE)
    assert [(p.pid, p.start_time, p.launch) for p in world.processes] == [(launched.pid, launched.start_time, "L0")]
    assert world.server is not None
    assert world.server.known


def test_a_reused_pid_is_not_our_process(stubs: Stubs, quiet: Callable[[str], None]) -> None:
    launched = launch(stubs.start("healthy"), quiet)
    world = look(stubs.folder, stubs.port, [KnownProcess(pid=launched.pid or 0, start_time=1.0)])
    assert world.server is not None
    assert not world.server.known
    assert [p.alive for p in world.processes] == [False]


def test_a_foreign_listener(tmp_path: Path, free_port: int) -> None:
    with socket.create_server(("127.0.0.1", free_port)) as listening:
        hang_up = threading.Thread(target=lambda: listening.accept()[0].close())
        hang_up.start()
        world = look(tmp_path, free_port)
        hang_up.join()
    assert world.port_open
    assert world.server is not None
    assert (world.server.pid, world.server.known, world.server.healthy) == (os.getpid(), False, False)


def test_the_own_process_is_seen_with_its_start(tmp_path: Path) -> None:
    own = processes.look_at(os.getpid())
    assert own is not None
    assert processes.is_alive(own.id)
    assert processes.look_at(os.getpid()) == own


def test_the_output_of_nvidia_smi() -> None:
    text = "0, NVIDIA RTX PRO 6000, 97887, 1024, 12.0\n1, NVIDIA GB10, [N/A], [N/A], 12.1\nnonsense\n"
    (gpu,) = parse_smi(text)
    assert (gpu.index, gpu.memory_total_gb, gpu.memory_used_gb, gpu.compute_capability) == (0, 95.59, 1.0, "12.0")


def test_gpus_are_a_list_or_unknown() -> None:
    gpus = look_at_gpus()
    assert gpus is None or [gpu.index for gpu in gpus] == list(range(len(gpus)))
