"""A sitting whose serving environment breaks between two steps: it asks, blames nothing else, and goes on when mended."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from optagent.agent.ledger import Ledger, fold
from optagent.agent.plan.model import Status
from optagent.tools.journal_store import JournalStore

STUB_SGLANG = Path(__file__).parent / "fakes"
WAIT_S = 120
CONFIG = """
name = "stub"

[workload]
num_prompts = 2
input_len = 64
output_len = 32

[deployment]
kind = "sglang"
port = {port}

[deployment.environments.default]
python = "python"
pythonpath = ["{stub}"]

[deployment.flags]
model-path = "moonshotai/Kimi-K2.5"
tp-size = 8
mem-fraction-static = 0.9

[measuring]
calibration_launches = 2
sentinel_launches = 1
max_pairs = 2
"""
PLAN = """
# One item

## 1. CUDA graphs up to batch 64

```yaml
id: graphs
status: open
change:
  flags:
    cuda-graph-max-bs: 64
expected_gain: 0..3 %
cost: launches
risk: low
```
"""


@dataclass(frozen=True)
class Campaign:
    """A campaign on a real deployment, whose SGLang is a stub. Its interpreter is a script of the campaign's folder."""

    folder: Path

    def mend(self) -> None:
        self.replace(f'#!/bin/sh\nexec {sys.executable} "$@"\n')

    def replace(self, text: str) -> None:
        new = self.folder / "python.new"
        new.write_text(text)
        new.chmod(0o755)
        new.replace(self.folder / "python")

    def start(self, *words: str) -> subprocess.Popen[str]:
        env = {k: v for k, v in os.environ.items() if not k.startswith("OPTAGENT_")}
        return subprocess.Popen(
            [sys.executable, "-m", "optagent", "-C", str(self.folder), *words],
            env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def run(self, *words: str) -> tuple[int, str, str]:
        started = self.start(*words)
        out, err = started.communicate(timeout=WAIT_S)
        return started.returncode, out, err

    def ledger(self) -> Ledger:
        path = self.folder / ".optagent" / "journal.db"
        if not path.exists():
            return Ledger()
        with JournalStore.open(path, create=False, read_only=True) as store:
            return fold(store.entries())


@pytest.fixture
def campaign(tmp_path: Path) -> Campaign:
    made = Campaign(tmp_path / "campaign")
    (made.folder / "plans").mkdir(parents=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    (made.folder / "optagent.toml").write_text(CONFIG.format(port=port, stub=STUB_SGLANG))
    (made.folder / "plans" / "plan.md").write_text(PLAN)
    made.mend()
    return made


def test_a_broken_environment_is_asked_about_and_no_item_is_blamed(campaign: Campaign) -> None:
    sitting = campaign.start("continue", "--json")
    deadline = time.monotonic() + WAIT_S
    while not any(e.item for e in campaign.ledger().experiments.values()):
        assert sitting.poll() is None
        assert time.monotonic() < deadline, "the item's turn never came"
        time.sleep(0.01)
    campaign.replace("#!/bin/sh\nexit 1\n")
    out, told = sitting.communicate(timeout=WAIT_S)
    assert sitting.returncode == 3, told
    assert "Traceback" not in told
    said = json.loads(out)
    assert (said["decision"], said["reason"]) == ("ask", "baseline-moved")
    ledger = campaign.ledger()
    assert ledger.dead_ends == {}
    assert ledger.item_status["graphs"] in (Status.OPEN, Status.TRYING)
    assert ledger.processes == {}

    status, out, told = campaign.run("continue", "--json")
    assert status == 3, told
    assert json.loads(out)["reason"] == "baseline-moved", "as long as it is broken, it is asked about"

    campaign.mend()
    assert campaign.run("answer", said["questions"][0]["id"], "restored")[0] == 0
    status, out, told = campaign.run("continue", "--json")
    assert status == 0, told
    assert campaign.ledger().item_status["graphs"] not in (Status.OPEN, Status.TRYING, Status.DEAD)
