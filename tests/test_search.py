"""Search inside an item: spaces and their points, what failures rule out, which point is next, and which trial is best."""

from __future__ import annotations

import math
import random
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optagent.agent.change import Change
from optagent.agent.dead_ends import retry_condition
from optagent.agent.noise import Noise
from optagent.agent.search.choosing import Trial, best, is_memory_setting
from optagent.agent.search.feasible import GPU_OUT_OF_MEMORY, FailedTrial, ruled_out
from optagent.agent.search.proposing import next_point, trials_wanted
from optagent.agent.search.space import (
    Axis,
    Point,
    Space,
    apart,
    at,
    canonical_value,
    contains,
    describe,
    in_order,
    key,
    own_point,
    place_of,
    points,
    size,
    value_at,
)
from optagent.tools.calls.configuration import Configuration

GRAPHS = Axis("flag", "cuda-graph-max-bs-decode", (8, 16, 32, 64, 128, 256, 512))
CONSERVATIVE = Axis("flag", "schedule-conservativeness", low=0.3, high=1.3)
FRACTION = Axis("flag", "mem-fraction-static", low=0.7, high=0.95)
POLICY = Axis("flag", "schedule-policy", ("fcfs", "lpm", "lof"))
MIXED = Axis("flag", "enable-mixed-chunk", (True, None))
CHUNK = Axis("flag", "chunked-prefill-size", low=2048, high=32768, step=2048, integer=True)
INTERVAL = Axis("flag", "stream-interval", low=1, high=20, integer=True)
TOKENS = Axis("flag", "max-total-tokens", low=1000, high=1_000_000, integer=True)
CHANNELS = Axis("env", "NCCL_MAX_NCHANNELS", ("4", "8", "16"))
SIZE = Axis("env", "NCCL_BUFFSIZE", low=1e6, high=4e6)
AXES = (GRAPHS, CONSERVATIVE, FRACTION, POLICY, MIXED, CHUNK, INTERVAL, TOKENS, CHANNELS, SIZE)

spaces = st.lists(st.sampled_from(AXES), min_size=1, max_size=3, unique=True).map(in_order)


@pytest.mark.parametrize(
    ("space", "number", "wanted"),
    [
        ([GRAPHS], 7, 7),
        ([MIXED], 2, 2),
        ([CHANNELS, MIXED], 6, 6),
        ([POLICY, CHANNELS], 9, 9),
        ([INTERVAL], 20, 6),
        ([CHUNK], 16, 6),
        ([GRAPHS, POLICY], 21, 10),
        ([GRAPHS, CHANNELS, MIXED], 42, 14),
        ([CONSERVATIVE], None, 6),
        ([CONSERVATIVE, GRAPHS], None, 10),
        ([CONSERVATIVE, GRAPHS, CHUNK, POLICY, MIXED], None, 20),
        ([TOKENS], 999_001, 6),
        ([Axis("flag", "x", low=0.3, high=1.3, step=0.1)], 11, 6),
        ([Axis("flag", "x", low=0, high=10, step=4, integer=True)], 3, 3),
    ],
)
def test_how_large_a_space_is_and_how_many_launches_it_may_take(space: Space, number: int | None, wanted: int) -> None:
    assert size(space) == number
    assert trials_wanted(space) == wanted
    if number is not None and number < 100:
        everything = list(points(space))
        assert len({key(p) for p in everything}) == number
        assert all(contains(space, p) for p in everything)


def test_a_point_is_put_into_the_fixed_change() -> None:
    fixed = Change(flags={"tp-size": 8}, env={"A": "b"}, files={"f": "x"}, patch="p.diff")
    space = in_order([CHANNELS, GRAPHS, SIZE, MIXED])
    point = {
        "NCCL_MAX_NCHANNELS": "8",
        "cuda-graph-max-bs-decode": 64,
        "NCCL_BUFFSIZE": 2.5e6,
        "enable-mixed-chunk": None,
    }
    assert at(fixed, space, point) == Change(
        flags={"tp-size": 8, "cuda-graph-max-bs-decode": 64, "enable-mixed-chunk": None},
        env={"A": "b", "NCCL_BUFFSIZE": "2500000.0", "NCCL_MAX_NCHANNELS": "8"},
        files={"f": "x"},
        patch="p.diff",
    )
    assert fixed.flags == {"tp-size": 8}
    with pytest.raises(KeyError):
        at(fixed, space, {"cuda-graph-max-bs-decode": 64})


@pytest.mark.parametrize(
    ("space", "line"),
    [
        ([GRAPHS], "--cuda-graph-max-bs-decode one of 8, 16, 32, 64, 128, 256, 512"),
        ([CONSERVATIVE], "--schedule-conservativeness 0.3..1.3"),
        ([MIXED], "--enable-mixed-chunk one of on, not given"),
        (
            [CHUNK, CHANNELS],
            "--chunked-prefill-size 2048..32768 step 2048; NCCL_MAX_NCHANNELS one of 4, 8, 16 (48 points)",
        ),
        ([CONSERVATIVE, MIXED], "--schedule-conservativeness 0.3..1.3; --enable-mixed-chunk one of on, not given"),
        ([Axis("flag", "x", tuple(range(20)))], "--x one of 0, 1, 2, 3, 4, 5, 6, 7 and 12 more"),
        ([Axis("env", "X", ("a\nb", "y" * 99))], f"X one of a b, {'y' * 40}…"),
    ],
)
def test_a_space_in_one_line(space: Space, line: str) -> None:
    assert describe(space) == line


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (8, "8", True), (8, 8.0, True), (0.5, "0.50", True), (1, True, False), (False, None, True), (0, None, False),
        (0, False, False), ("a", "b", False), ("lpm", "LPM", False), ("1e3", 1000, True), ("nan", "nan", True),
        ("1_0", 10, False), ("", None, False), (2**53 + 1, 2**53, False),
    ],
)  # fmt: skip
def test_values_that_come_to_the_same(one: bool | float | str, other: bool | float | str | None, same: bool) -> None:
    assert (canonical_value(one) == canonical_value(other)) is same


def test_what_a_configuration_has_on_the_axes() -> None:
    base = Configuration("env", flags={"cuda-graph-max-bs-decode": 512, "tp-size": 8}, env={"NCCL_MAX_NCHANNELS": "16"})
    assert own_point([GRAPHS, CHANNELS, MIXED], base) == {
        "cuda-graph-max-bs-decode": 512, "NCCL_MAX_NCHANNELS": "16", "enable-mixed-chunk": None,
    }  # fmt: skip


@given(st.sampled_from(AXES), st.floats(0, 1))
def test_every_place_of_an_axis_has_a_value_of_it(axis: Axis, place: float) -> None:
    value = value_at(axis, place)
    back = place_of(axis, value)
    assert back is not None
    assert 0 <= back <= 1
    assert canonical_value(value_at(axis, back)) == canonical_value(value)
    assert isinstance(value, int) or not axis.integer
    assert apart(axis, value, value) == 0


@pytest.mark.parametrize(
    ("axis", "value"),
    [(GRAPHS, 9), (GRAPHS, None), (CONSERVATIVE, 1.31), (CONSERVATIVE, "x"), (CHUNK, 2049), (CHUNK, 34816), (INTERVAL, 1.5),
     (POLICY, "fifo"), (MIXED, 1), (TOKENS, 999)],
)  # fmt: skip
def test_a_value_that_an_axis_does_not_have(axis: Axis, value: float | str | None) -> None:
    assert place_of(axis, value) is None
    assert not contains([axis], {axis.name: value})


def test_a_wide_range_is_walked_in_equal_ratios() -> None:
    assert [value_at(TOKENS, place) for place in (0.0, 1 / 3, 2 / 3, 1.0)] == [1000, 10000, 100000, 1000000]


# --- what failures rule out


def graphs(value: int) -> Point:
    return {"cuda-graph-max-bs-decode": value}


def both(graph: int, fraction: float, policy: str = "fcfs") -> Point:
    return {"cuda-graph-max-bs-decode": graph, "mem-fraction-static": fraction, "schedule-policy": policy}


@pytest.mark.parametrize(
    ("point", "failed", "kind", "why"),
    [
        (graphs(512), graphs(256), "gpu-oom-graph-capture",
         "--cuda-graph-max-bs-decode 256 ran out of memory in graph capture, 512 needs more"),
        (graphs(128), graphs(256), "gpu-oom-graph-capture", None),
        (graphs(256), graphs(256), "gpu-oom-graph-capture",
         "--cuda-graph-max-bs-decode 256 ran out of memory in graph capture before"),
        (graphs(512), graphs(256), "gpu-oom-runtime",
         "--cuda-graph-max-bs-decode 256 ran out of memory while it served, 512 needs more"),
        (graphs(512), graphs(256), "graph-capture-incompatible", None),
        (graphs(256), graphs(256), "graph-capture-incompatible",
         "--cuda-graph-max-bs-decode 256 failed (graph-capture-incompatible) before"),
        (graphs(256), graphs(256), "unknown", "--cuda-graph-max-bs-decode 256 failed (unknown) before"),
        (graphs(256), graphs(256), "port-in-use", None),
        (graphs(512), graphs(256), "memory-fraction-too-low", None),
        (both(512, 0.9), both(256, 0.85), "gpu-oom-pool",
         "--cuda-graph-max-bs-decode 256 --mem-fraction-static 0.85 (with --schedule-policy fcfs) ran out of memory when "
         "the KV pool was made, 512 and 0.9 need more"),
        (both(256, 0.9), both(256, 0.85), "gpu-oom-weights",
         "--mem-fraction-static 0.85 (with --cuda-graph-max-bs-decode 256 --schedule-policy fcfs) ran out of memory while "
         "the weights were loaded, 0.9 needs more"),
        (both(512, 0.8), both(256, 0.85), "gpu-oom-pool", None),
        (both(512, 0.9, "lpm"), both(256, 0.85), "gpu-oom-pool", None),
        (both(256, 0.75), both(256, 0.8), "memory-fraction-too-low",
         "--mem-fraction-static 0.8 (with --cuda-graph-max-bs-decode 256 --schedule-policy fcfs) left no room beside the "
         "weights, 0.75 leaves less"),
        (both(256, 0.85), both(256, 0.8), "memory-fraction-too-low", None),
        (both(128, 0.75), both(256, 0.8), "memory-fraction-too-low", None),
        ({"max-total-tokens": 1000}, {"max-total-tokens": 2000}, "kv-pool-too-small",
         "--max-total-tokens 2000 made too small a KV pool, 1000 leaves less"),
        ({"max-total-tokens": 1000}, {"max-total-tokens": 2000}, "memory-fraction-too-low", None),
        ({"hicache-ratio": 4.0}, {"hicache-ratio": 2}, "host-memory",
         "--hicache-ratio 2 ran out of host memory, 4.0 needs more"),
        ({"hicache-ratio": 4.0}, {"hicache-ratio": 2}, "gpu-oom-pool", None),
        ({"NCCL_BUFFSIZE": "8000000"}, {"NCCL_BUFFSIZE": "4000000"}, "gpu-oom-runtime",
         "NCCL_BUFFSIZE=4000000 ran out of memory while it served, 8000000 needs more"),
        ({"chunked-prefill-size": -1}, {"chunked-prefill-size": 8192}, "gpu-oom-runtime", None),
        ({"chunked-prefill-size": 8192}, {"chunked-prefill-size": -1}, "gpu-oom-runtime", None),
        ({"context-length": None}, {"context-length": 8192}, "gpu-oom-pool", None),
        ({"schedule-policy": "lpm"}, {"schedule-policy": "fcfs"}, "gpu-oom-runtime", None),
        ({"page-size": 64}, {"page-size": 32}, "gpu-oom-runtime", None),
        ({"enable-mixed-chunk": None}, {"enable-mixed-chunk": True}, "gpu-oom-runtime", None),
        ({"enable-mixed-chunk": None}, {"enable-mixed-chunk": False}, "config-error",
         "(without --enable-mixed-chunk) failed (config-error) before"),
        (graphs(512), both(256, 0.8), "gpu-oom-graph-capture", None),
        (both(512, 0.8), graphs(256), "gpu-oom-graph-capture", None),
    ],
)  # fmt: skip
def test_what_one_failure_rules_out(point: Point, failed: Point, kind: str, why: str | None) -> None:
    assert ruled_out(point, [FailedTrial(failed, kind)]) == why


def test_what_may_pass_by_itself_is_ruled_out_the_second_time() -> None:
    once = [
        FailedTrial(graphs(8), "port-in-use"),
        FailedTrial(graphs(8), "peer-died"),
        FailedTrial(graphs(16), "port-in-use"),
    ]
    assert ruled_out(graphs(8), once) is None
    again = [*once, FailedTrial(graphs(8), "peer-died")]
    assert ruled_out(graphs(8), again) == "--cuda-graph-max-bs-decode 8 failed twice in the same way (peer-died)"
    assert ruled_out(graphs(16), again) is None


def test_two_failures_with_one_value_in_common_do_not_condemn_the_value() -> None:
    failures = [FailedTrial(both(8, 0.8, "lpm"), "unknown"), FailedTrial(both(16, 0.9, "lpm"), "unknown")]
    assert ruled_out(both(8, 0.9, "lpm"), failures) is None


def test_memory_kinds_are_those_for_which_larger_gpus_are_worth_another_look() -> None:
    assert all(retry_condition(kind, {"gpu.memory_gb": "96"}) == "gpu.memory_gb>96" for kind in GPU_OUT_OF_MEMORY)


amounts = st.sampled_from((8, 16, 32, 64, 128))
shares = st.sampled_from((0.7, 0.8, 0.9))
policies = st.sampled_from(("fcfs", "lpm"))
memory_points = st.builds(both, amounts, shares, policies)
memory_failures = st.lists(
    st.builds(FailedTrial, memory_points, st.sampled_from(sorted(GPU_OUT_OF_MEMORY))), max_size=5
)


@given(memory_points, memory_points, memory_failures)
def test_regions_without_memory_are_closed_upwards(one: Point, other: Point, failures: list[FailedTrial]) -> None:
    larger = {**{name: max(one[name], other[name]) for name in ("cuda-graph-max-bs-decode", "mem-fraction-static")},
              "schedule-policy": one["schedule-policy"]}  # type: ignore[type-var]  # fmt: skip
    if ruled_out(one, failures):
        assert ruled_out(larger, failures)


@given(memory_points, memory_failures)
def test_a_point_is_ruled_out_exactly_when_it_takes_no_less_than_one_that_failed(
    point: Point, failures: list[FailedTrial]
) -> None:
    def reaches(failed: Point) -> bool:
        names = ("cuda-graph-max-bs-decode", "mem-fraction-static")
        more = all(float(str(point[n])) >= float(str(failed[n])) for n in names)
        return more and point["schedule-policy"] == failed["schedule-policy"]

    assert (ruled_out(point, failures) is not None) is any(reaches(f.point) for f in failures)


# --- which point is next

World = Callable[[Point, int], float | str]
"""What launching a point for the n-th time gives: a value, or the kind of a failure."""


def run(
    space: Space, world: World, *, seed: int = 0, direction: str = "max", own: Point | None = None
) -> tuple[list[Trial], list[FailedTrial]]:
    """A whole search, with the laws that hold at every step."""
    trials: list[Trial] = []
    failures: list[FailedTrial] = []
    for _ in range(3 * trials_wanted(space) + 1):
        point = next_point(space, trials, failures, seed, direction, own)
        assert point == next_point(space, list(trials), list(failures), seed, direction, own)
        if point is None:
            return trials, failures
        assert contains(space, point)
        assert key(point) not in {key(t.point) for t in trials}
        assert own is None or key(point) != key(own)
        assert ruled_out(point, failures) is None
        told = world(point, sum(key(f.point) == key(point) for f in failures))
        if isinstance(told, str):
            failures.append(FailedTrial(point, told))
        else:
            trials.append(Trial(point, told))
    raise AssertionError("the search does not end")


def share(space: Space, point: Point) -> float:
    """How far up its axes a point is, on average."""
    return sum(place_of(a, point[a.name]) or 0.0 for a in space) / len(space)


@settings(max_examples=40, deadline=None)
@given(spaces, st.integers(0, 2**40), st.sampled_from(["max", "min"]), st.floats(0, 1.2), st.booleans())
def test_a_search_never_goes_where_it_need_not(
    space: Space, seed: int, direction: str, room: float, flaky: bool
) -> None:
    def world(point: Point, times: int) -> float | str:
        if flaky and times == 0 and share(space, point) < 0.3:
            return "port-in-use"
        if share(space, point) > room:
            return "gpu-oom-graph-capture"
        return 50 + 10 * math.sin(5 * share(space, point))

    own = {axis.name: value_at(axis, 0.5) for axis in space}
    trials, failures = run(space, world, seed=seed, direction=direction, own=own)
    spent = {key(t.point) for t in trials} | {key(f.point) for f in failures if f.kind != "port-in-use"}
    assert len(spent) <= trials_wanted(space)
    number = size(space)
    if len(spent) < trials_wanted(space) and number is not None and number <= 4096:
        assert all(key(p) in spent or key(p) == key(own) or ruled_out(p, failures) for p in points(space)), (
            "it gave up although points were left"
        )


def test_a_list_is_tried_from_the_middle_then_its_ends() -> None:
    trials, _ = run([GRAPHS], lambda point, times: 1.0)
    assert [t.point["cuda-graph-max-bs-decode"] for t in trials] == [64, 8, 512, 16, 32, 128, 256]


def test_a_list_that_runs_out_of_memory_in_the_middle_costs_one_launch() -> None:
    trials, failures = run(
        [GRAPHS], lambda point, times: "gpu-oom-graph-capture" if float(str(point[GRAPHS.name])) >= 64 else 1.0
    )
    assert [f.point[GRAPHS.name] for f in failures] == [64]
    assert sorted(float(str(t.point[GRAPHS.name])) for t in trials) == [8, 16, 32]


def test_what_the_baseline_has_is_not_tried() -> None:
    trials, _ = run([GRAPHS], lambda point, times: 1.0, own={GRAPHS.name: "512"})
    assert sorted(float(str(t.point[GRAPHS.name])) for t in trials) == [8, 16, 32, 64, 128, 256]


def test_the_baselines_own_value_costs_no_launch() -> None:
    own = {CONSERVATIVE.name: 1.0}
    known = [Trial(own, 80.0)]
    trials: list[Trial] = []
    while (point := next_point([CONSERVATIVE], known + trials, [], 1, "max", own)) is not None:
        trials.append(Trial(point, 80.0))
    assert len(trials) == trials_wanted([CONSERVATIVE])


def test_a_space_without_a_point_that_can_run_ends_at_once() -> None:
    lowest = {FRACTION.name: 0.7}
    assert next_point([FRACTION], [], [FailedTrial(lowest, "gpu-oom-weights")], 0, "max") is None
    squeezed = [
        FailedTrial({FRACTION.name: 0.8}, "gpu-oom-pool"),
        FailedTrial({FRACTION.name: 0.8}, "memory-fraction-too-low"),
    ]
    assert next_point([FRACTION], [], squeezed, 0, "max") is None


def test_a_narrow_strip_between_too_little_and_too_much_is_found() -> None:
    def world(point: Point, times: int) -> float | str:
        value = float(str(point[FRACTION.name]))
        return "memory-fraction-too-low" if value < 0.86 else "gpu-oom-pool" if value > 0.89 else value

    trials, failures = run([FRACTION], world)
    assert trials
    assert len(trials) + len(failures) <= 6


def test_values_from_an_older_plan_do_not_disturb() -> None:
    old = [Trial({CONSERVATIVE.name: 9.0}, 99.0), Trial({"other": 1}, 98.0)]
    point = next_point([CONSERVATIVE], [*old, Trial({CONSERVATIVE.name: 0.5}, 90.0)], [], 0, "max")
    assert point is not None
    assert contains([CONSERVATIVE], point)


@pytest.mark.parametrize("direction", ["max", "min"])
@pytest.mark.parametrize("peak", range(7))
def test_the_best_of_a_list_with_one_peak_is_found_within_its_length(peak: int, direction: str) -> None:
    sign = 1 if direction == "max" else -1

    def world(point: Point, times: int) -> float:
        return 80 - sign * abs(GRAPHS.values.index(point[GRAPHS.name]) - peak)

    trials, _ = run([GRAPHS], world, direction=direction)
    assert len(trials) <= 7
    found = best(trials, None, direction, [GRAPHS])
    assert found is not None
    assert found.point[GRAPHS.name] == GRAPHS.values[peak]


PLANE = in_order([CONSERVATIVE, Axis("flag", "other", low=0.0, high=1.0)])


def smooth(seed: int) -> World:
    """A smooth function over the plane, between 0 and 100: a hill somewhere (even seeds), or a slope that levels off
    towards one of the corners."""
    draw = random.Random(seed)
    top = [draw.uniform(0.1, 0.9) for _ in PLANE]
    steep = [draw.choice((-1, 1)) * draw.uniform(1, 5) for _ in PLANE]

    def hill(places: Sequence[float]) -> float:
        return 100 * math.exp(-sum((p - t) ** 2 for p, t in zip(places, top, strict=True)) / (2 * 0.3**2))

    def slope(places: Sequence[float]) -> float:
        up = zip(places, steep, strict=True)
        return 50 * sum(1 - math.exp(-abs(s) * (p if s > 0 else 1 - p)) for p, s in up)

    def world(point: Point, times: int) -> float:
        return (slope if seed % 2 else hill)([place_of(axis, point[axis.name]) or 0.0 for axis in PLANE])

    return world


def at_random(world: World, seed: int, launches: int) -> float:
    draw = random.Random(1000 + seed)
    tried = [{axis.name: value_at(axis, draw.random()) for axis in PLANE} for _ in range(launches)]
    return max(float(world(point, 0)) for point in tried)


def test_a_smooth_function_is_searched_better_than_at_random() -> None:
    """20 functions, each against the median of 51 random searches of as many launches. The seeds are fixed."""
    found, usual = [], []
    for seed in range(20):
        trials, _ = run(PLANE, smooth(seed), seed=seed)
        found.append(max(t.value for t in trials))
        usual.append(statistics.median(at_random(smooth(seed), n, trials_wanted(PLANE)) for n in range(51)))
    assert sum(f > u for f, u in zip(found, usual, strict=True)) >= 13
    assert statistics.mean(found) > statistics.mean(usual)


def test_an_optimiser_that_is_needed_says_nothing(
    capfd: pytest.CaptureFixture[str], recwarn: pytest.WarningsRecorder
) -> None:
    run(in_order([CONSERVATIVE, GRAPHS]), lambda point, times: "unknown" if point[GRAPHS.name] == 8 else 1.0)
    out = capfd.readouterr()
    assert (out.out, out.err) == ("", "")
    assert not recwarn.list


def test_the_optimiser_is_imported_only_where_it_proposes() -> None:
    code = (
        "import sys\nfrom optagent.agent.search.proposing import next_point\n"
        "from optagent.agent.search.space import Axis\n"
        "next_point([Axis('flag', 'x', (1, 2, 3))], [], [], 0, 'max')\n"
        "print([m for m in ('optuna', 'numpy', 'scipy') if m in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


# --- which trial is best

NOISE = Noise(1.0, 10)  # a pair varies by 1.41 %


@pytest.mark.parametrize(
    ("values", "direction", "noise", "own", "found"),
    [
        ({8: 80, 64: 90, 512: 85}, "max", NOISE, None, 64),
        ({8: 80, 64: 90, 512: 85}, "min", NOISE, None, 8),
        ({8: 89.5, 64: 90, 512: 85}, "max", NOISE, None, 8),
        ({8: 89.5, 64: 90, 512: 85}, "max", None, None, 64),
        ({8: 88.5, 64: 90, 512: 89.9}, "max", NOISE, None, 64),
        ({8: 10.1, 64: 10.0, 512: 12}, "min", NOISE, None, 8),
        ({8: 89.5, 64: 90, 512: 90.2}, "max", NOISE, 8, 64),
        ({8: 90}, "max", NOISE, 8, None),
        ({}, "max", NOISE, None, None),
        ({8: 0, 64: 1}, "min", NOISE, None, 64),
    ],
)
def test_of_what_cannot_be_told_apart_the_smallest_memory_wins(
    values: dict[int, float], direction: str, noise: Noise | None, own: int | None, found: int | None
) -> None:
    trials = [Trial(graphs(n), value) for n, value in values.items()]
    mine = None if own is None else graphs(own)
    for order in (trials, trials[::-1]):
        chosen = best(order, noise, direction, [GRAPHS], mine)
        assert (chosen.point[GRAPHS.name] if chosen else None) == found


@pytest.mark.parametrize(
    ("own", "found"),
    [(1.0, 0.9), (0.5, 0.6), (None, 0.6), (2.0, 0.6)],
)
def test_of_what_cannot_be_told_apart_the_nearest_to_the_baseline_wins(own: float | None, found: float) -> None:
    trials = [Trial({CONSERVATIVE.name: 0.6}, 90.0), Trial({CONSERVATIVE.name: 0.9}, 89.9)]
    chosen = best(trials, NOISE, "max", [CONSERVATIVE], {CONSERVATIVE.name: own})
    assert chosen is not None
    assert chosen.point[CONSERVATIVE.name] == found


@given(
    st.lists(st.tuples(st.sampled_from(GRAPHS.values), st.floats(1, 100)), min_size=1), st.sampled_from(["max", "min"])
)
def test_the_chosen_trial_is_within_the_noise_of_the_best(values: Sequence[tuple[int, float]], direction: str) -> None:
    trials = [Trial(graphs(n), value) for n, value in values]
    chosen = best(trials, NOISE, direction, [GRAPHS])
    assert chosen is not None
    top = (max if direction == "max" else min)(t.value for t in trials)
    assert abs(100 * math.log(chosen.value / top)) <= NOISE.pair_sd + 1e-9


@pytest.mark.parametrize(
    ("change", "touches"),
    [
        (Change(flags={"mem-fraction-static": 0.9}), True),
        (Change(flags={"mem-fraction-static": None}), True),
        (Change(flags={"cuda_graph_max_bs_decode": 64}), True),
        (Change(flags={"cuda-graph-max-bs": 64}), True),
        (Change(flags={"max-running-requests": 64}), True),
        (Change(flags={"chunked-prefill-size": 4096}), True),
        (Change(flags={"kv-cache-dtype": "fp8_e5m2"}), True),
        (Change(flags={"speculative-algorithm": "EAGLE"}), True),
        (Change(env={"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}), True),
        (Change(env={"NCCL_BUFFSIZE": "1"}), True),
        (Change(flags={"schedule-policy": "lpm"}), False),
        (Change(flags={"stream-interval": 4}, env={"NCCL_ALGO": "Ring"}), False),
        (Change(patch="a.diff"), False),
        (Change(), False),
    ],
)
def test_changes_that_a_start_alone_does_not_prove(change: Change, touches: bool) -> None:
    assert is_memory_setting(change) is touches
