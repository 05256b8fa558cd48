"""`optagent replay`: the state machine once more, on a recorded session, with stub tools."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from optagent.agent.commands.printable import clean
from optagent.agent.commands.workspace import Silent
from optagent.agent.errors import BadInput
from optagent.agent.replay import Replayed, replay
from optagent.tools.errors import ReplayDiverged
from optagent.tools.recording_history import CURRENT
from optagent.tools.stub import Recording, load_recording


def replay_recording(path: Path, *, until: int | None = None, as_json: bool) -> int:
    """Exit status 0 when the session went exactly as recorded; raises ReplayDiverged or Diverged where it did not."""
    recording = session_recording(path)
    try:
        replayed = replay(recording, Silent(), until)
    except ReplayDiverged as error:
        if as_json:
            print(json.dumps(divergence_json(error) | _read_as(recording), ensure_ascii=False))
            return 1
        for note in read_otherwise(recording):
            print(note)
        raise
    if as_json:
        print(json.dumps(_outcome(replayed) | _read_as(recording), ensure_ascii=False))
    else:
        print("\n".join([*read_otherwise(recording), f"{clean(str(path))}: {_in_words(replayed, until)}"]))
    return 0


def session_recording(path: Path) -> Recording:
    """A recording of a session, which a script is not. Raises RecordingBroken or BadInput."""
    recording = load_recording(path)
    if not recording.config:
        raise BadInput(str(path), "not a recording of a session: its header has no `config`", 1)
    return recording


def read_otherwise(recording: Recording) -> list[str]:
    """What is to be known of a recording that is of an earlier format, or not whole."""
    name = clean(recording.name)
    lines = [f"{name}: {recording.cut}; what stands before is replayed"] if recording.cut else []
    if recording.version < CURRENT and recording.notes:
        lines.append(f"{name}: format {recording.version}, read as {CURRENT}: {'; '.join(recording.notes)}")
    return lines


def divergence_json(error: ReplayDiverged) -> dict[str, Any]:
    """The first differing call for scripts."""
    return {
        "identical": False, "call": error.call, "line": error.line or None, "where": error.where, "recorded": error.recorded,
        "asked": error.asked, "fields": [asdict(f) for f in error.fields], "more": error.more,
    }  # fmt: skip


def _read_as(recording: Recording) -> dict[str, Any]:
    return {"format": recording.version, "cut": recording.cut or None, "notes": list(recording.notes)}


def _outcome(replayed: Replayed) -> dict[str, Any]:
    ended = replayed.ended
    return {
        "identical": True, "complete": ended is not None, "calls": replayed.calls, "renamed": replayed.renamed,
        "decision": ended.verb.value if ended else None, "steps": replayed.steps,
    }  # fmt: skip


def _in_words(replayed: Replayed, until: int | None) -> str:
    calls = f"{replayed.calls} tool calls, {replayed.steps} steps"
    if replayed.renamed:
        calls += f"; {replayed.renamed} of the calls are named or worded otherwise by today's optagent"
    if replayed.ended is None and until is not None:
        return f"identical so far: {calls}"
    if replayed.ended is None:
        return f"identical as far as it goes: {calls}; the recording ends there, its sitting was killed"
    return f"identical: {calls}, ended with {replayed.ended.verb.value} ({replayed.ended.reason})"
