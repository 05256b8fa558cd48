"""Killed with -9 at any time, alone or with everything it started, and gone on with by the plain command."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from mortal_campaign import PLAN, Campaign, kill_at_random
from story import differences, plan_shows, read, story

if TYPE_CHECKING:
    from conftest import Made

SEED = 6
KILLS = 40
LEAST = 20
"""With those of test_every_place.py 200 at least."""


@pytest.mark.chaos
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
    assert campaign.run("continue")[0] == 0
    assert kills >= LEAST, "it was too fast to be killed"
    different = differences(story(read(undisturbed.folder)), story(read(campaign.folder)))
    assert not different, "\n".join(different[:30])
    assert plan_shows(campaign.folder, PLAN) == plan_shows(undisturbed.folder, PLAN)
