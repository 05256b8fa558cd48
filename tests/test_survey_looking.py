"""A survey's next step: which combination is looked at, when it ends, and what goes on to a verdict."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import settings as within
from hypothesis import strategies as st

from optagent.agent.bundling import Bundle
from optagent.agent.canonical import canonical_configuration
from optagent.agent.change import Change, apply_change
from optagent.agent.experiments import BASELINE, BUNDLE, ITEM, SURVEY, TRIAL, Experiment, Failure, Launches, Run
from optagent.agent.judging import Rules, ahead_of_all
from optagent.agent.load import Load
from optagent.agent.noise import Noise
from optagent.agent.plan.model import Item
from optagent.agent.records import Room
from optagent.agent.search.space import Axis
from optagent.agent.survey.factors import Choice, Factor, Level, choice_of, factors_of, set_in
from optagent.agent.survey.feasible import Failed, Feasible
from optagent.agent.survey.looking import FEWEST_WITH, Looked, Seen, Told, is_open, next_of, surveyed, told_of
from optagent.agent.survey.proposing import AT_ONCE, FEWEST, MOST, cost, launches_wanted, propose
from optagent.agent.survey.surface import Observation, Surface
from optagent.agent.verdict import Verdict
from optagent.tools.calls.configuration import Configuration

ROOT = Configuration("default", {"tp-size": 8})
NOISE = Noise(1.0, 10)
Truth = Callable[[Configuration], float | str]
"""What a configuration gives (its logarithm), or the kind of the cause that it does not run."""


def item(name: str, **more: object) -> Item:
    return replace(Item(name, name, 1, change=Change(flags={f"enable-{name}": True})), **more)  # type: ignore[arg-type]


def settled(number: int, kind: str, base: Configuration = ROOT, **more: object) -> Experiment:
    return replace(Experiment(f"E{number:04d}", kind, "x", base, "S001", verdict="inconclusive"), **more)  # type: ignore[arg-type]


def measured(value: float = 100.0, **more: object) -> Experiment:
    return settled(1, BASELINE, runs=(Run("baseline", 1, value),), verdict="keep", **more)


@dataclass
class Campaign:
    """A survey that is carried to its end on a made-up machine: each look is launched, and kept as the agent keeps it."""

    items: Sequence[Item]
    truth: Truth
    seed: int = 1
    direction: str = "max"
    refused: Callable[[Change, Configuration], str] = lambda *_: ""
    baseline: Configuration = ROOT
    experiments: list[Experiment] = field(default_factory=list)
    bundles: list[Bundle] = field(default_factory=list)
    load: Load | None = None

    def __post_init__(self) -> None:
        self.draws = random.Random(self.seed)
        self.experiments.append(measured(self.launch(self.baseline)))

    def launch(self, configuration: Configuration) -> float:
        told = self.truth(configuration)
        assert not isinstance(told, str)
        value = math.exp(told + self.draws.gauss(0, 0.01))
        return 100 * value if self.direction == "max" else 100 / value

    def seen(self) -> Seen:
        return Seen(
            self.baseline, self.experiments, self.bundles, NOISE, self.direction, 0.02, self.seed, self.refused, self.load
        )  # fmt: skip

    def next(self) -> Looked | None:
        inside = self.bundles[-1].items if self.bundles else ()
        fresh = [i for i in self.items if i.id not in inside]
        return next_of(fresh, [i for i in self.items if i.id in inside], self.seen())

    def carry(self) -> Looked | None:
        """All looks; what is then put to a verdict."""
        while (looked := self.next()) is not None and looked.look:
            assert len(self.experiments) <= MOST, "it does not end"
            self.look(looked)
        return looked

    def look(self, looked: Looked) -> None:
        candidate = apply_change(self.baseline, looked.change)
        experiment = settled(
            len(self.experiments) + 1, SURVEY, self.baseline, candidate=candidate, change=looked.change, items=looked.items,
            among=looked.among, root=looked.root, outlook=looked.outlook, goal=1,
        )  # fmt: skip
        told = self.truth(candidate)
        if isinstance(told, str):
            failure = Failure("candidate", "launch", told, "it did not start")
            self.experiments.append(replace(experiment, failures=(failure,), verdict="failed"))
            return
        experiment = replace(experiment, runs=(Run("candidate", 1, self.launch(candidate)),))
        base = [v for e in self.experiments for v in self.values_of(e, self.baseline)]
        if ahead_of_all(experiment, Rules(self.direction), Launches(tuple(base)), NOISE):
            experiment = replace(experiment, verdict="keep")
            self.bundles.append(Bundle(experiment.id, looked.items, True, self.baseline, looked.root))
            self.baseline = candidate
        self.experiments.append(experiment)

    @staticmethod
    def values_of(experiment: Experiment, configuration: Configuration) -> list[float]:
        arms = {"baseline": experiment.base, "candidate": experiment.candidate}
        return [v for arm, c in arms.items() if c == configuration for v in experiment.values(arm).values()]

    @property
    def launched(self) -> list[Configuration]:
        return [e.candidate for e in self.experiments if e.candidate is not None]


def additive(effects: dict[str, float], fails: str = "") -> Truth:
    """Effects of flags that add up; a configuration with the flag `fails` does not start."""

    def truth(configuration: Configuration) -> float | str:
        on = [name.removeprefix("enable-") for name in configuration.flags]
        return "config-error" if fails in on else sum(effects.get(name, 0.0) for name in on)

    return truth


# Whole surveys

EFFECTS = {"aaaa": 0.10, "bbbb": 0.05, "cccc": 0.03, "dddd": 0.0, "eeee": 0.0, "ffff": -0.04, "gggg": -0.10}


@pytest.mark.parametrize("direction", ["max", "min"])
def test_a_survey_finds_what_gains(direction: str) -> None:
    gains = []
    for seed in range(4):
        campaign = Campaign(
            [item(name) for name in (*EFFECTS, "hhhh")], additive(EFFECTS, fails="hhhh"), seed, direction
        )
        chosen = campaign.carry()
        best = apply_change(campaign.baseline, chosen.change) if chosen is not None else campaign.baseline
        told = campaign.truth(best)
        assert isinstance(told, float)
        gains.append(told)
    assert sorted(gains)[1] >= 0.12, "all good ones give 0.18 together"


values = st.sampled_from([-0.1, 0.0, 0.0, 0.03, 0.1])
RANGED = Axis("flag", "max-running-requests", values=(16, 32, 64))
MORE = (
    item("range", change=Change(), space=(RANGED,)),
    item("one", change=Change(flags={"max-running-requests": 16})),
    item("two", change=Change(flags={"enable-aaaa": True, "max-running-requests": 32})),
    item("three", needs=("aaaa",), change=Change(flags={"stream-interval": 4})),
    item("four", change=Change(flags={"enable-aaaa": True}), space=(Axis("flag", "tp-size", values=(4, 8)),)),
)


@within(max_examples=15)
@given(
    st.dictionaries(st.sampled_from(["aaaa", "bbbb", "cccc", "dddd"]), values, min_size=3),
    st.sets(st.integers(0, len(MORE) - 1)),
    st.sets(st.sampled_from(["enable-aaaa", "enable-bbbb", "max-running-requests"]), max_size=2), st.integers(0, 99),
    st.sampled_from(["config-error", "hang", "gpu-oom-pool"]),
)  # fmt: skip
def test_every_survey_ends_and_launches_nothing_twice(
    effects: dict[str, float], more: set[int], fails: set[str], seed: int, kind: str
) -> None:
    """Whatever gains, and whatever fails together."""

    def truth(configuration: Configuration) -> float | str:
        fine = additive(effects)(configuration)
        return kind if fails and fails <= configuration.flags.keys() else fine

    items = [*(item(name) for name in effects), *(MORE[n] for n in sorted(more))]
    campaign = Campaign(items, truth, seed)
    chosen = campaign.carry()
    assert chosen is None or apply_change(campaign.baseline, chosen.change) in campaign.launched
    most = launches_wanted(factors_of(items, ROOT))
    assert len(campaign.launched) <= most
    forms = [canonical_configuration(c) for c in (ROOT, *campaign.launched)]
    assert all(one not in forms[:n] for n, one in enumerate(forms))
    for e in campaign.experiments[1:]:
        assert e.root == ROOT
        assert set(e.items) <= set(e.among) == {i.id for i in items}
        assert e.candidate == apply_change(e.base, e.change)


def test_the_same_survey_is_carried_the_same_way() -> None:
    one, again = (Campaign([item(name) for name in EFFECTS], additive(EFFECTS)) for _ in range(2))
    assert one.carry() == again.carry()
    assert one.launched == again.launched
    assert one.next() == one.next()


def test_what_must_not_be_launched_together_is_looked_at_apart() -> None:
    both = {"enable-aaaa", "enable-bbbb"}
    campaign = Campaign(
        [item(name) for name in ("aaaa", "bbbb", "cccc", "dddd")], additive({"aaaa": 0.05, "bbbb": 0.05}),
        refused=lambda change, _: "a principle" if both <= change.flags.keys() else "",
    )  # fmt: skip
    campaign.carry()
    assert not any(both <= c.flags.keys() for c in campaign.launched)
    assert both <= {name for c in campaign.launched for name in c.flags}


def test_what_is_refused_is_asked_of_the_change_and_of_what_it_leads_to() -> None:
    """On the configuration without the survey's items, also when some came in."""
    asked: list[tuple[Change, Configuration]] = []

    def refused(change: Change, candidate: Configuration) -> str:
        asked.append((change, candidate))
        return ""

    Campaign([item(name) for name in EFFECTS], additive(EFFECTS), refused=refused).carry()
    assert all(candidate == apply_change(ROOT, change) for change, candidate in asked)
    assert len({repr(change) for change, _ in asked}) > 3


def test_nothing_is_looked_at_where_nothing_may_be_launched() -> None:
    campaign = Campaign([item(name) for name in "abc"], additive({}), refused=lambda *_: "a principle")
    assert campaign.next() is None


# Eight requests at a time, and room for all of them
FEW = Load(8, 1000.0, 0.0, True, {ROOT.fingerprint(): Room(100_000)})
UNFELT = {"num-continuous-decode-steps": 4, "schedule-conservativeness": 0.5, "mem-fraction-static": 0.95}


def unfelt() -> list[Item]:
    return [item(name, change=Change(flags={name: value})) for name, value in UNFELT.items()]


@pytest.mark.parametrize("launches", [1, 6])
def test_what_the_load_cannot_feel_is_no_reason_for_a_survey(launches: int) -> None:
    campaign = Campaign(unfelt(), additive({}), load=FEW)
    campaign.experiments *= launches
    assert campaign.next() is None
    campaign.load = None
    assert campaign.next() is not None, "but it is where nothing is known of the load"


@pytest.mark.parametrize("seed", range(4))
def test_what_the_load_cannot_feel_is_never_the_reason_for_a_launch(seed: int) -> None:
    """It may be in it: but of no two launches is it all that makes them differ."""
    campaign = Campaign([*map(item, EFFECTS), *unfelt()], additive(EFFECTS), seed, load=FEW)
    campaign.carry()
    felt = [frozenset(set(c.flags) - UNFELT.keys()) for c in (ROOT, *campaign.launched)]
    assert len(felt) > 3
    assert len(set(felt)) == len(felt)


def test_what_came_in_may_go_out_again() -> None:
    """A combination that gained is the baseline at once; the survey goes on from the configuration without it."""
    campaign = Campaign([item(name) for name in EFFECTS], additive({"aaaa": 0.12, "bbbb": -0.04, "cccc": -0.04}))
    campaign.carry()
    kept = next(n for n, e in enumerate(campaign.experiments) if e.kind == SURVEY and e.verdict == "keep")
    later = campaign.experiments[kept + 1 :]
    assert any(set(campaign.experiments[kept].items) - set(e.items) for e in later)


# When


def survey(number: int, names: str = "abc", base: Configuration = ROOT, **more: object) -> Experiment:
    change = Change(flags={f"enable-{name}": True for name in names})
    looked = settled(
        number, SURVEY, base, candidate=apply_change(base, change), change=change, items=tuple(names), among=tuple("abc"),
        root=ROOT, runs=(Run("candidate", 1, 100.0),),
    )  # fmt: skip
    return replace(looked, **more)  # type: ignore[arg-type]


def step(names: str, *experiments: Experiment, baseline: Configuration = ROOT, **more: object) -> Looked | None:
    seen = Seen(baseline, experiments, (), NOISE, "max", 0.02, 1)
    return next_of([item(name) for name in names], [], replace(seen, **more))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("names", "experiments", "looks"),
    [
        ("abc", [measured()], True),
        ("ab", [measured()], False),  # too few to save anything
        ("abc", [], False),  # nothing to go by
        ("abc", [measured(base=Configuration("cu13"))], False),
        ("ab", [measured(), survey(2)], True),  # under way
        ("a", [measured(), survey(2)], True),
        ("abc", [measured(), survey(2), settled(3, BUNDLE)], False),  # it has come to its end
        ("abc", [measured(), survey(2), settled(3, ITEM)], False),
        ("abc", [measured(), survey(2), settled(3, TRIAL)], False),
        ("ab", [measured(), survey(2), settled(3, BASELINE)], True),
        ("abcde", [measured(), survey(2), settled(3, BUNDLE)], False),
        ("abcdef", [measured(), survey(2), settled(3, BUNDLE)], True),  # three new ones
    ],
)
def test_when_combinations_are_looked_at(names: str, experiments: list[Experiment], looks: bool) -> None:
    found = step(names, *experiments)
    assert (found is not None and found.look) == looks


def test_a_look_says_what_is_expected_of_it() -> None:
    found = step("abc", measured())
    assert found is not None
    assert found.outlook is not None
    assert found.outlook.baseline == pytest.approx(math.log(100), abs=0.01)
    assert found.root == ROOT
    assert found.among == ("a", "b", "c")
    assert found.change == Change(flags={f"enable-{name}": True for name in found.items})
    assert f"launch 1 of at most {launches_wanted(factors_of([item(n) for n in 'abc'], ROOT))}" in found.words


def test_what_was_refused_before_its_launch_is_none() -> None:
    refused = Failure("candidate", "prepare", "config-error", "no such flag")
    found = step("abc", measured(), survey(2, "a", candidate=None, runs=(), failures=(refused,), verdict="failed"))
    assert found is not None
    assert found.words.startswith("launch 1 of")
    assert found.items != ("a",)


def test_what_is_under_way_and_what_was_surveyed() -> None:
    assert not is_open([])
    assert not is_open([measured()])
    assert is_open([measured(), survey(2), measured()])
    assert not is_open([survey(2), settled(3, ITEM)])
    assert surveyed([measured(), survey(2), settled(3, BUNDLE, among=("d",))]) == {"a", "b", "c"}


def test_a_patch_that_was_kept_since_stays_in() -> None:
    """Without what came in with the combination, the configuration is what it is now otherwise."""
    came_in = apply_change(ROOT, Change(flags={"enable-a": True}))
    now = replace(came_in, revision="b2")
    seen = Seen(now, [measured(base=now)], [Bundle("E0002", ("a",), True, ROOT, ROOT)], NOISE, "max", 0.02, 1)
    found = next_of([item(name) for name in "bcd"], [item("a")], seen)
    assert found is not None
    assert found.root == replace(ROOT, revision="b2")


@pytest.mark.parametrize(
    ("more", "looked_at"),
    [
        ({}, True),
        ({"verdict": "failed", "failures": (Failure("candidate", "launch", "config-error", "no"),)}, False),
        ({"verdict": "failed", "failures": (Failure("candidate", "launch", "port-in-use", "no"),)}, True),
        ({"verdict": "failed", "failures": (Failure("candidate", "prepare", "config-error", "no"),), "candidate": None},
         False),
        ({"verdict": "invalid", "failures": (Failure("candidate", "gate", "output", "no"),)}, False),
        ({"verdict": "invalid", "failures": (Failure("baseline", "launch", "config-error", "no"),)}, True),
        ({"verdict": "invalid", "runs": (Run("candidate", 1, None, False),) * 2}, False),
        ({"verdict": "invalid", "runs": (Run("candidate", 1, 104.0), *(Run("baseline", 1, None, False),) * 2)}, True),
        ({"verdict": "failed", "failures": (Failure("candidate", "launch", "config-error", "no"),),
          "base": Configuration("cu13"), "candidate": Configuration("cu13", {"enable-a": True})}, True),
    ],
)  # fmt: skip
def test_what_failed_alone_is_not_looked_at(more: dict[str, object], looked_at: bool) -> None:
    """Unless the failure says nothing about it, or was met on something else."""
    alone = Change(flags={"enable-a": True})
    tried = replace(settled(2, ITEM, candidate=apply_change(ROOT, alone), change=alone), **more)  # type: ignore[arg-type]
    campaign = Campaign([item("a", expected_gain=(0.1, 0.2)), *map(item, "bcd")], additive({}))
    campaign.experiments.append(tried)
    campaign.carry()
    assert any("enable-a" in c.flags for c in campaign.launched[1:]) == looked_at


def test_what_ran_did_not_fail_where_the_baseline_did() -> None:
    alone = Change(flags={"enable-a": True})
    runs = (Run("candidate", 1, 104.0), Run("baseline", 1, None, False))
    ran = settled(2, ITEM, candidate=apply_change(ROOT, alone), change=alone, runs=runs)
    assert step("abc", measured(), replace(ran, verdict="invalid")) == step("abc", measured(), ran)


# What goes on to a verdict


def all_looked_at(effects: dict[str, float], direction: str = "max") -> list[Experiment]:
    """Every combination of three items was launched once."""
    sign = 1 if direction == "max" else -1
    found = [measured()]
    for number in range(1, 8):
        names = "".join(name for n, name in enumerate("abc") if number & 1 << n)
        value = 100 * math.exp(sign * sum(effects.get(name, 0.0) for name in names))
        found.append(survey(number + 1, names, runs=(Run("candidate", 1, value),)))
    return found


@pytest.mark.parametrize("direction", ["max", "min"])
@pytest.mark.parametrize(
    ("effects", "items"),
    [({"a": 0.05, "b": 0.04}, ("a", "b")), ({"a": 0.05, "b": -0.04, "c": -0.04}, ("a",)), ({}, ()), ({"a": -0.05}, ())],
)
def test_the_best_of_all_is_put_to_a_verdict(effects: dict[str, float], items: tuple[str, ...], direction: str) -> None:
    found = step("abc", *all_looked_at(effects, direction), direction=direction)
    if not items:
        assert found is None
        return
    assert found is not None
    assert not found.look
    assert set(items) <= set(found.items)
    assert not {name for name in found.items if effects.get(name, 0.0) < 0}
    assert found.root == ROOT


def test_the_best_is_put_to_a_verdict_once() -> None:
    looked = all_looked_at({"a": 0.05, "b": -0.04, "c": -0.04})
    best = settled(9, BUNDLE, candidate=looked[1].candidate, items=("a",), verdict="revert")
    assert step("abc", *looked, best, survey(10)) is None


# What a survey tells of an item


def told(name: str, experiments: Sequence[Experiment], baseline: Configuration = ROOT) -> Told | None:
    items = [item(n) for n in "abc"]
    one = next((i for i in items if i.id == name), item(name))
    return told_of(one, items, [], Seen(baseline, experiments, (), NOISE, "max", 0.02, 1))


def test_what_an_item_gives_is_told() -> None:
    looked = all_looked_at({"a": 0.05, "b": -0.04})
    for name, effect in (("a", 0.05), ("b", -0.04), ("c", 0.0)):
        found = told(name, looked)
        assert found is not None
        assert (found.change, found.launches) == (Change(flags={f"enable-{name}": True}), 4)
        assert found.ahead == pytest.approx(effect, abs=0.01)
        judged = found.settles(0.02)
        assert (judged is None) == (name == "a")
        if judged is not None:
            assert judged.verdict is Verdict.REVERT
            assert judged.effect == pytest.approx(math.expm1(effect), abs=0.01)


def test_of_what_nothing_is_known_nothing_is_told() -> None:
    looked = all_looked_at({})
    assert told("d", looked) is None, "it was in no survey"
    assert told("a", []) is None
    assert told("a", [measured(base=Configuration("cu13"))]) is None
    assert told("a", looked, apply_change(ROOT, Change(flags={"enable-a": True}))) is None, "it is on already"
    once = told("a", [measured(), survey(2, "a", runs=(Run("candidate", 1, 80.0),))])
    assert once is not None
    assert (once.launches, once.settles(0.02)) == (1, None), "one launch may be chance"


def test_launches_count_that_had_what_is_new_of_it() -> None:
    both = item("both", change=Change(flags={"enable-a": True, "enable-b": True}))
    now = apply_change(ROOT, Change(flags={"enable-a": True}))
    looked = [measured(), survey(2, "a"), survey(3, "b"), survey(4, "ab")]
    seen = Seen(now, looked, [Bundle("E0002", ("a",), True, ROOT, ROOT)], NOISE, "max", 0.02, 1)
    found = told_of(both, [item("a"), both], [item("a")], seen)
    assert found is not None
    assert found.launches == 2


def test_of_a_range_the_most_promising_value_is_told() -> None:
    ranged = item("range", change=Change(), space=(RANGED,))

    def look(number: int, size: int, value: float) -> Experiment:
        change = Change(flags={"max-running-requests": size})
        return settled(number, SURVEY, candidate=apply_change(ROOT, change), runs=(Run("candidate", 1, value),))

    looked = [measured(), look(2, 16, 95.0), look(3, 32, 103.0), look(4, 64, 99.0)]
    found = told_of(ranged, [ranged], [], Seen(ROOT, looked, (), NOISE, "max", 0.02, 1))
    assert found is not None
    assert (found.change, found.launches) == (Change(flags={"max-running-requests": 32}), 3)
    assert found.settles(0.02) is None
    assert found.settles(0.2) is not None


def test_a_value_that_did_not_run_is_not_the_one_that_is_judged() -> None:
    """However promising: the failure is its own, and what is settled by the others is not it."""
    ranged = item("range", change=Change(), space=(RANGED,))

    def look(number: int, size: int, value: float | None) -> Experiment:
        candidate = apply_change(ROOT, Change(flags={"max-running-requests": size}))
        if value is None:
            died = (Failure("candidate", "launch", "config-error", "max-running-requests is too large"),)
            return settled(number, SURVEY, candidate=candidate, failures=died, verdict="failed")
        return settled(number, SURVEY, candidate=candidate, runs=(Run("candidate", 1, value),))

    looked = [measured(), look(2, 16, 90.0), look(3, 32, 96.0), look(4, 64, None)]
    found = told_of(ranged, [ranged], [], Seen(ROOT, looked, (), NOISE, "max", 0.02, 1))
    assert found is not None
    assert found.change != Change(flags={"max-running-requests": 64})
    alone = item("range", change=Change(flags={"max-running-requests": 64}))
    assert told_of(alone, [alone], [], Seen(ROOT, [measured(), look(4, 64, None)], (), NOISE, "max", 0.02, 1)) is None


@given(st.floats(-0.2, 0.2), st.floats(0, 0.1), st.integers(0, 9), st.floats(0.001, 0.1))
def test_an_item_is_settled_only_where_it_surely_gives_too_little(
    ahead: float, sd: float, launches: int, least: float
) -> None:
    judged = Told(Change(), ahead, sd, launches).settles(least)
    if launches < FEWEST_WITH or ahead >= math.log1p(least):
        assert judged is None
    if launches >= FEWEST_WITH and ahead + 3 * sd < math.log1p(least):
        assert judged is not None
    if judged is not None:
        assert judged.verdict is Verdict.REVERT
        assert judged.effect is not None
        assert judged.low is not None
        assert judged.high is not None
        assert judged.low <= judged.effect <= judged.high
        assert Told(Change(), ahead, sd / 2, launches).settles(least) is not None


# What is proposed

FACTORS = tuple(
    Factor(tuple(Level(Change(flags={name: n}), (name,), risk=0.05) for n in range(1, levels + 1)))
    for name, levels in (("ww", 1), ("xx", 2), ("yy", 3), ("zz", 1))
)
BEFORE = set_in(ROOT)
choices = st.tuples(*(st.integers(0, len(f.levels)) for f in FACTORS))


@within(max_examples=50)
@given(
    st.dictionaries(choices, st.floats(4.5, 4.7), max_size=8), st.sets(choices.filter(any), max_size=4), st.integers(0, 10**6),
    st.sampled_from(["config-error", "hang"]),
)  # fmt: skip
def test_what_is_proposed_is_new_and_may_run(
    ran: dict[Choice, float], failures: set[Choice], seed: int, kind: str
) -> None:
    off = (0,) * len(FACTORS)
    seen = [Observation(c, v) for c, v in {off: 4.6, **ran}.items()]
    feasible = Feasible(FACTORS, BEFORE, [Failed(c, kind) for c in sorted(failures)], {o.choice for o in seen})
    surface = Surface(FACTORS, BEFORE, seen, 0.01)
    found = propose(FACTORS, surface, seen, feasible, seed)
    assert found == propose(FACTORS, surface, seen, feasible, seed)
    if found is not None:
        assert found.choice not in failures | {o.choice for o in seen}
        assert choice_of(ROOT, ROOT, FACTORS) == off != found.choice
        assert found.expected > 0
        assert feasible.chance(found.choice) > 0
        assert feasible.new(found.choice) <= AT_ONCE


def test_where_all_was_launched_nothing_is_proposed() -> None:
    factors = FACTORS[:2]
    every = [(one, other) for one in range(2) for other in range(3)]
    for rest in ([], [(1, 2)]):
        seen = [Observation(c, 4.6) for c in every if c not in rest]
        feasible = Feasible(factors, BEFORE, [], {o.choice for o in seen})
        found = propose(factors, Surface(factors, BEFORE, seen, 0.01), seen, feasible, 1)
        assert ([found.choice] if found else []) == rest


def proposed(*factors: Factor) -> Choice:
    off = (0,) * len(factors)
    seen = [Observation(off, 4.6)]
    found = propose(factors, Surface(factors, BEFORE, seen, 0.01), seen, Feasible(factors, BEFORE, [], {off}), 1)
    assert found is not None
    return found.choice


def promising(name: str, *risks: float, promise: float = 0.2, costs: Sequence[float] = ()) -> Factor:
    """Alternatives that promise the same, with these risks, and costs where a launch takes more than a usual one."""
    return Factor(
        tuple(
            Level(Change(flags={name: n}), (name,), promise, risk, cost)
            for n, (risk, cost) in enumerate(itertools.zip_longest(risks, costs, fillvalue=1.0), 1)
        )
    )


def test_few_new_levels_are_looked_at_at_once() -> None:
    assert sum(proposed(*(promising(name, 0.0) for name in "abcdef"))) == AT_ONCE


def test_of_what_promises_the_same_the_likelier_to_run_is_looked_at() -> None:
    assert proposed(promising("a", 0.5, 0.05, 0.5), promising("b", 0.9)) == (2, 0)
    assert proposed(promising("a", 0.1, promise=0.05), promising("b", 0.1, promise=0.2))[1] == 1


def test_of_what_promises_the_same_the_sooner_launched_is_looked_at() -> None:
    assert proposed(promising("a", *[0.1] * 3, costs=(3.0, 1.0, 3.0))) == (2,)
    assert proposed(promising("a", 0.1, costs=(3.0,)), promising("b", 0.1)) == (0, 1)
    assert proposed(promising("a", 0.1, promise=0.6, costs=(3.0,)), promising("b", 0.1, promise=0.03))[0] == 1


@pytest.mark.parametrize("failures", [[(1, 1, 0, 0)], [(1, 1, 0, 0), (1, 0, 0, 1)]])
def test_of_what_promises_the_same_the_unsuspected_is_looked_at(failures: list[Choice]) -> None:
    factors, off = [promising(name, 0.05) for name in "abcd"], (0,) * 4
    seen = [Observation(off, 4.6)]
    feasible = Feasible(factors, BEFORE, [Failed(c, "config-error") for c in failures], {off})
    found = propose(factors, Surface(factors, BEFORE, seen, 0.01), seen, feasible, 1)
    assert found is not None
    assert found.choice[2] == 1
    assert found.choice[0] == 0


@given(st.lists(st.sampled_from([1.0, 2.0, 3.0]), min_size=4, max_size=4), choices, choices)
def test_a_launch_costs_what_its_slowest_level_takes(costs: list[float], one: Choice, other: Choice) -> None:
    factors = [replace_cost(f, c) for f, c in zip(FACTORS, costs, strict=True)]
    assert cost(factors, (0,) * len(FACTORS)) == 1
    assert cost(factors, one) == max((c for c, n in zip(costs, one, strict=True) if n), default=1)
    both = tuple(max(a, b) for a, b in zip(one, other, strict=True))
    assert cost(factors, both) == max(cost(factors, one), cost(factors, other))


def replace_cost(factor: Factor, cost: float) -> Factor:
    return Factor(tuple(replace(level, cost=cost) for level in factor.levels))


@pytest.mark.parametrize(("factors", "launches"), [(1, FEWEST + 2), (4, FEWEST + 8), (100, MOST)])
def test_how_many_launches_a_survey_may_take(factors: int, launches: int) -> None:
    assert launches_wanted(FACTORS[:1] * factors) == launches
