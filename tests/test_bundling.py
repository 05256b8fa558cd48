"""Items that came in together: which combinations count, what is recorded of them, and how an item is taken out again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from optagent.agent.bundling import Bundle, bundles_of, to_take_out
from optagent.agent.change import Change, apply_change
from optagent.agent.config import CampaignConfig
from optagent.agent.experiments import BUNDLE, ITEM, SURVEY, Experiment, Outlook
from optagent.agent.plan.model import Item, Plan, Status
from optagent.agent.records import Baseline, Measurement
from optagent.agent.session import LedgerJournal, Session
from optagent.agent.settling import settle
from optagent.agent.verdict import Judgement, Verdict
from optagent.tools.calls.configuration import Configuration
from optagent.tools.dry import DryToolbox
from optagent.tools.journal_store import MemoryJournal
from optagent.tools.live import LiveToolbox

BASE = Configuration("default", {"tp-size": 8})
ROOT = Configuration("default", {"tp-size": 4})
A, B, C, D = (Item(name, name, 1, change=Change(flags={f"enable-{name}": True})) for name in "abcd")


def bundle(number: int, items: str, kept: bool = True, root: Configuration | None = ROOT) -> Bundle:
    return Bundle(f"E{number:04d}", tuple(items), kept, BASE, root)


@pytest.mark.parametrize(
    ("bundles", "looked_at", "taken_out"),
    [
        ([], [], ""),
        ([bundle(2, "abc", kept=False)], [], ""),
        ([bundle(2, "bcd")], [], ""),
        ([bundle(2, "abc")], [], "E0002"),
        ([bundle(2, "abc")], ["E0005"], ""),  # once
        ([bundle(4, "abc")], ["E0003"], "E0004"),  # it was taken out before, and came in again
        # the last one stands for all that were on then
        ([bundle(2, "abc"), bundle(5, "bc")], [], ""),
        ([bundle(2, "bc"), bundle(5, "abc")], [], "E0005"),
        ([bundle(2, "abc"), bundle(5, "ab")], ["E0003"], "E0005"),
        ([bundle(2, "abc"), bundle(5, "bc", kept=False)], [], "E0002"),
        # a change that was kept and then taken apart is a bundle of its own
        ([bundle(2, "abc", root=None)], [], "E0002"),
        ([bundle(2, "abc", root=None), bundle(5, "bc")], [], "E0002"),
        ([bundle(2, "abc"), bundle(5, "ad", root=None)], [], "E0005"),
        ([bundle(9, "abc")], ["E0010"], ""),
        ([bundle(10, "abc")], ["E0009"], "E0010"),
    ],
)
def test_what_came_in_together_is_taken_out_once(bundles: list[Bundle], looked_at: list[str], taken_out: str) -> None:
    found = to_take_out(A, bundles, looked_at)
    assert (found.experiment if found else "") == taken_out


def test_an_item_is_set_back_to_what_was_without_all_of_them() -> None:
    assert bundle(2, "abc").before == ROOT
    assert bundle(2, "abc", root=None).before == BASE


def test_only_combinations_that_have_their_verdict_count() -> None:
    looked = Experiment("E0002", SURVEY, "x", BASE, "S001", items=("a", "b"), root=ROOT, verdict="keep")
    others = (
        replace(looked, id="E0003", verdict="inconclusive"), replace(looked, id="E0004", verdict=""),
        replace(looked, id="E0005", kind=ITEM, items=()),
    )  # fmt: skip
    assert bundles_of([looked, *others]) == (bundle(2, "ab"), bundle(3, "ab", kept=False))


# What is recorded of a combination

CHANGE = Change(flags={"enable-a": True, "enable-b": True})
OUTLOOK = Outlook(4.7, 4.6, 0.01, 0.001, 0.0005)
SETTLED = {"a": Status.OPEN, "b": Status.OPEN, "c": Status.TRYING, "d": Status.KEPT}


@pytest.fixture
def session(tmp_path: Path) -> Session:
    config = CampaignConfig.model_validate({"name": "x", "deployment": {"kind": "simulator"}})
    files = LiveToolbox(tmp_path, config.deployment, lambda text: None)
    made = Session(config, DryToolbox(files), LedgerJournal(MemoryJournal()), Silent())
    made.note("sitting", {"id": "S001"}, "S001")
    made.note("baseline", Baseline(BASE, Measurement("output_throughput", 100.0, runs=2, verified=True), "as found"))
    for item, status in SETTLED.items():
        made.note("item-status", {"item": item, "status": status, "result": "before"})
    return made


class Silent:
    """A narrator that says nothing."""

    def tell(self, what: str, text: str) -> None: ...

    def now(self, text: str) -> None: ...

    def detail(self, text: str) -> None: ...


def tried(session: Session, kind: str, verdict: Verdict) -> Experiment:
    """The experiment on a and b, chosen from all four, and its verdict."""
    body: dict[str, Any] = {
        "id": "E0002", "kind": kind, "title": "2 of 4 items together", "base": BASE, "change": CHANGE, "items": ["a", "b"],
        "among": ["a", "b", "c", "d"], "root": ROOT, "outlook": OUTLOOK, "goal": 1,
        "candidate": apply_change(BASE, CHANGE),
    }  # fmt: skip
    session.note("experiment", body, "E0002")
    session.note("run", {"experiment": "E0002", "run": {"arm": "candidate", "pair": 1, "value": 120.0}})
    experiment = session.ledger.experiments["E0002"]
    settle(session, Plan("p", (A, B, C, D)), experiment, Judgement(verdict, "so it was", 0.2), {})
    return experiment


def changed(session: Session) -> Mapping[str, Status]:
    return {i: s for i, s in session.ledger.item_status.items() if s is not SETTLED[i]}


@pytest.mark.parametrize("kind", [SURVEY, BUNDLE])
def test_a_combination_that_gains_is_the_baseline_at_once(kind: str, session: Session) -> None:
    experiment = tried(session, kind, Verdict.KEEP)
    baseline = session.ledger.baseline
    assert baseline is not None
    assert baseline.configuration == experiment.candidate == apply_change(BASE, CHANGE)
    assert baseline.measurement is not None
    assert (baseline.measurement.value, baseline.measurement.verified) == (120.0, True)
    assert changed(session) == {"a": Status.TRYING, "b": Status.TRYING, "c": Status.OPEN}
    assert "E0002" in session.ledger.item_result["a"]
    assert session.ledger.item_result["d"] == "before"
    kept = bundles_of([session.ledger.experiments[name] for name in session.ledger.bundles])
    assert [(b.items, b.kept, b.root) for b in kept] == [(("a", "b"), True, ROOT)]
    assert (experiment.among, experiment.outlook) == (tuple("abcd"), OUTLOOK)


@pytest.mark.parametrize("kind", [SURVEY, BUNDLE])
@pytest.mark.parametrize("verdict", [Verdict.REVERT, Verdict.INCONCLUSIVE, Verdict.FAILED, Verdict.INVALID])
def test_a_combination_that_does_not_gain_changes_nothing(kind: str, verdict: Verdict, session: Session) -> None:
    tried(session, kind, verdict)
    assert session.baseline().configuration == BASE
    assert changed(session) == {}
    assert session.ledger.dead_ends == {}
