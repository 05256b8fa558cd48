"""The reference campaign on the simulated deployment, whole: from the unread log to the question, and to the end."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from optagent.agent.experiments import BASELINE, CONFIRM
from optagent.agent.handoff.read import read_handoff
from optagent.agent.ledger import Ledger, fold
from optagent.agent.plan.model import Plan
from optagent.agent.plan.read import read_plan
from optagent.tools.journal_store import JournalStore

ROOT = Path(__file__).parents[1]


@dataclass
class Sitting:
    """What one `optagent continue` left: its exit status, its JSON, ledger, plan and the text of its handoff."""

    status: int
    said: dict[str, Any]
    told: str
    ledger: Ledger
    plan: Plan
    handoff: str


@dataclass
class Campaign:
    folder: Path
    port: int
    sittings: list[Sitting] = field(default_factory=list)

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "OPTAGENT_DEPLOYMENT__PORT": str(self.port)}
        command = [sys.executable, "-m", "optagent", "-C", str(self.folder), *words]
        return subprocess.run(command, capture_output=True, text=True, env=env, timeout=300)

    def sit(self) -> None:
        done = self.run("continue", "--json")
        with JournalStore.open(self.folder / ".optagent" / "journal.db", create=False, read_only=True) as store:
            ledger = fold(store.entries())
        plan = read_plan((self.folder / "plans" / "eagle-fast-verify.md").read_text())
        latest = max((self.folder / "handoffs").iterdir())
        said = json.loads(done.stdout or "{}")
        self.sittings.append(Sitting(done.returncode, said, done.stderr, ledger, plan, latest.read_text()))


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Campaign]:
    """The campaign after both sittings, with the owner's approval between them."""
    folder = tmp_path_factory.mktemp("reference")
    shutil.copy(ROOT / "optagent.toml", folder)
    for part in ("plans", "handoffs"):
        shutil.copytree(ROOT / part, folder / part)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    campaign = Campaign(folder, port)
    campaign.sit()
    assert campaign.run("answer", "Q1", "approve").returncode == 0
    campaign.sit()
    return campaign


@pytest.fixture
def first(campaign: Campaign) -> Sitting:
    return campaign.sittings[0]


@pytest.fixture
def second(campaign: Campaign) -> Sitting:
    return campaign.sittings[1]


def status_of(sitting: Sitting) -> dict[str, str]:
    return {item.id: str(item.status) for item in sitting.plan.items}


def test_the_first_sitting_waits_for_an_answer_and_says_so(first: Sitting) -> None:
    assert first.status == 3
    assert first.said["decision"] == "ask"
    assert [q["reason"] for q in first.said["questions"]] == ["needs-approval"]
    assert first.said["questions"][0]["item"] == "cuda-13"


def test_the_question_says_what_it_may_gain_break_cost_and_how_it_is_undone(first: Sitting) -> None:
    facts = " ".join(first.said["questions"][0]["facts"])
    assert all(words in facts for words in ("may gain", "may break", "undone by", "costs"))
    assert {o["key"] for o in first.said["questions"][0]["options"]} == {"approve", "decline"}


def test_the_pending_launch_is_diagnosed_from_its_log_and_blamed_on_one_of_its_changes(first: Sitting) -> None:
    pending = next(a for a in first.ledger.attempts if a.experiment == "X7")
    assert pending.verdict == "failed"
    assert any("No supported CUDA architectures" in line for line in pending.evidence)
    dead = first.ledger.dead_ends["allreduce-fusion"]
    assert (dead.cause_kind, dead.retry_when) == ("allreduce-unsupported", "cuda>=13")
    assert "nccl-channels" in {e.item for e in first.ledger.experiments.values()}, "the other change is tried alone"


def test_the_known_good_state_is_restored_and_nothing_of_the_experiment_is_lost(
    campaign: Campaign, first: Sitting
) -> None:
    what = first.ledger.restored[0]["what"]
    assert "checkout back at" in what
    assert "put back sitecustomize.py" in what
    checkout = campaign.folder / ".optagent" / "simulation" / "checkout"
    saved = subprocess.run(
        ["git", "log", "--all", "-p", "--format=%D", "--", "python/sglang/srt/server_args.py"],
        cwd=checkout, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert "EXPERIMENT: on without a flag" in saved


def test_the_baseline_is_measured_again_and_gives_what_the_handoff_claimed(first: Sitting) -> None:
    measured = next(e for e in first.ledger.experiments.values() if e.kind == BASELINE)
    values = list(measured.values("baseline").values())
    assert len(values) == 2
    assert sum(values) / len(values) == pytest.approx(89.5, rel=0.01)
    confirm = next(e for e in first.ledger.experiments.values() if e.kind == CONFIRM)
    assert confirm.base.flags["cuda-graph-max-bs"] == 512
    assert sum(confirm.values("baseline").values()) / 4 == pytest.approx(82, rel=0.01)


def test_items_are_tried_in_the_order_of_their_ranks(first: Sitting) -> None:
    tried = [e.item for e in first.ledger.experiments.values() if e.item]
    assert tried == ["nccl-channels", "pcie-all-reduce", "eagle3", "verify-without-sync", "verify-decode-kernel"]


def test_some_are_kept_some_reverted_one_dead_one_parked(first: Sitting) -> None:
    status = status_of(first)
    assert status["pcie-all-reduce"] == status["eagle3"] == status["verify-without-sync"] == "kept"
    assert status["nccl-channels"] == "reverted"
    assert status["allreduce-fusion"] == status["symmetric-memory"] == "dead"
    assert status["cuda-13"] == "parked"


def test_only_status_and_result_lines_of_the_plan_change(campaign: Campaign) -> None:
    def prose(path: Path) -> list[str]:
        return [line for line in path.read_text().splitlines() if not line.startswith(("status:", "result:"))]

    name = Path("plans") / "eagle-fast-verify.md"
    assert prose(campaign.folder / name) == prose(ROOT / name)


def test_the_second_sitting_takes_the_upgrade_and_what_it_unblocks_and_finishes(second: Sitting) -> None:
    assert (second.status, second.said["decision"]) == (0, "finish")
    status = status_of(second)
    assert status["cuda-13"] == "kept"
    assert status["allreduce-fusion"] == "kept"
    assert status["symmetric-memory"] == "dead", "CUDA 13 knows the architecture, but there is no multicast over PCIe"
    assert set(second.ledger.reopened) <= {"allreduce-fusion", "symmetric-memory"}
    assert second.ledger.baseline is not None
    assert second.ledger.baseline.configuration.environment == "cu13"


def test_the_noise_of_a_new_environment_is_learnt_before_anything_is_judged_in_it(second: Sitting) -> None:
    experiments = list(second.ledger.experiments.values())
    first_there = next(n for n, e in enumerate(experiments) if e.kind == "item" and e.base.environment == "cu13")
    before = experiments[:first_there]
    baselines = sum(len(e.values("baseline")) for e in before if e.base.environment == "cu13")
    kept = sum(len(e.values("candidate")) for e in before if e.candidate and e.candidate.environment == "cu13")
    assert baselines + kept >= 2


def test_the_last_handoff_tells_the_total_gain_and_all_that_failed(second: Sitting) -> None:
    handoff = read_handoff(second.handoff, "handoff")
    assert handoff.structured
    assert handoff.simulated
    assert "*simulated*" in second.handoff
    assert handoff.total_gain.startswith("+7")
    assert "side by side" in handoff.total_gain
    verdicts = {a.item: a.verdict for a in handoff.attempts if a.item}
    assert (verdicts["nccl-channels"], verdicts["symmetric-memory"]) == ("revert", "failed")
    assert {"nccl-channels", "symmetric-memory", "ngram", "nccl-tree"} <= {d.id for d in handoff.dead_ends}
    assert "allreduce-fusion" not in {d.id for d in handoff.dead_ends}, "what was kept is no dead end any more"


def test_every_claim_of_the_last_handoff_holds_or_cannot_be_looked_at(campaign: Campaign) -> None:
    done = campaign.run("handoff", "--check", "--json")
    outcomes = {row["outcome"] for row in json.loads(done.stdout)["claims"]}
    assert done.returncode == 0
    assert "does not hold" not in outcomes
    assert "holds" in outcomes


def test_nothing_is_left_running_and_the_checkout_is_clean(campaign: Campaign) -> None:
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", campaign.port)) != 0
    assert not any((campaign.folder / ".optagent" / "simulation" / "gpu-holders").glob("*"))
    checkout = campaign.folder / ".optagent" / "simulation" / "checkout"
    dirty = subprocess.run(["git", "status", "--porcelain"], cwd=checkout, capture_output=True, text=True, check=True)
    assert dirty.stdout == ""


def test_going_on_when_everything_is_settled_changes_nothing(campaign: Campaign) -> None:
    before = sorted(p.name for p in (campaign.folder / "handoffs").iterdir())
    done = campaign.run("continue", "--json")
    assert (done.returncode, json.loads(done.stdout)["decision"]) == (0, "finish")
    assert sorted(p.name for p in (campaign.folder / "handoffs").iterdir()) == before
