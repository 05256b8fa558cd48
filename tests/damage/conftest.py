"""A small campaign on the simulator, made once; every case takes a copy of it, damages that, and looks what happens."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from optagent.agent.ledger import Ledger, fold
from optagent.tools.journal_store import JournalStore

ROOT = Path(__file__).parents[2]
PLAN = "plans/plan.md"
WAIT_S = 120

ITEMS = """# Plan

## 1. One-shot all-reduce over PCIe

```yaml
id: pcie-all-reduce
status: open
change:
  patch: changes/pcie-all-reduce.diff
expected_gain: 8..18 %
```

## 2. EAGLE-3 drafts

```yaml
id: eagle3
status: open
change:
  flags:
    speculative-algorithm: EAGLE3
    speculative-draft-model-path: lightseekorg/kimi-k2.5-eagle3
    speculative-num-steps: 3
    speculative-eagle-topk: 1
    speculative-num-draft-tokens: 4
needs: [pcie-all-reduce]
expected_gain: 20..35 %
```

## 3. Verify without waiting for the host

```yaml
id: verify-without-sync
status: open
change:
  patch: changes/verify-without-sync.diff
needs: [eagle3]
expected_gain: 2..6 %
```
"""
SETTINGS = {
    "OPTAGENT_PLAN": PLAN,
    "OPTAGENT_MEASURING__CALIBRATION_LAUNCHES": "2",
    "OPTAGENT_MEASURING__SENTINEL_LAUNCHES": "1",
    "OPTAGENT_MEASURING__RUNS": "1",
    "OPTAGENT_GATE__PROMPTS": "2",
    "OPTAGENT_GATE__TEXTS": "1",
    "OPTAGENT_SIMULATION_SPEED": "3000",
}
"""What makes a step short."""


@dataclass(frozen=True)
class Campaign:
    folder: Path
    port: int

    @property
    def variables(self) -> dict[str, str]:
        clean = {k: v for k, v in os.environ.items() if not k.startswith("OPTAGENT_")}
        return clean | SETTINGS | {"OPTAGENT_DEPLOYMENT__PORT": str(self.port)}

    @property
    def state(self) -> Path:
        return self.folder / ".optagent"

    @property
    def journal(self) -> Path:
        return self.state / "journal.db"

    @property
    def checkout(self) -> Path:
        return self.state / "simulation" / "checkout"

    @property
    def plan(self) -> Path:
        return self.folder / PLAN

    def run(self, *words: str, before: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
        command = [*before, sys.executable, "-m", "optagent", "-C", str(self.folder), *words]
        return subprocess.run(
            command, env=self.variables, capture_output=True, text=True, timeout=WAIT_S, check=False,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip

    def start(self, *words: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "optagent", "-C", str(self.folder), *words]
        return subprocess.Popen(command, env=self.variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def ledger(self) -> Ledger:
        with JournalStore.open(self.journal, create=False, read_only=True) as store:
            return fold(store.entries())

    def kinds(self) -> list[str]:
        with JournalStore.open(self.journal, create=False, read_only=True) as store:
            return [entry.kind for entry in store.entries()]

    def git(self, *words: str) -> str:
        who = ["-c", "user.name=Owner", "-c", "user.email=owner@host"]
        done = subprocess.run(["git", *who, *words], cwd=self.checkout, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def doctor(self, *words: str) -> dict[str, Any]:
        """What `optagent doctor` says, by the names of its lines; its exit status is held against them."""
        done = self.run("doctor", "--json", *words)
        told: dict[str, Any] = json.loads(done.stdout)
        states = {line["name"]: line for line in told["checks"]}
        assert done.returncode == int(any(line["state"] == "problem" for line in states.values())), done.stderr
        return states

    def stopped(self, done: subprocess.CompletedProcess[str], status: int, *says: str) -> None:
        """It ended with one line that says these things, and no other noise."""
        assert done.returncode == status, (done.returncode, done.stdout, done.stderr)
        last = done.stderr.strip().splitlines()[-1]
        assert last.startswith("optagent: "), done.stderr
        assert "Traceback" not in done.stderr
        for words in says:
            assert words in last, last

    def until(self, sitting: subprocess.Popen[str], reached: Callable[[Ledger], bool]) -> None:
        """Wait until the journal says so. The sitting must not end before it."""
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            if self.journal.exists() and reached(self.ledger()):
                return
            assert sitting.poll() is None, "the sitting ended before it came that far"
            time.sleep(0.02)
        raise AssertionError("it never came that far")

    def killed(self, reached: Callable[[Ledger], bool]) -> None:
        """Begin a sitting, and kill it without warning when it has come that far."""
        sitting = self.start("continue", "--steps", "1")
        try:
            self.until(sitting, reached)
        finally:
            sitting.send_signal(signal.SIGKILL)
            sitting.communicate()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="session")
def two_steps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A campaign whose baseline is measured and whose first item, a patch, is kept. To be copied only."""
    folder = tmp_path_factory.mktemp("made") / "campaign"
    folder.mkdir()
    shutil.copy(ROOT / "optagent.toml", folder)
    shutil.copytree(ROOT / "handoffs", folder / "handoffs")
    shutil.copytree(ROOT / "plans", folder / "plans")
    (folder / PLAN).write_text(ITEMS)
    done = Campaign(folder, free_port()).run("continue", "--steps", "2", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture
def campaign(two_steps: Path, tmp_path: Path) -> Campaign:
    shutil.copytree(two_steps, tmp_path / "campaign", symlinks=True)
    return Campaign(tmp_path / "campaign", free_port())


@pytest.fixture
def nowhere(tmp_path: Path) -> Campaign:
    """A folder without a campaign."""
    (tmp_path / "nowhere").mkdir()
    return Campaign(tmp_path / "nowhere", free_port())
