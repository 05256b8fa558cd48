"""A sitting that goes on without its terminal: real processes and signals, seen and stopped from another terminal."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from optagent.tools.journal_store import JournalStore
from optagent.tools.lock import holder
from optagent.tools.whereabouts import read_whereabouts

ROOT = Path(__file__).parents[1]
WAIT_S = 120
QUICK, SLOW = 100_000, 40
"""How fast the simulated server is. A slow one can be met while it is waited for."""


@dataclass(frozen=True)
class Ended:
    status: int
    out: str
    err: str


@dataclass
class Campaign:
    """The reference campaign in a folder and on a port of its own."""

    folder: Path
    port: int
    speed: int = QUICK

    def environment(self) -> dict[str, str]:
        mine = {
            "OPTAGENT_DEPLOYMENT__PORT": str(self.port),
            "OPTAGENT_MEASURING__CALIBRATION_LAUNCHES": "2",
            "OPTAGENT_SIMULATION_SPEED": str(self.speed),
            "COLUMNS": "",
        }
        return {k: v for k, v in os.environ.items() if not k.startswith("OPTAGENT_")} | mine

    def words(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "optagent", "-C", str(self.folder), *words]

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.words(*words), env=self.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            start_new_session=True,
        )  # fmt: skip

    def run(self, *words: str) -> Ended:
        process = self.start(*words)
        out, err = process.communicate(timeout=WAIT_S)
        return Ended(process.returncode, out, err)

    def detach(self, *words: str) -> int:
        done = self.run("continue", "--detach", "--json", *words)
        assert done.status == 0, done.err
        return int(json.loads(done.out)["pid"])

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.run("status", "--json").out)
        return found

    def now(self) -> dict[str, Any]:
        return read_whereabouts(self.folder / ".optagent" / "now.json") or {}

    def log(self) -> Path:
        return self.folder / ".optagent" / "sitting.log"

    def rows(self) -> int:
        with JournalStore.open(self.folder / ".optagent" / "journal.db", create=False, read_only=True) as store:
            return store.last_seq()

    def handoffs(self) -> list[str]:
        return [path.read_text() for path in sorted((self.folder / "handoffs").glob("*.md"))]

    def servers(self) -> list[int]:
        """What carries the mark of a launch of this campaign."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get("OPTAGENT_CAMPAIGN") == str(self.folder.resolve()):
                    found.append(process.pid)
        return found


@pytest.fixture
def campaign(tmp_path: Path) -> Iterator[Campaign]:
    folder = tmp_path / "campaign"
    shutil.copytree(ROOT / "plans", folder / "plans")
    shutil.copytree(ROOT / "handoffs", folder / "handoffs")
    shutil.copy(ROOT / "optagent.toml", folder)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        made = Campaign(folder, probe.getsockname()[1])
    yield made
    if (left := holder(folder / ".optagent" / "lock")) is not None:
        os.kill(left.pid, signal.SIGKILL)
    for pid in made.servers():
        os.kill(pid, signal.SIGKILL)


def until(true: Callable[[], object]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not true():
        assert time.monotonic() < deadline, "did not happen"
        time.sleep(0.02)


class Terminal:
    """A terminal of 80 columns with one command in it."""

    def __init__(self, campaign: Campaign, *words: str, term: str = "xterm") -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.process = subprocess.Popen(
            campaign.words(*words), env=campaign.environment() | {"TERM": term}, stdin=slave, stdout=slave, stderr=slave,
            start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )  # fmt: skip
        os.close(slave)
        self.shown = ""

    def read(self) -> bool:
        """Take what it shows; False at its end."""
        try:
            piece = os.read(self._master, 65536)
        except OSError:
            return False
        self.shown += piece.decode(errors="replace")
        return bool(piece)

    def shows(self, words: str) -> None:
        while words not in self.shown:
            assert self.read(), self.shown

    def end(self) -> int:
        while self.read():
            pass
        return self.process.wait(WAIT_S)

    def type(self, keys: bytes) -> None:
        os.write(self._master, keys)

    def close(self) -> None:
        os.close(self._master)


def test_it_goes_on_when_its_terminal_is_closed(campaign: Campaign) -> None:
    campaign.speed = 1000
    terminal = Terminal(campaign, "continue", "--detach", "--steps", "1")
    terminal.shows("  stop:")
    assert terminal.end() == 0
    terminal.close()
    pid = campaign.now()["pid"]
    assert os.getsid(pid) == pid
    done = campaign.run("attach")
    assert done.status == 0, done.out
    assert "▶ step 1: baseline" in done.out
    assert "stopped in order: the budget of 1 step is used. Next: optagent -C " in done.out
    again = campaign.run("attach")
    assert again.status == 0
    assert re.search(r"^S001 ended .*, exit status 0: the budget of 1 step is used$", again.out, re.MULTILINE)
    assert again.out.splitlines()[-5:] == done.out.splitlines()[-5:]


def test_it_is_seen_left_and_stopped_from_elsewhere(campaign: Campaign) -> None:
    campaign.speed = SLOW
    pid = campaign.detach("--steps", "3")
    until(lambda: campaign.now().get("phase") == "launch" and campaign.now()["detail"])

    rows, detail = campaign.rows(), campaign.now()["detail"]
    now = campaign.status()["now"]
    assert now.items() >= {"pid": pid, "state": "waits", "phase": "launch", "sitting": "S001", "detached": True}.items()
    assert now["doing"].startswith("launching baseline")
    assert (campaign.folder / now["log"]).exists()
    assert "\nnow        waiting for " in campaign.run("status").out
    until(lambda: campaign.now()["phase"] != "launch" or campaign.now()["detail"] != detail)
    if campaign.now()["phase"] == "launch":
        assert campaign.rows() == rows  # the journal does not grow while something is waited for

    for words in (("continue",), ("continue", "--detach")):
        second = campaign.run(*words)
        assert second.status == 4
        assert f"pid {pid} on " in second.err
    assert campaign.log().read_text().count("--- sitting ") == 1

    watching = [campaign.start("attach") for _ in range(2)]
    for attached in watching:
        assert attached.stdout is not None
        until(lambda out=attached.stdout: "▶ step 1" in out.readline())
    watching[0].send_signal(signal.SIGINT)
    out, err = watching[0].communicate(timeout=WAIT_S)
    assert watching[0].returncode == 130
    assert f"not attached any more: pid {pid} goes on" in out
    assert err == ""

    campaign.log().unlink()
    stopped = campaign.run("stop")
    assert stopped.status == 0
    assert "SIGTERM: " in stopped.out
    out, _ = watching[1].communicate(timeout=WAIT_S)
    assert watching[1].returncode == 130  # what the sitting ended with
    assert "interrupted by SIGTERM " in out
    assert campaign.servers() == []
    assert "ended: interrupted by SIGTERM " in campaign.handoffs()[-1]
    assert campaign.run("stop").out.startswith("no sitting is at work; S001 ended ")


def test_a_killed_one_is_known_as_such_and_gone_on_with(campaign: Campaign) -> None:
    campaign.speed = SLOW
    pid = campaign.detach("--steps", "1")
    until(lambda: campaign.now().get("phase") == "launch" and campaign.servers())
    attached = campaign.start("attach")
    assert attached.stdout is not None
    until(lambda out=attached.stdout: "--- sitting" in out.readline())
    os.kill(pid, signal.SIGKILL)
    out, _ = attached.communicate(timeout=WAIT_S)
    assert attached.returncode == 1
    assert f"S001 (pid {pid}) was killed while it was at: launching baseline" in out
    (server,) = campaign.servers()
    assert f"stops what it left running (pid {server})" in out
    seen = campaign.status()
    assert (seen["at_work"], seen["now"]) == (None, None)
    assert seen["last_sitting"]["killed"]
    assert f"(pid {pid}) was killed" in campaign.run("status").out.replace("\n           ", " ")
    campaign.speed = QUICK
    done = campaign.run("continue", "--steps", "1")
    assert done.status == 0, done.out
    assert campaign.servers() == []


def test_stopped_at_once_nothing_is_left_running(campaign: Campaign) -> None:
    campaign.speed = SLOW
    campaign.detach("--steps", "1")
    until(lambda: campaign.now().get("phase") == "launch" and campaign.servers())
    (server,) = campaign.servers()
    os.kill(server, signal.SIGSTOP)  # so that it does not end as soon as it is asked to
    done = campaign.run("stop", "--now")
    assert done.status == 0, done.err
    assert campaign.now()["ended"]["reason"] == "ended-at-once"
    until(lambda: campaign.servers() == [])


def test_whoever_started_it_may_be_killed_at_once(campaign: Campaign) -> None:
    starter = campaign.start("continue", "--detach", "--steps", "1")
    until(lambda: psutil.Process(starter.pid).children())
    starter.kill()
    starter.communicate(timeout=WAIT_S)
    until(lambda: campaign.now())
    terminal = Terminal(campaign, "attach", term="dumb")
    assert terminal.end() == 0, terminal.shown
    assert "▶ step 1" in terminal.shown
    assert "\x1b" not in terminal.shown  # nothing moves there


def test_two_at_once_are_one(campaign: Campaign) -> None:
    campaign.speed = SLOW
    both = [campaign.start("continue", "--detach", "--steps", "1") for _ in range(2)]
    said = [process.communicate(timeout=WAIT_S) for process in both]
    assert sorted(process.returncode for process in both) == [0, 4], said
    campaign.run("stop")
    assert campaign.log().read_text().count("--- sitting ") == 1


@pytest.mark.parametrize(
    ("words", "setting", "says"),
    [
        (["--dry-run"], None, "--detach: a dry run ends at once"),
        (["--record", "optagent.toml"], None, "exists already"),
        ([], ("OPTAGENT_DEPLOYMENT__HOST", "10.1.2.3"), "is not this machine"),
    ],
)
def test_what_cannot_be_begun_is_reported_to_whoever_asked(
    campaign: Campaign, words: list[str], setting: tuple[str, str] | None, says: str
) -> None:
    words = [str(campaign.folder / w) if w.endswith(".toml") else w for w in words]
    extra = dict([setting]) if setting else {}
    done = subprocess.run(
        campaign.words("continue", "--detach", *words),
        env=campaign.environment() | extra,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert says in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""
    assert not campaign.log().exists()
    assert campaign.run("attach").status == 2


def test_a_question_is_shown_with_how_to_answer_it(campaign: Campaign) -> None:
    with socket.socket() as theirs:
        theirs.bind(("127.0.0.1", campaign.port))
        theirs.listen()
        campaign.detach()
        done = campaign.run("attach")
    assert done.status == 3
    assert "(foreign-server)" in done.out
    assert re.search(
        r"waiting for you. Next: optagent -C \S+ answer Q\d+ \S+, then optagent -C \S+ continue\n", done.out
    )
    assert campaign.now()["ended"]["questions"]
    assert campaign.run("status").out.count("\nsitting ") == 0  # the question says it


def test_a_full_disk_under_its_log_ends_nothing(campaign: Campaign) -> None:
    campaign.log().parent.mkdir()
    campaign.log().symlink_to("/dev/full")
    campaign.detach("--steps", "1", "--record", str(campaign.folder / "session.jsonl"))
    until(lambda: campaign.now().get("ended"))
    assert campaign.now()["ended"]["exit_status"] == 0
    assert json.loads((campaign.folder / "session.jsonl").read_text().splitlines()[-1])["end"]["steps"] == 1


def test_ctrl_c_in_a_terminal_with_attach_leaves_it_running(campaign: Campaign) -> None:
    campaign.speed = SLOW
    pid = campaign.detach("--steps", "1")
    terminal = Terminal(campaign, "attach")
    terminal.shows("launching baseline")
    terminal.type(b"\x03")
    assert terminal.end() == 130
    assert f"pid {pid} goes on" in terminal.shown
    assert campaign.status()["now"]["asked_to_end"] is None
    campaign.run("stop")


def test_a_terminal_that_goes_away_leaves_a_handoff(campaign: Campaign) -> None:
    campaign.speed = SLOW
    terminal = Terminal(campaign, "continue")
    until(lambda: terminal.read() and campaign.now().get("phase") == "launch" and campaign.now()["detail"])
    terminal.close()
    assert terminal.process.wait(WAIT_S) == 130
    assert campaign.servers() == []
    assert "ended: interrupted by SIGHUP during a launch" in campaign.handoffs()[-1]
    assert campaign.now()["ended"]["exit_status"] == 130
