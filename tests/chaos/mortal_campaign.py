"""A small campaign on the simulated deployment in which there is something of everything, and what must hold of it."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from story import counted_twice, read

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PLAN = "plans/eagle-fast-verify.md"
SETTINGS = {
    "OPTAGENT_SIMULATION_SPEED": "1000000",
    "OPTAGENT_MEASURING__RUNS": "1",
    "OPTAGENT_MEASURING__MAX_PAIRS": "2",
    "OPTAGENT_MEASURING__CONFIRM_PAIRS": "2",
    "OPTAGENT_MEASURING__SENTINEL_LAUNCHES": "1",
    "OPTAGENT_GATE__PROMPTS": "4",
    "OPTAGENT_GATE__TEXTS": "2",
    "OPTAGENT_GATE__MAX_TOKENS": "16",
}
WAIT_S = 1200


@dataclass
class Campaign:
    """The campaign in a folder and on a port of its own. `finished` are the results of benchmarks and gates seen so far."""

    folder: Path
    port: int
    finished: dict[Path, tuple[int, str]] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=lambda: dict(SETTINGS))
    source: str = ".optagent/simulation/checkout"

    @property
    def environment(self) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith("OPTAGENT_")}
        return kept | self.settings | {"OPTAGENT_DEPLOYMENT__PORT": str(self.port)}

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "optagent", "-C", str(self.folder), *words],
            env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
        )  # fmt: skip

    def run(self, *words: str) -> tuple[int, str]:
        """(exit status, what it said)."""
        command = self.start(*words)
        said, _ = command.communicate(timeout=WAIT_S)
        return command.returncode, said

    def marked(self) -> list[psutil.Process]:
        """What carries the mark of a launch of this campaign."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get("OPTAGENT_CAMPAIGN") == str(self.folder.resolve()):
                    found.append(process)
        return found

    def kill_all(self) -> None:
        for process in self.marked():
            with contextlib.suppress(psutil.Error):
                process.send_signal(signal.SIGKILL)

    def git(self, *words: str) -> str:
        checkout = self.folder / self.source
        return subprocess.run(["git", "-C", checkout, *words], check=True, capture_output=True, text=True).stdout

    def broken_laws(self) -> list[str]:
        """What does not hold now, at whatever moment everybody died."""
        wrong = counted_twice(read(self.folder))
        for path in [*self.folder.glob(".optagent/runs/*.jsonl"), *self.folder.glob(".optagent/gates/*.json.gz")]:
            seen = path.stat().st_mtime_ns, hashlib.sha256(path.read_bytes()).hexdigest()
            if self.finished.setdefault(path, seen) != seen and not path.name.endswith(".first.jsonl"):
                wrong.append(f"{path.name} was finished and was made again")
        return wrong

    def left_over(self) -> list[str]:
        """What a sitting that ended in order has left behind although it must not."""
        left = [f"process {p.pid}" for p in self.marked()]
        left += [f"uncommitted {line}" for line in self.git("status", "--porcelain").splitlines()]
        left += [f"git's {lock.name}" for lock in (self.folder / self.source / ".git").rglob("*.lock")]
        branches = self.git("for-each-ref", "--format=%(refname:short)").split()
        left += [b for b in branches if b.startswith("optagent/E")]
        described = (self.folder / ".optagent" / "lock").read_text().partition("\n")[0]
        left += [f"lock {described}"] if described else []
        left += [f"half of {p.name}" for p in self.folder.rglob(".*.part")]
        left += [f"note {n.name}" for n in self.folder.glob(".optagent/processes/*.json")]
        with socket.socket() as probe:
            left += ["the port"] if probe.connect_ex(("127.0.0.1", self.port)) == 0 else []
        return left

    def handoffs(self) -> list[str]:
        return sorted(p.name for p in (self.folder / "handoffs").iterdir())


def make(folder: Path) -> Campaign:
    shutil.copytree(ROOT / "plans", folder / "plans")
    shutil.copytree(ROOT / "handoffs", folder / "handoffs")
    shutil.copy(ROOT / "optagent.toml", folder)
    shutil.copy(HERE / "plan.md", folder / PLAN)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return Campaign(folder, probe.getsockname()[1])


def kill_at_random(campaign: Campaign, chance: random.Random, most_s: float = 0.3) -> bool:
    """Let a sitting get some entries further, wait a little and kill it; whether it was still there.

    What dies with it is drawn too: nothing, its children, or the servers, before it or after."""
    sitting = campaign.start("continue")
    until = len(read(campaign.folder)) + chance.randint(2, 16)
    pause_s, dies = (
        chance.uniform(0, most_s),
        chance.choice(("alone", "with children", "with servers", "after servers")),
    )
    deadline = time.monotonic() + WAIT_S
    while sitting.poll() is None and len(read(campaign.folder)) < until:
        assert time.monotonic() < deadline, "stands still"
        time.sleep(0.02)
    time.sleep(pause_s)
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(sitting.pid)
        servers = campaign.marked() if "servers" in dies else []
        children = process.children(recursive=True) if dies == "with children" else []
        for one in [*servers, process, *children] if dies == "after servers" else [process, *children, *servers]:
            with contextlib.suppress(psutil.Error):
                one.kill()
    said, _ = sitting.communicate(timeout=WAIT_S)
    assert sitting.returncode in (-9, 0, 3), said
    return sitting.returncode == -9


class Dying:
    """Sittings of a campaign, each of which dies at the first place where none has died yet (`dying.py`)."""

    def __init__(self, campaign: Campaign) -> None:
        self.places: list[str] = []
        self._said = campaign.folder.with_suffix(".said").open("w+")
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "dying.py"), str(campaign.folder), str(campaign.folder.with_suffix(".died"))],
            env=campaign.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._said, text=True,
        )  # fmt: skip

    def once(self, *words: str) -> int:
        """How one sitting ended: its exit status, or minus the signal it died of."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"words": words}) + "\n")
        self._process.stdin.flush()
        reply: dict[str, Any] = json.loads(self._process.stdout.readline())
        if reply["place"]:
            self.places.append(reply["place"])
        status: int = reply["status"]
        return status

    @property
    def said(self) -> str:
        self._said.seek(0)
        return self._said.read()

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(WAIT_S)
        self._said.close()
