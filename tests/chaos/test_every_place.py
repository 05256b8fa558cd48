"""Killed with -9 once at every place there is, and gone on with each time: nothing is lost, repeated or left over."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from mortal_campaign import PLAN, Campaign, Dying
from story import differences, ledger_of, plan_shows, read, story

if TYPE_CHECKING:
    from conftest import Made

KILLED = -signal.SIGKILL
LEAST = 180
"""Places at least; with the kills of test_random_kills.py 200 at least."""
COMMANDS = ((("continue",), 3), (("answer", "Q1", "approve"), 1), (("continue",), 0), (("handoff",), 0))
"""With the exit status of the attempt that comes through. Of the answer's that is a refusal: an earlier one, killed as it let go
of the lock, had given it already."""
MUST_DIE_IN = (
    "after E0 intent", "before E0001 result launch", "before E0001 result bench", "before E0001 result examine",
    "before E0001 result stop", "E0001 run", "E0001 verdict", "E0003 result apply_patch", "E0003 result keep_patch",
    "result drop_patch", "prepare_environment", "install_files:", "apply_patch: starts git apply",
    "apply_patch: starts git checkout", "keep_patch: starts git", "drop_patch: starts git", "restore_checkout: starts git",
    "launch: starts", "bench: socket.connect", "examine: socket.connect", "write_text: os.rename handoffs/",
    "write_text: os.rename plans/", "question", "sitting-ended", "answer: sqlite3.connect", "handoff: ",
)  # fmt: skip
"""Boundaries and effects that have to be among the places, each part of a place's name."""


@pytest.mark.chaos
@pytest.mark.timeout(1800)
def test_a_kill_at_every_place_leaves_the_story_as_it_is(
    tmp_path: Path, undisturbed: Campaign, campaigns: Made
) -> None:
    campaign = campaigns(tmp_path / "campaign")
    dying = Dying(campaign)
    for words, ends_with in COMMANDS:
        while (status := dying.once(*words)) == KILLED:
            assert campaign.broken_laws() == [], dying.places[-1]
        assert status == ends_with, f"{words} after {dying.places[-1:]}: {dying.said[-2000:]}"
    dying.close()

    status, said = campaign.run("continue")
    assert status == 0, said
    different = differences(story(read(undisturbed.folder)), story(read(campaign.folder)))
    assert not different, "\n".join(different[:30])
    assert plan_shows(campaign.folder, PLAN) == plan_shows(undisturbed.folder, PLAN)
    assert campaign.left_over() == []
    assert campaign.broken_laws() == []
    assert len(ledger_of(campaign.folder).experiments) == len(ledger_of(undisturbed.folder).experiments)

    assert len(dying.places) == len(set(dying.places)) >= LEAST
    missing = [what for what in MUST_DIE_IN if not any(what in place for place in dying.places)]
    assert not missing, "\n".join(dying.places)
