"""A campaign on the simulated deployment whose plan has simple items, one of them with a range and one that does not run: they
are surveyed together, and then each gets a verdict of its own."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import pytest

from optagent.agent.experiments import BASELINE, ITEM, SURVEY, TRIAL, Experiment
from optagent.agent.ledger import Ledger, fold
from optagent.agent.plan.model import Status
from optagent.agent.plan.read import read_plan
from optagent.agent.survey.proposing import EACH, FEWEST
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

## 3. Reduce along a tree

```yaml
id: tree
change:
  env: {NCCL_ALGO: Tree}
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
SETTINGS = {
    f"OPTAGENT_MEASURING__{key}": value
    for key, value in (("SURVEY_FROM_S", "0"), ("RUNS", "1"), ("CONFIRM_PAIRS", "2"))
}


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


def test_combinations_of_all_simple_items_are_looked_at_first(done: Done) -> None:
    looks = done.of(SURVEY)
    assert looks[0].id == next(e for e in done.ledger.experiments.values() if e.kind != BASELINE).id, done.told
    dead = {name for name, status in done.statuses.items() if status is Status.DEAD}
    assert {frozenset(set(e.among) | dead) for e in looks} == {frozenset(looks[0].among)}, "all but what surely fails"
    assert set(looks[0].among) == set(done.statuses)
    assert not done.of(TRIAL), "the range is searched by the survey"
    launched = [e.candidate.fingerprint() for e in looks if e.candidate is not None]
    assert len(launched) == len(set(launched)) <= FEWEST + EACH * len(done.statuses)
    assert {len(e.runs) for e in looks} <= {0, 1}


def test_what_stands_out_is_kept_at_once_if_its_output_is_right(done: Done) -> None:
    kept = [e for e in done.of(SURVEY) if e.verdict == "keep"]
    assert kept, done.told
    assert "attention" in kept[0].items
    for e in done.of(SURVEY):
        assert e.outlook is not None
        assert ("candidate" in e.gated) == (e.verdict == "keep"), "nothing else is worth a gate"


def test_what_does_not_run_fails_whatever_it_is_launched_with(done: Done) -> None:
    looks = done.of(SURVEY)
    assert [e.verdict == "failed" for e in looks] == ["tree" in e.items for e in looks], done.told
    assert sum("tree" in e.items for e in looks) <= 3, "it is soon known which of them it is"
    assert done.statuses["tree"] is Status.DEAD


def test_each_that_came_in_is_then_taken_out_and_only_what_is_missed_stays(done: Done) -> None:
    out = {e.item: e.verdict for e in done.of(ITEM) if e.removal}
    assert out["attention"] == "keep", done.told
    assert out.get("bold", "revert") == "revert"
    assert done.statuses["attention"] is Status.KEPT
    assert done.statuses["bold"] is Status.REVERTED


def test_of_the_range_a_small_value_stays(done: Done) -> None:
    assert done.statuses["graph-batch"] is Status.KEPT
    baseline = done.ledger.baseline
    assert baseline is not None
    assert baseline.configuration.flags["cuda-graph-max-bs"] in (1, 16)


def test_what_is_left_is_what_helps(done: Done) -> None:
    assert done.status == 0, done.told
    baseline = done.ledger.baseline
    assert baseline is not None
    assert baseline.configuration.flags["attention-backend"] == "triton"
    assert "schedule-conservativeness" not in baseline.configuration.flags
    assert baseline.configuration.env == {}
    assert "side by side in 2 pairs" in done.said["total_gain"]


def test_what_a_verdict_will_cost_is_said_before(done: Done) -> None:
    assert "launches expected" in done.told
