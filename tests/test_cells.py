"""Which run comes next: nothing finished is repeated, everything ends, and drift favours neither arm."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optagent.agent.cells import RETRIES, Cell, Wanted, hopeless, next_cell
from optagent.agent.experiments import BASELINE, ITEM, SURVEY, TRIAL, Experiment, Run
from optagent.tools.calls.configuration import Configuration

TRY = Experiment("E0001", ITEM, "an item", Configuration("default"), "S001")
MEASURE = replace(TRY, kind=BASELINE, goal=6)


def run(cell: Cell, valid: bool = True) -> Run:
    return Run(cell.arm, cell.pair, 100.0 if valid else None, valid, "" if valid else "a request failed")


def after(experiment: Experiment, *runs: Run) -> Experiment:
    return replace(experiment, runs=(*experiment.runs, *runs))


def cell(experiment: Experiment, seed: int = 1) -> Cell:
    found = next_cell(experiment, seed)
    assert found is not None
    return found


@pytest.mark.parametrize("seed", range(5))
def test_the_candidate_goes_first_as_the_screen(seed: int) -> None:
    first = cell(TRY, seed)
    assert (first.arm, first.pair, first.name) == ("candidate", 1, "E0001-candidate-1")
    second = cell(after(TRY, run(first)), seed)
    assert (second.arm, second.pair) == ("baseline", 1)


@given(st.integers(0, 10**9), st.lists(st.booleans(), min_size=1, max_size=30))
@settings(deadline=None, max_examples=60)
def test_no_finished_cell_is_repeated(seed: int, outcomes: list[bool]) -> None:
    """Runs come out valid or not, in any order: a cell comes again only as the retry of an invalid one."""
    experiment = TRY
    names: set[str] = set()
    for valid in outcomes:
        coming = cell(experiment, seed)
        assert coming.name not in names
        assert coming.pair not in experiment.values(coming.arm)
        assert coming.pair <= len(experiment.pairs()) + 1
        names.add(coming.name)
        experiment = after(experiment, run(coming, valid))


@given(st.integers(1, 12), st.lists(st.booleans(), max_size=40), st.integers(0, 100))
@settings(deadline=None, max_examples=60)
def test_measuring_the_baseline_always_ends(goal: int, outcomes: list[bool], seed: int) -> None:
    """After as many valid runs as were wanted, whatever went wrong in between."""
    experiment, answers = replace(MEASURE, goal=goal), iter(outcomes)
    for _ in range(goal + outcomes.count(False)):
        coming = next_cell(experiment, seed)
        if coming is None:
            break
        assert coming.arm == "baseline"
        experiment = after(experiment, run(coming, next(answers, True)))
    assert next_cell(experiment, seed) is None
    assert len(experiment.values("baseline")) == goal


def test_both_orders_are_drawn_equally_often() -> None:
    experiment = after(TRY, Run("candidate", 1, 1.0), Run("baseline", 1, 1.0))
    candidate_first = sum(cell(experiment, seed).arm == "candidate" for seed in range(1000))
    assert 440 <= candidate_first <= 560


def test_both_orders_are_drawn_within_one_experiment() -> None:
    experiment = TRY
    firsts = []
    for _ in range(40):
        coming = cell(experiment)
        firsts.append(coming.arm)
        experiment = after(experiment, run(coming))
        experiment = after(experiment, run(cell(experiment)))
    assert 10 <= firsts[1:].count("candidate") <= 30


def test_the_order_depends_on_the_seed_alone() -> None:
    experiment = after(TRY, Run("candidate", 1, 1.0), Run("baseline", 1, 1.0))
    assert [cell(experiment, s) for s in range(20)] == [cell(experiment, s) for s in range(20)]


def test_an_invalid_run_is_tried_again_under_another_name() -> None:
    first = cell(TRY)
    again = cell(after(TRY, run(first, valid=False)))
    assert (again.arm, again.pair, again.attempt) == (first.arm, first.pair, 1)
    assert again.name == "E0001-candidate-1-retry1"


def test_a_cell_that_stays_invalid_is_given_up() -> None:
    experiment = TRY
    for _ in range(RETRIES + 1):
        assert hopeless(experiment) is None
        experiment = after(experiment, run(cell(experiment), valid=False))
    assert hopeless(experiment) == "candidate run 1 was invalid 2 times: a request failed"


def test_invalid_runs_of_different_cells_do_not_add_up() -> None:
    experiment = after(TRY, Run("candidate", 1, None, False), Run("candidate", 1, 1.0), Run("baseline", 1, None, False))
    assert hopeless(experiment) is None


# Held against all launches of the baseline

POOLED = replace(TRY, pooled=True)


@pytest.mark.parametrize(
    ("done", "wanted", "coming"),
    [
        ((), Wanted("baseline", True), "candidate"),  # always the screen first
        (("candidate",), Wanted("candidate"), "candidate"),
        (("candidate",), Wanted("baseline"), "baseline"),
        (("candidate",), Wanted("candidate", True), "baseline"),
        (("candidate", "baseline"), Wanted("candidate", True), "candidate"),
    ],
)
def test_without_pairs_the_arm_comes_that_tells_more(done: tuple[str, ...], wanted: Wanted, coming: str) -> None:
    experiment = after(POOLED, *(Run(arm, 1, 1.0) for arm in done))
    found = next_cell(experiment, 1, wanted)
    assert found is not None
    assert (found.arm, found.pair) == (coming, 1 + sum(arm == coming for arm in done))


@pytest.mark.parametrize("kind", [TRIAL, SURVEY])
def test_a_point_of_a_search_or_a_survey_is_launched_once(kind: str) -> None:
    point = replace(TRY, kind=kind, goal=1, pooled=True)
    only = cell(point)
    assert (only.arm, only.pair) == ("candidate", 1)
    assert next_cell(after(point, run(only)), 1) is None


def test_runs_of_one_launch_make_one_cell() -> None:
    twice = after(TRY, Run("candidate", 1, 1.0), Run("candidate", 1, 1.2))
    assert (cell(twice).arm, cell(twice).pair) == ("baseline", 1)
