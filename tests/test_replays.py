"""Recorded sessions replay exactly, and a changed one is told from its recording at the first differing call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from optagent.agent.commands.workspace import Silent
from optagent.agent.replay import replay
from optagent.tools.errors import ReplayDiverged
from optagent.tools.stub import RecordedCall, Recording, load_recording

SESSIONS = sorted((Path(__file__).parent / "sessions").glob("*.jsonl.gz"))
REFERENCE = next(p for p in SESSIONS if p.name.startswith("reference-1"))


@pytest.mark.parametrize("path", SESSIONS, ids=lambda p: p.name.removesuffix(".jsonl.gz"))
def test_a_recorded_session_replays_exactly(path: Path) -> None:
    recording = load_recording(path)
    replayed = replay(recording, Silent())
    assert replayed.ended is not None
    assert recording.end["decision"] == replayed.ended.verb.value
    assert recording.end["steps"] == replayed.steps > 0
    assert replayed.renamed == 0


def altered(recording: Recording, tool: str, edit: Callable[[dict[str, Any]], None]) -> tuple[Recording, int]:
    """The recording with the result of the first call of a tool changed, and that call's number."""
    index = next(n for n, call in enumerate(recording.calls) if call.tool == tool)
    call = recording.calls[index]
    result = {k: dict(v) if isinstance(v, dict) else v for k, v in call.result.items()}
    edit(result)
    calls = (*recording.calls[:index], replace(call, result=result), *recording.calls[index + 1 :])
    return replace(recording, calls=calls), index + 1


def slower(result: dict[str, Any]) -> None:
    result["metrics"]["output_throughput"] *= 0.7


def crashed(result: dict[str, Any]) -> None:
    result.update(outcome="crashed", pid=None, start_time=None, url=None)


def foreign(result: dict[str, Any]) -> None:
    result["server"] = {"pid": 1, "start_time": 1.0, "command": "somebody else's server"}


@pytest.mark.parametrize(("tool", "edit"), [("bench", slower), ("launch", crashed), ("probe", foreign)])
def test_an_altered_result_shows_as_a_divergence_after_it(tool: str, edit: Callable[[dict[str, Any]], None]) -> None:
    changed, number = altered(load_recording(REFERENCE), tool, edit)
    with pytest.raises(ReplayDiverged, match=r"^call \d+") as told:
        replay(changed, Silent())
    assert int(str(told.value).split()[1].rstrip(":")) > number


def test_a_call_that_is_missing_is_named() -> None:
    recording = load_recording(REFERENCE)
    index = next(n for n, call in enumerate(recording.calls) if call.tool == "bench")
    shorter = replace(recording, calls=recording.calls[:index] + recording.calls[index + 1 :])
    with pytest.raises(ReplayDiverged, match=f"^call {index + 1} .*bench was asked"):
        replay(shorter, Silent())


def test_calls_that_nobody_asks_for_are_named() -> None:
    recording = load_recording(REFERENCE)
    more = (*recording.calls, RecordedCall(99999, "clock", {}, {"now": "2026-01-01T00:00:00Z"}))
    with pytest.raises(Exception, match="goes on with clock"):
        replay(replace(recording, calls=more), Silent())
