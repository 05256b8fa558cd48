"""The helpers beside can be imported, and whatever a test started is gone when it ends."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from mortal_campaign import Campaign, make

Made = Callable[[Path], Campaign]


@pytest.fixture(scope="module")
def campaigns() -> Iterator[Made]:
    made: list[Campaign] = []

    def new(folder: Path) -> Campaign:
        made.append(make(folder))
        return made[-1]

    yield new
    for campaign in made:
        campaign.kill_all()


@pytest.fixture(scope="module")
def undisturbed(campaigns: Made, tmp_path_factory: pytest.TempPathFactory) -> Campaign:
    """The campaign as it goes when nobody interrupts it."""
    campaign = campaigns(tmp_path_factory.mktemp("undisturbed") / "campaign")
    for words, status in (
        (["continue"], 3),
        (["answer", "Q1", "approve"], 0),
        (["continue"], 0),
        (["handoff", "--write"], 0),
        (["continue"], 0),  # there is nothing more to do; what a killed command began is put in order
    ):
        ended, said = campaign.run(*words)
        assert ended == status, said
    return campaign
