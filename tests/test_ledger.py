"""The ledger: what the journal says so far, folded entry by entry."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optagent.agent.change import Change
from optagent.agent.experiments import BASELINE, BUNDLE, CONFIRM, ITEM, SURVEY, Failure, Outlook, Run
from optagent.agent.jsonable import to_body
from optagent.agent.ledger import Ledger, fold
from optagent.agent.plan.model import Status
from optagent.agent.records import Attempt, Baseline, DeadEnd, InFlight, Lesson, Measurement, Question
from optagent.agent.session import LedgerJournal
from optagent.agent.total_gain import side_by_side, total_gain
from optagent.tools.calls.configuration import Configuration
from optagent.tools.journal_store import Draft, MemoryJournal

FIRST = Configuration("cu128", {"cuda-graph-max-bs": 512})
BEST = Configuration("cu128", {"cuda-graph-max-bs": 128})
BETTER = Configuration("cu13", {"cuda-graph-max-bs": 128})


def baseline(configuration: Configuration, value: float) -> dict[str, Any]:
    body: dict[str, Any] = to_body(Baseline(configuration, Measurement("output_throughput", value, verified=True)))
    return body


def experiment(number: int, kind: str, base: Configuration, **more: Any) -> Draft:
    name = f"E{number:04d}"
    body = {"id": name, "kind": kind, "title": f"experiment {number}", "base": base, **more}
    return Draft("experiment", to_body(body), name)


def run(name: str, arm: str, pair: int, value: float | None, repeat: int = 0) -> Draft:
    run = Run(arm, pair, value, valid=value is not None)
    return Draft("run", {"experiment": name, "run": to_body(run)}, f"{name}-{arm}-{pair}-{repeat}")


def verdict(name: str, word: str, effect: float | None = None) -> Draft:
    return Draft("verdict", {"experiment": name, "verdict": word, "because": "it was so", "effect": effect}, name)


TOOK_OVER = {
    "handoff": "H0001",
    "attempts": to_body([Attempt("X1", "graphs", "keep")]),
    "lessons": to_body([Lesson("graphs cost memory")]),
    "dead_ends": to_body([DeadEnd("tree", "NCCL_ALGO=Tree", "no capture"), DeadEnd("fusion", "fusion", "?", item="fusion")]),
    "in_flight": to_body([InFlight("X7", "two at once")]),
    "dirt": "d1",
}  # fmt: skip
CAMPAIGN = (
    Draft("sitting", {"id": "S001"}, "S001"),
    Draft("took-over", TOOK_OVER, "H0001"),
    Draft("first-baseline", baseline(FIRST, 82.0)),
    Draft("baseline", baseline(BEST, 89.5)),
    Draft("attempt", to_body(Attempt("X7", "two at once", "failed", verified=True)), "X7"),
    experiment(1, BASELINE, BEST, goal=2),
    Draft("intent", {"tool": "launch", "request": {"launch": "E0001-baseline-1"}}, "k1"),
    Draft("result", {"tool": "launch", "result": {}}, "k1"),
    Draft("launched", {"launch": "E0001-baseline-1", "pid": 7, "start_time": 1.5}),
    Draft("gate", {"experiment": "E0001", "arm": "baseline", "file": "g1", "accept_length": 2.3, "held": False}),
    run("E0001", "baseline", 1, 89.0),
    run("E0001", "baseline", 2, 90.0),
    Draft("stopped", {"pid": 7, "start_time": 1.5}),
    verdict("E0001", "keep", 0.0),
    experiment(2, ITEM, BEST, item="fusion", change=Change(environment="cu13")),
    Draft("item-status", {"item": "fusion", "status": "trying", "result": ""}),
    Draft("plan-written", {"statuses": {"fusion": "trying"}}),
    Draft("candidate", {"experiment": "E0002", "configuration": to_body(BETTER)}),
    run("E0002", "candidate", 1, 99.0),
    run("E0002", "baseline", 1, None),
    run("E0002", "baseline", 1, None),
    Draft("question", to_body(Question("Q1", "needs-approval", "May I?", "only you can say")), "Q1"),
    Draft("intent", {"tool": "launch", "request": {"launch": "E0002-baseline-1"}}, "k2"),
    Draft("handoff", {"id": "H0002"}, "H0002"),
)  # fmt: skip


def journal(*drafts: Draft) -> MemoryJournal:
    """A journal of these entries, all written at one moment: two such journals are equal whenever they are made."""
    memory = MemoryJournal()
    memory.append_all([replace(d, at=d.at or "2026-03-14T09:00:00+00:00") for d in drafts])
    return memory


def folded(*drafts: Draft) -> Ledger:
    return fold(journal(*drafts).entries())


def test_a_campaign_in_the_middle() -> None:
    ledger = folded(*CAMPAIGN)
    assert (ledger.sitting, ledger.steps, ledger.handoffs, ledger.taken_over) == ("S001", 2, ["H0002"], ["H0001"])
    assert ledger.baseline is not None
    assert ledger.baseline.configuration == BEST
    assert ledger.first_baseline is not None
    assert ledger.first_baseline.configuration == FIRST
    assert list(ledger.experiments) == ["E0001", "E0002"]
    current = ledger.current()
    assert current is not None
    assert (current.id, current.candidate, current.values("candidate"), current.values("baseline")) == (
        "E0002", BETTER, {1: 99.0}, {},
    )  # fmt: skip
    assert ledger.pending_launches() == ["E0002-baseline-1"]
    assert ledger.processes == {}
    assert (known := ledger.noise_in("cu128")) is not None
    assert known.df == 1
    assert ledger.noise_in("cu13") is None
    assert {mark: body["accept_length"] for mark, body in ledger.examined.items()} == {BEST.fingerprint(): 2.3}
    assert [q.id for q in ledger.open_questions()] == ["Q1"]
    assert ledger.item_status == ledger.plan_written == {"fusion": Status.TRYING}
    assert ledger.known_dirt == {"d1"}


def gated(name: str, arm: str, file: str, **more: Any) -> Draft:
    return Draft("gate", {"experiment": name, "arm": arm, "file": file, "held": True, **more})


def test_a_configuration_is_held_against_its_first_examination() -> None:
    ledger = folded(*CAMPAIGN, gated("E0001", "baseline", "g2", itself={"reference": "g1"}))
    assert ledger.examined[BEST.fingerprint()]["file"] == "g1"
    assert ledger.band_of(BEST) == ledger.band_of(replace(BEST, flags={})) == [{"reference": "g1"}]
    assert ledger.band_of(BETTER) == []


def test_an_examination_that_nothing_can_be_held_against_is_replaced() -> None:
    ledger = folded(*CAMPAIGN, gated("E0001", "baseline", "g2", itself={"reference": "g1"}, held=False))
    assert ledger.examined[BEST.fingerprint()]["file"] == "g2"
    assert ledger.band_of(BEST) == []


def test_a_band_is_that_of_the_latest_launches() -> None:
    ledger = folded(*CAMPAIGN, *[gated("E0001", "baseline", "g2", itself={"kl": n}) for n in range(100)])
    assert ledger.band_of(BEST) == [{"kl": n} for n in range(60, 100)]


def test_where_the_examinations_began() -> None:
    assert folded(*CAMPAIGN[:6]).first_examined() is None
    earliest = folded(*CAMPAIGN, gated("E0002", "candidate", "g2")).first_examined()
    assert earliest is not None
    assert (earliest[0], earliest[1]["file"]) == (BEST, "g1"), "the first baseline was never examined"
    first = folded(*CAMPAIGN, experiment(3, CONFIRM, FIRST, candidate=BEST), gated("E0003", "baseline", "g3"))
    assert first.first_examined() == (FIRST, first.examined[FIRST.fingerprint()])


def test_the_candidates_gate_is_at_hand_until_there_is_a_verdict() -> None:
    drafts = [*CAMPAIGN, gated("E0002", "candidate", "g2", evaluated={"score": 0.9})]
    ledger = folded(*drafts)
    assert (ledger.experiments["E0002"].candidate_gate or {})["file"] == "g2"
    assert ledger.evaluated == {BETTER.fingerprint(): {"score": 0.9}}
    assert folded(*drafts, verdict("E0002", "revert")).experiments["E0002"].candidate_gate is None


def test_what_a_handoff_left_in_flight_stays_so_until_somebody_looked() -> None:
    assert [f.experiment for f in folded(*CAMPAIGN[:4]).in_flight] == ["X7"]
    assert folded(*CAMPAIGN).in_flight == []


def test_the_first_baseline_learns_its_value_when_it_is_measured() -> None:
    configured, measured = Baseline(FIRST), Baseline(FIRST, Measurement("output_throughput", 90.0, verified=True))
    better = Baseline(BEST, Measurement("output_throughput", 99.0, verified=True))
    ledger = folded(*(Draft("baseline", to_body(b)) for b in (configured, measured, better)))
    assert (ledger.first_baseline, ledger.baseline) == (measured, better)


def test_a_first_baseline_is_the_first_that_there_was() -> None:
    ledger = folded(Draft("baseline", baseline(FIRST, 82.0)), Draft("baseline", baseline(BEST, 89.5)))
    assert ledger.first_baseline is not None
    assert ledger.baseline is not None
    assert (ledger.first_baseline.configuration, ledger.baseline.configuration) == (FIRST, BEST)


ENDED = Draft("sitting-ended", {"id": "S001"}, "S001")
NEXT = Draft("sitting", {"id": "S002"}, "S002")


def test_a_sitting_that_was_killed_is_gone_on_with() -> None:
    ledger = folded(*CAMPAIGN, NEXT)
    assert (ledger.sitting, ledger.stretch, ledger.steps) == ("S002", "S001", folded(*CAMPAIGN).steps)
    assert ledger.launches_of(BEST).values == (89.0, 90.0), "what was measured in it still counts"


def test_steps_are_counted_for_each_sitting() -> None:
    ledger = folded(*CAMPAIGN, ENDED, NEXT)
    assert (ledger.sitting, ledger.steps) == ("S002", 0)
    assert folded(*CAMPAIGN, ENDED, NEXT, verdict("E0002", "keep")).steps == 0


def test_keeping_an_item_ends_its_dead_ends() -> None:
    ledger = folded(*CAMPAIGN, verdict("E0002", "keep", 0.1))
    assert set(ledger.dead_ends) == {"tree"}
    assert set(folded(*CAMPAIGN, verdict("E0002", "revert", -0.1)).dead_ends) == {"tree", "fusion"}


def test_a_dead_end_found_again_is_not_reopened_any_more() -> None:
    again = DeadEnd("tree", "NCCL_ALGO=Tree", "no capture here either")
    reopened = Draft("reopened", {"dead_end": "tree", "because": "cuda>=13 now holds"})
    assert folded(*CAMPAIGN, reopened).reopened == {"tree": "cuda>=13 now holds"}
    ledger = folded(*CAMPAIGN, reopened, Draft("dead-end", to_body(again), "E0003"))
    assert (ledger.reopened, ledger.dead_ends["tree"].cause) == ({}, "no capture here either")


def test_an_answer_closes_its_question() -> None:
    ledger = folded(*CAMPAIGN, Draft("answer", {"id": "Q1", "answer": "approve"}, "Q1"))
    assert ledger.open_questions() == []
    assert ledger.questions["Q1"].answer == "approve"


@pytest.mark.parametrize(("answer", "set_aside"), [("set-aside", {"a.py"}), ("settled", set())])
def test_unrecorded_work_is_put_aside_only_when_the_owner_says_so(answer: str, set_aside: set[str]) -> None:
    question = Question("Q1", "unrecorded-work", "What of it?", "yours to say", facts=("a.py",))
    drafts = (Draft("question", to_body(question), "Q1"), Draft("answer", {"id": "Q1", "answer": answer}, "Q1"))
    assert folded(*drafts).to_set_aside == set_aside


def test_a_failure_is_kept_with_its_experiment() -> None:
    failure = Failure("candidate", "launch", "unsupported-arch", "no kernels", ("a.log:3: no kernels",))
    ledger = folded(*CAMPAIGN, Draft("failure", {"experiment": "E0002", "failure": to_body(failure)}))
    assert ledger.experiments["E0002"].failures == (failure,)


def test_results_of_a_configuration_are_found_in_every_experiment_of_the_sitting() -> None:
    more = (*CAMPAIGN, run("E0002", "baseline", 1, 89.9, 1))
    assert folded(*CAMPAIGN).launches_of(BEST).values == (89.0, 90.0)
    assert folded(*CAMPAIGN).launches_of(BETTER).values == (99.0,)
    assert folded(*more).launches_of(BEST).experiments == ("E0001", "E0001", "E0002")
    assert len(folded(*more, ENDED, NEXT).launches_of(BEST)) == 0


def test_runs_of_one_launch_are_one_result() -> None:
    ledger = folded(*CAMPAIGN, run("E0002", "candidate", 1, 101.0, 1))
    assert ledger.launches_of(BETTER).values == (pytest.approx((99.0 * 101.0) ** 0.5),)
    assert ledger.experiments["E0002"].values("candidate") == {1: pytest.approx((99.0 * 101.0) ** 0.5)}


def test_the_noise_of_launches_and_of_runs_is_told_apart() -> None:
    runs = [run("E0002", "baseline", n, value, again) for n, value in ((1, 90.0), (2, 93.0)) for again in (1, 2)]
    spread = folded(*CAMPAIGN, *runs, verdict("E0002", "revert", 0.0)).spread_in("cu128")
    assert spread.run_sd == pytest.approx(0.0)
    assert spread.launch_sd is not None
    assert spread.launch_sd > 1.0


# The gain of all that was kept


def test_the_total_gain_is_the_record_s_until_it_is_measured_side_by_side() -> None:
    assert total_gain(folded()) == ""
    assert total_gain(folded(*CAMPAIGN)).startswith("+9.1% against the first baseline's record, not yet")
    confirm = (
        verdict("E0002", "revert"),
        experiment(3, CONFIRM, FIRST, candidate=BEST),
        run("E0003", "baseline", 1, 82.0), run("E0003", "candidate", 1, 89.0),
        verdict("E0003", "keep", 0.085),
    )  # fmt: skip
    assert total_gain(folded(*CAMPAIGN, *confirm[:-1])).startswith("+9.1%")
    ledger = folded(*CAMPAIGN, *confirm)
    assert side_by_side(ledger) == ledger.experiments["E0003"]
    assert total_gain(ledger) == "+8.5% against the first baseline, side by side in 1 pairs (E0003)"


def test_a_comparison_with_an_earlier_best_counts_no_more() -> None:
    confirm = (
        experiment(3, CONFIRM, FIRST, candidate=BEST),
        run("E0003", "baseline", 1, 82.0), run("E0003", "candidate", 1, 89.0),
        verdict("E0003", "keep", 0.085), Draft("baseline", baseline(BETTER, 99.0)),
    )  # fmt: skip
    assert "not yet held side by side" in total_gain(folded(*CAMPAIGN, *confirm))


# Laws


def essence(ledger: Ledger) -> Ledger:
    """The ledger but for the places of its entries."""
    return replace(ledger, seq=0, fact_seq=0, handoff_seq=0)


@given(st.lists(st.tuples(st.integers(0, len(CAMPAIGN)), st.sampled_from(["weather", "decision", "x"])), max_size=6))
@settings(deadline=None, max_examples=40)
def test_kinds_that_nobody_knows_change_nothing(strangers: list[tuple[int, str]]) -> None:
    drafts: list[Draft] = list(CAMPAIGN)
    for place, kind in sorted(strangers, reverse=True):
        drafts.insert(place, Draft(kind, {"experiment": "none", "id": 3}))
    plain, mixed = folded(*CAMPAIGN), folded(*drafts)
    assert essence(mixed) == essence(plain)
    assert (mixed.fact_seq > mixed.handoff_seq) == (plain.fact_seq > plain.handoff_seq)


@given(st.lists(st.integers(1, 4), max_size=20))
@settings(deadline=None, max_examples=40)
def test_entry_by_entry_is_all_at_once(batches: Sequence[int]) -> None:
    """A journal that keeps its ledger, filled in batches of any size, has the ledger of a journal that is read again."""
    kept, left = LedgerJournal(MemoryJournal()), list(CAMPAIGN)
    for size in [*batches, len(CAMPAIGN)]:
        kept.append_all(left[:size])
        left = left[size:]
        assert kept.ledger == fold(kept.entries())


@given(st.lists(st.sampled_from([d for d in CAMPAIGN if d.key]), max_size=10))
@settings(deadline=None, max_examples=40)
def test_what_is_recorded_twice_counts_once(again: list[Draft]) -> None:
    kept = LedgerJournal(journal(*CAMPAIGN))
    before = kept.last_seq()
    kept.append_all(again)
    assert kept.last_seq() == before
    assert kept.ledger == folded(*CAMPAIGN)


def test_only_facts_make_a_handoff_stale() -> None:
    ledger = folded(*CAMPAIGN)
    assert ledger.handoff_seq > ledger.fact_seq
    assert ledger.seq == len(CAMPAIGN) - 1  # one run was recorded twice
    for draft in (Draft("sitting", {"id": "S002"}), Draft("plan-written", {"statuses": {}}), CAMPAIGN[6]):
        still = folded(*CAMPAIGN, replace(draft, key="new"))
        assert still.handoff_seq > still.fact_seq
    stale = folded(*CAMPAIGN, verdict("E0002", "revert"))
    assert stale.fact_seq > stale.handoff_seq


@pytest.mark.parametrize("kind", [SURVEY, BUNDLE])
def test_a_combination_comes_back_with_what_was_expected_of_it(kind: str) -> None:
    outlook = Outlook(4.7, 4.6, 0.01, 0.001, 0.0005)
    begun = experiment(7, kind, BEST, items=["a"], among=["a", "b"], root=FIRST, outlook=outlook, goal=1)
    ledger = folded(*CAMPAIGN, begun)
    found = ledger.experiments["E0007"]
    assert (found.items, found.among, found.root, found.outlook) == (("a",), ("a", "b"), FIRST, outlook)
    assert ledger.bundles[-1:] == ["E0007"]
    assert not {"a", "b"} & ledger.tried, "nobody tried them alone"
    plain = folded(*CAMPAIGN, experiment(7, ITEM, BEST, item="c")).experiments["E0007"]
    assert (plain.items, plain.among, plain.root, plain.outlook) == ((), (), None, None)
