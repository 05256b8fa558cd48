"""One real step of a campaign: the state machine on a real SGLang, from the first look to the handoff.

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

import pytest

from optagent.agent.commands.replaying import replay
from optagent.agent.handoff.read import read_handoff
from optagent.agent.ledger import fold
from optagent.tools.errors import ReplayDiverged
from optagent.tools.journal_store import JournalStore
from optagent.tools.stub import load_recording

pytestmark = pytest.mark.sglang

TIMEOUT_S = 1500


def test_a_real_step_is_taken_kept_recorded_and_handed_on(campaign: Path, sglang_cpu: Path) -> None:
    recording = campaign / "session.jsonl"
    done = subprocess.run(
        [sys.executable, "-m", "optagent", "-C", str(campaign), "continue", "--json", "--record", str(recording)],
        capture_output=True, text=True, timeout=TIMEOUT_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    with JournalStore.open(campaign / ".optagent" / "journal.db", create=False, read_only=True) as store:
        ledger = fold(store.entries())
    tried = next(e for e in ledger.experiments.values() if e.item == "more-running-requests")
    assert (tried.verdict, tried.pairs() != []) == ("keep", True)
    assert tried.effect is not None
    assert tried.effect > 1.0, "sixteen running requests give more than twice what two give"
    assert "status: kept" in (campaign / "plans" / "plan.md").read_text()
    handoff = read_handoff(max((campaign / "handoffs").iterdir()).read_text(), "handoff")
    assert handoff.structured
    assert not handoff.simulated
    assert handoff.baseline is not None
    assert handoff.baseline.configuration.flags["max-running-requests"] == 16
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port_of(recording))) != 0, "no server is left running"
    assert replay(load_recording(recording)).verb.value == json.loads(done.stdout)["decision"]
    keep(recording, {str(sglang_cpu): "/opt/sglang-cpu", str(campaign): "/campaign"})


def port_of(recording: Path) -> int:
    with recording.open() as lines:
        return int(json.loads(next(lines))["config"]["deployment"]["port"])


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
    """A run's mark as it was recorded and as it is with neutral paths, which a configuration's hash depends on; None when
    the recording replays."""
    try:
        replay(load_recording(recording))
    except ReplayDiverged as told:
        found = re.search(r"^- .*:bench:(\w{8}).*^\+ .*:bench:(\w{8})", str(told), re.MULTILINE | re.DOTALL)
        if found is None:
            raise
        return found[1], found[2]
    return None
