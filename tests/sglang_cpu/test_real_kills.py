"""A small campaign on a real SGLang that is killed with -9 again and again, and gone on with each time."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from optagent.agent.config import load_config

sys.path.insert(0, str(Path(__file__).parents[1] / "chaos"))

from mortal_campaign import Campaign, kill_at_random
from story import ledger_of

if TYPE_CHECKING:
    from conftest import Prepare

pytestmark = [pytest.mark.sglang, pytest.mark.chaos]

SEED = 10
KILLS = 10
TIMEOUT_S = 3600
ITEMS = ("more-running-requests", "torch-compile")
SETTINGS = {
    "OPTAGENT_DEPLOYMENT__ENV": '{"OMP_NUM_THREADS": "1"}',
    "OPTAGENT_OBJECTIVE__MIN_EFFECT": "0.25",
    "OPTAGENT_MEASURING__CALIBRATION_LAUNCHES": "2",
    "OPTAGENT_MEASURING__CONFIRM_PAIRS": "2",
    "OPTAGENT_MEASURING__RUNS": "1",
    "OPTAGENT_MEASURING__SURVEY_FROM_S": "inf",
}
"""Few launches: what matters here is how they are interrupted."""


@pytest.mark.timeout(TIMEOUT_S)
def test_a_campaign_that_is_killed_again_and_again_comes_to_its_end(tmp_path: Path, prepare: Prepare) -> None:
    folder = prepare(tmp_path / "campaign", *ITEMS)
    port = load_config(folder).deployment.port
    campaign = Campaign(folder, port, settings=dict(SETTINGS), source="source")
    chance, kills = random.Random(SEED), 0
    head = campaign.git("rev-parse", "HEAD")
    try:
        while kills < KILLS and kill_at_random(campaign, chance, most_s=8):
            kills += 1
            assert campaign.broken_laws() == [], f"kill {kills}"
        status, said = campaign.run("continue")
    finally:
        campaign.kill_all()
    assert kills == KILLS, "it ended before"
    assert status == 0, said
    assert campaign.broken_laws() == []
    assert campaign.left_over() == []
    assert campaign.git("rev-parse", "HEAD") == head
    ledger = ledger_of(folder)
    assert {e.item: e.verdict for e in ledger.experiments.values() if e.item} == {
        "more-running-requests": "keep",
        "torch-compile": "failed",
    }
    assert all(len(e.launches(arm)) >= 1 for e in ledger.experiments.values() for arm in {r.arm for r in e.runs})
