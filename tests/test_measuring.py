"""From a benchmark run to what an experiment counts: validity against the baseline's own runs, and what is kept."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optagent.agent.cells import Cell
from optagent.agent.config import CampaignConfig
from optagent.agent.experiments import BASELINE, ITEM, Experiment, Run
from optagent.agent.ledger import Ledger
from optagent.agent.measuring import measure, run_of
from optagent.agent.records import Baseline, Measurement
from optagent.agent.session import LedgerJournal, Session
from optagent.agent.validity import MORE_THAN_BASELINE, repetitive_shares, too_repetitive
from optagent.tools.calls.bench import BenchRun
from optagent.tools.calls.configuration import Configuration
from optagent.tools.journal_store import MemoryJournal
from optagent.tools.recording import RecordingToolbox
from optagent.tools.replaying import ReplayToolbox
from optagent.tools.stub import ScriptedToolbox, load_recording

METRIC = "output_throughput"
CANDIDATE, BASE = Cell("E0001", "candidate", 1), Cell("E0001", "baseline", 1)
PLAIN, CHANGED = Configuration("default"), Configuration("default", {"tp-size": 2})


def done(**change: Any) -> BenchRun:
    return BenchRun.model_validate(
        {"valid": True, "metrics": {METRIC: 200.0, "median_ttft_ms": 9.0, "seed": 1.0}, "result_file": "r.jsonl"}
        | change
    )


def test_what_is_kept_of_a_run() -> None:
    run = run_of(CANDIDATE, done(cache="flushed", cached_share=0.01, repetitive=0.5), METRIC, [0.5])
    assert (run.value, run.valid, run.because, run.evidence) == (200.0, True, "", "r.jsonl")
    assert run.metrics == {
        METRIC: 200.0, "median_ttft_ms": 9.0, "cache_flushed": 1.0, "cached_share": 0.01, "repetitive": 0.5,
    }  # fmt: skip


def test_what_is_not_known_is_not_kept() -> None:
    assert run_of(BASE, done(), METRIC).metrics == {METRIC: 200.0, "median_ttft_ms": 9.0}
    assert run_of(BASE, done(cache="kept"), METRIC).metrics["cache_flushed"] == 0.0


@pytest.mark.parametrize(
    ("change", "because"),
    [
        ({"metrics": {}}, f"the result has no {METRIC}"),
        ({"metrics": {METRIC: 0.0}}, f"the result has no {METRIC}"),
        ({"valid": False, "invalid_because": ["a", "b"]}, "a; b"),
        ({"valid": False, "invalid_because": ["a"], "metrics": {}}, "a"),
        (
            {"repetitive": 0.8},
            "80% of the answers repeat one short group of words over and over, of the baseline's 50% at most",
        ),
        (
            {"valid": False, "invalid_because": ["a"], "repetitive": 1.0},
            "a; 100% of the answers repeat one short group of words over and over, of the baseline's 50% at most",
        ),
    ],
)
def test_runs_that_do_not_count(change: dict[str, Any], because: str) -> None:
    run = run_of(CANDIDATE, done(**change), METRIC, [0.1, 0.5])
    assert (run.valid, run.because) == (False, because)


def test_the_baseline_is_its_own_measure() -> None:
    assert run_of(BASE, done(repetitive=1.0), METRIC).valid


@pytest.mark.parametrize(
    ("share", "known", "counts"),
    [
        (None, [], True),
        (None, [0.0], True),
        (0.9, [], True),
        (0.91, [], False),
        (0.25, [0.0], True),
        (0.26, [0.0], False),
        (0.75, [0.1, 0.5, 0.2], True),
        (0.76, [0.1, 0.5, 0.2], False),
        (1.0, [0.75], True),
    ],
)
def test_how_much_repetition_is_too_much(share: float | None, known: list[float], counts: bool) -> None:
    assert (too_repetitive(share, known) is None) == counts


@pytest.mark.parametrize("discard_first", [True, False])
def test_a_run_is_asked_for_and_recorded(discard_first: bool, tmp_path: Path) -> None:
    """Both arms of a pair get the same prompts, other pairs get others; the first load is discarded unless told."""
    asked = tmp_path / "script.jsonl"
    result = {"valid": True, "metrics": {METRIC: 200.0}, "repetitive": 0.95, "warnings": ["looks odd"]}
    asked.write_text(json.dumps({"tool": "bench", "result": result}) + "\n")
    config = CampaignConfig.model_validate({"name": "x", "measuring": {"discard_first": discard_first}})
    script, lines = load_recording(asked), []
    journal = LedgerJournal(MemoryJournal())
    toolbox = RecordingToolbox(ScriptedToolbox(script, ReplayToolbox(script)), journal, lines.append)
    told = Told()
    session = Session(config, toolbox, journal, told)
    session.note("sitting", {"id": "S001"})
    session.note("experiment", {"id": "E0001", "kind": ITEM, "title": "t", "base": PLAIN, "candidate": CHANGED})
    experiment = session.ledger.experiments["E0001"]
    cells = (CANDIDATE, BASE, Cell("E0001", "baseline", 2))
    runs = [run for cell in cells for run in measure(session, experiment, cell, "http://x")]
    requests = [line["request"] for line in lines]
    assert [request["seed"] for request in requests] == [43, 43, 44]
    assert {request.get("discard_first", False) for request in requests} == {discard_first}
    assert len({request["result_file"] for request in requests}) == 3
    assert [run.valid for run in runs] == [False, True, True], "so repetitive a candidate does not count"
    assert session.ledger.experiments["E0001"].runs == tuple(runs)
    assert ("note", "E0001-baseline-1: looks odd") in told.lines


@pytest.mark.parametrize(
    ("kind", "recorded", "launch_s", "measuring", "runs"),
    [
        (BASELINE, False, 120.0, {}, 1),
        (BASELINE, False, 45.0, {}, 1),
        (BASELINE, False, 44.0, {}, 3),  # launches that cheap are no reason for a survey
        (BASELINE, False, 44.0, {"survey_from_s": 0}, 1),
        (BASELINE, False, None, {}, 3),  # what a launch takes is not known yet
        (BASELINE, False, 120.0, {"pool": False}, 3),
        (BASELINE, True, 120.0, {}, 3),  # its noise is wanted
        (ITEM, False, 120.0, {}, 3),
    ],
)
def test_before_a_survey_the_baseline_s_first_run_is_enough(
    kind: str, recorded: bool, launch_s: float | None, measuring: dict[str, Any], runs: int, tmp_path: Path
) -> None:
    result = {"valid": True, "metrics": {METRIC: 200.0}, "elapsed_s": 30.0}
    recording = tmp_path / "script.jsonl"
    recording.write_text(json.dumps({"tool": "bench", "result": result}) + "\n")
    script = load_recording(recording)
    config = CampaignConfig.model_validate({"name": "x", "measuring": measuring})
    journal = LedgerJournal(MemoryJournal())
    session = Session(config, ScriptedToolbox(script, ReplayToolbox(script)), journal, Told())
    session.note("sitting", {"id": "S001"})
    session.note("intent", {"tool": "launch", "request": {"launch": "E0001-baseline-1"}}, "k")
    ready = {"outcome": "ready", "pid": 7, "start_time": 1.5, "elapsed_s": launch_s}
    session.note("result", {"tool": "launch", "result": ready}, "k")
    if recorded:
        session.note("baseline", Baseline(PLAIN, Measurement(METRIC, 200.0)))
    session.note("experiment", {"id": "E0001", "kind": kind, "title": "t", "base": PLAIN, "repeats": 3})
    assert len(measure(session, session.ledger.experiments["E0001"], BASE, "http://x")) == runs


class Told:
    """A narrator that remembers."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str]] = []

    def tell(self, what: str, text: str) -> None:
        self.lines.append((what, text))

    def now(self, text: str) -> None:
        pass

    def detail(self, text: str) -> None:
        pass


shares = st.floats(0, 1)


@given(shares, st.lists(shares, min_size=1), shares)
def test_more_knowledge_of_the_baseline_never_makes_it_stricter(share: float, known: list[float], more: float) -> None:
    if too_repetitive(share, known) is None:
        assert too_repetitive(share, [*known, more]) is None
    if share <= max(known) + MORE_THAN_BASELINE:
        assert too_repetitive(share, known) is None


def test_shares_are_those_of_the_same_configuration() -> None:
    def run(arm: str, share: float | None, valid: bool = True) -> Run:
        return Run(arm, 1, 1.0, valid, metrics={} if share is None else {"repetitive": share})

    calibration = Experiment("E0001", BASELINE, "", PLAIN, "S001", runs=(run("baseline", 0.1), run("baseline", None)))
    kept = Experiment(
        "E0002", ITEM, "", PLAIN, "S001", candidate=CHANGED,
        runs=(run("candidate", 0.2), run("baseline", 0.3), run("baseline", 0.9, valid=False)),
    )  # fmt: skip
    later = replace(kept, id="E0003", base=CHANGED, candidate=None, runs=(run("candidate", 0.4), run("baseline", 0.5)))
    ledger = Ledger(experiments={e.id: e for e in (calibration, kept, later)})
    assert repetitive_shares(ledger, PLAIN) == [0.1, 0.3]
    assert repetitive_shares(ledger, CHANGED) == [0.2, 0.5]
