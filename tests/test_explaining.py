"""`optagent plan --why ITEM`: rank, evidence, and what would change it, with a journal and without one."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from optagent.agent.change import Change
from optagent.agent.commands import cli
from optagent.agent.commands.planning import show_plan
from optagent.agent.errors import BadInput
from optagent.agent.experiments import ITEM, Experiment
from optagent.agent.explaining import Explanation, explain, nearest
from optagent.agent.load import Load
from optagent.agent.outcomes import Evidence, Outcome
from optagent.agent.plan.model import Item, Plan, Risk, Status
from optagent.agent.records import Attempt, Baseline, DeadEnd, Measurement, Option, Question
from optagent.agent.situation import BaselineCheck, Situation
from optagent.agent.spending import Costs
from optagent.tools.calls.configuration import Configuration
from optagent.tools.journal_store import JournalStore

BASE = Configuration("cu128", {"tp-size": 8})
GRAPHS = Item("graphs", "Graphs", 1, 1, change=Change(flags={"cuda-graph-max-bs": 64}), expected_gain=(0.02, 0.06))
QUEUE = Item("queue", "Queue", 2, 2, change=Change(flags={"max-running-requests": 64}), expected_gain=(0.02, 0.06))
SWITCH = Item("cu13", "CUDA 13", 3, 3, change=Change(environment="cu13"), risk=Risk.HIGH, cost="40 minutes")
FUSION = Item("fusion", "Fusion", 4, None, status=Status.DEAD, change=Change(patch="f.diff"), retry_when="cuda>=13")
NEEDY = Item("needy", "Needy", 5, 4, change=Change(flags={"a": 1}), needs=("fusion", "gpu.count>=8"))
PROSE = Item("prose", "Prose", 6, 5)


def situation(*items: Item, **more: Any) -> Situation:
    plan = Plan("p", items or (GRAPHS, QUEUE, SWITCH, FUSION, NEEDY, PROSE))
    principles = SimpleNamespace(preserve_precision=True, allow_code_changes=True, forbidden_flags=[])
    baseline = Baseline(BASE, Measurement("output_throughput", 100.0, verified=True))
    facts = {"cuda": "12.8", "gpu.count": "4", "environment": "cu128", "workload": "single-stream"}
    plain = Situation(plan, baseline, baseline, principles, facts=facts, check=BaselineCheck(True), confirmed=True)
    return replace(plain, **more)


def told(
    name: str, of: Situation | None = None, *experiments: Experiment, attempts: tuple[Attempt, ...] = ()
) -> Explanation:
    found = explain(of or situation(), name, experiments, attempts)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("name", "standing", "changes"),
    [
        ("graphs", "runnable", ["nothing has to"]),
        (
            "cu13",
            "waiting",
            ["optagent answer ID approve|decline, once it is asked", 'approvals = ["cu13"] in optagent.toml'],
        ),
        ("fusion", "dead", ["cuda>=13 (cuda is 12.8)", "`status: open`"]),
        ("needy", "blocked", ["fusion has to be kept", "an edit"]),
        ("prose", "blocked", ["an edit of the item in the plan"]),
    ],
)
def test_where_an_item_stands_and_what_would_change_it(name: str, standing: str, changes: list[str]) -> None:
    found = told(name)
    assert found.standing == standing
    assert len(found.would_change) == len(changes)
    assert all(words in line for words, line in zip(changes, found.would_change, strict=True))


def test_a_need_that_is_a_condition_is_told_with_what_is_known() -> None:
    found = told("needy", situation(replace(FUSION, status=Status.KEPT), NEEDY))
    assert found.would_change[0] == "gpu.count>=8 (gpu.count is 4)"


def test_a_question_that_is_open_is_what_would_change_it() -> None:
    asked = Question("Q7", "needs-approval", "May I?", "yours", (Option("approve", ""), Option("decline", "")), "cu13")
    found = told("cu13", situation(questions=(asked,), status={"cu13": Status.PARKED}))
    assert found.would_change[0] == "optagent answer Q7 approve|decline"
    assert "Q7 (needs-approval): open" in found.evidence


def test_a_reverted_item_tells_its_condition_and_its_evidence() -> None:
    end = DeadEnd(
        "queue", "Queue", "+0.1 %", "slow", "queue", QUEUE.change, "workload!=single-stream", evidence=("E0004",)
    )
    done = Experiment("E0004", ITEM, "Queue", BASE, "S001", "queue", QUEUE.change or Change(), verdict="revert",
                      because="no gain", effect=0.001, low=-0.01, high=0.012)  # fmt: skip
    attempt = Attempt("X1", "Queue", "keep", "queue", because="somebody said so")
    reverted = {"queue": Status.REVERTED}
    of = situation(GRAPHS, replace(QUEUE, status=Status.REVERTED), dead_ends=(end,), status=reverted, written=reverted)
    found = told("queue", of, done, replace(done, id="E0005", item="graphs"), attempts=(attempt,))
    assert (found.standing, found.place, found.planned) == ("done", None, None)
    assert found.evidence[:3] == (
        "E0004: revert +0.1% [-1.0%, +1.2%]: no gain",
        "X1: keep: somebody said so (not verified)",
        "dead end queue: +0.1 %; evidence E0004",
    )
    assert found.would_change == (
        "workload!=single-stream (workload is single-stream)", "`status: open` in the plan has it tried once more",
    )  # fmt: skip


def test_opening_an_item_does_not_lift_the_dead_end_of_something_else() -> None:
    end = DeadEnd("d", "the same elsewhere", "it crashed", change=QUEUE.change)
    found = told("queue", situation(dead_ends=(end,)))
    assert found.standing == "dead"
    assert found.would_change == ()


def test_what_a_survey_foresees_of_an_item_is_told() -> None:
    load = Load(clients=64, tokens=1024.0)
    seen = situation(replace(QUEUE, change=Change(flags={"max-running-requests": 16})), surveying=True, load=load)
    (line,) = (e for e in told("queue", seen).evidence if "foreseen" in e)
    assert line.startswith("foreseen of --max-running-requests 16: -25.9%, max-running-requests 16 is less than the 64")
    assert not any("foreseen" in e for e in told("queue", replace(seen, surveying=False)).evidence)
    fit = replace(QUEUE, change=Change(flags={"attention-backend": "fa4"}))
    facts = {**seen.facts, "compute_capability": "8.0"}
    (line,) = (
        e for e in told("queue", situation(fit, surveying=True, load=load, facts=facts)).evidence if "foreseen" in e
    )
    assert line == "foreseen of --attention-backend fa4: hardly runs, it does not go with these cards or this model"


def test_rank_promise_chance_and_cost() -> None:
    lost = Outcome("E0002", frozenset({"cuda graph"}), False, 0.0, "other")
    of = situation(evidence=Evidence((lost, lost), costs=Costs(100.0, 20.0)))
    found = told("graphs", of)
    assert (found.rank, found.planned, found.place, found.to_try) == (1, 1, 2, 5)
    assert found.moved == "cuda graph: 0 of 2 kept (E0002, E0002)"
    assert found.promised == (0.02, 0.06)
    assert found.expected_gain == pytest.approx(0.04)
    assert found.chance == pytest.approx(2 / 6)
    assert (found.cost.launches, found.cost.seconds, found.cost.timed) == (4, 480, True)
    assert "x 0.67: cuda graph: 0 of 2 kept (E0002, E0002)" in found.evidence
    assert told("queue", of).moved == "others moved"
    assert told("cu13", of).cost.stated_s == 2400


def test_a_place_that_the_owner_gave_is_told() -> None:
    of = situation(ranks={"graphs": 2, "queue": 1, "cu13": 3, "needy": 4, "prose": 5})
    assert told("queue", of).placed_by_owner
    assert not told("cu13", of).placed_by_owner


@pytest.mark.parametrize(
    ("name", "meant"), [("graph", "graphs"), ("CU13", "cu13"), ("fusoin", "fusion"), ("need_y", "needy")]
)
def test_a_name_that_nothing_has(name: str, meant: str) -> None:
    assert explain(situation(), name, ()) is None
    assert nearest(name, situation())[0] == meant


def test_a_name_like_no_other_gets_some_ids() -> None:
    assert nearest("zzz", situation()) == ["graphs", "queue", "cu13"]


# The command

CONFIG = """
name = "why"
[deployment]
kind = "simulator"
environment = "default"
port = {port}
[deployment.environments.default]
folder = "environments/default"
[deployment.flags]
model-path = "tiny"
"""
PLAN = """# A plan

## 1. Graphs

```yaml
id: graphs
status: open
change:
  flags: {cuda-graph-max-bs: 64}
expected_gain: 2..6 %
cost: 40 minutes
```

## 2. Queue

```yaml
id: queue
status: open
change:
  flags: {max-running-requests: 64}
```
"""


@pytest.fixture
def folder(tmp_path: Path, free_port: int) -> Path:
    (tmp_path / "plans").mkdir()
    (tmp_path / "plans" / "plan.md").write_text(PLAN)
    (tmp_path / "optagent.toml").write_text(CONFIG.format(port=free_port))
    return tmp_path


@pytest.fixture
def free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def everything(folder: Path) -> dict[str, bytes]:
    """All files of the campaign, but for the machine that a simulated deployment is looked at on."""
    files = [p for p in folder.rglob("*") if p.is_file() and "simulation" not in p.parts]
    return {str(p.relative_to(folder)): p.read_bytes() for p in files}


def test_it_works_before_anything_was_recorded_and_leaves_no_trace(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = everything(folder)
    assert show_plan(folder, None, check=False, as_json=True, why="graphs") == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["item"], said["rank"], said["place"], said["standing"]) == ("graphs", 1, 1, "runnable")
    assert said["cost"]["stated_s"] == 2400
    assert said["evidence"] == []
    assert set(said) == set(Explanation.__dataclass_fields__)
    assert everything(folder) == before


def test_the_screen_says_it_in_lines(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert show_plan(folder, None, check=False, as_json=False, why="queue") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "queue: Queue"
    assert [line.split()[0] for line in lines[1:]] == [
        "rank",
        "promise",
        "chance",
        "cost",
        "standing",
        "evidence",
        "changes",
    ]
    assert "the time of a launch is assumed" in lines[4]


def test_it_reads_the_journal_and_changes_nothing_in_it(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = folder / ".optagent" / "journal.db"
    path.parent.mkdir()
    with JournalStore.open(path, create=True) as store:
        store.append("sitting", {"id": "S001"}, "S001")
        base = {"environment": "default", "flags": {"model-path": "tiny"}}
        store.append("baseline", {"configuration": base})
        body = {"id": "E0001", "kind": "item", "title": "Queue", "item": "queue", "base": base,
                "change": {"flags": {"max-running-requests": 64}}}  # fmt: skip
        store.append("experiment", body, "E0001")
        store.append(
            "verdict", {"experiment": "E0001", "verdict": "revert", "because": "no gain", "effect": 0.001}, "E0001"
        )
        store.append("item-status", {"item": "queue", "status": "reverted", "result": "E0001: no gain"})
        entries = store.last_seq()
    show_plan(folder, None, check=False, as_json=True, why="queue")
    said = json.loads(capsys.readouterr().out)
    assert said["standing"] == "done"
    assert said["evidence"] == ["E0001: revert +0.1%: no gain"]
    with JournalStore.open(path, create=False, read_only=True) as store:
        assert store.last_seq() == entries


def test_a_name_that_no_item_has_ends_with_2_and_the_nearest(folder: Path) -> None:
    with pytest.raises(BadInput, match="no item is called 'graph'; did you mean graphs") as error:
        show_plan(folder, None, check=False, as_json=False, why="graph")
    assert error.value.exit_status == 2


@pytest.mark.parametrize(("file", "check"), [(Path("other.md"), False), (None, True)])
def test_what_does_not_go_with_it(folder: Path, file: Path | None, check: bool) -> None:
    with pytest.raises(BadInput, match="--why"):
        show_plan(folder, file, check=check, as_json=False, why="graphs")


def test_the_command_line_has_it(folder: Path) -> None:
    done = CliRunner().invoke(cli, ["-C", str(folder), "plan", "--why", "graphs", "--json"], standalone_mode=False)
    assert json.loads(done.output)["item"] == "graphs"
    assert "--why ITEM" in CliRunner().invoke(cli, ["plan", "--help"]).output
