"""`optagent doctor`: what it says of a campaign, what it repairs, and that looking changes nothing."""

from __future__ import annotations

import hashlib
import json
import os
import pty
import shutil
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from optagent.agent.doctor.repairs import lost_verdicts
from optagent.agent.ledger import fold
from optagent.agent.plan.read import read_plan
from optagent.tools.commands import mark_of
from optagent.tools.journal_store import JournalStore, MemoryJournal

if TYPE_CHECKING:
    from conftest import Campaign

NAMES = (
    "configuration", "plan", "journal", "checkpoints", "handoff", "lock", "checkout", "servers", "port", "disk",
    "permissions", "half-written files",
)  # fmt: skip
PLACES = ("journal.db", "checkpoints.db")


def tree(folder: Path) -> dict[str, str]:
    """Every file, folder and link below with what it holds, and when it was written."""
    found = {}
    for path in sorted(folder.rglob("*")):
        content = path.read_bytes() if path.is_file() else b""
        found[str(path.relative_to(folder))] = f"{hashlib.sha256(content).hexdigest()} {path.lstat().st_mtime_ns}"
    return found


def half(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


DAMAGES: list[tuple[str, Callable[[Campaign], object], str]] = [
    # what is done to the campaign, and the line that tells it
    ("a wrong setting", lambda c: replace(c.folder / "optagent.toml", "min_effect", "min_effects"), "configuration"),
    ("no plan", lambda c: c.plan.unlink(), "plan"),
    ("a malformed plan", lambda c: replace(c.plan, "id: eagle3", "idd: eagle3"), "plan"),
    ("half a journal", lambda c: half(c.journal), "journal"),
    ("no journal", lambda c: c.journal.unlink(), "journal"),
    ("an empty journal", lambda c: os.truncate(c.journal, 0), "journal"),
    ("half of the checkpoints", lambda c: half(c.state / "checkpoints.db"), "checkpoints"),
    ("half a handoff", lambda c: half(max((c.folder / "handoffs").glob("0*.md"))), "handoff"),
    ("a killed holder", lambda c: (c.state / "lock").write_text(DEAD), "lock"),
    ("a lock that is a folder", lambda c: ((c.state / "lock").unlink(), (c.state / "lock").mkdir()), "lock"),
    ("edits", lambda c: (c.checkout / "python" / "new.py").write_text("x = 1\n"), "checkout"),
    ("another branch", lambda c: c.git("checkout", "-q", "main"), "checkout"),
    ("a merge under way", lambda c: (c.checkout / ".git" / "MERGE_HEAD").write_text(""), "checkout"),
    ("a patch left over", lambda c: c.git("branch", "optagent/E0077"), "checkout"),
    ("no checkout", lambda c: shutil.rmtree(c.checkout), "checkout"),
    ("a half-written handoff", lambda c: (c.folder / "handoffs" / ".0003-x.md.0a1b2c3d.part").write_text("#"), NAMES[-1]),
]  # fmt: skip
DEAD = json.dumps(
    {"pid": 1, "start_ticks": 1, "boot_id": "gone", "host": os.uname().nodename, "purpose": "continue", "since": "then"}
)


def replace(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def test_a_sound_campaign(campaign: Campaign) -> None:
    before = tree(campaign.folder)
    told = campaign.doctor()
    assert tuple(told) == NAMES
    assert {line["state"] for line in told.values()} == {"ok"}
    assert tree(campaign.folder) == before
    assert campaign.run("doctor", "--repair", "--yes").returncode == 0
    assert tree(campaign.folder) == before, "there was nothing to repair"


@pytest.mark.parametrize(("damage", "name"), [d[1:] for d in DAMAGES], ids=[d[0] for d in DAMAGES])
def test_each_damage_is_told_and_nothing_is_touched(
    campaign: Campaign, damage: Callable[[Campaign], object], name: str
) -> None:
    damage(campaign)
    before = tree(campaign.folder)
    told = campaign.doctor()
    assert tree(campaign.folder) == before
    wrong = [line["name"] for line in told.values() if line["state"] == "problem"]
    assert wrong == [name]
    assert told[name]["text"]
    assert told[name]["remedy"]


def test_repairs_are_said_first_and_keep_what_was_damaged(campaign: Campaign) -> None:
    for name in PLACES:
        half(campaign.state / name)
    (campaign.state / "lock").write_text(DEAD)
    (campaign.folder / "plans" / ".plan.md.0a1b2c3d.part").write_text("half")
    damaged = {name: (campaign.state / name).read_bytes() for name in PLACES}
    before = tree(campaign.folder)
    done = campaign.run("doctor", "--repair")
    campaign.stopped(done, 2, "nothing was changed", "doctor --repair --yes does it")
    for name in ("journal", "checkpoints", "half-written files", "lock"):
        assert f"  {name}: " in done.stdout
    assert tree(campaign.folder) == before
    done = campaign.run("doctor", "--repair", "--yes", "--json")
    assert done.returncode == 0, done.stdout
    repaired = {each["name"]: each["what"] for each in json.loads(done.stdout)["repaired"]}
    assert set(repaired) == {"journal", "checkpoints", "half-written files", "lock"}
    assert "entries saved" in repaired["journal"]
    for name, content in damaged.items():
        [aside] = [p for p in campaign.state.glob(f"{name}.damaged-*") if not p.name.endswith(("-wal", "-shm"))]
        assert aside.read_bytes() == content
    assert {line["state"] for line in campaign.doctor().values()} == {"ok"}
    assert campaign.run("status", "--json").returncode == 0
    assert json.loads(campaign.run("continue", "--dry-run", "--json").stdout)["decision"] == "continue"


def test_on_a_terminal_it_asks(campaign: Campaign) -> None:
    part = campaign.folder / "plans" / ".plan.md.0a1b2c3d.part"
    for answer, left in (("n", True), ("y", False)):
        part.write_text("half")
        ours, theirs = pty.openpty()
        os.write(ours, f"{answer}\n".encode())
        command = [sys.executable, "-m", "optagent", "-C", str(campaign.folder), "doctor", "--repair"]
        done = subprocess.run(
            command, env=campaign.variables, stdin=theirs, capture_output=True, text=True, check=False
        )
        os.close(ours)
        os.close(theirs)
        assert part.exists() is left, done.stdout + done.stderr
        assert done.returncode == (2 if left else 0)


def test_the_checkout_is_put_back_and_nothing_of_it_lost(campaign: Campaign) -> None:
    kept = campaign.git("rev-parse", "optagent/kept")
    campaign.git("branch", "optagent/E0077")
    campaign.git("checkout", "-q", "main")
    (campaign.checkout / "mine.py").write_text("precious\n")
    done = campaign.run("doctor", "--repair", "--yes", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert (campaign.git("rev-parse", "HEAD"), campaign.git("status", "--porcelain")) == (kept, "")
    assert campaign.git("branch", "--list", "optagent/E0077") == ""
    assert "precious" in campaign.git("log", "--all", "-p", "--format=", "--", "mine.py")
    assert campaign.ledger().restored[-1]["what"].startswith("checkout back at ")


SLEEPER = "import time; time.sleep(600)"


def test_only_servers_with_this_campaigns_mark_are_stopped(campaign: Campaign, tmp_path: Path) -> None:
    ours = mark_of(campaign.folder.resolve(), "E0009-candidate-1").variables()
    other = mark_of(tmp_path / "elsewhere", "E0009-candidate-1").variables()
    running = [
        subprocess.Popen([sys.executable, "-c", SLEEPER], env={**os.environ, **variables})
        for variables in (ours, other, {})
    ]
    try:
        told = campaign.doctor()["servers"]
        assert (told["state"], str(running[0].pid) in told["text"]) == ("problem", True)
        assert str(running[1].pid) not in told["text"]
        assert campaign.run("doctor", "--repair", "--yes").returncode == 0
        assert running[0].wait(10) != 0
        assert [process.poll() for process in running[1:]] == [None, None]
    finally:
        for process in running:
            process.kill()
            process.wait()


def test_somebody_elses_server_on_the_port_is_named_and_left_alone(campaign: Campaign) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", campaign.port))
        listener.listen()
        told = campaign.doctor()["port"]
        assert (told["state"], f"pid {os.getpid()}" in told["text"]) == ("problem", True)


def test_a_newer_journal_is_not_repaired(campaign: Campaign) -> None:
    with closing(sqlite3.connect(campaign.journal)) as connection:
        connection.execute("PRAGMA user_version = 99")
    content = campaign.journal.read_bytes()
    assert "newer" in campaign.doctor("--repair", "--yes")["journal"]["text"]
    assert campaign.journal.read_bytes() == content


def test_entries_that_do_not_fit_together_are_a_problem(campaign: Campaign) -> None:
    with JournalStore.open(campaign.journal, create=False) as store:
        store.append("verdict", {"experiment": "E4711", "verdict": "keep", "because": "of nothing"})
    assert "do not fit together" in campaign.doctor()["journal"]["text"]


def test_where_there_is_no_campaign(nowhere: Campaign) -> None:
    nowhere.stopped(nowhere.run("doctor"), 2, "no campaign here")
    nowhere.stopped(nowhere.run("doctor", "--yes"), 2, "--repair")
    assert list(nowhere.folder.iterdir()) == []


def test_what_a_lost_verdict_left_in_the_plan_is_taken_back() -> None:
    plan = read_plan("""# P
## 1. One
```yaml
id: one
status: kept
result: "E0001: +9%"
change: {flags: {a: 1}}
```
## 2. Two
```yaml
id: two
status: dead
result: "the owner knows better"
change: {flags: {a: 2}}
```
""")
    journal = MemoryJournal()
    drafts = lost_verdicts(fold(journal.entries()), plan)
    journal.append_all(drafts)
    ledger = fold(journal.entries())
    assert {k: str(v) for k, v in ledger.item_status.items()} == {"one": "open"}
    assert {k: str(v) for k, v in ledger.plan_written.items()} == {"one": "kept"}
