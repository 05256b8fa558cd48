"""`optagent replay`: the state machine once more, on a recorded session, with stub tools."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from optagent.agent.commands.workspace import Silent
from optagent.agent.config import config_from
from optagent.agent.errors import BadInput, Diverged
from optagent.agent.ledger import Ledger
from optagent.agent.session import LedgerJournal, Session
from optagent.agent.sitting import Ended, run_sitting
from optagent.tools.journal_store import MemoryJournal
from optagent.tools.recording import RecordingToolbox
from optagent.tools.stub import Recording, ReplayToolbox, load_recording


def replay_recording(path: Path, *, as_json: bool) -> int:
    """Exit status 0 when the session went exactly as recorded; raises ReplayDiverged or Diverged where it did not."""
    recording = load_recording(path)
    if not recording.config:
        raise BadInput(str(path), "not a recording of a session: its header has no `config`", 1)
    ended = replay(recording)
    if as_json:
        print(
            json.dumps(
                {"identical": True, "calls": len(recording.calls), "decision": ended.verb.value, "steps": ended.steps}
            )
        )
    else:
        print(
            f"{path}: identical: {len(recording.calls)} tool calls, {ended.steps} steps, "
            f"ended with {ended.verb.value} ({ended.reason})"
        )
    return 0


def replay(recording: Recording) -> Ended:
    """Run the recorded session again and return how it ended. Raises ReplayDiverged at the first difference."""
    toolbox = ReplayToolbox(recording)
    journal = LedgerJournal(recorded_journal(recording))
    session = Session(
        config_from(recording.config, recording.name, 1), RecordingToolbox(toolbox, journal), journal, Silent()
    )
    session.step_limit = recording.started.get("steps")
    ended = run_sitting(session, None)
    if left := toolbox.unasked():
        raise Diverged(left)
    _compare_end(recording.end, ended)
    return ended


def recorded_journal(recording: Recording) -> MemoryJournal:
    """The journal that a recording begins with. Raises BadInput when an entry is not what its kind needs."""
    memory, ledger = MemoryJournal(), Ledger()
    for number, entry in enumerate(recording.journal, 1):
        try:
            ledger.apply(memory.append(entry["kind"], entry["body"], entry.get("key"), entry.get("at")))
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            what = f"has nothing under {error}" if isinstance(error, KeyError) else f"cannot be used: {error}"
            raise BadInput(recording.name, f"entry {number} of `journal` ({entry['kind']}) {what}", 1) from None
    return memory


def _compare_end(recorded: Any, ended: Ended) -> None:
    for key, now in (("decision", ended.verb.value), ("reason", ended.reason), ("steps", ended.steps)):
        if recorded and recorded.get(key) != now:
            raise Diverged(f"the session ended with {key} {recorded.get(key)!r}, the replay with {now!r}")
