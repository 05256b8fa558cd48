"""Recorded sessions replay exactly, and a changed one is told from its recording at the first differing call."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optagent.agent.commands.workspace import Silent
from optagent.agent.replay import replay
from optagent.tools.errors import RecordingBroken, ReplayDiverged
from optagent.tools.stub import RecordedCall, Recording, load_recording

SESSIONS = sorted((Path(__file__).parent / "sessions").glob("*.jsonl.gz"))
EARLIER = Path(__file__).parent / "sessions" / "earlier"
REAL = next(p for p in SESSIONS if p.name.startswith("sglang-cpu"))
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


# Earlier formats

KEEPS_REPLAYING = {
    "asked-with-sample.jsonl.gz": (
        "6 calls of sample read as examine",
        "call 13 (line 15), step 1, in gate, E0001 (baseline as configured): examine was asked, the recording has bench",
    ),
    "one-run-a-launch.jsonl.gz": (
        "defaults of its time for measuring.calibration_launches, measuring.runs, measuring.pool",
        "call 35 (line 36), step 2, in gate, E0002 (Serve as many requests as are sent): bench was asked with another request "
        "than was recorded",
    ),
}
"""A recording of each earlier format: what is read otherwise, and the first call that today's state machine decides
otherwise about. Until there it replays; a change that moves this to an earlier call broke something."""


def test_every_earlier_recording_is_known() -> None:
    assert {p.name for p in EARLIER.iterdir()} == KEEPS_REPLAYING.keys()


@pytest.mark.parametrize("name", KEEPS_REPLAYING)
def test_an_earlier_format_replays_up_to_the_first_decision_that_differs(name: str) -> None:
    note, headline = KEEPS_REPLAYING[name]
    recording = load_recording(EARLIER / name)
    assert recording.version == 1
    assert any(n.startswith(note) for n in recording.notes)
    with pytest.raises(ReplayDiverged) as told:
        replay(recording, Silent())
    assert told.value.headline == headline


def test_names_and_words_are_compared_in_todays_format_only() -> None:
    recording = load_recording(REFERENCE)
    index = next(n for n, call in enumerate(recording.calls) if call.tool == "write_text")
    call = recording.calls[index]
    reworded = replace(
        call, request={**(call.request or {}), "key": "another", "text": "as an older optagent wrote it"}
    )
    changed = replace(recording, calls=(*recording.calls[:index], reworded, *recording.calls[index + 1 :]))
    assert replay(replace(changed, version=1), Silent()).renamed == 1
    with pytest.raises(ReplayDiverged, match=f"^call {index + 1} ") as told:
        replay(replace(changed, version=2), Silent())
    assert {f.name.split(",")[0] for f in told.value.fields} == {"key", "text"}


# Killed, cut off, damaged


@cache
def packed() -> bytes:
    return REAL.read_bytes()


@cache
def plain() -> bytes:
    return gzip.decompress(packed())


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cut") / "session.jsonl"


@given(share=st.floats(0, 1), compressed=st.booleans())
@settings(max_examples=60, deadline=None)
def test_what_is_left_of_a_cut_recording_is_its_beginning(place: Path, share: float, compressed: bool) -> None:
    whole = load_recording(REAL).calls
    data = packed() if compressed else plain()
    size = int(share * len(data))
    place.write_bytes(data[:size])
    left, told = (), ""
    try:
        recording = load_recording(place)
        left = recording.calls
        assert recording.cut or not compressed or size in (0, len(data))  # a packed file tells that its end is missing
    except RecordingBroken as error:
        told = str(error)
    assert "\n" not in told
    assert left == whole[: len(left)]


def cut_after(calls: int, rest: str = "") -> str:
    return "\n".join(plain().decode().split("\n")[: calls + 1]) + "\n" + rest


@pytest.mark.parametrize(
    ("rest", "cut"),
    [("", ""), ('{"tool": "read_te', "its last line (42) is cut off"), ('{"tool": "\ud83d'[:-1], "its last line")],
    ids=["killed", "half-a-line", "half-a-name"],
)
def test_a_killed_sitting_replays_as_far_as_it_goes(place: Path, rest: str, cut: str) -> None:
    place.write_text(cut_after(40, rest))
    recording = load_recording(place)
    assert recording.cut.startswith(cut)
    assert bool(recording.cut) == bool(cut)
    replayed = replay(recording, Silent())
    assert (replayed.ended, replayed.calls, replayed.steps) == (None, 40, 2)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (packed()[:200], "cannot be read: "),
        (packed()[:20_000] + bytes(2_000) + packed()[22_000:], "cannot be read: "),
        (cut_after(3, '{"tool": "read_te\n{"end": {}}\n').encode(), ":5: not a JSON object"),
        (cut_after(3, "\xff\n").encode("latin-1"), ":5: not a JSON object"),
        (plain().split(b"\n", 1)[1], ":1: not a recording of a session"),
        (
            b'{"optagent_recording": 3, "made_by": "optagent 9", "new": 1}\n',
            ":1: recording version 3, written by optagent 9",
        ),
        (b'{"optagent_recording": true}\n', ":1: recording version True"),
        (b'{"optagent_recording": 0}\n', ":1: recording version 0"),
    ],
    ids=["first-line-cut", "damaged", "half-a-line-inside", "no-text", "no-header", "newer", "no-number", "too-old"],
)
def test_a_damaged_or_newer_recording_is_refused_in_one_line(place: Path, data: bytes, says: str) -> None:
    place.write_bytes(data)
    done = optagent("replay", place)
    assert done.returncode == 2
    assert f"{place}" in done.stderr
    assert says in done.stderr
    assert done.stderr.count("\n") == 1


def optagent(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "optagent", *map(str, words)], capture_output=True, text=True, check=False, timeout=120
    )


# The first differing call, for people and scripts


def test_a_divergence_says_where_it_happened_and_in_which_fields(place: Path) -> None:
    lines = plain().decode().split("\n")
    index = next(n for n, line in enumerate(lines) if '"tool":"launch"' in line and "max-running-requests" in line)
    call = json.loads(lines[index])
    call["request"]["configuration"]["flags"]["max-running-requests"] = (
        "\x1b[31m hf_abcdefghijklmnopqrstuvwx\x07" + "y" * 500
    )
    lines[index] = json.dumps(call)
    place.write_text("\n".join(lines))
    told = json.loads(optagent("replay", place, "--json").stdout)
    assert (told["identical"], told["line"], told["recorded"], told["asked"]) == (False, index + 1, "launch", "launch")
    assert told["where"] == "step 1, in launch, E0001 (baseline as configured)"
    assert [f["name"] for f in told["fields"]] == ["configuration.flags.max-running-requests"]
    shown = optagent("replay", place)
    assert shown.returncode == 1
    assert "  configuration.flags.max-running-requests\n- " in shown.stderr
    assert shown.stderr.endswith("\n+ 2\n")
    assert "hf_" not in shown.stderr + json.dumps(told)
    assert "\x1b" not in shown.stderr
    assert max(map(len, shown.stderr.split("\n"))) < 240


# As far as a step


@pytest.mark.parametrize("steps", range(6))
def test_a_replay_stops_before_the_next_step(steps: int) -> None:
    """The real session has five steps; each is one experiment, and none is under way where it stops."""
    replayed = replay(load_recording(REAL), Silent(), steps)
    experiments = list(replayed.session.ledger.experiments.values())
    assert (replayed.steps, len(experiments)) == (steps, steps)
    assert all(e.verdict for e in experiments)


def test_more_steps_than_there_are_are_refused() -> None:
    done = optagent("replay", REAL, "--until", 6)
    assert (done.returncode, done.stderr) == (2, f"optagent: --until: {REAL} has 5 steps, not 6\n")
