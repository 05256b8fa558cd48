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
from optagent.agent.survey.feasible import (
    ELSEWHERE,
    MEMORY_KINDS,
    MOST_GUILT,
    NAMED_ELSEWHERE,
    WORDS_SAY_NOTHING,
    Failed,
    Feasible,
    On,
    on,
)

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


def guilty_of(found: Feasible) -> set[On]:
    """The levels that have next to no chance, even in company."""
    company = at(sequences=1)
    every = [(n, number) for n, f in enumerate(FACTORS[:3]) for number in range(1, len(f.levels) + 1)]
    chances = {o: found.chance((*OFF[: o[0]], o[1], *OFF[o[0] + 1 : 3], *company[3:])) for o in every}
    return {o for o, chance in chances.items() if chance <= 1 - MOST_GUILT}


SEVEN = "abcdefg"


def among_seven(*failures: str, ran: str = "", **risks: float) -> dict[str, float]:
    """How likely each of seven switches fails alone, after failures of some of them together."""
    factors = [
        factor(Level(Change(flags={f"enable-{n}": True}), (n,), risk=risks.get(n, RISK))) for n in (*SEVEN, "beside")
    ]

    def choice(names: str, beside: int = 0) -> Choice:
        return (*(int(n in names) for n in SEVEN), beside)

    known = {choice(ran), choice("", beside=1)}
    found = Feasible(factors, {}, [Failed(choice(f), "config-error") for f in failures], known)
    return {n: 1 - found.chance(choice(n, beside=1)) for n in SEVEN}


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


risks = st.floats(0.02, 0.8)
accusations = st.lists(
    st.text("abcd", min_size=2, max_size=3).filter(lambda s: len(set(s)) > 1), min_size=1, max_size=3
)


@given(accusations, risks, risks)
def test_the_riskier_one_is_the_guiltier(failures: list[str], one: float, other: float) -> None:
    less, more = (among_seven(*failures, a=risk)["a"] for risk in sorted((one, other)))
    assert less <= more + 1e-9


@given(accusations, risks)
def test_an_accusation_takes_nothing_from_guilt(failures: list[str], risk: float) -> None:
    """Nobody is likelier to run for having been accused; and who is not accused, is as likely to run as before."""
    before, after = among_seven(a=risk), among_seven(*failures, a=risk)
    assert all(after[n] >= before[n] - 1e-9 for n in SEVEN)
    assert all(after[n] == pytest.approx(before[n]) for n in SEVEN if not any(n in f for f in failures))


@given(accusations, st.lists(st.sampled_from(["ef", "fg", "efg"]), max_size=4))
def test_failures_without_a_suspect_in_common_have_nothing_to_do_with_each_other(
    failures: list[str], others: list[str]
) -> None:
    alone, both = among_seven(*failures), among_seven(*failures, *others)
    assert {n: both[n] for n in "abcd"} == pytest.approx({n: alone[n] for n in "abcd"})


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
        ([Failed(at(interval=1, policy=1), "unknown", (1, 1))], [], {(1, 1)}),  # also where nothing else is known
        ([Failed(at(interval=1, policy=1), "hang", (1, 1))], [], set()),  # these words say where, and not why
        ([Failed(at(interval=1, policy=1), "config-error")], [at(policy=1)], {(2, 1)}),
        ([Failed(at(interval=1, policy=1), "config-error")], [at(policy=2)], set()),  # that is another level
        # what is known to be guilty clears its companions
        ([Failed(at(interval=1, policy=1), "config-error"), Failed(at(policy=1), "config-error")], [],
         {(1, 1)}),
        # of some kinds it is known which settings usually meet them
        ([Failed(at(fusion=1, interval=1, policy=1), "allreduce-unsupported")], [], {(0, 1)}),
        ([Failed(at(fusion=1, interval=1, policy=1), "hang")], [], set()),  # it may have come from any of them
        ([Failed(at(interval=1, policy=1), "hang")], [at(policy=1), at(interval=1)], set()),  # only both together
    ],
)  # fmt: skip
def test_who_is_guilty(failures: list[Failed], ran: list[Choice], guilty: set[On]) -> None:
    assert guilty_of(feasible(*failures, ran=(OFF, *ran))) == guilty


def test_what_is_guilty_is_ruled_out_and_its_companions_are_not() -> None:
    found = feasible(Failed(at(interval=1, policy=1), "config-error", (1, 1)))
    assert found.chance(at(policy=1, fusion=1)) == pytest.approx((1 - MOST_GUILT) * (1 - RISK))
    assert found.chance(at(interval=1)) == pytest.approx(1 - RISK)
    assert found.chance(at(policy=2)) == pytest.approx(1 - RISK)


def test_a_hang_is_suspected_of_what_makes_ranks_wait_for_each_other_and_the_rest_is_not_cleared() -> None:
    hung = feasible(Failed(at(fusion=1, interval=1, policy=1), "hang"))
    assert hung.chance(at(fusion=1)) < 0.4
    assert 0.8 < hung.chance(at(interval=1)) < 1 - RISK
    cleared = feasible(Failed(at(fusion=1, interval=1, policy=1), "hang"), ran=(OFF, at(fusion=1)))
    assert cleared.chance(at(interval=1)) < 0.6


def test_what_failed_again_is_the_surer_for_it() -> None:
    once, twice = Failed(at(policy=1), "config-error"), Failed(at(policy=1, interval=1), "config-error", (1, 1))
    assert feasible(once).chance(at(policy=1, fusion=1)) == pytest.approx((1 - MOST_GUILT) * (1 - RISK))
    again = feasible(once, twice).chance(at(policy=1, fusion=1))
    assert again == pytest.approx((1 - MOST_GUILT) ** 2 * (1 - RISK))


def test_what_failed_beside_a_guilty_one_is_no_suspect() -> None:
    both, alone = Failed(at(interval=1, policy=1), "config-error"), Failed(at(policy=1), "config-error")
    assert feasible(both).chance(at(interval=1, fusion=1)) < 0.7 * (1 - RISK)
    assert feasible(both, alone).chance(at(interval=1, fusion=1)) == pytest.approx((1 - RISK) ** 2)


def test_what_is_guilty_here_may_run_in_another_environment() -> None:
    """Where it is known which level fails, that is less likely than where one of several does."""
    found = feasible(Failed(at(policy=1), "config-error", (1, 1)))
    assert found.chance(at(policy=1, place=1)) == pytest.approx((1 - NAMED_ELSEWHERE * MOST_GUILT) * (1 - RISK))
    found = feasible(Failed(at(policy=1, interval=1), "config-error"))
    here, elsewhere = found.chance(at(policy=1)), found.chance(at(policy=1, place=1))
    assert 1 - elsewhere / (1 - RISK) == pytest.approx(ELSEWHERE * (1 - here))


def test_a_level_that_runs_in_one_environment_may_fail_in_another() -> None:
    found = feasible(Failed(at(policy=1, place=1), "config-error", (1, 1)), ran=(OFF, at(policy=1), at(place=1)))
    assert found.chance(at(policy=1, place=1, fusion=1)) == pytest.approx((1 - MOST_GUILT) * (1 - RISK))
    assert found.chance(at(policy=1, fusion=1)) == pytest.approx(1 - RISK)


@pytest.mark.parametrize("failures", [("ab", "ac"), ("abc", "ade"), ("abc", "ade", "afg")])
def test_whom_several_failures_have_in_common_is_guilty_of_all(failures: tuple[str, ...]) -> None:
    guilt = among_seven(*failures)
    companions = {n for f in failures for n in f} - {"a"}
    assert guilt["a"] > 0.7
    assert guilt["a"] > among_seven(failures[0])["a"] + 0.3
    for n in companions:
        assert guilt[n] < among_seven(failures[0])["b"]
        assert guilt[n] < guilt["a"] / 5


def test_the_more_failures_accuse_one_the_freer_are_its_companions() -> None:
    guilts = [among_seven(*("abc", "ade", "afg")[:n]) for n in range(4)]
    assert [g["a"] for g in guilts] == sorted({g["a"] for g in guilts})
    companions = [g["b"] for g in guilts[1:]]
    assert companions == sorted(set(companions), reverse=True)
    assert companions[-1] < 2 * RISK


def test_guilt_is_divided_in_proportion_to_risk() -> None:
    def odds(risk: float) -> float:
        return risk / (1 - risk)

    guilt = among_seven("abc", a=0.3, b=0.1, c=0.02)
    for n, risk in (("b", 0.1), ("c", 0.02)):
        alone, beside = (g / (1 - g) for g in (guilt["a"], guilt[n]))
        assert alone / beside > odds(0.3) / odds(risk)
        assert guilt["a"] / guilt[n] == pytest.approx(0.3 / risk, rel=0.5)
    assert among_seven("ab", ran="a", a=0.3)["b"] == pytest.approx(MOST_GUILT), "but who ran is no suspect"


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
