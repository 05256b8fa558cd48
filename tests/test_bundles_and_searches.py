"""A campaign on the simulated deployment whose plan has safe items, which are tried together, and one with a range."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import pytest

from optagent.agent.experiments import BUNDLE, ITEM, TRIAL, Experiment
from optagent.agent.ledger import Ledger, fold
from optagent.agent.plan.model import Status
from optagent.agent.plan.read import read_plan
from optagent.tools.journal_store import JournalStore

PLAN = """# A small plan

## 1. A faster attention kernel

```yaml
id: attention
change:
  flags: {attention-backend: triton}
expected_gain: 20..60 %
```

## 2. Admit requests more boldly

```yaml
id: bold
change:
  flags: {schedule-conservativeness: 0.5}
expected_gain: 0..3 %
```

## 3. Send tokens two at a time

```yaml
id: pairs-of-tokens
change:
  flags: {stream-interval: 2}
expected_gain: 0..3 %
```

## 4. Smaller graphs

```yaml
id: graph-batch
change:
  flags: {cuda-graph-max-bs: [1, 16, 256]}
risk: medium
expected_gain: 0..8 %
```
"""
SETTINGS = {"OPTAGENT_MEASURING__BUNDLE_FROM_S": "0", "OPTAGENT_MEASURING__RUNS": "1"}


@dataclass
class Done:
    status: int
    told: str
    said: dict[str, Any]
    ledger: Ledger
    statuses: dict[str, Status]

    def of(self, kind: str) -> list[Experiment]:
        return [e for e in self.ledger.experiments.values() if e.kind == kind]


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Done:
    folder = tmp_path_factory.mktemp("bundles") / "campaign"
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        env = {**os.environ, **SETTINGS, "OPTAGENT_DEPLOYMENT__PORT": str(probe.getsockname()[1])}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "optagent", *words], capture_output=True, text=True, env=env, timeout=400
        )

    assert run("init", str(folder)).returncode == 0
    (folder / "plans" / "plan.md").write_text(PLAN)
    toml = (folder / "optagent.toml").read_text()
    assert "[deployment.flags]" in toml
    slow = 'cuda-graph-max-bs = 128\nattention-backend = "torch_native"'
    (folder / "optagent.toml").write_text(toml.replace("cuda-graph-max-bs = 128", slow))
    ended = run("-C", str(folder), "continue", "--json")
    with JournalStore.open(folder / ".optagent" / "journal.db", create=False, read_only=True) as store:
        ledger = fold(store.entries())
    statuses = {i.id: i.status for i in read_plan((folder / "plans" / "plan.md").read_text()).items}
    return Done(ended.returncode, ended.stderr, json.loads(ended.stdout or "{}"), ledger, statuses)


def test_the_safe_items_are_tried_together_first(done: Done) -> None:
    bundle = done.of(BUNDLE)[0]
    assert (bundle.items, bundle.verdict) == (("attention", "bold", "pairs-of-tokens"), "keep"), done.told
    assert next(e for e in done.ledger.experiments.values() if e.kind in (BUNDLE, ITEM)).id == bundle.id


def test_each_of_them_is_then_taken_out_and_only_what_is_missed_stays(done: Done) -> None:
    out = {e.item: e.verdict for e in done.of(ITEM) if e.removal}
    assert out == {"attention": "keep", "bold": "revert", "pairs-of-tokens": "revert"}, done.told
    assert done.statuses["attention"] is Status.KEPT
    assert done.statuses["bold"] is done.statuses["pairs-of-tokens"] is Status.REVERTED


def test_the_range_is_searched_and_its_best_value_tried_afresh(done: Done) -> None:
    points = [e.change.flags["cuda-graph-max-bs"] for e in done.of(TRIAL)]
    assert sorted(map(int, map(str, points))) == [1, 16, 256]
    chosen = next(e for e in done.of(ITEM) if e.item == "graph-batch")
    assert chosen.change.flags["cuda-graph-max-bs"] in (1, 16)
    assert chosen.verdict == "keep"
    assert len(chosen.values("candidate")) >= 2, "the search's own launches do not count"


def test_what_is_left_is_what_helps(done: Done) -> None:
    assert done.status == 0, done.told
    baseline = done.ledger.baseline
    assert baseline is not None
    configuration = baseline.configuration
    assert configuration.flags["attention-backend"] == "triton"
    assert "schedule-conservativeness" not in configuration.flags
    assert "stream-interval" not in configuration.flags
    assert "side by side in 4 pairs" in done.said["total_gain"]


def test_what_a_verdict_will_cost_is_said_before(done: Done) -> None:
    assert "launches expected" in done.told
