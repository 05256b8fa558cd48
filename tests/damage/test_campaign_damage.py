"""A campaign that is damaged between sittings or in the middle of one: a clear stop, or it goes on and says so."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from optagent.agent.config import CampaignConfig
from optagent.agent.orient import Orientation, load_handoff, load_plan, take_over
from optagent.agent.plan.model import Status
from optagent.agent.plan_sync import set_status
from optagent.agent.session import LedgerJournal, Session
from optagent.tools.deployment import Deployment
from optagent.tools.errors import MachineExhausted
from optagent.tools.exhausted import stop_if_exhausted, stop_if_full, stop_if_told
from optagent.tools.journal_store import JournalStore, MemoryJournal
from optagent.tools.live import LiveToolbox

if TYPE_CHECKING:
    from conftest import Campaign


class Told:
    """A narrator that remembers."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def tell(self, what: str, text: str) -> None:
        self.lines.append(text)

    def now(self, text: str) -> None:
        pass

    def detail(self, text: str) -> None:
        pass


def session_in(folder: Path, plan: str, narrator: Told) -> Session:
    config = CampaignConfig(name="x", plan=plan)
    toolbox = LiveToolbox(folder, Deployment(), lambda told: None)
    return Session(config, toolbox, LedgerJournal(MemoryJournal()), narrator)


# What lies on disk when a sitting begins

JOURNALS: list[tuple[str, Callable[[Path], object], str]] = [
    ("half of it", lambda path: os.truncate(path, path.stat().st_size // 2), "is damaged or not a journal"),
    ("empty", lambda path: os.truncate(path, 0), "has 0 of the "),
    ("deleted", lambda path: path.unlink(), "has 0 of the "),
    ("no database", lambda path: path.write_bytes(b"once upon a time " * 999), "is damaged or not a journal"),
]


@pytest.mark.parametrize(("damage", "says"), [j[1:] for j in JOURNALS], ids=[j[0] for j in JOURNALS])
def test_a_damaged_journal_stops_every_command_and_names_the_doctor(
    campaign: Campaign, damage: Callable[[Path], object], says: str
) -> None:
    damage(campaign.journal)
    before = sorted(
        (p.name, p.stat().st_size) for p in campaign.state.iterdir() if not p.name.endswith(("-wal", "-shm"))
    )
    for words in (("continue",), ("status",), ("answer", "Q1", "approve"), ("handoff", "--write")):
        campaign.stopped(campaign.run(*words), 2, str(campaign.journal), says, "optagent doctor")
    after = sorted(
        (p.name, p.stat().st_size) for p in campaign.state.iterdir() if not p.name.endswith(("-wal", "-shm"))
    )
    assert after == before


def test_after_a_salvage_the_campaign_goes_on(campaign: Campaign) -> None:
    """The verdict is lost, and the plan shows it: its item is tried again, and nothing passes for an owner's edit."""
    with contextlib.closing(sqlite3.connect(campaign.journal)) as connection:
        [seq] = connection.execute("SELECT seq FROM entries WHERE kind = 'verdict' AND key = 'E0002'").fetchone()
        connection.execute("DROP TRIGGER entries_remain")
        connection.execute("DELETE FROM entries WHERE seq >= ?", (seq - 3,))
        connection.commit()
    campaign.stopped(campaign.run("continue"), 2, f"has {seq - 4} of the ")
    assert campaign.run("doctor", "--repair", "--yes").returncode in (0, 1)  # the checkout is at the lost change
    done = campaign.run("continue", "--steps", "1", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    ledger = campaign.ledger()
    assert [e.verdict for e in ledger.of_item("pcie-all-reduce")][-1] == "keep"
    assert ledger.item_status["pcie-all-reduce"] is Status.KEPT
    assert ledger.baseline is not None
    assert ledger.baseline.configuration.revision == campaign.git("rev-parse", "HEAD")
    assert not ledger.open_questions()
    assert {line["state"] for line in campaign.doctor().values()} == {"ok"}


def spoil(statement: str) -> Callable[[Path], object]:
    def damage(path: Path) -> None:
        with contextlib.closing(sqlite3.connect(path)) as connection:
            connection.executescript(statement)

    return damage


CHECKPOINTS: list[tuple[str, Callable[[Path], object]]] = [
    ("deleted", lambda path: path.unlink()),
    ("half of it", lambda path: os.truncate(path, path.stat().st_size // 2)),
    ("another content", spoil("UPDATE checkpoints SET checkpoint = x'c1c1c1'")),
    ("another table", spoil("DROP TABLE writes; CREATE TABLE writes (x);")),
]


@pytest.mark.parametrize("damage", [c[1] for c in CHECKPOINTS], ids=[c[0] for c in CHECKPOINTS])
def test_a_sitting_needs_no_checkpoints(campaign: Campaign, damage: Callable[[Path], object]) -> None:
    """The plan has nothing left to try, so that the machine runs through without a launch."""
    campaign.plan.write_text(campaign.plan.read_text().replace("status: open", "status: dropped"))
    path = campaign.state / "checkpoints.db"
    damage(path)
    (campaign.checkout / "mine.py").write_text("x = 1\n")  # asked about before anything is launched
    done = campaign.run("continue", "--json")
    assert (done.returncode, "Traceback" in done.stderr) == (3, False), done.stderr
    assert json.loads(done.stdout)["reason"] == "unrecorded-work"
    assert campaign.doctor()["checkpoints"]["state"] == "ok"


def test_logs_results_and_examinations_that_are_gone_are_made_anew(campaign: Campaign) -> None:
    for name in ("logs", "runs", "gates", "processes", "backups"):
        shutil.rmtree(campaign.state / name)
    done = campaign.run("continue", "--steps", "1", "--json")
    assert done.returncode == 0, done.stderr
    experiment = campaign.ledger().experiments["E0003"]
    assert (experiment.verdict, len(experiment.runs), experiment.failures) == ("keep", 1, ())
    assert all((campaign.folder / run.evidence).exists() for run in experiment.runs)


def on_main(campaign: Campaign) -> None:
    campaign.git("checkout", "-q", "main")


def deleted(campaign: Campaign) -> None:
    on_main(campaign)
    campaign.git("branch", "-D", "optagent/kept")


def pruned(campaign: Campaign) -> None:
    deleted(campaign)
    campaign.git("reflog", "expire", "--expire=now", "--all")
    campaign.git("gc", "-q", "--prune=now")


def own_commit(campaign: Campaign) -> None:
    on_main(campaign)
    campaign.git("commit", "-q", "--allow-empty", "-m", "mine")


CHECKOUTS: list[tuple[str, Callable[[Campaign], object], str]] = [
    ("another branch", on_main, "which nobody recorded"),
    ("a commit of its owner", own_commit, "which nobody recorded"),
    ("detached", lambda c: c.git("checkout", "-q", "--detach", "main"), "which nobody recorded"),
    ("the branch deleted", deleted, "which nobody recorded"),
    ("a rebase under way", lambda c: (c.checkout / ".git" / "rebase-merge").mkdir(), "a rebase is in progress"),
    ("no checkout", lambda c: shutil.rmtree(c.checkout), "does not exist"),
]


@pytest.mark.parametrize(("damage", "says"), [c[1:] for c in CHECKOUTS], ids=[c[0] for c in CHECKOUTS])
def test_a_checkout_that_its_owner_changed_is_asked_about(
    campaign: Campaign, damage: Callable[[Campaign], object], says: str
) -> None:
    damage(campaign)
    told = json.loads(campaign.run("continue", "--dry-run", "--json").stdout)
    assert (told["decision"], told["reason"]) == ("ask", "unrecorded-work")
    assert says in told["because"]


def test_a_baseline_whose_commit_is_gone_ends_in_a_clear_stop(campaign: Campaign) -> None:
    pruned(campaign)
    assert campaign.run("continue", "--json").returncode == 3
    assert campaign.run("answer", "Q1", "set-aside").returncode == 0
    campaign.stopped(campaign.run("continue"), 1, "has no commit", "fetch it")
    assert len(campaign.ledger().experiments) == 2


def with_commit(campaign: Campaign) -> None:
    campaign.git("commit", "-q", "--allow-empty", "-m", "mine, on the branch of kept changes")


def rebased(campaign: Campaign) -> None:
    own_commit(campaign)
    campaign.git("checkout", "-q", "optagent/kept")
    campaign.git("rebase", "-q", "main")


@pytest.mark.parametrize("damage", [with_commit, rebased])
def test_what_its_owner_did_on_the_branch_of_kept_changes_is_set_aside(
    campaign: Campaign, damage: Callable[[Campaign], object]
) -> None:
    """Otherwise the next change that is kept would be merged with it, and nobody would have measured that."""
    kept = campaign.git("rev-parse", "optagent/kept")
    damage(campaign)
    mine = campaign.git("rev-parse", "optagent/kept")
    assert mine != kept
    sitting = campaign.start("continue", "--steps", "1")
    campaign.until(sitting, lambda ledger: any(b["tool"] == "launch" for b in ledger.pending.values()))
    sitting.terminate()
    sitting.communicate()
    assert campaign.git("rev-parse", "optagent/kept") == campaign.git("rev-parse", "HEAD") == kept
    assert campaign.git("rev-parse", f"optagent/saved/{mine[:12]}") == mine
    assert f"optagent/saved/{mine[:12]}" in campaign.ledger().restored[-1]["what"]


# Documents


def test_a_plan_that_its_owner_changed_in_the_middle_of_a_step_keeps_the_owners_word(tmp_path: Path) -> None:
    narrator = Told()
    plan = tmp_path / "plan.md"
    plan.write_text("# P\n\n## 1. One\n\n```yaml\nid: one\nstatus: open\nchange: {flags: {a: 1}}\n```\n")
    session = session_in(tmp_path, "plan.md", narrator)
    set_status(session, "one", Status.TRYING)
    assert load_plan(session).items[0].status is Status.TRYING
    plan.write_text(plan.read_text().replace("status: trying", "status: dropped"))
    set_status(session, "one", Status.KEPT, "+9%")
    assert load_plan(session).items[0].status is Status.DROPPED
    assert any("its owner's word stays" in line for line in narrator.lines)
    assert session.ledger.item_status["one"] is Status.KEPT, "the journal has what happened"
    assert session.ledger.plan_written["one"] is Status.TRYING, "and still knows that the plan was edited"


def test_a_status_is_written_where_the_owner_changed_nothing(tmp_path: Path) -> None:
    plan = tmp_path / "plan.md"
    plan.write_text("# P\n\n## 1. One\n\n```yaml\nid: one\nstatus: open\nchange: {flags: {a: 1}}\n```\n")
    session = session_in(tmp_path, "plan.md", Told())
    for status in (Status.TRYING, Status.PARKED, Status.TRYING, Status.DEAD):
        set_status(session, "one", status)
        assert load_plan(session).items[0].status is status


def test_a_handoff_of_our_own_that_was_not_noted_is_not_taken_over(campaign: Campaign, tmp_path: Path) -> None:
    """Killed between the file and its entry: what it tells is in the journal already."""
    name = max(path.name for path in (campaign.folder / "handoffs").glob("0*.md"))
    for begun, taken in ((True, False), (False, True)):
        session = session_in(campaign.folder, "plans/plan.md", Told())
        if begun:
            begun_with = {"path": f"handoffs/{name}"}
            session.note("intent", {"tool": "write_text", "request": begun_with}, "handoff:H0002:7")
        handoff = load_handoff(session, f"handoffs/{name}")
        assert handoff.id == "H0002"
        assert take_over(session, Orientation(load_plan(session), handoff, f"handoffs/{name}")) is taken
        assert (session.ledger.handoffs, session.ledger.taken_over) == ((["H0002"], []) if begun else ([], ["H0002"]))


def test_a_half_written_handoff_is_none(campaign: Campaign) -> None:
    latest = max((campaign.folder / "handoffs").glob("0*.md"))
    half = latest.read_text()[:700]
    (campaign.folder / "handoffs" / ".0003-2027-01-01.md.0a1b2c3d.part").write_text(half)
    assert campaign.run("handoff").stdout == campaign.run("handoff").stdout != ""
    assert json.loads(campaign.run("handoff", "--json").stdout)["handoff"] == f"handoffs/{latest.name}"
    (campaign.folder / "handoffs" / "0003-2027-01-01.md").write_text(half)
    campaign.stopped(campaign.run("continue"), 2, "handoffs/0003-2027-01-01.md", "cut off")


# What a machine runs out of


def test_limits_that_are_too_low_are_told_before_anything_begins(campaign: Campaign) -> None:
    before = campaign.kinds()
    campaign.stopped(campaign.run("continue", before=("prlimit", "--nofile=64:64")), 2, "ulimit -n: 64 open files")
    campaign.stopped(
        campaign.run("continue", before=("prlimit", "--fsize=300000")), 2, "ulimit -f: files may have 300000"
    )
    assert campaign.kinds() == before


def begun(tool: str) -> Callable[..., bool]:
    return lambda ledger: ledger.sitting == "S002" and any(b["tool"] == tool for b in ledger.pending.values())


@pytest.mark.parametrize(("tool", "limit"), [("launch", "--nofile=12"), ("launch", "--fsize=60000")])
def test_a_limit_that_is_reached_in_the_middle_is_no_result(campaign: Campaign, tool: str, limit: str) -> None:
    sitting = campaign.start("continue", "--steps", "1")
    campaign.until(sitting, begun(tool))
    subprocess.run(["prlimit", "--pid", str(sitting.pid), limit], check=True)
    out, err = sitting.communicate()
    campaign.stopped(subprocess.CompletedProcess([], sitting.returncode, out, err), 1, "mend that")
    experiment = campaign.ledger().experiments["E0003"]
    assert (experiment.verdict, experiment.failures) == ("", ())
    done = campaign.run("continue", "--steps", "1", "--json")
    assert done.returncode == 0, done.stderr
    assert campaign.ledger().experiments["E0003"].verdict == "keep"
    assert campaign.doctor()["servers"]["state"] == "ok"


@pytest.fixture
def small(campaign: Campaign, tmp_path: Path) -> Iterator[Campaign]:
    """The campaign on a file system of its own, which can be filled."""
    place = tmp_path / "small"
    place.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=90m", "tmpfs", str(place)], capture_output=True, check=False
    )
    if made.returncode:
        pytest.skip("nothing may be mounted here")
    try:
        shutil.copytree(campaign.folder, place / "campaign", symlinks=True)
        yield type(campaign)(place / "campaign", campaign.port)
    finally:
        subprocess.run(["umount", "-l", str(place)], check=False)


def fill(folder: Path) -> Path:
    """Take all the room that there is where the folder lies."""
    file = folder.parent / "filling"
    with contextlib.suppress(OSError), file.open("wb", buffering=0) as out:
        while out.write(bytes(65536)):
            pass
    return file


def test_a_full_disk_in_the_middle_is_no_result(small: Campaign) -> None:
    sitting = small.start("continue", "--steps", "1")
    small.until(sitting, begun("launch"))
    filling = fill(small.folder)
    out, err = sitting.communicate()
    small.stopped(subprocess.CompletedProcess([], sitting.returncode, out, err), 1, "no space left", "mend that")
    assert small.ledger().experiments["E0003"].failures == ()
    assert small.run("status").returncode == 0
    assert small.doctor()["disk"]["state"] == "problem"
    small.stopped(small.run("continue"), 2, "make room")
    filling.unlink()
    assert small.run("continue", "--steps", "1", "--json").returncode == 0
    assert small.ledger().experiments["E0003"].verdict == "keep"


def test_a_disk_that_can_only_be_read(campaign: Campaign) -> None:
    made = f"mount --bind {campaign.folder} {campaign.folder} && mount -o remount,ro,bind {campaign.folder}"
    if subprocess.run(["unshare", "-m", "sh", "-c", made], capture_output=True, check=False).returncode:
        pytest.skip("nothing may be mounted here")
    for words, status in (
        ("continue", 2),
        ("handoff --write", 2),
        ("status", 0),
        ("doctor", 1),
        ("continue --dry-run", 0),
    ):
        run = f"{made} && exec {sys.executable} -m optagent -C {campaign.folder} {words}"
        done = subprocess.run(
            ["unshare", "-m", "sh", "-c", run], env=campaign.variables, capture_output=True, text=True, check=False
        )
        assert (done.returncode, "Traceback" in done.stderr) == (status, False), (words, done.stderr)
        if status == 2:
            campaign.stopped(done, 2, "not writable")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EMFILE, errno.ENFILE])
def test_what_a_machine_runs_out_of_is_not_the_fault_of_what_was_tried(number: int) -> None:
    with pytest.raises(MachineExhausted, match=r"^/a/log: .*; mend that, then `optagent continue` goes on$"):
        stop_if_exhausted(OSError(number, os.strerror(number), "/a/log"))


def test_other_errors_are_left_alone(tmp_path: Path) -> None:
    for error in (FileNotFoundError(errno.ENOENT, "no"), PermissionError(errno.EACCES, "no"), ValueError("no space")):
        stop_if_exhausted(error)
    stop_if_told("CUDA error: out of memory", "git")
    with pytest.raises(MachineExhausted):
        stop_if_told("fatal: write error: No space left on device", "git")
    (tmp_path / "log").write_text("x")
    stop_if_full(tmp_path / "log")


def test_a_mark_that_cannot_be_written_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    (tmp_path / "journal.db.seq").mkdir()
    with JournalStore.open(path, create=True) as store:
        assert store.append("step", {}).seq == 1
    with JournalStore.open(path, create=False) as store:
        assert store.last_seq() == 1
