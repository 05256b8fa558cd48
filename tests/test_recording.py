"""Toolboxes around toolboxes: recording, dry, replayed and scripted ones, and the journal that looks ahead."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optagent.tools.calls.base import EffectRequest, Request, Result
from optagent.tools.calls.bench import Bench, Workload
from optagent.tools.calls.clock import AskTime
from optagent.tools.calls.configuration import Configuration
from optagent.tools.calls.facts import LookUp
from optagent.tools.calls.files import ListFolder, ReadText, WriteText
from optagent.tools.calls.gate import Evaluate, Examine
from optagent.tools.calls.logs import ReadLog
from optagent.tools.calls.patch import ApplyPatch, DropPatch, KeepPatch, RestoreCheckout
from optagent.tools.calls.server import EnvironmentRequest, InstallFiles, Launch, ListFlags, Stop
from optagent.tools.calls.world import ProbeWorld
from optagent.tools.dry import DryToolbox
from optagent.tools.errors import RecordingBroken, ReplayDiverged
from optagent.tools.journal_store import Draft, Journal, MemoryJournal
from optagent.tools.overlay_journal import OverlayJournal
from optagent.tools.recording import RecordingFile, RecordingToolbox, as_json, header, read_recording
from optagent.tools.replaying import ReplayToolbox
from optagent.tools.routed import RoutedToolbox
from optagent.tools.stub import TOOLS, Recording, ScriptedToolbox, load_recording
from optagent.tools.toolbox import Toolbox

R = TypeVar("R", bound=Result)
SECRET = "sk-ant-api03-abcdefghijklmnop"

OBSERVATIONS: dict[str, Request] = {
    "clock": AskTime(),
    "read_text": ReadText(path="a.md"),
    "list_folder": ListFolder(path="handoffs"),
    "probe": ProbeWorld(environment="cu128"),
    "look_up": LookUp(paths=["/a"]),
    "read_log": ReadLog(path="a.log"),
    "list_flags": ListFlags(environment="cu128", names=["tp-size"]),
}
EFFECTS: dict[str, EffectRequest] = {
    "write_text": WriteText(key="k", path="a.md", text="new"),
    "prepare_environment": EnvironmentRequest(key="k", name="cu13"),
    "install_files": InstallFiles(key="k", environment="cu128", files={"a.py": "x"}),
    "apply_patch": ApplyPatch(key="k", experiment="E1", base="r1", diff="d", message="m"),
    "keep_patch": KeepPatch(key="k", experiment="E1"),
    "drop_patch": DropPatch(key="k", experiment="E1", base="r1"),
    "restore_checkout": RestoreCheckout(key="k", revision="r1", reason="launch"),
    "launch": Launch(key="k", launch="L1", configuration=Configuration("cu128"), log="a.log"),
    "stop": Stop(key="k", pid=7, start_time=1.0),
    "bench": Bench(key="k", run="R1", url="http://x", workload=Workload(), seed=1, result_file="r.jsonl"),
    "examine": Examine(key="k", url="http://x", prompts=["a"], max_tokens=4, file="g.gz"),
    "evaluate": Evaluate(key="k", url="http://x", data="tasks.jsonl", examples=2, file="e.json"),
}
RESULTS: dict[str, dict[str, Any]] = {
    "clock": {"now": "2026-01-01T00:00:00Z"},
    "read_text": {"text": "old"},
    "list_flags": {"flags": {"tp-size": {"known": True}}, "version": "0.5.8"},
    "prepare_environment": {"ready": True},
    "launch": {"outcome": "ready", "pid": 7, "start_time": 1.0},
    "stop": {"gone": True},
    "bench": {"valid": True, "metrics": {"output_throughput": 89.5}},
}


class Fake(RoutedToolbox):
    """Answers from `RESULTS`, and remembers what it was asked."""

    def __init__(self, results: Mapping[str, dict[str, Any]] = RESULTS) -> None:
        self.results = results
        self.asked: list[tuple[str, Request]] = []

    def call(self, tool: str, request: Request, answers_with: type[R]) -> R:
        self.asked.append((tool, request))
        return answers_with.model_validate(self.results.get(tool, {}))


class Broken(RoutedToolbox):
    """Dies in every call, as a process that is killed does."""

    def call(self, tool: str, request: Request, answers_with: type[R]) -> R:
        raise KeyboardInterrupt


def ask(toolbox: Toolbox, tool: str, request: Request) -> Any:
    return getattr(toolbox, tool)(request)


def kinds(journal: Journal) -> list[str]:
    return [e.kind for e in journal.entries()]


def test_every_tool_is_either_an_observation_or_an_effect() -> None:
    assert OBSERVATIONS.keys() | EFFECTS.keys() == set(TOOLS)
    assert not any(isinstance(request, EffectRequest) for request in OBSERVATIONS.values())


# Recording


@pytest.mark.parametrize("tool", EFFECTS)
def test_an_effect_is_journalled_before_and_after(tool: str) -> None:
    journal, fake = MemoryJournal(), Fake()
    result = ask(RecordingToolbox(fake, journal), tool, EFFECTS[tool])
    intent, done = journal.entries()
    assert (intent.kind, done.kind, intent.key, done.key) == ("intent", "result", "k", "k")
    assert intent.body["tool"] == done.body["tool"] == tool
    assert done.body["result"] == as_json(result)


@pytest.mark.parametrize("tool", OBSERVATIONS)
def test_an_observation_is_not_journalled(tool: str) -> None:
    journal, fake = MemoryJournal(), Fake()
    for _ in range(2):
        ask(RecordingToolbox(fake, journal), tool, OBSERVATIONS[tool])
    assert kinds(journal) == []
    assert len(fake.asked) == 2


def test_an_effect_that_never_came_back_leaves_its_intent() -> None:
    journal = MemoryJournal()
    with pytest.raises(KeyboardInterrupt):
        ask(RecordingToolbox(Broken(), journal), "launch", EFFECTS["launch"])
    assert kinds(journal) == ["intent"]
    again = Fake()
    ask(RecordingToolbox(again, journal), "launch", EFFECTS["launch"])
    assert kinds(journal) == ["intent", "intent", "result"]
    assert len(again.asked) == 1


@pytest.mark.parametrize("tool", EFFECTS)
def test_an_effect_whose_result_is_known_is_not_done_again(tool: str) -> None:
    journal = MemoryJournal()
    first = ask(RecordingToolbox(Fake(), journal), tool, EFFECTS[tool])
    assert ask(RecordingToolbox(Broken(), journal), tool, EFFECTS[tool]) == first
    assert kinds(journal) == ["intent", "result"]


def test_another_key_is_another_effect() -> None:
    journal, fake = MemoryJournal(), Fake()
    toolbox = RecordingToolbox(fake, journal)
    for key in ("a", "b", "a"):
        toolbox.stop(Stop(key=key, pid=7, start_time=1.0))
    assert len(fake.asked) == 2


def test_what_is_written_lies_in_the_file_and_not_in_the_journal_too() -> None:
    journal = MemoryJournal()
    RecordingToolbox(Fake(), journal).write_text(WriteText(key="k", path="a.md", text="a long document"))
    assert journal.find("intent", "k")
    assert "a long document" not in json.dumps([e.body for e in journal.entries()])


def test_secrets_reach_neither_journal_nor_recording() -> None:
    journal = MemoryJournal()
    lines: list[dict[str, Any]] = []
    fake = Fake({"read_text": {"text": f"ANTHROPIC_API_KEY={SECRET}"}, "stop": {"gone": False, "problem": SECRET}})
    toolbox = RecordingToolbox(fake, journal, lines.append)
    read = toolbox.read_text(ReadText(path="a.md"))
    toolbox.install_files(InstallFiles(key="i", environment="cu128", files={"a.py": f"token = '{SECRET}'"}))
    toolbox.stop(Stop(key="s", pid=7, start_time=1.0))
    assert SECRET in (read.text or "")  # who asked gets the truth
    assert SECRET not in json.dumps([e.body for e in journal.entries()])
    assert SECRET not in json.dumps(lines)
    assert len(lines) == 3


def test_a_recording_holds_every_call_that_was_made() -> None:
    lines: list[dict[str, Any]] = []
    toolbox = RecordingToolbox(Fake(), MemoryJournal(), lines.append)
    for tool, request in {**OBSERVATIONS, **EFFECTS}.items():
        ask(toolbox, tool, request.model_copy(update={"key": tool}) if tool in EFFECTS else request)
    assert [line["tool"] for line in lines] == [*OBSERVATIONS, *EFFECTS]


def test_a_recording_goes_to_a_new_file_only(tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    path.write_text("precious")
    with pytest.raises(FileExistsError):
        RecordingFile(path)
    assert path.read_text() == "precious"


def test_a_recording_is_on_disk_line_by_line(tmp_path: Path) -> None:
    file = RecordingFile(tmp_path / "session.jsonl")
    file.write({"tool": "clock", "request": {}, "result": {"now": "ä"}})
    assert read_recording(tmp_path / "session.jsonl")[0] == [
        (1, {"tool": "clock", "request": {}, "result": {"now": "ä"}})
    ]
    file.close()


# Dry


@pytest.mark.parametrize("tool", EFFECTS)
def test_no_effect_passes_a_dry_toolbox(tool: str) -> None:
    fake = Fake()
    ask(DryToolbox(fake), tool, EFFECTS[tool])
    assert fake.asked == []


@pytest.mark.parametrize("tool", OBSERVATIONS)
def test_observations_pass_a_dry_toolbox(tool: str) -> None:
    fake = Fake()
    ask(DryToolbox(fake), tool, OBSERVATIONS[tool])
    assert fake.asked == [(tool, OBSERVATIONS[tool])]


def test_a_dry_toolbox_reads_back_what_was_written() -> None:
    toolbox = DryToolbox(Fake())
    before = toolbox.read_text(ReadText(path="a.md"))
    assert toolbox.write_text(WriteText(key="k", path="a.md", text="new")).written
    after = toolbox.read_text(ReadText(path="a.md"))
    assert (before.text, after.text) == ("old", "new")
    assert after.sha256 == "11507a0e2f5e69d5dfa40a62a1bd7b6ee57e6bcd85c67c9b8431b36fff21c437"
    assert toolbox.read_text(ReadText(path="b.md")).text == "old"


def test_a_dry_toolbox_never_says_that_something_was_launched_or_measured() -> None:
    toolbox = DryToolbox(Fake())
    assert ask(toolbox, "launch", EFFECTS["launch"]).outcome == "not-started"
    assert not ask(toolbox, "bench", EFFECTS["bench"]).valid


# Looking ahead in a journal

drafts = st.builds(
    Draft,
    st.sampled_from(["intent", "result"]),
    st.dictionaries(st.sampled_from("ab"), st.integers(), max_size=2),
    st.none() | st.sampled_from("abc"),
    st.just("2026-01-01T00:00:00Z"),
)
batches = st.lists(st.lists(drafts, max_size=3), max_size=4)


@given(batches, batches, st.integers(-1, 12), st.none() | st.integers(-1, 5))
@settings(deadline=None, max_examples=80)
def test_an_overlay_behaves_as_one_journal(
    below: list[list[Draft]], above: list[list[Draft]], after: int, limit: int | None
) -> None:
    plain, ground = MemoryJournal(), MemoryJournal()
    for batch in below:
        plain.append_all(batch)
        ground.append_all(batch)
    untouched = list(ground.entries())
    overlay = OverlayJournal(ground)
    for batch in above:
        assert overlay.append_all(batch) == plain.append_all(batch)
    assert overlay.last_seq() == plain.last_seq()
    for kind in (None, "intent", "result"):
        assert list(overlay.entries(after, kind, limit)) == list(plain.entries(after, kind, limit))
    for kind in ("intent", "result"):
        assert overlay.last(kind) == plain.last(kind)
        assert [overlay.find(kind, key) for key in "abc"] == [plain.find(kind, key) for key in "abc"]
    assert list(ground.entries()) == untouched


def test_an_overlay_takes_all_of_a_batch_or_none() -> None:
    overlay = OverlayJournal(MemoryJournal())
    with pytest.raises(ValueError, match="not JSON compliant"):
        overlay.append_all([Draft("a", {}), Draft("b", {"x": float("nan")})])
    assert overlay.last_seq() == 0


def test_an_overlay_keeps_views_to_itself() -> None:
    ground = MemoryJournal()
    ground.save_view("v", 0, {"from": "below"})
    overlay = OverlayJournal(ground)
    assert (view := overlay.load_view("v")) is not None
    assert view.body == {"from": "below"}
    overlay.save_view("v", 1, {"from": "above"})
    assert (view := ground.load_view("v")) is not None
    assert view.body == {"from": "below"}


# Replaying


def recorded(tmp_path: Path, *lines: dict[str, Any] | str) -> Recording:
    path = tmp_path / "recording.jsonl"
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return load_recording(path)


CLOCK = {"tool": "clock", "request": {}, "result": {"now": "2026-01-01T00:00:00Z"}}
READ = {"tool": "read_text", "request": {"path": "a.md"}, "result": {"text": "old"}}


def test_a_replay_answers_as_recorded(tmp_path: Path) -> None:
    toolbox = ReplayToolbox(recorded(tmp_path, {"optagent_recording": 1}, CLOCK, READ))
    assert toolbox.clock(AskTime()).now == "2026-01-01T00:00:00Z"
    assert toolbox.unasked() == "call 2: the replay ended, and the recording goes on with read_text (line 3)"
    assert toolbox.read_text(ReadText(path="a.md")).text == "old"
    assert toolbox.unasked() is None


@pytest.mark.parametrize(
    ("tool", "request_", "says"),
    [
        ("list_folder", ListFolder(path="a.md"), "call 1 (line 1): list_folder was asked, the recording has read_text"),
        ("read_text", ReadText(path="b.md"), "call 1 (line 1): read_text was asked with another request than was"),
    ],
)
def test_the_first_divergence_is_named(tmp_path: Path, tool: str, request_: Request, says: str) -> None:
    with pytest.raises(ReplayDiverged) as error:
        ask(ReplayToolbox(recorded(tmp_path, READ)), tool, request_)
    assert str(error.value).startswith(says)


def test_a_difference_shows_both_sides(tmp_path: Path) -> None:
    with pytest.raises(ReplayDiverged) as error:
        ReplayToolbox(recorded(tmp_path, READ)).read_text(ReadText(path="b.md"))
    shown = str(error.value).splitlines()
    assert any(line.startswith("-") and "a.md" in line for line in shown)
    assert any(line.startswith("+") and "b.md" in line for line in shown)


def test_a_call_too_many_is_named(tmp_path: Path) -> None:
    toolbox = ReplayToolbox(recorded(tmp_path, CLOCK))
    toolbox.clock(AskTime())
    with pytest.raises(ReplayDiverged, match="call 2: read_text was asked, and the recording has no more calls"):
        toolbox.read_text(ReadText(path="a.md"))


def test_a_divergence_is_not_passed_over(tmp_path: Path) -> None:
    """Asking for something else does not use the recorded call up."""
    toolbox = ReplayToolbox(recorded(tmp_path, CLOCK, READ))
    for _ in range(2):
        with pytest.raises(ReplayDiverged, match="call 1"):
            toolbox.read_text(ReadText(path="a.md"))
    assert toolbox.clock(AskTime()).now


def session(toolbox: Toolbox) -> list[Any]:
    """A little session: some of its effects were done before, two have the same key."""
    return [
        toolbox.clock(AskTime()),
        ask(toolbox, "bench", EFFECTS["bench"]),
        toolbox.stop(Stop(key="s", pid=7, start_time=1.0)),
        toolbox.stop(Stop(key="s", pid=7, start_time=1.0)),
        toolbox.read_text(ReadText(path="a.md")),
    ]


@pytest.mark.parametrize("done_before", [False, True], ids=["from-new", "after-a-crash"])
def test_what_was_recorded_replays(tmp_path: Path, done_before: bool) -> None:
    journal = MemoryJournal()
    if done_before:
        ask(RecordingToolbox(Fake(), journal), "bench", EFFECTS["bench"])
    lines: list[dict[str, Any]] = [header({"name": "x"}, list(journal.entries()), {"steps": 1})]
    results = session(RecordingToolbox(Fake(), journal, lines.append))
    recording = recorded(tmp_path, *lines)
    again = MemoryJournal()
    for entry in recording.journal:
        again.append(entry["kind"], entry["body"], entry["key"], entry["at"])
    stub = ReplayToolbox(recording)
    assert session(RecordingToolbox(stub, again)) == results
    assert stub.unasked() is None
    assert [(e.kind, e.key, e.body) for e in again.entries()] == [(e.kind, e.key, e.body) for e in journal.entries()]


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (["{"], ":1: not a JSON object"),
        (["3"], ":1: not a JSON object"),
        (
            [{"optagent_recording": 3, "made_by": "optagent 9.0"}],
            ":1: recording version 3, written by optagent 9.0; this optagent reads up to 2",
        ),
        ([{"optagent_recording": "1"}], ":1: recording version '1'"),
        ([{"optagent_recording": 1, "color": 1}], ":1: unknown key 'color' in the header"),
        ([{"config": []}], ":1: `journal` must be a list of entries and `config` an object"),
        ([{"journal": {}}], ":1: `journal` must be a list of entries and `config` an object"),
        ([{"journal": [{"kind": "run"}]}], ":1: an entry of `journal` needs a `kind` and a `body`"),
        ([{"started": 3}], ":1: `started` must be an object"),
        ([{"started": {"steps": "3"}}], ":1: `started` must be an object"),
        ([CLOCK, {"tool": "dance"}], ":2: `tool` must be one of "),
        ([CLOCK, {"tool": "clock", "answer": 1}], ":2: unknown key 'answer'"),
        ([{"tool": "clock", "result": 3}], ":1: `request` and `result` must be JSON objects"),
        ([{"tool": "clock", "request": []}], ":1: `request` and `result` must be JSON objects"),
    ],
)
def test_a_recording_that_is_none(tmp_path: Path, lines: list[Any], says: str) -> None:
    with pytest.raises(RecordingBroken) as error:
        recorded(tmp_path, *lines)
    assert str(error.value).startswith(f"{tmp_path / 'recording.jsonl'}{says}")


def test_a_recording_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(RecordingBroken, match="cannot be read: No such file"):
        load_recording(tmp_path / "nothing.jsonl")


def test_a_result_of_the_wrong_shape_is_named(tmp_path: Path) -> None:
    wrong = {"tool": "clock", "request": {}, "result": {"now": 3}}
    with pytest.raises(RecordingBroken, match=r":1: result of clock, now: "):
        ReplayToolbox(recorded(tmp_path, wrong)).clock(AskTime())


# Scripts


def scripted(tmp_path: Path, *lines: dict[str, Any], files: Toolbox | None = None) -> ScriptedToolbox:
    return ScriptedToolbox(recorded(tmp_path, *lines), files or Fake())


def test_scripted_results_come_in_order_and_the_last_one_repeats(tmp_path: Path) -> None:
    toolbox = scripted(tmp_path, *({"tool": "clock", "result": {"now": text}} for text in ("one", "two")))
    assert [toolbox.clock(AskTime()).now for _ in range(4)] == ["one", "two", "two", "two"]


def test_a_partial_request_answers_the_calls_that_contain_it(tmp_path: Path) -> None:
    toolbox = scripted(
        tmp_path,
        {"tool": "launch", "request": {"configuration": {"flags": {"tp-size": 4}}}, "result": {"outcome": "crashed"}},
        {"tool": "launch", "result": {"outcome": "ready", "pid": 7, "start_time": 1.0}},
    )

    def outcome(**flags: int) -> str:
        configuration = Configuration("cu128", {k.replace("_", "-"): v for k, v in flags.items()})
        return toolbox.launch(Launch(key="k", launch="L", configuration=configuration, log="l")).outcome

    assert [outcome(tp_size=8), outcome(tp_size=4, ep_size=4), outcome(), outcome(tp_size=8)] == [
        "ready", "crashed", "ready", "ready",
    ]  # fmt: skip


def test_a_script_leaves_files_to_the_campaign_and_the_rest_empty(tmp_path: Path) -> None:
    files = Fake()
    toolbox = scripted(
        tmp_path, {"tool": "read_text", "request": {"path": "a.md"}, "result": {"text": "scripted"}}, files=files
    )
    assert toolbox.read_text(ReadText(path="a.md")).text == "scripted"
    assert toolbox.read_text(ReadText(path="b.md")).text == "old"
    assert toolbox.probe(ProbeWorld(environment="cu128")).gpus is None
    for tool, request in EFFECTS.items():
        ask(toolbox, tool, request)
    assert [tool for tool, _ in files.asked] == ["read_text"]
