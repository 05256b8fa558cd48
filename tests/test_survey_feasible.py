"""What failures of a survey say about other choices: who is guilty, and how likely a choice is to run."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optagent.agent.change import Change
from optagent.agent.dead_ends import PASSING
from optagent.agent.search.feasible import GPU_OUT_OF_MEMORY, HOST_OUT_OF_MEMORY, TOO_LITTLE
from optagent.agent.survey.factors import Choice, Factor, Level
from optagent.agent.survey.feasible import ELSEWHERE, MEMORY_KINDS, WORDS_SAY_NOTHING, Failed, Feasible, On, on

RISK = 0.05


def level(name: str, **sets: Any) -> Level:
    environment = sets.pop("environment", None)
    flags = {k.replace("_", "-"): v for k, v in sets.items() if not k.isupper()}
    return Level(
        Change(flags, {k: v for k, v in sets.items() if k.isupper()}, environment=environment), (name,), risk=RISK
    )


def factor(*levels: Level) -> Factor:
    return Factor(levels)


FUSION, POLICY, INTERVAL, SEQUENCES, FRACTION, PLACE = FACTORS = (
    factor(level("fusion", enable_flashinfer_allreduce_fusion=True)),
    factor(level("lpm", schedule_policy="lpm"), level("fcfs", schedule_policy="fcfs")),
    factor(level("interval", stream_interval=4)),
    factor(*(level("sequences", max_running_requests=n) for n in (16, 64, 256))),
    factor(*(level("fraction", mem_fraction_static=f) for f in (0.8, 0.9))),
    factor(level("cu13", environment="cu13")),
)
OFF = (0,) * len(FACTORS)
KINDS = sorted(
    {*WORDS_SAY_NOTHING, *PASSING, *GPU_OUT_OF_MEMORY, *HOST_OUT_OF_MEMORY, *TOO_LITTLE}
    | {"config-error", "allreduce-unsupported", "no-valid-run", "refused"}
)
choices = st.tuples(*(st.integers(0, len(f.levels)) for f in FACTORS))


def at(**levels: int) -> Choice:
    names = ("fusion", "policy", "interval", "sequences", "fraction", "place")
    return tuple(levels.get(name, 0) for name in names)


def feasible(*failures: Failed, ran: tuple[Choice, ...] = (OFF,), **before: Any) -> Feasible:
    return Feasible(FACTORS, {"environment": "default", **before}, failures, ran)


def ruled_out(found: Feasible) -> set[On]:
    """The levels that have no chance even in company."""
    company = at(sequences=1)
    every = [(n, number) for n, f in enumerate(FACTORS[:3]) for number in range(1, len(f.levels) + 1)]
    return {(n, number) for n, number in every if found.chance((*OFF[:n], number, *OFF[n + 1 : 3], *company[3:])) == 0}


@st.composite
def failed(draw: st.DrawFn) -> Failed:
    choice = draw(choices.filter(any))
    return Failed(choice, draw(st.sampled_from(KINDS)), draw(st.none() | st.sampled_from(sorted(on(choice)))))


# Laws


@given(st.lists(failed(), max_size=6), st.lists(choices, max_size=5), choices)
def test_a_chance_is_a_chance_and_what_ran_runs(failures: list[Failed], ran: list[Choice], choice: Choice) -> None:
    found = feasible(*failures, ran=(OFF, *ran))
    assert 0 <= found.chance(choice) <= 1
    assert all(found.chance(c) == 1 for c in ran)
    assert found.new(OFF) == 0


@given(failed(), choices, st.lists(choices, max_size=3))
def test_what_failed_is_not_tried_again(failure: Failed, choice: Choice, ran: list[Choice]) -> None:
    """Unless it ran another time, or the failure is of a kind that passes by itself."""
    found = feasible(failure, ran=(OFF, *(c for c in ran if c != failure.choice)))
    if failure.kind not in PASSING:
        assert found.chance(failure.choice) == 0
    if not on(choice) & on(failure.choice):
        assert found.chance(choice) >= found.chance(failure.choice)


@given(choices)
def test_without_failures_new_levels_alone_are_a_risk(choice: Choice) -> None:
    ran = at(fusion=1, policy=2)
    new = len(on(choice) - on(ran))
    found = feasible(ran=(OFF, ran))
    assert found.new(choice) == new
    if choice != ran:
        assert found.chance(choice) == pytest.approx((1 - RISK) ** new)


@given(failed(), choices)
def test_the_order_of_failures_makes_no_difference(failure: Failed, choice: Choice) -> None:
    other = Failed(at(fusion=1, policy=1), "config-error")
    one, again = feasible(failure, other), feasible(other, failure)
    assert one.chance(choice) == pytest.approx(again.chance(choice))


# Who is guilty


@pytest.mark.parametrize(
    ("failures", "ran", "guilty"),
    [
        ([], [], set()),
        ([Failed(at(interval=1), "hang")], [], {(2, 1)}),  # the only suspect
        ([Failed(at(interval=1, policy=1), "config-error")], [], set()),  # one of two
        ([Failed(at(interval=1, policy=1), "config-error", (1, 1))], [], {(1, 1)}),  # its words say it
        ([Failed(at(interval=1, policy=1), "hang", (1, 1))], [], set()),  # these words say where, and not why
        ([Failed(at(interval=1, policy=1), "config-error")], [at(policy=1)], {(2, 1)}),
        ([Failed(at(interval=1, policy=1), "config-error")], [at(policy=2)], set()),  # that is another level
        # what is known to be guilty clears its companions
        ([Failed(at(interval=1, policy=1), "config-error"), Failed(at(policy=1), "config-error")], [],
         {(1, 1)}),
        # of some kinds it is known which settings usually meet them
        ([Failed(at(fusion=1, interval=1, policy=1), "allreduce-unsupported")], [], {(0, 1)}),
        ([Failed(at(interval=1, policy=1), "hang")], [at(policy=1), at(interval=1)], set()),  # only both together
    ],
)  # fmt: skip
def test_who_is_guilty(failures: list[Failed], ran: list[Choice], guilty: set[On]) -> None:
    assert ruled_out(feasible(*failures, ran=(OFF, *ran))) == guilty


def test_what_is_guilty_is_ruled_out_and_its_companions_are_not() -> None:
    found = feasible(Failed(at(interval=1, policy=1), "config-error", (1, 1)))
    assert found.chance(at(policy=1, fusion=1)) == 0
    assert found.chance(at(interval=1)) == pytest.approx(1 - RISK)
    assert found.chance(at(policy=2)) == pytest.approx(1 - RISK)


def test_what_failed_beside_a_guilty_one_is_no_suspect() -> None:
    both, alone = Failed(at(interval=1, policy=1), "config-error"), Failed(at(policy=1), "config-error")
    assert feasible(both).chance(at(interval=1, fusion=1)) < 0.6
    assert feasible(both, alone).chance(at(interval=1, fusion=1)) == pytest.approx((1 - RISK) ** 2)


def test_what_is_guilty_here_may_run_in_another_environment() -> None:
    found = feasible(Failed(at(policy=1), "config-error", (1, 1)))
    assert found.chance(at(policy=1, fusion=1)) == 0
    assert found.chance(at(policy=1, place=1)) == pytest.approx((1 - ELSEWHERE) * (1 - RISK) ** 2)


def test_of_several_suspects_the_fewer_the_likelier() -> None:
    found = feasible(Failed(at(interval=1, policy=1, fusion=1), "config-error"))
    chances = [found.chance(c) for c in (at(place=1), at(policy=1), at(policy=1, fusion=1))]
    assert chances == sorted(chances, reverse=True)
    assert len(set(chances)) == 3


def test_levels_that_run_only_apart_are_likely_to_fail_together_again() -> None:
    apart = (at(interval=1), at(policy=1))
    found = feasible(Failed(at(interval=1, policy=1), "hang"), ran=(OFF, *apart, at(fusion=1), at(sequences=1)))
    near, far = at(interval=1, policy=1, fusion=1), at(policy=1, fusion=1, sequences=1)
    assert 0 < found.chance(near) < found.chance(far) < 1


@pytest.mark.parametrize("kind", sorted(PASSING))
def test_a_failure_that_may_pass_leaves_its_own_choice_a_chance(kind: str) -> None:
    both = at(interval=1, policy=1)
    found = feasible(Failed(both, kind), ran=(OFF, at(interval=1), at(policy=1)))
    assert 0 <= found.chance(both) < found.chance(at(interval=1, policy=1, fusion=1, sequences=1))


# For want of memory


@pytest.mark.parametrize("kind", sorted(MEMORY_KINDS & GPU_OUT_OF_MEMORY.keys()))
def test_whatever_wants_more_memory_fails_too(kind: str) -> None:
    found = feasible(Failed(at(sequences=2), kind))
    assert found.chance(at(sequences=2)) == found.chance(at(sequences=3)) == 0
    assert found.chance(at(sequences=1)) == pytest.approx(1 - RISK)


def test_no_single_setting_is_to_blame_for_want_of_memory() -> None:
    found = feasible(Failed(at(sequences=2, fraction=1, policy=1), "gpu-oom-pool", (3, 2)))
    both, one, none = at(sequences=3, fraction=2, fusion=1), at(sequences=2, fusion=1), at(policy=1, fusion=1)
    assert 0 < found.chance(both) < found.chance(one) < found.chance(none)
    assert found.chance(none) == pytest.approx((1 - RISK) ** 2), "what takes no memory is no suspect"


def test_too_little_memory_rules_out_less_of_it() -> None:
    found = feasible(Failed(at(fraction=1), "memory-fraction-too-low"), ran=(OFF, at(fusion=1)))
    assert found.chance(at(fraction=1)) == 0
    assert found.chance(at(fraction=2)) > 0.5
    less = feasible(Failed(at(fraction=2), "memory-fraction-too-low"))
    assert less.chance(at(fraction=1)) == less.chance(at(fraction=2)) == 0


def test_weights_are_not_kept_from_fitting_by_the_pool() -> None:
    found = feasible(Failed(at(fraction=1, policy=1), "gpu-oom-weights"))
    assert found.chance(at(fraction=1, fusion=1)) == pytest.approx((1 - RISK) ** 2)
