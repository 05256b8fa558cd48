"""What was learnt stays learnt: bundles taken apart, dead ends that reopen by themselves, ranks that evidence moves, over
several sittings of a campaign whose world is scripted."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from optagent.agent import experimenting as work
from optagent.agent.change import Change, apply_change
from optagent.agent.commands.going_on import decision_json
from optagent.agent.config import parse_config
from optagent.agent.decide import Decision, Verb
from optagent.agent.experiments import Failure
from optagent.agent.hand_off import compose
from optagent.agent.handoff.read import read_handoff
from optagent.agent.handoff.render import render_handoff
from optagent.agent.jsonable import to_body
from optagent.agent.ledger import Ledger
from optagent.agent.nodes import Round, decide_node, orient_node, reconcile_node
from optagent.agent.plan.model import Status
from optagent.agent.plan.read import read_plan
from optagent.agent.records import Baseline, DeadEnd, Measurement
from optagent.agent.session import LedgerJournal, Session
from optagent.agent.settling import settle
from optagent.agent.standing import Kind
from optagent.agent.verdict import Judgement, Verdict
from optagent.tools.calls.configuration import Configuration
from optagent.tools.calls.files import ReadText
from optagent.tools.calls.world import World
from optagent.tools.dry import DryToolbox
from optagent.tools.journal_store import MemoryJournal
from optagent.tools.live import LiveToolbox
from optagent.tools.recording import RecordingToolbox
from optagent.tools.stub import RecordedCall, Recording, ScriptedToolbox

BASE = Configuration("default", {"model-path": "tiny", "tp-size": 8})
CONFIG = """
name = "learnt"
[workload]
name = "{workload}"
[deployment]
kind = "simulator"
environment = "default"
[deployment.environments.default]
folder = "environments/default"
[deployment.environments.cu13]
folder = "environments/cu13"
[deployment.flags]
model-path = "tiny"
tp-size = 8
[measuring]
calibration_launches = 2
sentinel_launches = 1
"""
BOTH = """
id: both
status: open
change:
  flags: {page-size: 64}
  env: {NCCL_ALGO: Tree}
expected_gain: 5..10 %
"""
QUEUE = "id: queue\nstatus: open\nchange:\n  flags: {max-running-requests: 64}\nexpected_gain: 5..10 %\n"
AFTER = "id: after\nstatus: open\nchange:\n  flags: {stream-interval: 10}\nneeds: [both]\n"


def plan_of(*blocks: str) -> str:
    return "# A plan\n" + "".join(f"\n## {n}. Item {n}\n\n```yaml\n{b.strip()}\n```\n" for n, b in enumerate(blocks, 1))


class Listener:
    """Keeps the lines it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def tell(self, what: str, text: str) -> None:
        self.told.append(text)

    def now(self, text: str) -> None: ...

    def detail(self, text: str) -> None: ...


@dataclass
class Campaign:
    """A campaign in a folder, with its journal in memory. Its tools look at a scripted world and pretend every effect."""

    folder: Path
    journal: LedgerJournal = field(default_factory=lambda: LedgerJournal(MemoryJournal()))
    versions: dict[str, str] = field(default_factory=lambda: {"cuda": "12.8", "sglang": "0.5.23", "nccl": "2.27"})
    workload: str = "single-stream"
    listener: Listener = field(default_factory=Listener)

    @property
    def plan_path(self) -> Path:
        return self.folder / "plans" / "plan.md"

    @property
    def ledger(self) -> Ledger:
        return self.journal.ledger

    def begin(self, plan: str, *dead_ends: DeadEnd) -> Campaign:
        """The first sitting, with a baseline that is measured and dead ends that a handoff told of."""
        self.plan_path.parent.mkdir(parents=True)
        self.plan_path.write_text(plan)
        self.note("sitting", {"id": "S001"}, "S001")
        if dead_ends:
            self.note("took-over", {"handoff": "H0001", "dead_ends": to_body(dead_ends)}, "H0001")
        measured = Measurement("output_throughput", 100.0, runs=2, verified=True)
        self.note("baseline", Baseline(BASE, measured, "as it was found"))
        self.note(
            "experiment", {"id": "E0001", "kind": "baseline", "title": "baseline", "base": BASE, "goal": 2}, "E0001"
        )
        for n, value in enumerate((100.0, 100.4), 1):
            self.note("run", {"experiment": "E0001", "run": {"arm": "baseline", "pair": n, "value": value}})
        self.note("verdict", {"experiment": "E0001", "verdict": "keep", "because": "so", "effect": 0.0}, "E0001")
        return self

    def note(self, kind: str, body: Any, key: str | None = None) -> None:
        self.journal.append(kind, to_body(body), key, at="2026-03-14T09:00:00+00:00")

    def restarted(self, **changed: Any) -> Campaign:
        """Another process on the same folder, which knows what the journal says and no more."""
        memory = MemoryJournal()
        for e in self.journal.entries():
            memory.append(e.kind, e.body, e.key, e.at)
        return Campaign(
            self.folder, LedgerJournal(memory), **{"versions": self.versions, "workload": self.workload, **changed}
        )

    def session(self) -> Session:
        world = {"environments": {"default": True, "cu13": True}, "versions": self.versions}
        script = Recording("script", (RecordedCall(1, "probe", None, world),), {}, [], {}, {})
        config = parse_config(CONFIG.format(workload=self.workload))
        files = LiveToolbox(self.folder, config.deployment, lambda text: None)
        toolbox = RecordingToolbox(DryToolbox(ScriptedToolbox(script, files)), self.journal)
        return Session(config, toolbox, self.journal, self.listener)

    def decide(self) -> tuple[Round, Decision]:
        """Orient, reconcile and decide, as the state machine does; what is written into the plan stays there."""
        round_ = Round(self.session())
        orient_node({}, round_)
        reconcile_node({}, round_)
        decide_node({}, round_)
        self._keep_plan(round_.session)
        assert round_.decision is not None
        return round_, round_.decision

    def next_item(self) -> str:
        step = self.decide()[1].step
        return step.item.id if step is not None and step.item is not None else str(step.kind if step else None)

    def try_next(
        self, verdict: Verdict, *failures: Failure, effect: float | None = None, because: str = "so it was"
    ) -> str:
        """One experiment on whatever comes next, with this end; returns its item."""
        round_, decision = self.decide()
        assert decision.step is not None
        session = round_.session
        experiment = work.begin(session, decision.step)
        if experiment.candidate is None:
            candidate = apply_change(experiment.base, experiment.change)
            session.note("candidate", {"experiment": experiment.id, "configuration": candidate}, experiment.id)
        for failure in failures:
            session.note("failure", {"experiment": experiment.id, "failure": failure})
        low, high = (None, None) if effect is None else (effect - 0.005, effect + 0.005)
        judged = Judgement(verdict, because, effect, low, high)
        settle(session, round_.plan, self.ledger.experiments[experiment.id], judged, round_.facts)
        self._keep_plan(session)
        return str(experiment.item)

    def _keep_plan(self, session: Session) -> None:
        self.plan_path.write_text(session.toolbox.read_text(ReadText(path="plans/plan.md")).text or "")

    def statuses(self) -> dict[str, str]:
        return {i.id: str(i.status) for i in read_plan(self.plan_path.read_text()).items}


@pytest.fixture
def campaign(tmp_path: Path) -> Campaign:
    return Campaign(tmp_path)


NAMED = Failure(
    "candidate", "launch", "allreduce-unsupported", "NCCL_ALGO Tree has no kernels here", ("x.log:9: ncclInvalid",)
)
SILENT = Failure("candidate", "launch", "unknown", "Killed")


def standing_of(decision: Decision, item: str) -> Kind:
    return next(s.kind for s in decision.standings if s.item.id == item)


# Bundles


def test_the_part_that_the_failure_names_is_the_dead_end_and_the_rest_is_tried_next(campaign: Campaign) -> None:
    campaign.begin(plan_of(BOTH, QUEUE))
    assert campaign.try_next(Verdict.FAILED, NAMED) == "both"
    dead = campaign.ledger.dead_ends
    assert list(dead) == ["both~nccl-algo"]
    assert dead["both~nccl-algo"].change == Change(env={"NCCL_ALGO": "Tree"})
    assert dead["both~nccl-algo"].retry_when == "cuda>=13"
    assert campaign.next_item() == "both~page-size"
    assert campaign.statuses() == {"both": "dead", "queue": "open"}
    assert "split into both~page-size" in campaign.plan_path.read_text()
    assert len(read_plan(campaign.plan_path.read_text()).items) == 2, "parts are no items of the document"
    assert any("tried apart: both~page-size" in line for line in campaign.listener.told)


def test_it_survives_a_restart_and_nothing_is_split_twice(campaign: Campaign) -> None:
    campaign.begin(plan_of(BOTH, QUEUE))
    campaign.try_next(Verdict.FAILED, SILENT)
    again = campaign.restarted()
    assert again.next_item() == campaign.next_item() == "both~page-size"
    assert again.try_next(Verdict.FAILED, SILENT) == "both~page-size"
    assert again.next_item() == "both~nccl-algo"
    assert list(again.ledger.splits) == ["both"]
    assert again.try_next(Verdict.REVERT, effect=-0.02) == "both~nccl-algo"
    assert again.restarted().next_item() == "queue"


def test_what_came_of_the_parts_stands_in_the_handoff(campaign: Campaign) -> None:
    campaign.begin(plan_of(BOTH, QUEUE))
    campaign.try_next(Verdict.FAILED, NAMED)
    campaign.try_next(Verdict.KEEP, effect=0.07)
    round_, decision = campaign.decide()
    text = render_handoff(compose(round_.session, World(), decision.standings, "tested"))
    handoff = read_handoff(text, "handoff")
    lesson = next(line.text for line in handoff.lessons if "taken apart" in line.text)
    assert "both was taken apart" in lesson
    assert lesson.endswith("--page-size 64: kept")
    assert [d.id for d in handoff.dead_ends] == ["both~nccl-algo"]
    assert [a.item for a in handoff.attempts] == ["both", "both~page-size"]


@pytest.mark.parametrize(("end", "kind"), [(Verdict.KEEP, Kind.RUNNABLE), (Verdict.REVERT, Kind.BLOCKED)])
def test_what_needs_a_split_item_needs_its_parts(campaign: Campaign, end: Verdict, kind: Kind) -> None:
    campaign.begin(plan_of(BOTH, AFTER))
    campaign.try_next(Verdict.FAILED, NAMED)
    assert standing_of(campaign.decide()[1], "after") is Kind.BLOCKED
    campaign.try_next(end, effect=0.07)
    decision = campaign.decide()[1]
    assert standing_of(decision, "after") is kind
    if kind is Kind.BLOCKED:
        assert decision.reason != "nothing-runnable", "what it waits for will not come"


def test_a_bundle_that_gained_nothing_is_tried_part_by_part(campaign: Campaign) -> None:
    campaign.begin(plan_of(BOTH, QUEUE))
    campaign.try_next(Verdict.REVERT, effect=0.0)
    assert [p.id for p in campaign.ledger.splits["both"].parts] == ["both~page-size", "both~nccl-algo"]
    assert campaign.statuses()["both"] == "reverted"
    decision = campaign.decide()[1]
    assert standing_of(decision, "both") is Kind.DONE
    assert standing_of(decision, "both~page-size") is Kind.RUNNABLE


def test_a_bundle_that_was_kept_and_surprises_is_taken_out_part_by_part(campaign: Campaign) -> None:
    campaign.begin(plan_of(BOTH, QUEUE))
    campaign.try_next(Verdict.KEEP, effect=0.02)
    split = campaign.ledger.splits["both"]
    assert split.kept
    assert campaign.statuses()["both"] == "kept"
    assert campaign.try_next(Verdict.KEEP, effect=0.07) == "queue", "fresh items come first"
    step = campaign.decide()[1].step
    assert step is not None
    assert step.item is not None
    assert step.item.id == "both~page-size"
    assert step.without is not None
    assert step.without.flags == {"model-path": "tiny", "tp-size": 8, "max-running-requests": 64}
    assert step.without.env == {"NCCL_ALGO": "Tree"}


def test_with_a_part_that_is_known_to_fail_the_rest_is_tried_before_any_launch(campaign: Campaign) -> None:
    tree = DeadEnd("tree", "Tree", "no capture", change=Change(env={"NCCL_ALGO": "Tree"}), retry_when="nccl>=2.30")
    campaign.begin(plan_of(BOTH, QUEUE), tree)
    decision = campaign.decide()[1]
    assert decision.step is not None
    assert decision.step.item is not None
    assert decision.step.item.id == "both~page-size"
    assert standing_of(decision, "both") is Kind.DEAD
    assert campaign.statuses()["both"] == "dead"
    assert list(campaign.ledger.splits) == ["both"]
    assert campaign.restarted().next_item() == "both~page-size"
    assert {i["id"] for i in decision_json(decision)["items"]} >= {"both", "both~page-size", "queue"}


def test_the_rest_that_stands_in_the_plan_already_is_not_made_an_item(campaign: Campaign) -> None:
    tree = DeadEnd("tree", "Tree", "no capture", change=Change(env={"NCCL_ALGO": "Tree"}))
    page = "id: page\nstatus: open\nchange:\n  flags: {page-size: '64'}\n"
    campaign.begin(plan_of(BOTH, page), tree)
    assert campaign.next_item() == "page"
    assert campaign.ledger.splits == {}


def test_an_item_that_its_owner_edited_is_whole_again(campaign: Campaign) -> None:
    campaign.begin(plan_of(BOTH, QUEUE))
    campaign.try_next(Verdict.FAILED, SILENT)
    text = (
        campaign.plan_path.read_text()
        .replace("{page-size: 64}", "{page-size: 32}")
        .replace("status: dead", "status: open")
    )
    campaign.plan_path.write_text(text)
    assert campaign.next_item() == "both"


# Dead ends that reopen


def test_a_reverted_change_is_worth_another_look_under_another_workload(campaign: Campaign) -> None:
    campaign.begin(plan_of(QUEUE))
    campaign.try_next(Verdict.REVERT, effect=0.0)
    assert campaign.ledger.dead_ends["queue"].retry_when == "workload!=single-stream"
    same = campaign.decide()[1]
    assert (same.verb, same.reason) == (Verb.FINISH, "plan-finished"), "it is settled, and asks for nothing"
    other = campaign.restarted(workload="throughput-8")
    decision = other.decide()[1]
    assert standing_of(decision, "queue") is Kind.RUNNABLE
    assert decision.reopened == (("queue", "reopened: workload!=single-stream now holds"),)
    assert other.ledger.reopened == {"queue": "reopened: workload!=single-stream now holds"}
    assert other.try_next(Verdict.REVERT, effect=0.0) == "queue"
    assert other.ledger.dead_ends["queue"].retry_when == "workload!=throughput-8 and workload!=single-stream"
    back = other.restarted(workload="single-stream")
    assert back.decide()[1].reason == "plan-finished", "what was learnt under the first one was not forgotten"


def test_the_condition_of_a_workload_goes_through_a_handoff(campaign: Campaign) -> None:
    campaign.begin(plan_of(QUEUE))
    campaign.try_next(Verdict.REVERT, effect=0.0)
    round_, decision = campaign.decide()
    text = render_handoff(compose(round_.session, World(), decision.standings, "tested"))
    assert "Worth another look when workload!=single-stream" in text
    end = read_handoff(text, "handoff").dead_ends[0]
    assert end == campaign.ledger.dead_ends["queue"]


@pytest.mark.parametrize(("cuda", "open_"), [("12.8", False), ("13.0", True)])
def test_dead_ends_of_a_handoff_of_a_sitting_and_of_a_part_reopen_by_themselves(
    campaign: Campaign, cuda: str, open_: bool
) -> None:
    told = DeadEnd("fusion", "Fusion", "no kernels", change=Change(flags={"a": 1}), retry_when="cuda>=13")
    campaign.begin(plan_of(BOTH, QUEUE), told)
    campaign.try_next(Verdict.FAILED, NAMED)
    assert campaign.try_next(Verdict.REVERT, effect=0.0) == "both~page-size"
    missing = Failure("candidate", "launch", "unsupported-arch", "no kernel image")
    assert campaign.try_next(Verdict.FAILED, missing) == "queue"
    later = campaign.restarted(versions={**campaign.versions, "cuda": cuda})
    decision = later.decide()[1]
    reopened = {d for d, _ in decision.reopened}
    assert reopened == ({"fusion", "both~nccl-algo", "queue"} if open_ else set())
    assert standing_of(decision, "both") is Kind.DEAD, "its parts stand for it"
    if open_:
        assert all(because == "reopened: cuda>=13 now holds" for _, because in decision.reopened)
        assert later.ledger.reopened.keys() == reopened
    else:
        assert decision.reason == "plan-finished"


def test_a_question_about_another_environment_does_not_count_on_another_workload(campaign: Campaign) -> None:
    switch = "id: cu13\nstatus: open\nchange:\n  environment: cu13\n"
    campaign.begin(plan_of(QUEUE))
    campaign.try_next(Verdict.REVERT, effect=0.0)
    with campaign.plan_path.open("a") as plan:
        plan.write(f"\n## 2. CUDA 13\n\n```yaml\n{switch}```\n")
    decision = campaign.decide()[1]
    facts = " ".join(f for q in decision.questions for f in q.facts)
    assert "may gain" in facts
    assert "may reopen" not in facts


# Ranks

GRAPHS = "id: graphs\nstatus: open\nchange:\n  flags: {cuda-graph-max-bs-decode: 64}\nexpected_gain: 2..6 %\n"
MORE_GRAPHS = "id: more-graphs\nstatus: open\nchange:\n  flags: {cuda-graph-bs-decode: '1 2'}\nexpected_gain: 2..6 %\n"
CHUNKS = "id: chunks\nstatus: open\nchange:\n  flags: {page-size: 32}\nexpected_gain: 2..6 %\n"


def test_ranks_are_recorded_once_and_evidence_moves_items_with_a_line(campaign: Campaign) -> None:
    campaign.begin(plan_of(GRAPHS, MORE_GRAPHS, CHUNKS))
    campaign.try_next(Verdict.REVERT, effect=0.0)
    assert campaign.ledger.ranks == {"graphs": 1, "more-graphs": 2, "chunks": 3}
    assert campaign.next_item() == "chunks"
    line = "more-graphs moves from place 1 to 2: cuda graph: 0 of 1 kept (E0002)"
    assert campaign.listener.told.count(line) == 1
    assert list(campaign.statuses()) == ["graphs", "more-graphs", "chunks"], "the document stays as it is"
    entries = [e for e in campaign.journal.entries() if e.kind == "ranks"]
    assert len(entries) == 1


def test_a_line_is_told_once_as_long_as_nothing_changes(campaign: Campaign) -> None:
    campaign.begin(plan_of(GRAPHS, MORE_GRAPHS, CHUNKS))
    campaign.try_next(Verdict.REVERT, effect=0.0)
    round_ = Round(campaign.session())
    for node in (orient_node, reconcile_node, decide_node, decide_node):
        node({}, round_)
    assert sum("more-graphs moves" in line for line in campaign.listener.told) == 1


def test_the_owners_edit_wins_over_evidence(campaign: Campaign) -> None:
    campaign.begin(plan_of(GRAPHS, CHUNKS, QUEUE, MORE_GRAPHS))
    campaign.try_next(Verdict.REVERT, effect=0.0)
    head, one, two, three, four = campaign.plan_path.read_text().split("\n## ")
    sections = (re.sub(r"\A\d+", str(n), section) for n, section in enumerate((one, four, two, three), 1))
    campaign.plan_path.write_text("\n## ".join([head, *sections]))
    assert [i.id for i in read_plan(campaign.plan_path.read_text()).items] == [
        "graphs",
        "more-graphs",
        "chunks",
        "queue",
    ]
    assert campaign.next_item() == "more-graphs", "its family did not help, and its owner wants it now"


def test_it_says_why_nothing_moved_without_evidence(campaign: Campaign) -> None:
    campaign.begin(plan_of(GRAPHS, MORE_GRAPHS, CHUNKS))
    assert campaign.next_item() == "graphs"
    assert not [line for line in campaign.listener.told if "moves from" in line]


def test_status_of_parts_is_read_back_from_the_journal(campaign: Campaign) -> None:
    campaign.begin(plan_of(BOTH, QUEUE))
    campaign.try_next(Verdict.FAILED, NAMED)
    campaign.try_next(Verdict.INCONCLUSIVE, effect=0.0)
    assert campaign.restarted().ledger.item_status["both~page-size"] is Status.INCONCLUSIVE
    assert campaign.restarted().next_item() == "queue"
