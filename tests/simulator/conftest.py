"""Worlds and servers of simulated deployments. Every server is stopped, whatever its test did."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from optagent.tools.simulator import world

BASELINE = ("--model-path", "moonshotai/Kimi-K2.5", "--tp-size", "8", "--mem-fraction-static", "0.9")
TEXT = "Why is the sky blue?"
GRAPHS = ("--cuda-graph-max-bs", "128")


@dataclass
class Server:
    process: subprocess.Popen[bytes]
    port: int
    log_path: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        return self.log_path.read_text(encoding="utf-8")

    def wait_ready(self) -> None:
        deadline = time.monotonic() + 20
        while self.process.poll() is None and time.monotonic() < deadline:
            try:
                urllib.request.urlopen(f"{self.url}/health", timeout=5).close()
                return
            except (OSError, urllib.error.HTTPError):
                time.sleep(0.01)
        raise AssertionError(f"not ready, exit status {self.process.poll()}:\n{self.log[-2000:]}")

    def wait_dead(self) -> int:
        return self.process.wait(timeout=20)

    def wait_for(self, text: str) -> None:
        deadline = time.monotonic() + 20
        while text not in self.log:
            assert time.monotonic() < deadline, self.log[-2000:]
            time.sleep(0.01)

    def ask(self, path: str, body: Any = None) -> tuple[int, str]:
        """Status and text of what the server answers."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def asked(self, path: str, body: Any = None) -> Any:
        status, text = self.ask(path, body)
        assert status == 200, text
        return json.loads(text)

    def generated(self, count: int, temperature: float = 0, **body: Any) -> Any:
        """The answer of `/generate` to TEXT, `count` tokens long."""
        sampling = {"max_new_tokens": count, "temperature": temperature, "ignore_eos": True}
        return self.asked("/generate", {"text": TEXT, "sampling_params": sampling} | body)

    def scored(self, count: int, **body: Any) -> Any:
        """The `meta_info` of an answer with log-probabilities."""
        return self.generated(count, return_logprob=True, **body)["meta_info"]


Start = Callable[..., Server]


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def change_scenario(folder: Path, **changes: Any) -> None:
    """Give keys of a world's scenario other values."""
    path = folder / "scenario.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.fixture(scope="session")
def laid_out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The reference world as the last session left it. Not to be changed."""
    folder = tmp_path_factory.mktemp("reference") / "simulation"
    world.lay_out(None, folder)
    return folder


@pytest.fixture(scope="session")
def known_good(laid_out: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The reference world with the known-good state restored, and both environments. Not to be changed.

    Its servers are warm from the start, so that a test need not discard the first benchmark of each.
    """
    folder = tmp_path_factory.mktemp("known-good") / "simulation"
    shutil.copytree(laid_out, folder)
    change_scenario(folder, cold_first_cell=1.0)
    subprocess.run(["git", "checkout", "--quiet", "--", "."], cwd=folder / "checkout", check=True)
    for name, text in world.known_good_files().items():
        (folder / "environments" / "cu128" / name).write_text(text)
    world.create_environment(folder, "cu13")
    return folder


@pytest.fixture
def changeable(known_good: Path, tmp_path: Path) -> Path:
    """A copy of the known-good world for a test of its own."""
    return Path(shutil.copytree(known_good, tmp_path / "simulation"))


@pytest.fixture
def cold(known_good: Path, laid_out: Path, tmp_path: Path) -> Path:
    """The known-good world with servers that are as cold at first as the reference scenario has them."""
    folder = Path(shutil.copytree(known_good, tmp_path / "cold"))
    shutil.copy(laid_out / "scenario.json", folder)
    return folder


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a server in a world; all of them are gone after the test."""
    with servers(tmp_path) as begin:
        yield begin


class servers:
    """Starts servers and ends them at the end of the block."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: list[Server] = []

    def __enter__(self) -> Start:
        return self._start

    def __exit__(self, *error: object) -> None:
        for one in self._running:
            if one.process.poll() is None:
                one.process.kill()
            one.process.wait()

    def _start(
        self,
        folder: Path,
        *flags: str,
        environment: str = "cu128",
        launch: str = "E0001-baseline",
        port: int | None = None,
        baseline: tuple[str, ...] = BASELINE,
        **env: str,
    ) -> Server:
        given = {
            key: value for key, value in os.environ.items() if not key.startswith(("NCCL_", "SGLANG_", "OPTAGENT_"))
        }
        given |= {
            "PYTHONPATH": str(folder / "environments" / environment),
            "OPTAGENT_SIMULATION": str(folder),
            "OPTAGENT_SIMULATION_SOURCE": str(folder / "checkout"),
            "OPTAGENT_LAUNCH": launch,
        }
        port = port or free_port()
        path = self._folder / f"server-{len(self._running)}.log"
        command = [sys.executable, "-m", "optagent.tools.simulator", *baseline, "--port", str(port), *flags]
        with path.open("wb") as log:
            process = subprocess.Popen(command, env=given | env, stdout=log, stderr=log, start_new_session=True)
        server = Server(process, port, path)
        self._running.append(server)
        return server


@pytest.fixture(scope="module")
def served(known_good: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A ready baseline server for tests that only ask, in a world of its own: it holds its GPUs' memory."""
    folder = tmp_path_factory.mktemp("served")
    own = Path(shutil.copytree(known_good, folder / "simulation"))
    with servers(folder) as begin:
        server = begin(own, *GRAPHS, "--enable-metrics")
        server.wait_ready()
        yield server
