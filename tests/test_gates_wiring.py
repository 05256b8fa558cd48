"""The gate within a campaign: what is asked when, what it is held against, what the journal keeps, who is to blame."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from optagent.agent.cells import Cell
from optagent.agent.change import Change
from optagent.agent.config import CampaignConfig, Gate
from optagent.agent.dead_ends import retry_condition
from optagent.agent.experiments import BASELINE, CONFIRM, ITEM, Experiment, Failure
from optagent.agent.gates.references import references_of
from optagent.agent.gating import gate, mark_of
from optagent.agent.nodes import Round, State, diagnose_node
from optagent.agent.plan.model import Status
from optagent.agent.plan.read import read_plan
from optagent.agent.session import LedgerJournal, Session
from optagent.agent.settling import settle
from optagent.agent.verdict import Verdict
from optagent.tools.calls.configuration import Configuration
from optagent.tools.calls.gate import Agreement, Comparison, Examined, Pass
from optagent.tools.journal_store import MemoryJournal
from optagent.tools.recording import RecordingToolbox
from optagent.tools.stub import RecordedCall, Recording, ScriptedToolbox

BASE = Configuration("cu128", {"max-running-requests": 2}, {}, {}, "a1")
FASTER = replace(BASE, flags={"max-running-requests": 16})
PATCHED = replace(BASE, revision="b2")
OTHER_FIRST = replace(BASE, flags={"max-running-requests": 1})
SETTINGS = Gate(prompts=32, max_tokens=16, concurrency=8, texts=2)


class Listener:
    """Keeps the lines it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []

    def tell(self, what: str, text: str) -> None:
        self.told.append((what, text))

    def now(self, text: str) -> None: ...

    def detail(self, text: str) -> None: ...


def examined(**changed: Any) -> Examined:
    passes = [Pass(concurrency=c, tokens=512, stopped=4, latency_s=1.0) for c in (1, 8)]
    return Examined(**{"passes": passes, "variety": 1.0, **changed})


def compared(exact: float = 1.0, early: float = 0.0, kl: float | None = 0.0) -> Comparison:
    """Of an examination with whatever file it is held against."""
    seen = [Agreement(concurrency=c, exact=exact, early=early, prefix=exact, finish=0, length=1) for c in (1, 8)]
    return Comparison(reference="?", agreement=seen, kl=kl, far=0.0, scored=9000, decode_kl=kl)


@dataclass
class Campaign:
    """A session in memory on scripted tools. `asked` are the requests that reached the server, as (tool, request)."""

    settings: Gate = SETTINGS
    journal: LedgerJournal = field(default_factory=lambda: LedgerJournal(MemoryJournal()))
    listener: Listener = field(default_factory=Listener)
    asked: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.journal.append("sitting", {"id": "S001"}, "S001", at="2026-03-14T09:00:00+00:00")

    def begin(self, kind: str, base: Configuration = BASE, candidate: Configuration | None = None, **more: Any) -> str:
        name = f"E{len(self.journal.ledger.experiments) + 1:04d}"
        body: dict[str, Any] = {"id": name, "kind": kind, "title": name, "base": base, "goal": 3, **more}
        if candidate is not None:
            body["candidate"] = candidate
        self.session({}).note("experiment", body, name)
        return name

    def session(self, answers: dict[str, dict[str, Any]]) -> Session:
        """A session whose server gives these results, by tool."""
        calls = [RecordedCall(n, tool, None, result) for n, (tool, result) in enumerate(answers.items(), 1)]
        nothing = Recording("script", (), {}, [], {}, {})
        scripted = ScriptedToolbox(replace(nothing, calls=tuple(calls)), ScriptedToolbox(nothing, None))  # type: ignore[arg-type]
        toolbox = RecordingToolbox(
            scripted, self.journal, lambda line: self.asked.append((line["tool"], line["request"]))
        )
        return Session(CampaignConfig(name="c", gate=self.settings), toolbox, self.journal, self.listener)

    def experiment(self, name: str) -> Experiment:
        return self.journal.ledger.experiments[name]

    def gate(
        self,
        name: str,
        arm: str,
        found: Examined | None = None,
        pair: int = 1,
        evaluated: dict[str, Any] | None = None,
        **by_role: Comparison,
    ) -> Failure | None:
        """Gate one launch. What it finds is held against its references as `by_role` says, or not at all."""
        experiment, cell = self.experiment(name), Cell(name, arm, pair)
        session = self.session({})
        file = f".optagent/gates/{cell.name}-{mark_of(session, experiment, cell)}.json.gz"
        found = found or examined()
        if not found.problem:
            comparisons = [
                by_role[r.role].model_copy(update={"reference": r.examined.file})
                for r in references_of(self.journal.ledger, experiment, arm)
                if r.role in by_role
            ]
            found = found.model_copy(update={"file": file, "comparisons": comparisons})
        answers = {"examine": found.model_dump(mode="json", exclude_defaults=True)}
        if evaluated is not None:
            answers["evaluate"] = evaluated
        return gate(self.session(answers), experiment, cell, "http://stub")

    def verdict(self, name: str, word: str = "keep") -> None:
        self.journal.append("verdict", {"experiment": name, "verdict": word, "because": "so"}, name)

    def with_baseline(self) -> Campaign:
        """After a baseline experiment whose first two launches were gated."""
        name = self.begin(BASELINE)
        assert self.gate(name, "baseline") is None
        assert self.gate(name, "baseline", pair=2, itself=compared()) is None
        self.verdict(name)
        self.asked.clear()
        self.listener.told.clear()
        return self


@pytest.fixture
def campaign() -> Campaign:
    return Campaign()


def test_two_launches_of_a_new_baseline_are_gated(campaign: Campaign) -> None:
    name = campaign.begin(BASELINE)
    for pair in (1, 2, 3):
        assert campaign.gate(name, "baseline", pair=pair, itself=compared(exact=31 / 32)) is None
    assert [tool for tool, _ in campaign.asked] == ["examine", "examine"]
    first, second = (request for _, request in campaign.asked)
    assert first["file"] != second["file"]
    assert (first.get("references", []), second["references"]) == ([], [first["file"]])
    assert len(first["prompts"]) == 32
    assert len(first["texts"]) == 2
    assert campaign.listener.told == [
        ("plain", "gate passed: 32 prompts answered, with nothing to hold them against yet"),
        ("plain", "gate passed: alone 31, 8 at a time 31 of 32 answers as at its first launch; KL 0"),
    ]
    assert len(campaign.journal.ledger.band_of(BASE)) == 1


def test_a_launch_that_is_begun_again_after_a_crash_is_not_the_second_one(campaign: Campaign) -> None:
    name = campaign.begin(BASELINE)
    for pair in (1, 1, 2):
        assert campaign.gate(name, "baseline", pair=pair, itself=compared()) is None
    assert (len(campaign.asked), len(campaign.listener.told)) == (2, 2)
    assert len(campaign.journal.ledger.band_of(BASE)) == 1


def test_a_baseline_that_differs_from_itself_is_not_wrong(campaign: Campaign) -> None:
    name = campaign.begin(BASELINE)
    campaign.gate(name, "baseline")
    assert campaign.gate(name, "baseline", pair=2, itself=compared(exact=0.0, early=1.0, kl=3.0)) is None
    assert [what for what, _ in campaign.listener.told] == ["plain", "plain", "note"]


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (Examined(), "no answer at all"),
        (Examined(problem="nothing was answered: timed out"), "timed out"),
        (examined(accept_length=1.0), "every draft is rejected"),
    ],
)
def test_a_baseline_that_answers_wrongly_is_not_measured(found: Examined, says: str, campaign: Campaign) -> None:
    name = campaign.begin(BASELINE)
    failure = campaign.gate(name, "baseline", found)
    assert failure is not None
    assert (failure.arm, failure.stage, failure.kind) == ("baseline", "gate", "wrong-output")
    assert says in failure.summary
    assert campaign.journal.last("gate") is None


def test_a_failing_baseline_is_asked_anew_when_it_is_tried_again(campaign: Campaign) -> None:
    name = campaign.begin(BASELINE)
    failure = campaign.gate(name, "baseline", Examined())
    campaign.session({}).note("failure", {"experiment": name, "failure": failure})
    assert campaign.gate(name, "baseline") is None
    files = [request["file"] for _, request in campaign.asked]
    assert files[1] == files[0].replace(".json.gz", "-try2.json.gz")


def test_each_arm_of_an_item_is_gated_once(campaign: Campaign) -> None:
    campaign.with_baseline()
    name = campaign.begin(ITEM, BASE, FASTER)
    for pair in (1, 2):
        assert campaign.gate(name, "candidate", pair=pair, base=compared()) is None
        assert campaign.gate(name, "baseline", pair=pair, itself=compared()) is None
    assert len(campaign.asked) == 2
    assert campaign.experiment(name).gated == ("candidate", "baseline")
    assert campaign.listener.told[0] == (
        "plain", "gate passed: alone 32, 8 at a time 32 of 32 answers the same as the baseline's; KL 0",
    )  # fmt: skip
    assert len(campaign.journal.ledger.band_of(BASE)) == 2


def test_after_a_crash_nothing_is_asked_twice(campaign: Campaign) -> None:
    """Killed after the examination and before its entry; and again after the entry and before the benchmark."""
    campaign.with_baseline()
    name = campaign.begin(ITEM, BASE, FASTER)
    other = Campaign(SETTINGS, LedgerJournal(MemoryJournal()))
    other.with_baseline()
    assert other.begin(ITEM, BASE, FASTER) == name
    other.gate(name, "candidate", base=compared(early=0.5))
    kept = [e for e in other.journal.entries() if e.kind in ("intent", "result") and str(e.key).startswith(name)]
    assert len(kept) == 2
    for entry in kept:
        campaign.journal.append(entry.kind, entry.body, entry.key)
    failure = campaign.gate(name, "candidate", base=compared())
    assert failure is not None, "what was found before the crash counts"
    assert campaign.asked == []
    campaign.gate(name, "baseline", itself=compared())
    campaign.gate(name, "baseline", itself=compared())
    assert len(campaign.asked) == 1


def test_other_questions_are_another_gate(campaign: Campaign) -> None:
    name = campaign.begin(ITEM, BASE, FASTER)
    cell = Cell(name, "candidate", 1)
    mark = mark_of(campaign.session({}), campaign.experiment(name), cell)
    assert mark == mark_of(campaign.session({}), campaign.experiment(name), cell)
    campaign.settings = SETTINGS.model_copy(update={"max_tokens": 32})
    assert mark != mark_of(campaign.session({}), campaign.experiment(name), cell)


def test_a_wrong_candidate_is_invalid_with_its_evidence(campaign: Campaign) -> None:
    campaign.with_baseline()
    name = campaign.begin(ITEM, BASE, PATCHED)
    cut = [Pass(concurrency=c, short=9, problems=["prompt 3: 7 tokens instead of 16"]) for c in (1, 8)]
    failure = campaign.gate(name, "candidate", examined(passes=cut), base=compared(exact=0.0, early=0.4, kl=0.3))
    assert failure is not None
    assert (failure.arm, failure.stage, failure.kind) == ("candidate", "gate", "wrong-output")
    assert failure.summary == (
        "alone: 9 of 32 answers are shorter than asked although they ended by length; 8 at a time: 9 of 32 answers are "
        "shorter than asked although they ended by length; and 4 more"
    )
    file, *lines = failure.evidence
    assert file.startswith(f".optagent/gates/{name}-candidate-1-")
    assert any(line.startswith("KL 0.3 nats a token") for line in lines)
    assert lines[-1] == "prompt 3: 7 tokens instead of 16"
    assert campaign.experiment(name).gated == ()

    session = campaign.session({})
    session.note("failure", {"experiment": name, "failure": failure})
    round_ = Round(session)
    assert diagnose_node(State(experiment=name), round_) == {"following": "settle"}
    assert round_.judged is not None
    assert round_.judged.verdict is Verdict.INVALID
    assert round_.judged.because == failure.summary
    assert retry_condition(failure.kind, {"cuda": "12.8", "sglang": "0.5.23"}) is None


PLAN = """# Plan

## 1. Round the logits

```yaml
id: rounding
status: trying
change:
  patch: rounding.diff
```
"""


def test_a_wrong_candidate_leaves_a_dead_end_that_says_what_was_wrong(campaign: Campaign) -> None:
    campaign.with_baseline()
    session = campaign.session({"read_text": {"text": PLAN}, "drop_patch": {"revision": "a1"}})
    change = Change(patch="rounding.diff")
    name = campaign.begin(ITEM, BASE, PATCHED, item="rounding", change=change)
    failure = campaign.gate(name, "candidate", base=compared(kl=0.04))
    assert failure is not None
    session.note("failure", {"experiment": name, "failure": failure})
    round_ = Round(session)
    diagnose_node(State(experiment=name), round_)
    assert round_.judged is not None
    settle(session, read_plan(PLAN), campaign.experiment(name), round_.judged, {"sglang": "0.5.23"})
    ledger = campaign.journal.ledger
    dead_end = ledger.dead_ends["rounding"]
    assert (ledger.item_status["rounding"], campaign.experiment(name).verdict) == (Status.INVALID, "invalid")
    assert dead_end.cause.startswith("KL 0.04 nats a token, at most 0.005: ")
    assert (dead_end.cause_kind, dead_end.retry_when) == ("wrong-output", None)
    assert dead_end.evidence == (name, *failure.evidence)


def test_a_candidate_is_held_against_the_first_baseline_too(campaign: Campaign) -> None:
    campaign.with_baseline()
    kept = campaign.begin(ITEM, BASE, FASTER)
    campaign.gate(kept, "candidate", base=compared())
    campaign.gate(kept, "baseline", itself=compared())
    campaign.verdict(kept)
    name = campaign.begin(ITEM, FASTER, replace(FASTER, revision="b2"))
    roles = [r.role for r in references_of(campaign.journal.ledger, campaign.experiment(name), "candidate")]
    assert roles == ["base", "first"]
    failure = campaign.gate(name, "candidate", base=compared(kl=0.004), first=compared(kl=0.03))
    assert failure is not None
    assert failure.summary.startswith("KL 0.03 nats a token, at most 0.02: ")
    assert "the first baseline's" in failure.summary
    back = campaign.experiment(campaign.begin(ITEM, FASTER, BASE))
    assert [r.role for r in references_of(campaign.journal.ledger, back, "candidate")] == ["base"]


def test_a_kept_candidate_is_the_reference_of_the_next(campaign: Campaign) -> None:
    campaign.with_baseline()
    kept = campaign.begin(ITEM, BASE, FASTER)
    campaign.gate(kept, "candidate", base=compared())
    campaign.verdict(kept)
    name = campaign.begin(ITEM, FASTER, replace(FASTER, revision="b2"))
    campaign.asked.clear()
    campaign.gate(name, "candidate", base=compared(), first=compared())
    assert f"/{kept}-candidate-1-" in campaign.asked[0][1]["references"][0]


@pytest.mark.parametrize(
    ("late", "blamed"),
    [
        (compared(), None),
        (compared(early=0.5), ("candidate", "wrong-output")),
        (compared(kl=0.5), ("candidate", "wrong-output")),
        (Comparison(reference="?", problem="it was asked other questions"), ("baseline", "not-compared")),
        (None, ("baseline", "not-compared")),
    ],
)
def test_a_candidate_whose_baseline_was_not_examined_waits_for_it(
    late: Comparison | None, blamed: tuple[str, str] | None, campaign: Campaign
) -> None:
    name = campaign.begin(ITEM, BASE, PATCHED)
    assert campaign.gate(name, "candidate") is None
    failure = campaign.gate(name, "baseline", **({"candidate": late} if late else {}))
    assert (failure and (failure.arm, failure.kind)) == blamed
    assert ("baseline" in campaign.experiment(name).gated) is (blamed is None)
    told = "gate passed: alone 32, 8 at a time 32 of 32 answers the same as the candidate's; KL 0"
    assert (("plain", told) in campaign.listener.told) is (blamed is None)


def test_a_reference_that_cannot_be_read_is_replaced(campaign: Campaign) -> None:
    campaign.with_baseline()
    lost = Comparison(reference="?", problem="the file is not there")
    name = campaign.begin(ITEM, BASE, FASTER)
    assert campaign.gate(name, "candidate", base=lost) is None
    assert campaign.gate(name, "baseline", itself=lost, candidate=compared()) is None
    assert ("note", "not all could be held against the baseline's: the file is not there") in campaign.listener.told
    assert f"/{name}-baseline-1-" in campaign.journal.ledger.examined[BASE.fingerprint()]["file"]
    assert len(campaign.journal.ledger.band_of(BASE)) == 1, "nothing was compared"


def test_the_band_of_the_environment_serves_until_there_is_an_own_one(campaign: Campaign) -> None:
    campaign.with_baseline()
    ledger = campaign.journal.ledger
    assert ledger.band_of(FASTER) == ledger.band_of(BASE) != []
    assert ledger.band_of(replace(FASTER, environment="cu13")) == []


def test_a_confirmation_may_drift_further_than_a_step(campaign: Campaign) -> None:
    campaign.with_baseline()
    for kl, passes in ((0.015, True), (0.03, False)):
        name = campaign.begin(CONFIRM, BASE, PATCHED)
        assert [r.role for r in references_of(campaign.journal.ledger, campaign.experiment(name), "candidate")] == [
            "base"
        ]
        assert (campaign.gate(name, "candidate", base=compared(kl=kl)) is None) is passes


# The task check

TASKS = SETTINGS.model_copy(update={"gsm8k": "gsm8k.jsonl", "gsm8k_examples": 100})


def score(share: float, **more: Any) -> dict[str, Any]:
    return {"score": share, "examples": 100, **more}


@pytest.fixture
def with_tasks() -> Campaign:
    return Campaign(TASKS).with_baseline()


@pytest.mark.parametrize(
    ("kind", "candidate", "tools"),
    [(ITEM, FASTER, ["examine"]), (ITEM, PATCHED, ["examine", "evaluate"]), (CONFIRM, FASTER, ["examine", "evaluate"])],
)
def test_tasks_prove_what_may_move_numbers_unseen(
    kind: str, candidate: Configuration, tools: list[str], with_tasks: Campaign
) -> None:
    name = with_tasks.begin(kind, BASE, candidate)
    assert with_tasks.gate(name, "candidate", base=compared(), evaluated=score(0.9)) is None
    assert [tool for tool, _ in with_tasks.asked] == tools


def test_without_a_file_of_tasks_none_are_asked(campaign: Campaign) -> None:
    campaign.with_baseline()
    assert campaign.gate(campaign.begin(ITEM, BASE, PATCHED), "candidate", base=compared()) is None
    assert [tool for tool, _ in campaign.asked] == ["examine"]


@pytest.mark.parametrize(
    ("candidate", "baseline", "says"),
    [
        (score(0.90), score(0.91, gained=3, lost=2), None),
        (score(0.80), score(0.91, gained=13, lost=2), "13 were solved only by the baseline, 2 only now"),
        (score(0.80), score(0.95), "more than 1.5 standard errors"),
        ({"problem": "the simulator solves no tasks"}, {"problem": "the simulator solves no tasks"}, None),
        ({"problem": "HTTP 500"}, score(0.9), "works for the baseline and not for the candidate: HTTP 500"),
        (score(0.90), {"problem": "HTTP 500"}, None),
    ],
)
def test_the_first_task_check_waits_for_the_baselines(
    candidate: dict[str, Any], baseline: dict[str, Any], says: str | None, with_tasks: Campaign
) -> None:
    name = with_tasks.begin(ITEM, BASE, PATCHED)
    assert with_tasks.gate(name, "candidate", base=compared(), evaluated={"file": "c.json", **candidate}) is None
    failure = with_tasks.gate(name, "baseline", itself=compared(), evaluated={"file": "b.json", **baseline})
    assert with_tasks.asked[-1][1]["reference"] == "c.json"
    if says is None:
        assert failure is None
    else:
        assert failure is not None
        assert (failure.arm, failure.kind) == ("candidate", "wrong-output")
        assert says in failure.summary


def test_the_baselines_score_is_remembered(with_tasks: Campaign) -> None:
    first = with_tasks.begin(ITEM, BASE, PATCHED)
    with_tasks.gate(first, "candidate", base=compared(), evaluated=score(0.9, file="c.json"))
    with_tasks.gate(first, "baseline", itself=compared(), evaluated=score(0.9, file="b.json", gained=1, lost=1))
    with_tasks.verdict(first, "revert")
    second = with_tasks.begin(ITEM, BASE, replace(BASE, revision="c3"))
    with_tasks.asked.clear()
    failure = with_tasks.gate(
        second, "candidate", base=compared(), evaluated=score(0.7, file="d.json", gained=0, lost=20)
    )
    assert with_tasks.asked[-1][1]["reference"] == "b.json"
    assert failure is not None
    assert failure.evidence == ("d.json", "b.json")

    third = with_tasks.begin(ITEM, BASE, replace(BASE, revision="d4"))
    with_tasks.asked.clear()
    assert with_tasks.gate(third, "candidate", base=compared(), evaluated=score(0.9, gained=0, lost=0)) is None
    assert with_tasks.gate(third, "baseline", itself=compared()) is None
    assert [tool for tool, _ in with_tasks.asked] == ["examine", "evaluate", "examine"]


def test_other_tasks_are_another_score(with_tasks: Campaign) -> None:
    first = with_tasks.begin(ITEM, BASE, PATCHED)
    with_tasks.gate(first, "candidate", base=compared(), evaluated=score(0.9))
    with_tasks.gate(first, "baseline", itself=compared(), evaluated=score(0.9, file="b.json"))
    with_tasks.settings = TASKS.model_copy(update={"gsm8k_examples": 50})
    second = with_tasks.begin(ITEM, BASE, PATCHED)
    with_tasks.gate(second, "candidate", base=compared(), evaluated=score(0.9))
    assert with_tasks.asked[-1][1].get("reference") is None
