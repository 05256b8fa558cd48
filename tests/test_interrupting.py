"""Ctrl-C while a sitting is at work: real processes, real signals, and the campaign goes on as if nothing had been."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from optagent.agent.commands.attendance import left_in_words
from optagent.agent.commands.interrupting import signals_ask, signals_interrupt
from optagent.agent.ledger import Ledger, fold
from optagent.tools.journal_store import JournalStore

ROOT = Path(__file__).parents[1]
PLAN = "plans/eagle-fast-verify.md"
WAIT_S = 120
INTERRUPTED = 130


@dataclass(frozen=True)
class Campaign:
    """The reference campaign in a folder and on a port of its own."""

    folder: Path
    port: int

    def start(self, *words: str, speed: int = 300) -> subprocess.Popen[str]:
        """`optagent continue`, which takes SIGINT even where background jobs ignore it. At this speed the simulated
        server starts slowly enough to be met while it does."""
        mine = {
            "OPTAGENT_DEPLOYMENT__PORT": str(self.port),
            "OPTAGENT_MEASURING__CALIBRATION_LAUNCHES": "2",
            "OPTAGENT_SIMULATION_SPEED": str(speed),
        }
        env = {k: v for k, v in os.environ.items() if not k.startswith("OPTAGENT_")} | mine
        return subprocess.Popen(
            [sys.executable, "-m", "optagent", "-C", str(self.folder), "continue", *words],
            env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )  # fmt: skip

    def finish(self, *words: str) -> tuple[int, str]:
        sitting = self.start(*words, speed=100_000)
        said, _ = sitting.communicate(timeout=WAIT_S)
        return sitting.returncode, said

    @property
    def journal(self) -> Path:
        return self.folder / ".optagent" / "journal.db"

    def ledger(self) -> Ledger:
        if not self.journal.exists():
            return Ledger()
        with JournalStore.open(self.journal, create=False, read_only=True) as store:
            return fold(store.entries())

    def servers(self) -> list[int]:
        """What carries the mark of a launch of this campaign."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get("OPTAGENT_CAMPAIGN") == str(self.folder.resolve()):
                    found.append(process.pid)
        return found

    def says(self, words: str) -> bool:
        """Whether a server has written these words into its log."""
        logs = (self.folder / ".optagent" / "logs").glob("*.log")
        return any(words in log.read_text(errors="replace") for log in logs)


def reference_campaign(folder: Path) -> Campaign:
    shutil.copytree(ROOT / "plans", folder / "plans")
    shutil.copytree(ROOT / "handoffs", folder / "handoffs")
    shutil.copy(ROOT / "optagent.toml", folder)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return Campaign(folder, probe.getsockname()[1])


@pytest.fixture
def campaign(tmp_path: Path) -> Iterator[Campaign]:
    made = reference_campaign(tmp_path / "campaign")
    yield made
    for pid in made.servers():
        os.kill(pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Ledger:
    """What the first step comes to when nobody interrupts it."""
    campaign = reference_campaign(tmp_path_factory.mktemp("undisturbed") / "campaign")
    status, said = campaign.finish("--steps", "1")
    assert status == 0, said
    return campaign.ledger()


def wait_until(sitting: subprocess.Popen[str], reached: Callable[[], object]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not reached():
        assert sitting.poll() is None, f"the sitting ended before: {sitting.communicate()[0]}"
        assert time.monotonic() < deadline, "did not happen"
        time.sleep(0.005)


def doing(campaign: Campaign, tool: str) -> bool:
    return any(begun["tool"] == tool for begun in campaign.ledger().pending.values())


def interrupted(campaign: Campaign, tool: str, *words: str) -> str:
    """What a sitting said that was interrupted during the first call of a tool."""
    sitting = campaign.start(*words)
    wait_until(sitting, lambda: doing(campaign, tool) and (tool != "launch" or campaign.says("Load weight begin")))
    os.killpg(sitting.pid, signal.SIGINT)  # as a terminal does: git gets it too, unless it is in a group of its own
    said, _ = sitting.communicate(timeout=WAIT_S)
    assert sitting.returncode == INTERRUPTED, said
    assert "Ctrl-C: breaking off (" in said or "Ctrl-C: ending as soon as this is finished: " in said, said
    assert said.rstrip().splitlines()[-1].startswith("interrupted by Ctrl-C "), said
    assert campaign.servers() == []
    assert campaign.ledger().processes == {}
    assert "Traceback" not in said
    return said


def measured(ledger: Ledger) -> list[tuple[str, str, list[tuple[str, int, float | None]]]]:
    return [(e.id, e.verdict, [(r.arm, r.pair, r.value) for r in e.runs]) for e in ledger.experiments.values()]


# The signals alone

INT, TERM, HUP, QUIT = signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT


@pytest.mark.parametrize(
    ("sent", "came"),
    [
        ([(INT, 0)], ["SIGINT"]),
        ([(TERM, 0)], ["SIGTERM"]),
        ([(HUP, 0)], ["SIGHUP"]),
        ([(QUIT, 0)], ["SIGQUIT"]),
        ([(INT, 0), (INT, 0.1)], ["SIGINT", "again"]),
        ([(QUIT, 0), (QUIT, 0.1)], ["SIGQUIT", "again"]),
        ([(TERM, 0), (INT, 0.1)], ["SIGTERM", "again"]),
        ([(TERM, 0), (TERM, 0.1)], ["SIGTERM"]),  # timeout(1) sends two
        ([(TERM, 0), (TERM, 5)], ["SIGTERM", "again"]),
        ([(INT, 0), (TERM, 5)], ["SIGINT", "again"]),
        ([(HUP, 0), (HUP, 5), (HUP, 9)], ["SIGHUP"]),  # a terminal that goes away
        ([(INT, 0), (HUP, 5)], ["SIGINT"]),
    ],
)
def test_what_a_signal_asks_for(sent: list[tuple[signal.Signals, float]], came: list[str]) -> None:
    handlers = {number: signal.getsignal(number) for number in (INT, TERM, HUP, QUIT)}
    found: list[str] = []
    now = 0.0
    with signals_ask(lambda number: found.append(number.name), lambda: found.append("again"), lambda: now):
        for number, at in sent:
            now = at
            signal.raise_signal(number)
    assert found == came
    assert {number: signal.getsignal(number) for number in handlers} == handlers


@pytest.mark.parametrize("number", [INT, TERM, HUP, QUIT])
def test_a_command_that_only_measures_is_interrupted(number: signal.Signals) -> None:
    with pytest.raises(KeyboardInterrupt), signals_interrupt():
        signal.raise_signal(number)


def test_a_signal_that_was_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as under nohup
    try:
        with signals_interrupt():
            signal.raise_signal(signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)


# A sitting


def test_a_sitting_that_is_interrupted_again_and_again_comes_to_the_same_result(
    campaign: Campaign, undisturbed: Ledger
) -> None:
    for tool in ("launch", "examine", "bench"):
        said = interrupted(campaign, tool, "--steps", "1")
        assert "stopping the server, writing a handoff; press Ctrl-C again to end at once" in said, tool
    status, said = campaign.finish("--steps", "1")
    assert status == 0, said
    assert measured(campaign.ledger()) == measured(undisturbed)


def test_whenever_it_is_asked_for_the_handoff_tells_where_it_is(campaign: Campaign, undisturbed: Ledger) -> None:
    for moment in (
        "handoff held",
        "▶ step 1",
        "gate passed",
        "E0001-baseline-1-run2:",
        "E0001 keep",
        "handoff written",
    ):
        sitting = campaign.start("--steps", "1")
        assert sitting.stdout is not None
        while (line := sitting.stdout.readline()) and moment not in line:
            pass
        sitting.send_signal(signal.SIGTERM)
        said, _ = sitting.communicate(timeout=WAIT_S)
        assert sitting.returncode in (INTERRUPTED, 0), said  # 0 where it was ending already
        assert campaign.servers() == []
        ledger = campaign.ledger()
        assert ledger.fact_seq <= ledger.handoff_seq, said
        if moment == "E0001 keep":
            assert measured(ledger) == measured(undisturbed)


def test_git_is_finished_before_the_sitting_ends(campaign: Campaign) -> None:
    plan = campaign.folder / PLAN
    text = plan.read_text().replace("id: nccl-channels\nstatus: open", "id: nccl-channels\nstatus: dropped")
    plan.write_text(text)
    interrupted(campaign, "apply_patch", "--steps", "2")
    ledger = campaign.ledger()
    experiment = list(ledger.experiments.values())[-1]
    assert experiment.item == "pcie-all-reduce"
    assert experiment.candidate is not None
    assert experiment.candidate.revision != experiment.base.revision
    assert not any(begun["tool"] == "apply_patch" for begun in ledger.pending.values())

    status, said = campaign.finish("--steps", "1")
    assert status == 0, said
    done = campaign.ledger().experiments[experiment.id]
    assert done.verdict
    assert done.candidate == experiment.candidate
    with JournalStore.open(campaign.journal, create=False, read_only=True) as store:
        assert sum(e.body["tool"] == "apply_patch" for e in store.entries(kind="intent")) == 1


@pytest.mark.parametrize("tool", ["launch", "bench"])
def test_ctrl_c_twice_kills_the_server_at_once(campaign: Campaign, tool: str) -> None:
    sitting = campaign.start("--steps", "1")
    wait_until(
        sitting, lambda: doing(campaign, tool) and campaign.says("Load weight begin")
    )  # it handles SIGTERM by now
    (server,) = campaign.servers()
    os.kill(server, signal.SIGSTOP)  # so that it does not end as soon as it is asked to
    sitting.send_signal(signal.SIGINT)
    assert sitting.stdout is not None
    told = iter(sitting.stdout)
    assert any("press Ctrl-C again" in line for line in told)
    sitting.send_signal(signal.SIGINT)
    assert sitting.wait(WAIT_S) == INTERRUPTED
    said = list(told)[-1]
    assert said.startswith("optagent: interrupted; "), said
    assert said.endswith("goes on from here\n")
    gone_by = time.monotonic() + WAIT_S
    while campaign.servers():  # the kernel takes a moment
        assert time.monotonic() < gone_by, "lives on"
        time.sleep(0.02)

    status, said = campaign.finish("--steps", "1")
    assert status == 0, said
    assert campaign.servers() == []
    assert campaign.ledger().processes == {}


@pytest.mark.parametrize(
    ("pids", "says"),
    [
        ([], "nothing is left running; `optagent continue` goes on from here"),
        ([7], "pid 7 could not be killed at once; `optagent continue` stops it and goes on from here"),
        ([7, 8], "pids 7, 8 could not be killed at once; `optagent continue` stops them and goes on from here"),
    ],
)
def test_what_lives_on_is_named(pids: list[int], says: str) -> None:
    assert left_in_words(pids) == says
