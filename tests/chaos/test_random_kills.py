"""Killed with -9 at any time, alone or with everything it started, and gone on with by the plain command."""

from __future__ import annotations

import contextlib
import random
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from mortal_campaign import PLAN, WAIT_S, Campaign
from story import differences, plan_shows, read, story

if TYPE_CHECKING:
    from conftest import Made

SEED = 6
KILLS = 24


def kill_at_random(campaign: Campaign, chance: random.Random) -> bool:
    """Let a sitting get some entries further and kill it; whether it was still there. What dies with it is drawn too: nothing,
    its children, or the servers, before it or after."""
    sitting = campaign.start("continue")
    until = len(read(campaign.folder)) + chance.randint(2, 16)
    pause_s, dies = chance.uniform(0, 0.3), chance.choice(("alone", "with children", "with servers", "after servers"))
    deadline = time.monotonic() + WAIT_S
    while sitting.poll() is None and len(read(campaign.folder)) < until:
        assert time.monotonic() < deadline, "stands still"
        time.sleep(0.02)
    time.sleep(pause_s)
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(sitting.pid)
        servers = campaign.marked() if "servers" in dies else []
        children = process.children(recursive=True) if dies == "with children" else []
        for one in [*servers, process, *children] if dies == "after servers" else [process, *children, *servers]:
            with contextlib.suppress(psutil.Error):
                one.kill()
    said, _ = sitting.communicate(timeout=WAIT_S)
    assert sitting.returncode in (-9, 0, 3), said
    return sitting.returncode == -9


@pytest.mark.timeout(1800)
def test_kills_at_any_time_leave_the_story_as_it_is(tmp_path: Path, undisturbed: Campaign, campaigns: Made) -> None:
    campaign, chance = campaigns(tmp_path / "campaign"), random.Random(SEED)
    kills = 0
    for half, words in ((KILLS // 2, ("answer", "Q1", "approve")), (KILLS, ("handoff", "--write"))):
        while kills < half and kill_at_random(campaign, chance):
            kills += 1
            assert campaign.broken_laws() == [], f"kill {kills}"
        status, said = campaign.run("continue")
        assert status == (3 if half < KILLS else 0), said
        assert campaign.left_over() == []
        assert campaign.run(*words)[0] == 0
    assert kills >= KILLS // 3, "it was too fast to be killed"
    assert differences(story(read(undisturbed.folder)), story(read(campaign.folder))) == []
    assert plan_shows(campaign.folder, PLAN) == plan_shows(undisturbed.folder, PLAN)
