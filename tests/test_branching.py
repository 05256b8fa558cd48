"""Branching off a recorded session: what the simulator goes on from, and that nothing else is touched."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from optagent.agent.branch import as_toml, files_at, kept_patches, simulated_config, sizes_of
from optagent.agent.commands.workspace import Silent
from optagent.agent.config import CampaignConfig, config_from, load_config
from optagent.agent.ledger import fold
from optagent.agent.replay import replay
from optagent.tools.journal_store import JournalStore
from optagent.tools.stub import RecordedCall, load_recording

ROOT = Path(__file__).parents[1]
SESSIONS = Path(__file__).parent / "sessions"
REAL, SIMULATED = SESSIONS / "sglang-cpu-campaign.jsonl.gz", SESSIONS / "reference-1-to-the-question.jsonl.gz"

OTHER_PLAN = """# Another plan

## 1. Twice the chunk

```yaml
id: larger-chunk
status: open
change:
  flags:
    chunked-prefill-size: 256
expected_gain: 0..10 %
cost: launches only
risk: low
```
"""


def optagent(
    *words: object, root: Path | None = None, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "optagent", *(["-C", str(root)] if root else []), *map(str, words)],
        capture_output=True, text=True, check=False, timeout=300, env=env,
    )  # fmt: skip


def state_of(folder: Path) -> dict[str, str]:
    """Every file of a folder by its content."""
    return {
        str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest() for p in folder.rglob("*") if p.is_file()
    }


def test_another_plan_from_there_on_a_deployment_of_its_own(tmp_path: Path) -> None:
    """A recording of a real SGLang: the branch measures its own baseline, tries the other plan, and touches nothing."""
    (tmp_path / "plans").mkdir()
    owner = tmp_path / "plans" / "other.md"
    owner.write_text(OTHER_PLAN)
    before = state_of(tmp_path)
    into = tmp_path / "branch"
    words = ("--until", 1, "--then", "ranked", "--plan", owner, "--steps", 2, "--into", into, "--json")
    done = optagent("replay", REAL, *words)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["until"], told["then"], told["simulated"]) == (1, "ranked", True)
    steps = [(s["kind"], s["item"]) for s in told["branch"]["steps"]]
    assert steps == [("baseline", None), ("item", "larger-chunk")]
    assert told["branch"]["steps"][0]["verdict"] == "keep"
    assert [s["item"] for s in told["recorded"]["steps"]][:3] == [
        "more-running-requests", "torch-compile", "batching-window",
    ]  # fmt: skip
    assert told["recorded"]["launches"] == 12
    assert told["branch"]["launches"] >= 4
    assert any("--device" in line for line in told["not_as_recorded"])
    after = {k: v for k, v in state_of(tmp_path).items() if not k.startswith("branch/")}
    assert after == before
    with JournalStore.open(into / ".optagent" / "journal.db", create=False, read_only=True) as store:
        ledger = fold(store.entries())
    assert ledger.baseline is not None
    assert ledger.baseline.measurement is not None
    assert ledger.baseline.measurement.simulated
    runs = [run for e in ledger.experiments.values() for run in e.runs]
    assert [e.id for e in ledger.experiments.values() if not e.runs] == ["E0001"]  # nothing real was carried over
    assert runs
    status = optagent("status", "--json", root=into)
    assert json.loads(status.stdout)["simulated"] is True


def test_kept_patches_go_on_and_the_table_shows_both_sides(tmp_path: Path) -> None:
    """A simulated recording, replayed in its own campaign's folder: the prompts come from there and nothing there changes;
    the kept patch is in the branch's checkout, and the scratch folder is gone afterwards."""
    scratch, owner = tmp_path / "scratch", tmp_path / "owner"
    scratch.mkdir()
    for part in ("plans", "handoffs"):
        shutil.copytree(ROOT / part, owner / part)
    shutil.copy(ROOT / "optagent.toml", owner)
    before = state_of(owner)
    words = ("replay", SIMULATED, "--until", 3, "--then", "ranked", "--steps", 1)
    done = optagent(*words, root=owner, env=os.environ | {"TMPDIR": str(scratch)})
    assert done.returncode == 0, done.stderr
    assert "from here on everything is simulated" in done.stdout
    assert done.stdout.count("not as recorded") == 1  # the examinations; prompts and kept patch are as they were
    table = done.stdout[done.stdout.index("\nbaseline  ") :].split("\n")
    assert "baseline with One-shot all-reduce" in table[1]
    assert "keep" in table[2]  # as fast as the recording says, which holds only with the patch
    assert any(line.startswith("step 4") and "eagle3" in line for line in table)
    assert list(scratch.iterdir()) == []
    assert state_of(owner) == before


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--then", "ranked"], "--then needs --until N"),
        (["--plan", "x.md"], "--plan, --steps and --into say something about a branch"),
        (["--until", "1", "--steps", "1"], "--plan, --steps and --into say something about a branch"),
        (["--until", "1", "--then", "oracle"], "--then: expected one of ranked, not 'oracle'"),
        (["--until", "6", "--then", "ranked"], "has 5 steps, not 6"),
        (["--until", "1", "--then", "ranked", "--into", "."], "--into: . exists already"),
        (["--until", "1", "--then", "ranked", "--plan", "nowhere.md"], "nowhere.md: cannot be read"),
    ],
)
def test_what_cannot_be_branched(words: list[str], says: str) -> None:
    done = optagent("replay", REAL, *words)
    assert done.returncode == 2
    assert says in done.stderr


def test_files_are_as_they_were_at_that_moment() -> None:
    def read(path: str, text: str | None) -> RecordedCall:
        return RecordedCall(1, "read_text", {"path": path}, {"text": text} if text is not None else {})

    def write(path: str, text: str, written: bool = True) -> RecordedCall:
        return RecordedCall(1, "write_text", {"path": path, "text": text}, {"written": written})

    calls = [
        read("plan.md", "one"), write("plan.md", "two"), write("plan.md", "refused", written=False), read("none.md", None),
        write("handoff.md", "later"), read("late.diff", "first seen late"), read("plan.md", "three"),
    ]  # fmt: skip
    assert files_at(calls, 0) == {"plan.md": "one", "late.diff": "first seen late"}
    assert files_at(calls, 4) == {"plan.md": "two", "late.diff": "first seen late"}
    assert files_at(calls, 7) == {"plan.md": "three", "handoff.md": "later", "late.diff": "first seen late"}


def test_only_patches_that_were_kept_are_put_on_again() -> None:
    entries = replay(load_recording(SIMULATED), Silent()).session.journal.entries()
    kept = kept_patches(entries)
    assert [p.experiment for p in kept] == ["E0003", "E0005"]
    assert kept[1].base == kept[0].revision
    assert (
        kept_patches(replay(load_recording(REAL), Silent()).session.journal.entries()) == []
    )  # one, and it was dropped


@pytest.mark.parametrize(
    ("flags", "probe", "reading", "expected"),
    [
        ({}, {}, {}, {"hardware": {"count": 1}, "model": {"weights_gb": 5.625}}),
        (
            {"tp-size": 4},
            {"gpus": [{"name": "H200", "memory_total_gb": 141.0, "compute_capability": "9.0"}] * 8},
            {"weights_gb": 30.0, "kv_gb": 64.0, "kv_tokens": 2**20},
            {
                "hardware": {"count": 8, "gpu": "H200", "memory_gb": 141.0, "compute_capability": "9.0"},
                "model": {"weights_gb": 15.0, "kv_bytes_per_token": 32768},
            },
        ),
    ],
)
def test_a_real_deployment_is_stood_in_for_in_its_sizes(
    flags: dict[str, object], probe: dict[str, object], reading: dict[str, object], expected: dict[str, object]
) -> None:
    calls = [RecordedCall(1, "probe", {}, probe), RecordedCall(2, "launch", {}, {"reading": reading})]
    assert sizes_of(calls, 2, flags) == expected


@pytest.mark.parametrize("path", [REAL, SIMULATED])
def test_the_settings_of_a_branch_are_a_campaign_on_the_simulator(path: Path, tmp_path: Path) -> None:
    """Written as optagent.toml they are read as the same settings again; nothing leads back to the owner's machine."""
    config = config_from(load_recording(path).config, "x")
    branch = simulated_config(config, 31000, "ranked")
    (tmp_path / "optagent.toml").write_text(as_toml(branch))
    assert load_config(tmp_path).model_dump() == branch.model_dump()
    assert branch.deployment.kind == "simulator"
    assert all(e.python is None and e.folder is None for e in branch.deployment.environments.values())
    assert "/opt/" not in as_toml(branch).replace("/opt/sglang-cpu/model", "")


def test_settings_survive_names_and_numbers_that_toml_finds_hard() -> None:
    body = {
        "name": 'quoted "name" \\ ü',
        "measuring": {"survey_from_s": float("inf"), "baseline_tolerance": 1e-7},
        "deployment": {"env": {"A.B": "x=y\n\t"}, "flags": {"a b": True, "c": 1.5e22}},
    }
    config = config_from(body, "x")
    assert CampaignConfig.model_validate(tomllib.loads(as_toml(config))) == config
