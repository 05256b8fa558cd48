"""The command line as its users meet it: real processes, real folders, a real socket in the way, a real kill -9."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import psutil
import pytest

from optagent.agent.config import CampaignConfig, Gate
from optagent.agent.ledger import Ledger, fold
from optagent.tools.deployment import Timeouts
from optagent.tools.journal_store import JournalStore
from optagent.tools.recording_history import CURRENT

ROOT = Path(__file__).parents[1]
PLAN = "plans/eagle-fast-verify.md"
HANDOFF = "handoffs/0001-2026-03-13.md"
WAIT_S = 60


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass(frozen=True)
class Campaign:
    """A campaign folder with a port of its own. Its calibration is short: two launches tell enough for these tests."""

    folder: Path
    port: int

    @property
    def variables(self) -> dict[str, str]:
        mine = {"OPTAGENT_DEPLOYMENT__PORT": str(self.port), "OPTAGENT_MEASURING__CALIBRATION_LAUNCHES": "2"}
        return {k: v for k, v in os.environ.items() if not k.startswith("OPTAGENT_")} | mine

    def command(self, *words: str | Path) -> list[str]:
        return [sys.executable, "-m", "optagent", "-C", str(self.folder), *map(str, words)]

    def run(self, *words: str | Path, before: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*before, *self.command(*words)], env=self.variables, capture_output=True, text=True, timeout=5 * WAIT_S, check=False
        )  # fmt: skip

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self.command(*words), env=self.variables, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def edit(self, name: str, old: str, new: str) -> None:
        text = (self.folder / name).read_text()
        assert old in text
        (self.folder / name).write_text(text.replace(old, new, 1))

    def line(self, name: str, text: str) -> int:
        return next(n for n, line in enumerate((self.folder / name).read_text().splitlines(), 1) if text in line)

    @property
    def journal(self) -> Path:
        return self.folder / ".optagent" / "journal.db"

    def ledger(self) -> Ledger:
        with JournalStore.open(self.journal, create=False, read_only=True) as store:
            return fold(store.entries())

    def note(self, kind: str, body: dict[str, Any], key: str | None = None) -> None:
        self.journal.parent.mkdir(exist_ok=True)
        with JournalStore.open(self.journal, create=True) as store:
            store.append(kind, body, key)

    def servers(self) -> list[int]:
        """Processes that still run with this campaign's port or folder in their command line."""
        found = []
        for process in psutil.process_iter(["pid", "cmdline"]):
            words = process.info["cmdline"] or []
            if "optagent.tools.simulator" in " ".join(words) and str(self.port) in words:
                found.append(int(process.info["pid"]))
        return found


def copied(folder: Path) -> Campaign:
    folder.mkdir(exist_ok=True)
    shutil.copy(ROOT / "optagent.toml", folder)
    for part in ("plans", "handoffs"):
        shutil.copytree(ROOT / part, folder / part)
    return Campaign(folder, free_port())


@pytest.fixture
def campaign(tmp_path: Path) -> Campaign:
    """The reference campaign, as it lies in the repository."""
    return copied(tmp_path / "campaign")


@dataclass(frozen=True)
class Recorded:
    """A campaign after one recorded step."""

    campaign: Campaign
    recording: Path
    said: dict[str, Any]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """To be read only: several tests look at it."""
    folder = tmp_path_factory.mktemp("recorded")
    campaign = copied(folder / "campaign")
    done = campaign.run("continue", "--steps", "1", "--json", "--record", folder / "session.jsonl")
    assert done.returncode == 0, done.stderr
    return Recorded(campaign, folder / "session.jsonl", json.loads(done.stdout))


def snapshot(folder: Path) -> dict[str, str]:
    """Every file and folder below, with a hash of what it holds; but for what SQLite keeps beside a database that is
    read."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "folder"
        for path in folder.rglob("*")
        if not path.name.endswith((".db-shm", ".db-wal"))
    }


def refuse(campaign: Campaign, *words: str | Path, status: int = 2, before: tuple[str, ...] = ()) -> str:
    """Run a command that must end with one line on stderr and change nothing; returns the line."""
    untouched = snapshot(campaign.folder)
    done = campaign.run(*words, before=before)
    assert done.returncode == status, (done.stdout, done.stderr)
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith("optagent: ")
    assert snapshot(campaign.folder) == untouched
    return done.stderr.removeprefix("optagent: ").strip()


# Bad input: one line that says where and what, exit status 2, nothing changed


@pytest.mark.parametrize(
    "words",
    [("continue",), ("status",), ("plan",), ("answer", "Q1", "approve"), ("handoff",), ("handoff", "--write")],
    ids=" ".join,
)
def test_where_there_is_no_campaign(tmp_path: Path, words: tuple[str, ...]) -> None:
    told = refuse(Campaign(tmp_path, 1), *words)
    assert told.startswith(f"{tmp_path / 'optagent.toml'}: no campaign here")


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("[objective]", "[objective", "{line}: not valid TOML"),
        ("min_effect = 0.02", "min_effects = 0.02", "{line}: objective.min_effects: unknown key"),
        ("num_prompts = 10", "num_prompts = 'ten'", "{line}: workload.num_prompts: "),
        ("sentinel_launches = 2", "sentinel_launches = 0", "{line}: measuring.sentinel_launches: "),
    ],
)
def test_a_configuration_that_is_wrong(campaign: Campaign, old: str, new: str, says: str) -> None:
    campaign.edit("optagent.toml", old, new)
    expected = f"optagent.toml:{says.format(line=campaign.line('optagent.toml', new))}"
    for words in (("continue",), ("plan",)):
        assert refuse(campaign, *words).startswith(expected)


def test_a_plan_that_is_not_there(campaign: Campaign) -> None:
    (campaign.folder / PLAN).unlink()
    assert refuse(campaign, "continue").startswith(f"{PLAN}: ")
    assert PLAN in refuse(campaign, "plan")
    assert PLAN in refuse(campaign, "status")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("id: eagle3", "idd: eagle3"),
        ("    speculative-num-steps: 3", "    speculative-num-steps: [3"),
        ("expected_gain: 20..35 %", "expected_gain: a lot"),
    ],
    ids=["unknown-key", "bad-yaml", "wrong-value"],
)
def test_a_plan_that_is_malformed(campaign: Campaign, old: str, new: str) -> None:
    campaign.edit(PLAN, old, new)
    told = refuse(campaign, "continue")
    place = re.match(rf"{PLAN}:(\d+): ", told)
    assert place, told
    assert abs(int(place[1]) - campaign.line(PLAN, new.strip())) <= 1
    checked = campaign.run("plan", "--check")
    assert checked.returncode == 2
    assert f"{PLAN}:{place[1]}: " in checked.stdout


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda text: text[:900], "the front matter is cut off"),
        (lambda text: text.replace("optagent-handoff/1", "optagent-handoff/9"), "this handoff is of format optagent-handoff/9"),
    ],
    ids=["truncated", "newer"],
)  # fmt: skip
@pytest.mark.parametrize("words", [("continue",), ("handoff",), ("handoff", "--write")], ids=" ".join)
def test_a_handoff_that_is_malformed(
    campaign: Campaign, spoil: Callable[[str], str], says: str, words: tuple[str, ...]
) -> None:
    path = campaign.folder / HANDOFF
    path.write_text(spoil(path.read_text()))
    told = refuse(campaign, *words)
    assert re.match(rf"{HANDOFF}:\d+: {says}", told), told


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, ": cannot be read: No such file"),
        ("", ":1: not a recording of a session"),
        ("{}\n", ":1: not a recording of a session"),
        ("once upon a time\n", ":1: not a JSON object"),
        ('{"optagent_recording": 99, "config": {"name": "x"}}\n', ":1: recording version 99"),
        ('{"config": {"name": "x", "budget": {"steps": 0}}}\n', ":1: config.budget.steps: "),
        ('{"config": {"name": "x"}, "journal": [{"kind": "verdict", "body": {}}]}\n', ":1: entry 1 of `journal` (verdict)"),
        ('{"config": {"name": "x"}, "started": 3}\n', ":1: `started` must be an object"),
        ('{"config": {"name": "x"}}\n{"tool": "dance"}\n', ":2: `tool` must be one of"),
        ('{"config": {"name": "x"}}\n{"tool": "clock", "request": {}, "result": {"now": 1}}\n', ":2: result of clock, now"),
    ],
    ids=["missing", "empty", "no-config", "prose", "newer", "wrong-config", "wrong-journal", "started", "tool", "result"],
)  # fmt: skip
def test_a_recording_that_is_none(tmp_path: Path, content: str | None, says: str) -> None:
    path = tmp_path / "session.jsonl"
    if content is not None:
        path.write_text(content)
    assert refuse(Campaign(tmp_path, 1), "replay", path).startswith(f"{path}{says}")


def test_a_recording_is_a_new_file(campaign: Campaign) -> None:
    taken = campaign.folder / "session.jsonl"
    taken.write_text("precious")
    assert refuse(campaign, "continue", "--record", taken).startswith(f"{taken}: this file exists already")
    assert "is not a folder" in refuse(campaign, "continue", "--record", taken / "session.jsonl")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("continue", "--stub", "script.jsonl"), "--stub: "),
        (("continue", "--dry-run", "--record", "session.jsonl"), "--record: "),
        (("handoff", "--write", "--check"), "--write --check: "),
        (("handoff", "--full", "--check"), "--check --full: "),
        (("handoff", HANDOFF, "--write"), HANDOFF),
        (("continue", "--dry-run", "--stub", "nowhere.jsonl"), "nowhere.jsonl: cannot be read"),
        (("plan", "nowhere.md"), "nowhere.md: this plan cannot be read"),
    ],
)
def test_options_that_do_not_go_together_or_lead_nowhere(campaign: Campaign, words: tuple[str, ...], says: str) -> None:
    assert refuse(campaign, *words).startswith(says)


@pytest.mark.parametrize("words", [("continue", "--steps", "0"), ("continue", "--fast"), ("dance",), ("answer", "Q1")])
def test_words_that_are_no_command(campaign: Campaign, words: tuple[str, ...]) -> None:
    untouched = snapshot(campaign.folder)
    done = campaign.run(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr
    assert snapshot(campaign.folder) == untouched


def test_questions_that_are_not_open(campaign: Campaign) -> None:
    assert refuse(campaign, "answer", "Q1", "approve") == "Q1: there is no such question; open: none"
    question = {"id": "Q1", "reason": "needs-approval", "text": "May I?", "why": "yours", "item": "cuda-13"}
    campaign.note("question", question, "Q1")
    assert refuse(campaign, "answer", "Q7", "approve") == "Q7: there is no such question; open: Q1"
    assert refuse(campaign, "answer", "Q1", " ").startswith("Q1: an answer is 1 to ")
    assert campaign.run("answer", "Q1", "approve").returncode == 0
    assert refuse(campaign, "answer", "Q1", "decline") == "Q1: was answered already (approve); open: none"
    assert campaign.ledger().questions["Q1"].answer == "approve"


def newer(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE other (x)")
        connection.execute("PRAGMA user_version = 99")


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (newer, "has journal version 99"),
        (lambda path: path.write_bytes(b"not a database at all " * 50), "is damaged or not a journal"),
    ],
    ids=["newer", "corrupt"],
)
@pytest.mark.parametrize(
    "words", [("continue",), ("status",), ("answer", "Q1", "approve"), ("handoff", "--write")], ids=" ".join
)
def test_a_journal_that_cannot_be_used(
    campaign: Campaign, spoil: Callable[[Path], object], says: str, words: tuple[str, ...]
) -> None:
    campaign.journal.parent.mkdir()
    spoil(campaign.journal)
    assert refuse(campaign, *words).startswith(f"{campaign.journal} {says}")


def test_a_journal_that_is_just_being_made_is_an_empty_one(campaign: Campaign) -> None:
    campaign.journal.parent.mkdir()
    with contextlib.closing(sqlite3.connect(campaign.journal)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
    assert campaign.journal.stat().st_size > 0
    assert json.loads(campaign.run("status", "--json").stdout)["experiments"] == 0


def test_a_file_where_the_state_should_be(campaign: Campaign) -> None:
    (campaign.folder / ".optagent").write_text("")
    assert "Not a directory" in refuse(campaign, "continue")


def as_anybody() -> tuple[str, ...]:
    """What makes permissions count for the tests' own user too; they do not for root."""
    if os.geteuid() != 0:
        return ()
    if shutil.which("setpriv") is None:
        pytest.skip("root, and no setpriv to give up root's way past permissions")
    return ("setpriv", "--bounding-set=-dac_override,-dac_read_search")


@pytest.mark.parametrize("part", [".", ".optagent"])
def test_a_folder_that_is_not_writable(campaign: Campaign, part: str) -> None:
    folder = campaign.folder / part
    folder.mkdir(exist_ok=True)
    folder.chmod(0o555)
    try:
        told = refuse(campaign, "continue", before=as_anybody())
        assert told.startswith(f"{folder.resolve()}: this folder is not writable")
        assert campaign.run("status", before=as_anybody()).returncode == 0
    finally:
        folder.chmod(0o755)


# Somebody else is there

HOLD = """
import sys
from pathlib import Path
from optagent.tools.lock import hold
with hold(Path(sys.argv[1]), "a test"):
    print("held", flush=True)
    sys.stdin.read()
"""


@contextlib.contextmanager
def held(campaign: Campaign) -> Iterator[int]:
    """Another process at work on the campaign; gives its pid."""
    lock = campaign.folder / ".optagent" / "lock"
    command = [sys.executable, "-c", HOLD, str(lock)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        yield other.pid
        other.communicate("")


def test_a_campaign_that_another_process_holds(campaign: Campaign) -> None:
    question = {"id": "Q1", "reason": "needs-approval", "text": "May I?", "why": "yours"}
    campaign.note("question", question, "Q1")
    with held(campaign) as pid:
        for words in (("continue", "--steps", "1"), ("answer", "Q1", "approve")):
            assert f"pid {pid} on " in refuse(campaign, *words, status=4)
        assert f"pid {pid} on " in campaign.run("status").stdout
    assert campaign.run("answer", "Q1", "approve").returncode == 0


@contextlib.contextmanager
def listening(port: int) -> Iterator[None]:
    """A server of somebody else: this process."""
    with ThreadingHTTPServer(("127.0.0.1", port), BaseHTTPRequestHandler) as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()


def test_a_foreign_server_on_the_port_is_asked_about_and_left_alone(campaign: Campaign) -> None:
    with listening(campaign.port):
        checkout = campaign.folder / ".optagent" / "simulation" / "checkout"
        done = campaign.run("continue", "--json")
        assert done.returncode == 3, done.stderr
        said = json.loads(done.stdout)
        assert (said["decision"], said["reason"], said["steps"]) == ("ask", "foreign-server", 0)
        [question] = said["questions"]
        assert f"pid {os.getpid()}" in question["facts"][0]
        ledger = campaign.ledger()
        assert (ledger.experiments, ledger.processes, ledger.restored) == ({}, {}, [])
        assert not (campaign.folder / ".optagent" / "logs").exists()
        dirty = subprocess.run(["git", "-C", checkout, "status", "--short"], capture_output=True, text=True, check=True)
        assert "communicator.py" in dirty.stdout  # nothing was put back under somebody's server
        assert campaign.servers() == []
        again = campaign.run("continue", "--json")
        assert again.returncode == 3
        assert [q["id"] for q in json.loads(again.stdout)["questions"]] == ["Q1"]  # asked once
        socket.create_connection(("127.0.0.1", campaign.port), timeout=WAIT_S).close()  # it still listens


# Looking


def test_status_fits_a_screen(campaign: Campaign, recorded: Recorded) -> None:
    for each in (campaign, recorded.campaign):
        lines = each.run("status").stdout.splitlines()
        assert max(len(line.replace(str(each.folder), "DIR")) for line in lines) <= 80, "but for the folder's own name"
        assert len(lines) <= 40
        assert any("simulated" in line for line in lines)


def test_looking_changes_nothing(campaign: Campaign) -> None:
    untouched = snapshot(campaign.folder)
    for words in (
        ("status",),
        ("status", "--json"),
        ("plan",),
        ("plan", "--check"),
        ("handoff",),
        ("handoff", "--json"),
    ):
        assert campaign.run(*words).returncode == 0
    assert snapshot(campaign.folder) == untouched


def test_a_dry_run_decides_and_does_nothing(campaign: Campaign) -> None:
    campaign.run("continue", "--dry-run")  # lays the simulated machine out
    untouched = snapshot(campaign.folder)
    done = campaign.run("continue", "--dry-run", "--json")
    assert done.returncode == 0
    said = json.loads(done.stdout)
    assert (said["decision"], said["step"]["kind"]) == ("continue", "baseline")
    assert {i["id"]: i["standing"] for i in said["items"]}["cuda-13"] == "waiting"
    assert snapshot(campaign.folder) == untouched


def test_what_scripts_get_is_json(recorded: Recorded) -> None:
    campaign = recorded.campaign
    for words in (
        ("status",),
        ("plan",),
        ("plan", "--check"),
        ("handoff",),
        ("handoff", "--check"),
        ("continue", "--dry-run"),
    ):
        done = campaign.run(*words, "--json")
        assert isinstance(json.loads(done.stdout), dict), words
        assert done.stderr == ""


def test_what_to_type_next_names_the_folder(campaign: Campaign) -> None:
    optagent = f"optagent -C {campaign.folder}"
    assert campaign.run("status").stdout.endswith(f"nothing has been done yet: {optagent} continue\n")
    question = {"id": "Q1", "reason": "needs-approval", "text": "May I?", "why": "yours", "options": OPTIONS}
    campaign.note("question", question, "Q1")
    assert f"     {optagent} answer Q1 approve|decline\n" in campaign.run("status").stdout
    assert campaign.run("answer", "q1", "approve").stdout.endswith(f"Next: {optagent} continue\n")
    assert campaign.ledger().questions["Q1"].answer == "approve"


def test_before_the_first_step_has_ended(campaign: Campaign) -> None:
    campaign.note("sitting", {"id": "S001"})
    go_on = f"no step has ended yet; go on with: optagent -C {campaign.folder} continue\n"
    assert campaign.run("status").stdout.endswith(go_on)
    with held(campaign):
        assert campaign.run("status").stdout.endswith("no step has ended yet\n")


def test_a_dry_run_beside_a_sitting_says_who_is_at_work(campaign: Campaign) -> None:
    assert json.loads(campaign.run("continue", "--dry-run", "--json").stdout)["at_work"] is None
    with held(campaign) as pid:
        done = campaign.run("continue", "--dry-run")
        assert done.returncode == 0
        first, _, decision, *_ = done.stdout.splitlines()
        assert first.startswith(f"pid {pid} on ")
        assert first.endswith(" is at work on this campaign. As it would be decided if that ended now:")
        assert decision.startswith("continue: baseline")
        said = json.loads(campaign.run("continue", "--dry-run", "--json").stdout)
        assert said["at_work"].startswith(f"pid {pid} on ")
        assert said["decision"] == "continue"


@pytest.mark.parametrize("words", [("status",), ("continue", "--dry-run")], ids=" ".join)
def test_a_variable_that_is_wrong(campaign: Campaign, words: tuple[str, ...]) -> None:
    wrong = replace(campaign, port=65_536)
    assert refuse(wrong, *words).startswith(
        "OPTAGENT_DEPLOYMENT__PORT: deployment.port: input should be less than or equal to 65535"
    )


def test_a_plan_that_is_a_folder_is_named_once(campaign: Campaign) -> None:
    (campaign.folder / PLAN).unlink()
    (campaign.folder / PLAN).mkdir()
    assert refuse(campaign, "continue") == f"{PLAN}: Is a directory"


def test_checking_the_plan(campaign: Campaign) -> None:
    checked = campaign.run("plan", "--check")
    assert (checked.returncode, checked.stdout) == (0, f"{campaign.folder / PLAN}: 9 items, nothing wrong\n")
    assert campaign.run("plan", "--check", campaign.folder / PLAN).returncode == 0


# Handoffs


def test_the_first_handoff_has_a_claim_that_does_not_hold(campaign: Campaign) -> None:
    done = campaign.run("handoff", "--check", "--json")
    assert done.returncode == 1
    outcomes = {c["id"]: c["outcome"] for c in json.loads(done.stdout)["claims"]}
    assert outcomes["C7"] == "does not hold"
    assert outcomes["C9"] == "cannot be checked"


def test_a_handoff_of_ours_holds(recorded: Recorded) -> None:
    done = recorded.campaign.run("handoff", "--check")
    assert done.returncode == 0, done.stdout
    assert "does not hold" not in done.stdout


def checked(campaign: Campaign, *words: str) -> dict[str, Any]:
    done = campaign.run("handoff", *words, "--check", "--json")
    assert done.returncode in (0, 1), done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def test_a_check_fits_a_screen_shows_its_evidence_and_changes_nothing(recorded: Recorded) -> None:
    untouched = snapshot(recorded.campaign.folder)
    done = recorded.campaign.run("handoff", "--check")
    rows = {(row["kind"], row["id"]): row for row in checked(recorded.campaign)["claims"]}
    assert snapshot(recorded.campaign.folder) == untouched
    assert max(map(len, done.stdout.splitlines())) <= 80
    head = r"handoffs/0002-[\d-]+\.md: \d+ claims: \d+ hold, 0 do not, \d+ cannot be checked"
    assert re.match(head, " ".join(done.stdout.split()))
    assert rows["version", "C2"]["evidence"] == ["packages of environment cu128"]
    assert rows["dead-end", "allreduce-fusion"]["because"] == "it still waits: cuda is 12.8"
    results = [row["outcome"] for (kind, _), row in rows.items() if kind == "result"]
    assert set(results) == {"holds"}


def test_an_old_handoff_says_what_took_its_place(recorded: Recorded) -> None:
    latest = checked(recorded.campaign)
    old = checked(recorded.campaign, str(recorded.campaign.folder / HANDOFF))
    assert (latest["superseded_by"], latest["notes"]) == (None, [])
    assert (old["handoff"], old["superseded_by"]) == (HANDOFF, latest["handoff"])
    shown = recorded.campaign.run("handoff", HANDOFF)
    assert shown.stdout.startswith("---\nformat: optagent-handoff/1\nid: H0001\n")
    assert " ".join(shown.stderr.split()) == f"{HANDOFF} is superseded by {latest['handoff']}"


def test_all_that_a_handoff_leaves_out_can_be_shown(recorded: Recorded) -> None:
    untouched = snapshot(recorded.campaign.folder)
    full = json.loads(recorded.campaign.run("handoff", "--full", "--json").stdout)["content"]
    assert {d["id"] for d in full["dead_ends"]} == set(recorded.campaign.ledger().dead_ends)
    assert snapshot(recorded.campaign.folder) == untouched


def test_an_edited_handoff_and_one_of_the_same_number_are_noticed(campaign: Campaign) -> None:
    path = json.loads(campaign.run("handoff", "--write", "--json").stdout)["handoff"]
    assert checked(campaign)["notes"] == []
    campaign.edit(path, "cuda is 12.8", "cuda is 12.9")
    twin = path.replace(".md", "-b.md")
    shutil.copy(campaign.folder / path, campaign.folder / twin)
    told = checked(campaign)
    assert told["handoff"] == twin
    assert [note.partition(";")[0] for note in told["notes"]] == [
        "it was edited after it was written", f"{Path(path).name} has the same number"
    ]  # fmt: skip


def test_a_handoff_of_anybody_can_be_checked(campaign: Campaign, tmp_path: Path) -> None:
    notes = tmp_path / "notes.md"
    notes.write_text("# Notes\n\n## Current state\n\n- CUDA 12.8\n- CUDA 11.8\n- weights in /data/none/here\n")
    told = checked(campaign, str(notes))
    assert [(row["kind"], row["outcome"]) for row in told["claims"]] == [
        ("version", "holds"), ("version", "does not hold"), ("path", "does not hold")
    ]  # fmt: skip
    assert [lost["what"] for lost in told["not_carried_over"]] == ["cuda", "path"]
    assert refuse(campaign, "handoff", tmp_path / "none.md", "--check").endswith("No such file or directory")


@pytest.mark.parametrize("text", ["", "---\nformat: optagent-hand", "---\nformat: optagent-handoff/1\nid: H0002\n"])
def test_a_half_written_handoff_is_refused(campaign: Campaign, text: str) -> None:
    (campaign.folder / "handoffs" / "0002-2026-04-01.md").write_text(text)
    for words in (("continue",), ("handoff", "--check")):
        assert refuse(campaign, *words).startswith("handoffs/0002-2026-04-01.md:")


def test_a_handoff_can_be_written_before_anything_was_done(campaign: Campaign) -> None:
    written = campaign.run("handoff", "--write", "--json")
    assert written.returncode == 0
    path = json.loads(written.stdout)["handoff"]
    text = (campaign.folder / path).read_text()
    assert "supersedes: handoffs/0001-2026-03-13.md" in text
    assert "experiment: X7" in text  # what nobody has looked into is not forgotten
    assert (campaign.folder / HANDOFF).exists()
    looked = json.loads(campaign.run("continue", "--dry-run", "--json").stdout)
    assert {i["id"]: i["standing"] for i in looked["items"]}["allreduce-fusion"] == "dead"  # diagnosed from its log


# A sitting


def test_a_sitting_of_one_step(recorded: Recorded) -> None:
    assert (recorded.said["exit_status"], recorded.said["steps"]) == (0, 1)
    ledger = recorded.campaign.ledger()
    [experiment] = ledger.experiments.values()
    assert (experiment.kind, experiment.verdict, len(experiment.runs)) == ("baseline", "keep", 4), "two in each launch"
    assert "allreduce-fusion" in ledger.dead_ends
    assert ledger.in_flight == []
    assert len(ledger.handoffs) == 1
    assert recorded.campaign.servers() == []


def test_a_recorded_sitting_replays_as_it_was(recorded: Recorded) -> None:
    done = recorded.campaign.run("replay", recorded.recording, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "identical": True, "complete": True, "renamed": 0,
        "calls": len(recorded.recording.read_text().splitlines()) - 2,
        "decision": recorded.said["decision"], "steps": 1,
        "format": CURRENT, "cut": None, "notes": [],
    }  # fmt: skip


def test_an_altered_recording_is_told_by_the_call_that_differs(recorded: Recorded, tmp_path: Path) -> None:
    lines = [json.loads(line) for line in recorded.recording.read_text().splitlines()]
    number = next(n for n, line in enumerate(lines) if line.get("tool") == "bench")
    lines[number]["result"]["metrics"]["output_throughput"] = 40.0
    altered = tmp_path / "altered.jsonl"
    altered.write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = recorded.campaign.run("replay", altered)
    assert done.returncode == 1
    place = re.match(r"optagent: call (\d+) \(line (\d+)\), after step 1, in \w+: (\w+) was asked", done.stderr)
    assert place, done.stderr
    assert int(place[2]) > number + 1


def test_a_recording_that_was_cut_off_replays_as_far_as_it_goes(recorded: Recorded, tmp_path: Path) -> None:
    lines = recorded.recording.read_text().splitlines(keepends=True)
    cut = tmp_path / "cut.jsonl"
    cut.write_text("".join(lines[:20]))
    done = recorded.campaign.run("replay", cut)
    assert done.returncode == 0, done.stderr
    assert "identical as far as it goes: 19 tool calls" in done.stdout
    assert "the recording ends there" in done.stdout


def wait_until(sitting: subprocess.Popen[bytes], reached: Callable[[], bool]) -> None:
    """Look again and again until it is so, or the sitting ended without it."""
    while not reached():
        with contextlib.suppress(subprocess.TimeoutExpired):
            sitting.wait(0.02)
            pytest.fail("the sitting ended before it could be killed")


def pending(campaign: Campaign, tool: str) -> bool:
    return campaign.journal.exists() and any(b["tool"] == tool for b in campaign.ledger().pending.values())


def finished(ledger: Ledger) -> list[str]:
    """The launches that were measured."""
    runs = [f"{e.id}-{r.arm}-{r.pair}" for e in ledger.experiments.values() for r in e.runs if r.valid]
    return list(dict.fromkeys(runs))


@pytest.mark.parametrize("tool", ["launch", "bench"])
def test_a_sitting_that_is_killed_is_gone_on_with(campaign: Campaign, tool: str) -> None:
    sitting = campaign.start("continue", "--steps", "1")
    try:
        wait_until(sitting, lambda: campaign.journal.exists() and len(finished(campaign.ledger())) == 1)
        wait_until(sitting, lambda: pending(campaign, tool))
    finally:
        sitting.send_signal(signal.SIGKILL)
        sitting.wait()
    before = campaign.ledger()
    assert len(finished(before)) == 1
    done = campaign.run("continue", "--steps", "1", "--json")
    assert done.returncode == 0, done.stderr
    ledger = campaign.ledger()
    [experiment] = ledger.experiments.values()
    assert (experiment.verdict, experiment.sitting) == ("keep", "S001")
    assert finished(ledger) == ["E0001-baseline-1", "E0001-baseline-2"]
    assert experiment.runs[0] == next(iter(before.experiments.values())).runs[0]
    assert ledger.processes == {}
    assert campaign.servers() == []
    with socket.socket() as port:
        port.bind(("127.0.0.1", campaign.port))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_sitting_that_is_asked_to_end_leaves_no_server(campaign: Campaign, number: signal.Signals) -> None:
    sitting = campaign.start("continue", "--steps", "1")
    try:
        wait_until(sitting, lambda: campaign.journal.exists() and len(finished(campaign.ledger())) == 1)
        wait_until(sitting, lambda: pending(campaign, "bench"))
    finally:
        sitting.send_signal(number)
        status = sitting.wait()
    assert status == 130
    assert campaign.servers() == []
    assert campaign.ledger().processes == {}


def test_results_of_an_earlier_journal_never_pass_for_new_ones(campaign: Campaign) -> None:
    assert campaign.run("continue", "--steps", "1", "--json").returncode == 0
    runs = campaign.folder / ".optagent" / "runs"
    before = {p.name for p in runs.iterdir()}
    for path in (campaign.folder / ".optagent").glob("journal.db*"):
        path.unlink()
    time.sleep(1.1)  # the time of a journal's first entry tells it from another, in seconds
    assert campaign.run("continue", "--steps", "1", "--json").returncode == 0
    after = {p.name for p in runs.iterdir()}
    assert len(after) == 2 * len(before), "everything was measured again"


def test_damaged_checkpoints_are_made_anew(campaign: Campaign) -> None:
    assert campaign.run("continue", "--steps", "1", "--json").returncode == 0
    checkpoints = campaign.folder / ".optagent" / "checkpoints.db"
    checkpoints.write_bytes(b"not a database at all" * 100)
    done = campaign.run("continue", "--steps", "1", "--json")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("typed", "says"),
    [("aprove", "; did you mean approve?"), ("yes", "'yes' is none of the options: approve, decline (")],
)
def test_a_slip_of_the_keyboard_is_no_answer(campaign: Campaign, typed: str, says: str) -> None:
    campaign.note(
        "question", {"id": "Q1", "reason": "needs-approval", "text": "May I?", "why": "yours", "options": OPTIONS}
    )
    assert says in refuse(campaign, "answer", "Q1", typed)
    done = campaign.run("answer", "Q1", "Approve")
    assert (done.returncode, campaign.ledger().questions["Q1"].answer) == (0, "approve")


OPTIONS = [{"key": "approve", "leads_to": "on"}, {"key": "decline", "leads_to": "off"}]


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (
            "patch: changes/pcie-all-reduce.diff",
            "patch: changes/nowhere.diff",
            "its patch changes/nowhere.diff is not there",
        ),
        ("environment: cu13", "environment: cu14", "environment cu14 is not among"),
        ("speculative-attention-mode: decode", "port: 1", "--port is set by the deployment"),
    ],
)
def test_a_plan_that_refers_to_what_is_not_there(campaign: Campaign, old: str, new: str, says: str) -> None:
    plan = "plans/eagle-fast-verify.md"
    campaign.edit(plan, old, new)
    assert says in refuse(campaign, "continue")
    checked = campaign.run("plan", "--check")
    assert (checked.returncode, says in checked.stdout) == (2, True)


# A campaign of one's own


def test_a_new_campaign_runs(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path / "mine", free_port())
    made = Campaign(tmp_path, campaign.port).run("init", campaign.folder)
    assert made.returncode == 0, made.stderr
    assert f"optagent -C {campaign.folder} continue --dry-run" in made.stdout
    assert refuse(campaign, "init", campaign.folder).startswith(f"{campaign.folder / 'optagent.toml'}: exists already")
    assert campaign.run("plan", "--check").returncode == 0
    assert refuse(campaign, "handoff").startswith("handoffs: there is no handoff yet")
    look = campaign.run("continue", "--dry-run", "--json")
    assert (look.returncode, json.loads(look.stdout)["decision"]) == (0, "continue")
    done = campaign.run("continue", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["reason"] == "plan-finished"
    lines = campaign.run("status").stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert len(lines) <= 24
    assert campaign.servers() == []


def test_init_makes_nothing_where_it_cannot(tmp_path: Path) -> None:
    here = Campaign(tmp_path, 1)
    (tmp_path / "file").write_text("")
    assert refuse(here, "init", tmp_path / "file").startswith(f"{tmp_path / 'file'}: ")
    (tmp_path / "half" / "plans").mkdir(parents=True)
    (tmp_path / "half" / "plans" / "plan.md").write_text("mine")
    assert "exists already" in refuse(here, "init", tmp_path / "half")
    assert refuse(here, "init", tmp_path / "new", "--name", "no spaces").startswith("--name: ")


def test_init_needs_a_name_and_minds_the_folder(tmp_path: Path) -> None:
    here = Campaign(tmp_path, 1)
    assert refuse(here, "init", "") == "DIR: expected the name of a folder, or . for this one"
    assert here.run("init", "new").returncode == 0
    assert (tmp_path / "new" / "optagent.toml").exists()


def test_what_a_new_configuration_shows_as_a_comment_is_the_default(tmp_path: Path) -> None:
    assert Campaign(tmp_path, 1).run("init", "new").returncode == 0
    text = (tmp_path / "new" / "optagent.toml").read_text()
    shown = tomllib.loads(re.sub(r"(?m)^# (?=\[|[a-z0-9_]+ = )", "", text))
    config = CampaignConfig.model_validate(shown)
    assert config.gate == Gate(gsm8k="plans/gsm8k.jsonl")
    assert config.deployment.timeouts == Timeouts()
    assert {"gate", "deployment"} <= shown.keys()
    assert shown["deployment"]["timeouts"].keys() == Timeouts.model_fields.keys()
    assert shown["gate"].keys() == Gate.model_fields.keys()
    assert config.deployment.environments["serving"].python


def test_the_readmes_example_of_a_real_deployment_is_a_configuration() -> None:
    [example] = re.findall(r"(?s)```toml\n(.*?)```", (ROOT / "README.md").read_text())
    deployment = CampaignConfig.model_validate({"name": "x", **tomllib.loads(example)}).deployment
    assert deployment.kind == "sglang"
    assert deployment.environments[deployment.environment].python
