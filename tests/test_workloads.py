"""What was measured is known with the workload it was measured under, and numbers of two workloads are never mixed."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from optagent.agent.experiments import BASELINE, CONFIRM, ITEM, Experiment, Failure, Run
from optagent.agent.jsonable import from_body, to_body
from optagent.agent.ledger import Ledger, fold
from optagent.agent.ledger_view import ledger_view
from optagent.agent.records import Baseline, Measurement, Under
from optagent.agent.situation import baseline_check, is_confirmed
from optagent.agent.total_gain import side_by_side, total_gain
from optagent.agent.workloads import called, record_under, same, telling, under_of
from optagent.tools.calls.bench import Workload
from optagent.tools.calls.configuration import Configuration
from optagent.tools.journal_store import Draft, JournalStore, MemoryJournal

METRIC = "output_throughput"
OWN = Workload(name="mine", input_len=256, max_concurrency=8)
EIGHT, FOUR = Under("e" * 12, "eight-streams", METRIC), Under("f" * 12, "four-streams", METRIC)
START, BEST = Configuration("cu128", {"tp-size": 1}), Configuration("cu128", {"tp-size": 2})


@pytest.mark.parametrize(
    ("workload", "metric", "is_same"),
    [
        (OWN.model_copy(update={"name": "yours"}), METRIC, True),
        (OWN.model_copy(update={"prompts": "of no use to random ids.jsonl"}), METRIC, True),
        (Workload.model_validate(OWN.model_dump(mode="json")), METRIC, True),
        (OWN, "median_tpot_ms", False),
        (OWN.model_copy(update={"max_concurrency": 4}), METRIC, False),
        (OWN.model_copy(update={"dataset": "custom", "prompts": "a.jsonl"}), METRIC, False),
        (OWN.model_copy(update={"seed": 7}), METRIC, False),
    ],
)
def test_a_workload_is_known_by_its_content(workload: Workload, metric: str, is_same: bool) -> None:
    assert same(under_of(OWN, METRIC), under_of(workload, metric)) is is_same


def test_a_preset_is_the_same_as_its_content_written_out() -> None:
    preset = Workload.model_validate({"name": "throughput-8"})
    written = {k: v for k, v in preset.model_dump().items() if k != "name"}
    own = Workload.model_validate({"name": "by hand", **written})
    assert under_of(own, METRIC).mark == under_of(preset, METRIC).mark
    assert under_of(preset, METRIC).mark != under_of(Workload(), METRIC).mark


def test_what_is_not_known_counts() -> None:
    assert same(None, EIGHT)
    assert same(EIGHT, None)
    assert same(EIGHT, replace(EIGHT, workload="called otherwise"))
    assert not same(EIGHT, FOUR)


@pytest.mark.parametrize(
    ("others", "name"),
    [
        ([FOUR], "eight-streams"),
        ([Under("m", "eight-streams", "median_tpot_ms")], f"eight-streams ({METRIC})"),
        ([Under("m", "eight-streams", METRIC)], f"eight-streams ({EIGHT.mark})"),
    ],
)
def test_a_name_tells_workloads_apart(others: list[Under], name: str) -> None:
    assert called(EIGHT, {u.mark: u for u in [EIGHT, *others]}) == name


@pytest.mark.parametrize(("under", "now", "kept"), [(EIGHT, EIGHT, True), (None, FOUR, True), (EIGHT, FOUR, False)])
def test_a_record_of_another_workload_is_none(under: Under | None, now: Under, kept: bool) -> None:
    measured = Baseline(BEST, Measurement(METRIC, 220.0, verified=True, under=under))
    assert record_under(measured, now) == (measured if kept else Baseline(BEST))


def test_of_another_workload_only_what_did_not_come_to_serve_tells_anything() -> None:
    made = Experiment("E1", ITEM, "x", START, "S1", candidate=BEST, runs=(Run("baseline", 1, 9.0),), under=EIGHT)

    def failed(stage: str) -> Experiment:
        return replace(made, verdict="failed", failures=(Failure("candidate", stage, "gpu-oom", "no room"),))

    both = [replace(made, verdict="keep"), failed("load"), failed("launch"), made, replace(made, under=FOUR)]
    told = telling(both, FOUR)
    assert [e.failures for e in told] == [failed("launch").failures, ()]
    assert [len(e.runs) for e in told] == [0, 1], "numbers of the other workload are not among them"
    assert telling(both, EIGHT) == both[:4]
    assert telling(both, None) == both


def test_what_was_measured_under_is_written_and_read_back() -> None:
    measured = Measurement(METRIC, 1.0, under=EIGHT)
    assert from_body(Measurement, to_body(measured)) == measured
    assert "under" not in to_body(replace(measured, under=None))


# What a journal says


def sitting(number: int, under: Under | None) -> Draft:
    return Draft("sitting", {"id": f"S{number:03d}", **({"under": to_body(under)} if under else {})})


def kept(configuration: Configuration, value: float, under: Under | None = None) -> Draft:
    return Draft("baseline", to_body(Baseline(configuration, Measurement(METRIC, value, verified=True, under=under))))


def measured(number: int, values: list[float], verdict: str = "keep", effect: float | None = None) -> list[Draft]:
    """An experiment that launched the start."""
    name = f"E{number:04d}"
    body = {"id": name, "kind": BASELINE, "title": "baseline", "base": to_body(START)}
    runs = [Run("baseline", n, v, elapsed_s=60.0, openings=("a",), seed=n) for n, v in enumerate(values, 1)]
    return [
        Draft("experiment", body, name),
        *(Draft("run", {"experiment": name, "run": to_body(r)}) for r in runs),
        Draft("verdict", {"experiment": name, "verdict": verdict, "because": "so", "effect": effect}),
    ]


def held(number: int, effect: float) -> list[Draft]:
    """The best held against the start, side by side."""
    name = f"E{number:04d}"
    body = {"id": name, "kind": CONFIRM, "title": "all", "base": to_body(START), "candidate": to_body(BEST)}
    runs = [Run("baseline", 1, 100.0), Run("candidate", 1, 100.0 * (1 + effect))]
    return [
        Draft("experiment", body, name),
        *(Draft("run", {"experiment": name, "run": to_body(r)}) for r in runs),
        Draft("verdict", {"experiment": name, "verdict": "keep", "because": "so", "effect": effect}),
    ]


ENDED = Draft("sitting-ended", {"id": "S001"})


def ledger_of(*drafts: Draft) -> Ledger:
    journal = MemoryJournal()
    journal.append_all(drafts)
    return fold(journal.entries())


UNDER_EIGHT = (sitting(1, EIGHT), kept(START, 100.0), *measured(1, [100.0, 102.0]))


def test_noise_pools_and_costs_are_those_of_the_present_workload() -> None:
    before = ledger_of(*UNDER_EIGHT)
    assert len(before.launches_of(START)) == 2
    changed = ledger_of(*UNDER_EIGHT, sitting(2, FOUR))
    assert len(changed.launches_of(START)) == 0, "also where the first sitting was killed"
    assert (changed.openings, changed.run_s, changed.noise_in("cu128")) == ({}, [], None)
    more = (sitting(2, FOUR), *measured(2, [50.0, 60.0]))
    assert ledger_of(*UNDER_EIGHT, *more).noise_in("cu128") == ledger_of(sitting(1, FOUR), *more[1:]).noise_in("cu128")
    assert ledger_of(*UNDER_EIGHT, *more, sitting(3, EIGHT)).noise == before.noise, "and back again"


def test_an_experiment_that_is_given_up_leaves_its_noise_with_its_workload() -> None:
    *begun, verdict = UNDER_EIGHT
    ledger = ledger_of(*begun, sitting(2, FOUR), verdict)
    assert ledger.noise_in("cu128") is None
    assert ledger_of(*begun, sitting(2, FOUR), verdict, sitting(3, EIGHT)).noise == ledger_of(*UNDER_EIGHT).noise


def test_the_same_workload_under_another_name_changes_nothing() -> None:
    renamed = ledger_of(*UNDER_EIGHT, sitting(2, replace(EIGHT, workload="eight-users")))
    assert len(renamed.launches_of(START)) == 2
    assert renamed.noise == ledger_of(*UNDER_EIGHT).noise
    assert len(renamed.workloads) == 1


def test_a_check_of_the_baseline_counts_for_its_own_workload() -> None:
    ledger = ledger_of(*UNDER_EIGHT, sitting(2, FOUR))
    assert not baseline_check(ledger, Baseline(START), 0.03).measured
    assert baseline_check(ledger_of(*UNDER_EIGHT), Baseline(START), 0.03).measured


def test_a_journal_that_never_said_is_of_the_first_workload_that_is_named() -> None:
    old = (sitting(1, None), kept(START, 100.0), *measured(1, [100.0]), ENDED)
    assert ledger_of(*old).experiments["E0001"].under is None
    ledger = ledger_of(*old, sitting(2, EIGHT), sitting(3, FOUR))
    assert ledger.baseline is not None
    assert record_under(ledger.baseline, ledger.under) == Baseline(START)
    assert ledger.experiments["E0001"].under == EIGHT
    assert ledger.measured_here() == []


def test_the_first_baseline_is_measured_anew_with_the_baseline_that_it_is() -> None:
    again = ledger_of(*UNDER_EIGHT, sitting(2, FOUR), kept(START, 60.0))
    assert again.first_baseline == again.baseline
    kept_record = ledger_of(*UNDER_EIGHT, sitting(2, EIGHT), kept(START, 99.0)).first_baseline
    assert kept_record is not None
    assert kept_record.measurement is not None
    assert kept_record.measurement.value == 100.0


@pytest.mark.parametrize(
    ("more", "gain"),
    [
        ((kept(BEST, 150.0),), "+50.0% against the first baseline's record, not yet held side by side"),
        ((kept(BEST, 150.0), sitting(2, FOUR)), "+50.0% against the first baseline's record, under eight-streams, not"),
        ((kept(BEST, 150.0), sitting(2, FOUR), kept(BEST, 92.0)), "not known yet: the first baseline was measured under"),
        ((kept(BEST, 150.0), *held(2, 0.48)), "+48.0% against the first baseline, side by side in 1 pairs (E0002)"),
        ((kept(BEST, 150.0), *held(2, 0.48), sitting(2, FOUR)), "+48.0% against the first baseline, side by side in 1 "
         "pairs (E0002), under eight-streams; not known under the present workload yet"),
        ((kept(BEST, 150.0), *held(2, 0.48), sitting(2, FOUR), *held(3, 0.2)), "+20.0% against the first baseline, side"),
        ((sitting(2, FOUR), kept(START, 60.0)), ""),
    ],
)  # fmt: skip
def test_a_total_gain_is_of_one_workload(more: tuple[Draft, ...], gain: str) -> None:
    ledger = ledger_of(*UNDER_EIGHT, *more)
    assert total_gain(ledger).startswith(gain)
    assert bool(total_gain(ledger)) == bool(gain)


def test_a_confirmation_counts_for_its_own_workload() -> None:
    there = ledger_of(*UNDER_EIGHT, kept(BEST, 150.0), *held(2, 0.48))
    elsewhere = ledger_of(*UNDER_EIGHT, kept(BEST, 150.0), *held(2, 0.48), sitting(2, FOUR))
    for ledger, counts in ((there, True), (elsewhere, False)):
        assert ledger.baseline is not None
        assert is_confirmed(ledger, ledger.baseline, ledger.first_baseline) is counts
        assert (side_by_side(ledger) is not None) is counts


def test_a_figure_is_shown_with_its_workload_where_there_are_several() -> None:
    one, two = ledger_of(*UNDER_EIGHT), ledger_of(*UNDER_EIGHT, sitting(2, FOUR))
    assert [ledger_view(x)["baseline"]["workload"] for x in (one, two)] == [None, "eight-streams"]


@pytest.mark.parametrize("first", [True, False])
def test_what_was_measured_of_an_accepted_baseline_is_its_record(first: bool) -> None:
    question = {"id": "Q1", "reason": "baseline-moved", "text": "?", "why": "?"}
    asked = (
        Draft("first-baseline", kept(START if first else BEST, 80.0).body),
        *measured(2, [100.0]),
        *measured(3, [90.0], "inconclusive", -0.1),
        *measured(4, [92.0], "inconclusive", -0.08),
        ENDED,
        Draft("question", question, "Q1"),
        Draft("answer", {"id": "Q1", "answer": "accept"}),
    )
    ledger = ledger_of(*UNDER_EIGHT, *asked)
    assert ledger.baseline is not None
    record = ledger.baseline.measurement
    assert record is not None
    assert record.value == pytest.approx(90.995, abs=0.001)
    assert (record.runs, record.under) == (2, EIGHT)
    assert record.evidence == ("E0003", "E0004"), "what was measured while it was still as recorded is not among it"
    assert (ledger.first_baseline == ledger.baseline) is first


# A campaign whose owner changes the workload

PLAN = """# A plan of one

## 1. A faster attention kernel

```yaml
id: attention
change:
  flags: {attention-backend: triton}
```
"""
SETTINGS = {
    f"OPTAGENT_MEASURING__{key}": value
    for key, value in (("RUNS", "1"), ("CONFIRM_PAIRS", "2"), ("DISCARD_FIRST", "false"))
}


@dataclass
class Done:
    told: str
    said: dict[str, Any]
    ledger: Ledger
    screen: str
    handoff: str


@pytest.fixture(scope="module")
def sittings(tmp_path_factory: pytest.TempPathFactory) -> list[Done]:
    """A campaign up to its end, and a sitting more with four users instead of one."""
    folder = tmp_path_factory.mktemp("workloads") / "campaign"
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        env = {**os.environ, **SETTINGS, "OPTAGENT_DEPLOYMENT__PORT": str(probe.getsockname()[1])}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "optagent", *words]
        return subprocess.run(command, capture_output=True, text=True, env=env, timeout=300, check=False)

    def went_on() -> Done:
        ended = run("-C", str(folder), "continue", "--json")
        with JournalStore.open(folder / ".optagent" / "journal.db", create=False, read_only=True) as store:
            ledger = fold(store.entries())
        latest = max((folder / "handoffs").glob("0*.md")).read_text()
        return Done(
            ended.stderr, json.loads(ended.stdout or "{}"), ledger, run("-C", str(folder), "status").stdout, latest
        )

    assert run("init", str(folder)).returncode == 0
    (folder / "plans" / "plan.md").write_text(PLAN)
    toml: Path = folder / "optagent.toml"
    slow = 'cuda-graph-max-bs = 128\nattention-backend = "torch_native"'
    toml.write_text(toml.read_text().replace("cuda-graph-max-bs = 128", slow))
    first = went_on()
    env["OPTAGENT_WORKLOAD__MAX_CONCURRENCY"], env["OPTAGENT_WORKLOAD__NAME"] = "4", "four-users"
    return [first, went_on()]


def test_the_kept_configuration_stays_and_is_measured_anew_without_a_question(sittings: list[Done]) -> None:
    before, after = (done.ledger for done in sittings)
    assert before.baseline is not None
    assert after.baseline is not None
    assert before.item_status["attention"] == after.item_status["attention"] == "kept", sittings[0].told
    assert after.baseline.configuration == before.baseline.configuration
    assert not after.questions, sittings[1].told
    assert "the workload changed since" in sittings[1].told
    old, new = before.baseline.measurement, after.baseline.measurement
    assert old is not None
    assert new is not None
    assert new.under == after.under != old.under
    assert new.value > 1.5 * old.value, "four users get more out of it than one"


def test_the_gain_is_told_under_the_present_workload(sittings: list[Done]) -> None:
    before, after = (side_by_side(done.ledger) for done in sittings)
    assert before is not None
    assert after is not None
    assert after.id not in sittings[0].ledger.experiments, "both were launched again under it"
    assert sittings[1].said["total_gain"] == total_gain(sittings[1].ledger)
    assert after.id in sittings[1].said["total_gain"]


def test_screens_and_handoffs_name_the_workload_only_where_there_are_several(sittings: list[Done]) -> None:
    before, after = sittings
    assert "four-users" in " ".join(after.screen.split("plan  ")[0].split())
    assert "under four-users" in after.handoff
    assert "single-stream" in after.handoff, "what the first baseline gave is of the other"
    assert " under " not in before.screen.split("plan  ")[0]
    assert "under" not in before.handoff.split("claims:")[0]
