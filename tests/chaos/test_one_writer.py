"""One process writes a campaign at a time, whatever is typed beside it and whatever an earlier one left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from mortal_campaign import WAIT_S, Campaign
from story import ledger_of, read

from optagent.tools.journal_store import JournalStore
from optagent.tools.lock import Holder, hold
from optagent.tools.processes import look_at

if TYPE_CHECKING:
    from conftest import Made

BUSY = 4


def wait_until(reached: Callable[[], object], sitting: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not reached():
        assert sitting.poll() is None, sitting.communicate()[0]
        assert time.monotonic() < deadline, "did not happen"
        time.sleep(0.02)


def launching(campaign: Campaign) -> bool:
    return any(begun["tool"] == "launch" for begun in ledger_of(campaign.folder).pending.values())


def files(folder: Path) -> dict[str, bytes]:
    """Every document of the campaign, and the lock; not the journal, which the sitting at work writes."""
    found = {
        p.name: p.read_bytes() for part in ("plans", "handoffs") for p in (folder / part).rglob("*") if p.is_file()
    }
    return found | {"lock": (folder / ".optagent" / "lock").read_bytes()}


@pytest.fixture(scope="module")
def at_work(
    campaigns: Made, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Campaign, subprocess.Popen[str]]]:
    """A campaign whose sitting waits for a server that will not be ready for a long time."""
    campaign = campaigns(tmp_path_factory.mktemp("at-work") / "campaign")
    campaign.settings["OPTAGENT_SIMULATION_SPEED"] = "10"
    sitting = campaign.start("continue")
    wait_until(lambda: launching(campaign), sitting)
    yield campaign, sitting
    sitting.kill()
    sitting.wait(WAIT_S)


@pytest.mark.parametrize(
    "words",
    [["continue"], ["continue", "--steps", "1", "--json"], ["answer", "Q1", "approve"], ["handoff", "--write"]],
    ids=" ".join,
)
def test_whoever_comes_second_changes_nothing(
    at_work: tuple[Campaign, subprocess.Popen[str]], words: list[str]
) -> None:
    campaign, sitting = at_work
    before, known = read(campaign.folder), files(campaign.folder)
    status, said = campaign.run(*words)
    assert status == BUSY, said
    assert f"pid {sitting.pid} on {os.uname().nodename} (continue" in said
    assert "Traceback" not in said
    assert read(campaign.folder) == before
    assert files(campaign.folder) == known
    assert sitting.poll() is None


@pytest.mark.parametrize("words", [["status"], ["plan"], ["handoff"], ["continue", "--dry-run"]], ids=" ".join)
def test_whoever_only_looks_may_come_second(at_work: tuple[Campaign, subprocess.Popen[str]], words: list[str]) -> None:
    campaign, sitting = at_work
    before, known = read(campaign.folder), files(campaign.folder)
    status, said = campaign.run(*words)
    assert status in (0, 3), said
    assert read(campaign.folder) == before
    assert files(campaign.folder) == known
    assert sitting.poll() is None


def test_of_many_that_start_at_once_one_goes_on(campaigns: Made, tmp_path: Path) -> None:
    campaign = campaigns(tmp_path / "campaign")
    campaign.settings["OPTAGENT_SIMULATION_SPEED"] = "10"
    sittings = [campaign.start("continue") for _ in range(3)]
    deadline = time.monotonic() + WAIT_S
    while sum(s.poll() is None for s in sittings) > 1:
        assert time.monotonic() < deadline, "more than one goes on"
        time.sleep(0.02)
    (winner,) = (s for s in sittings if s.poll() is None)
    losers = [s for s in sittings if s is not winner]
    assert [(s.wait(), "is at work on this campaign" in s.communicate()[0]) for s in losers] == [(BUSY, True)] * 2
    wait_until(lambda: launching(campaign), winner)
    assert [e.kind for e in read(campaign.folder)].count("sitting") == 1
    winner.kill()
    winner.wait()

    campaign.settings["OPTAGENT_SIMULATION_SPEED"] = "1000000"
    status, said = campaign.run("continue", "--steps", "1")  # the lock's holder died
    assert status == 0, said
    assert f"the previous holder, pid {winner.pid} on" in said
    assert "ended without releasing the campaign" in said
    assert campaign.left_over() == []


HOLDS = """
import sys
from pathlib import Path
from optagent.tools.lock import hold
with hold(Path(sys.argv[1]), "continue"):
    print("held", flush=True)
    sys.stdin.read()
"""

LEFT: list[tuple[str, Callable[[Holder], Holder]]] = [
    ("its pid was given to another process", lambda h: replace(h, start_ticks=h.start_ticks - 1)),
    ("the clock jumped ahead since", lambda h: replace(h, since="1999-01-01T00:00:00+00:00", start_ticks=1)),
    ("the clock jumped back since", lambda h: replace(h, since="2199-01-01T00:00:00+00:00", start_ticks=1)),
    ("the machine was restarted", lambda h: replace(h, boot_id="another")),
]


@pytest.mark.parametrize("change", [c for _, c in LEFT], ids=[name for name, _ in LEFT])
def test_a_lock_that_nobody_holds_stops_nobody(
    campaigns: Made, tmp_path: Path, change: Callable[[Holder], Holder]
) -> None:
    campaign = campaigns(tmp_path / "campaign")
    lock = campaign.folder / ".optagent" / "lock"
    with hold(lock, "continue") as lease:
        left = change(lease.holder)
    lock.write_text(json.dumps(asdict(left)) + "\n")  # the pid is that of a living process: ours
    status, said = campaign.run("handoff", "--write")
    assert status == 0, said
    assert not lock.read_text().strip()


def test_a_lock_that_is_held_stops_whatever_the_file_says(campaigns: Made, tmp_path: Path) -> None:
    campaign = campaigns(tmp_path / "campaign")
    lock = campaign.folder / ".optagent" / "lock"
    with subprocess.Popen(
        [sys.executable, "-c", HOLDS, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        dead = replace(Holder(**json.loads(lock.read_text())), pid=2**22 + 1)
        lock.write_text(json.dumps(asdict(dead)) + "\n")
        assert campaign.run("handoff", "--write")[0] == BUSY
        holder.communicate("")
    assert campaign.run("handoff", "--write")[0] == 0


def begun_at(campaign: Campaign, at: str, *entries: tuple[str, dict[str, object]]) -> None:
    """A sitting that was killed, in a journal whose entries have this time."""
    path = campaign.folder / ".optagent" / "journal.db"
    with JournalStore.open(path, create=True) as store:
        store.append("sitting", {"id": "S001"}, "S001", at)
        for kind, body in entries:
            store.append(kind, body, at=at)


@pytest.mark.parametrize("at", ["1999-01-01T00:00:00Z", "2199-01-01T00:00:00Z"], ids=["ahead", "back"])
def test_a_clock_that_jumped_changes_no_order_and_no_key(campaigns: Made, tmp_path: Path, at: str) -> None:
    campaign = campaigns(tmp_path / "campaign")
    begun_at(campaign, at)
    status, said = campaign.run("continue", "--steps", "1")
    assert status == 0, said
    entries = read(campaign.folder)
    assert [e.seq for e in entries] == list(range(1, len(entries) + 1))
    assert [e.body["id"] for e in entries if e.kind == "sitting"] == ["S001", "S002"]
    (baseline,) = ledger_of(campaign.folder).experiments.values()
    assert (baseline.verdict, len(baseline.runs)) == ("keep", 2)
    assert campaign.left_over() == []


def test_a_pid_that_was_given_to_another_process_is_left_alone(campaigns: Made, tmp_path: Path) -> None:
    campaign = campaigns(tmp_path / "campaign")
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as somebody:
        seen = look_at(somebody.pid)
        assert seen is not None
        ours = {"launch": "E0001-baseline-1", "pid": somebody.pid, "start_time": seen.id.start_time - 100}
        begun_at(campaign, "2026-01-01T00:00:00Z", ("launched", ours))
        status, said = campaign.run("continue", "--steps", "1")
        assert status == 0, said
        assert somebody.poll() is None, "it was never ours"
        assert ledger_of(campaign.folder).processes == {}, "ours is known to be gone"
        somebody.send_signal(signal.SIGKILL)
    assert campaign.left_over() == []
