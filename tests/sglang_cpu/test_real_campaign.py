"""A short campaign on a real SGLang, from the first look to the question it ends with.

OPTAGENT_KEEP_SESSION=FILE keeps the recording of it, with neutral paths, for the tests that replay sessions.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from optagent.agent.commands.workspace import Silent
from optagent.agent.handoff.read import read_handoff
from optagent.agent.ledger import fold
from optagent.agent.replay import replay
from optagent.tools.errors import ReplayDiverged
from optagent.tools.journal_store import JournalStore
from optagent.tools.stub import load_recording

if TYPE_CHECKING:
    from conftest import Prepare

pytestmark = pytest.mark.sglang

TIMEOUT_S = 2400
SETTINGS = {
    "OPTAGENT_DEPLOYMENT__ENV": '{"OMP_NUM_THREADS": "1"}',  # too many threads are for the whole campaign to find
    "OPTAGENT_OBJECTIVE__MIN_EFFECT": "0.25",  # a verdict within few pairs on a machine that is not left alone
    "OPTAGENT_MEASURING__CALIBRATION_LAUNCHES": "3",
}
"""What the short campaign does otherwise than the whole one."""
ITEMS = ("more-running-requests", "torch-compile", "fp8-kv-cache", "batching-window")


@pytest.mark.timeout(TIMEOUT_S)
def test_a_campaign_keeps_the_gain_reverts_the_loss_and_asks(
    tmp_path: Path, prepare: Prepare, sglang_cpu: Path
) -> None:
    campaign = prepare(tmp_path / "campaign", *ITEMS)
    source = campaign / "source"
    before = git_state(source)
    recording = campaign / "session.jsonl"
    done = subprocess.run(
        [sys.executable, "-m", "optagent", "-C", str(campaign), "continue", "--json", "--record", str(recording)],
        capture_output=True, text=True, env=os.environ | SETTINGS,
    )  # fmt: skip
    assert done.returncode == 3, done.stderr
    assert no_process_in(campaign)
    assert not answers(recording)

    with JournalStore.open(campaign / ".optagent" / "journal.db", create=False, read_only=True) as store:
        ledger = fold(store.entries())
    tried = {e.item: e for e in ledger.experiments.values() if e.item}
    assert {name: e.verdict for name, e in tried.items()} == {
        "more-running-requests": "keep",
        "torch-compile": "failed",
        "batching-window": "revert",
    }
    effect = tried["more-running-requests"].effect
    assert effect is not None
    assert effect > 0.5, "sixteen running requests give much more than two"
    assert [f.kind for f in tried["torch-compile"].failures] == ["graph-capture-incompatible"]
    assert tried["torch-compile"].runs == ()
    assert [(q.item, q.reason) for q in ledger.open_questions()] == [("fp8-kv-cache", "principle-conflict")]
    assert "fp8" not in launched_flags(recording), "what breaks a principle is not launched"

    assert git_state(source) == before, "what was reverted has left no trace"
    plan = (campaign / "plans" / "plan.md").read_text()
    assert re.findall(r"^status: (\w+)", plan, re.MULTILINE) == ["kept", "dead", "parked", "reverted"]
    handoff = read_handoff(max((campaign / "handoffs").iterdir()).read_text(), "handoff")
    assert (handoff.structured, handoff.simulated) == (True, False)
    assert handoff.baseline is not None
    assert handoff.baseline.configuration.flags["max-running-requests"] == 16
    assert "side by side" in handoff.total_gain

    assert replay(load_recording(recording), Silent()).ended.verb.value == json.loads(done.stdout)["decision"]
    keep(recording, {str(sglang_cpu): "/opt/sglang-cpu", str(campaign): "/campaign"})


def git_state(source: Path) -> list[str]:
    """The commit that is checked out, all branches and what is uncommitted."""
    questions = (["rev-parse", "HEAD"], ["for-each-ref"], ["status", "--porcelain"], ["stash", "list"])
    return [subprocess.check_output(["git", "-C", str(source), *words], text=True) for words in questions]


def no_process_in(campaign: Path) -> bool:
    """Whether no process mentions the campaign in its environment, as everything it starts does."""
    for process in psutil.process_iter():
        try:
            if str(campaign) in process.environ().get("OPTAGENT_CAMPAIGN", ""):
                return False
        except psutil.Error:
            continue
    return True


def answers(recording: Path) -> bool:
    """Whether anybody listens where the server did."""
    with recording.open() as lines, socket.socket() as probe:
        port = json.loads(next(lines))["config"]["deployment"]["port"]
        return probe.connect_ex(("127.0.0.1", port)) == 0


def launched_flags(recording: Path) -> str:
    """The flags of all launches."""
    calls = [call for call in load_recording(recording).calls if call.tool == "launch"]
    assert len(calls) > 1
    return json.dumps([(call.request or {})["configuration"] for call in calls])


def keep(recording: Path, neutral: dict[str, str]) -> None:
    """Save the session where the environment says, if it does."""
    target = os.environ.get("OPTAGENT_KEEP_SESSION")
    if not target:
        return
    text = recording.read_text()
    for path, name in neutral.items():
        text = text.replace(path, name)
    plain = recording.with_name("neutral.jsonl")
    plain.write_text(text)
    while (marks := differing_marks(plain)) is not None:
        plain.write_text(plain.read_text().replace(*marks))
    with Path(target).open("wb") as out, gzip.GzipFile(fileobj=out, mode="wb", mtime=0) as packed:
        packed.write(plain.read_bytes())


def differing_marks(recording: Path) -> tuple[str, str] | None:
    """A run's or a gate's mark as it was recorded and as it is with neutral paths, which a configuration's hash depends
    on; None when the recording replays."""
    try:
        replay(load_recording(recording), Silent())
    except ReplayDiverged as told:
        mark = r":(?:bench|gate|full-load):(\w{8})"
        found = re.search(rf"^- .*{mark}.*^\+ .*{mark}", str(told), re.MULTILINE | re.DOTALL)
        if found is None:
            raise
        return found[1], found[2]
    return None
