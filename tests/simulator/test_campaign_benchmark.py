"""The campaign benchmark: its model beside the real simulated server, the rivals, the score, and optagent's own part."""

from __future__ import annotations

import json
import sys
from collections import Counter
from dataclasses import asdict, replace
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

from campaigns import deployment as deployments
from campaigns import ours, rivals
from campaigns.answers import distance
from campaigns.best import best_reachable
from campaigns.deployment import Deployment
from campaigns.machine import Machine, Spent
from campaigns.model import Dies, Model
from campaigns.space import Part, Space, parts_of, space_of, values_of
from campaigns.trace import Goal, Held, Trace, score, useless

from optagent.agent.change import Change
from optagent.agent.plan.read import read_plan
from optagent.tools.calls.bench import Workload
from optagent.tools.calls.configuration import Configuration, FlagValue, flag_arguments
from optagent.tools.load_http import LoadError
from optagent.tools.loadgen import generate_load
from optagent.tools.logs import read_log
from optagent.tools.simulator import world
from optagent.tools.simulator.batching import Engine, Job
from optagent.tools.simulator.cost import decode_step
from optagent.tools.simulator.scenario import ScenarioError, load, scenario_from
from optagent.tools.simulator.setup import AllReduce, Setup
from optagent.tools.simulator.words import common_tokens

if TYPE_CHECKING:
    from conftest import Start

FOLDERS = deployments.all_of_them()
L40S, L4, H100, CHAT, KIMI = (
    deployments.FOLDER / name
    for name in (
        "qwen-32b-2x-l40s-32-streams", "llama-8b-1x-l4-8-streams", "llama-70b-4x-h100-64-streams", "llama-8b-2x-h100-chat",
        "kimi-8x-pro6000-32-long-prompts",
    )
)  # fmt: skip


def shorter(deployment: Deployment, **changes: object) -> Deployment:
    """The deployment with a smaller load, for tests that run it."""
    workload = deployment.config.workload.model_copy(update=changes)
    return replace(deployment, config=deployment.config.model_copy(update={"workload": workload}))


def with_flags(base: Configuration, **flags: FlagValue) -> Configuration:
    return replace(base, flags=base.flags | {name.replace("_", "-"): value for name, value in flags.items()})


SERVED: list[tuple[Path, dict[str, int], dict[str, FlagValue]]] = [
    (L40S, {"num_prompts": 40, "input_len": 1024, "output_len": 900}, {"schedule_conservativeness": 0.1}),
    (L40S, {"num_prompts": 40, "output_len": 200}, {"enable_mixed_chunk": True, "chunked_prefill_size": 1024}),
    (L4, {"num_prompts": 12}, {
        "speculative_algorithm": "EAGLE3", "speculative_draft_model_path": "draft", "speculative_num_steps": 3,
        "speculative_eagle_topk": 1, "speculative_num_draft_tokens": 4,
    }),
    (CHAT, {"num_prompts": 60, "max_concurrency": 24}, {"tp_size": 1, "dp_size": 2}),
    (KIMI, {"num_prompts": 6, "input_len": 2048, "output_len": 128}, {}),
]  # fmt: skip


@pytest.mark.parametrize(("folder", "load_shape", "flags"), SERVED)
def test_a_run_gives_what_the_server_process_gives(
    folder: Path, load_shape: dict[str, int], flags: dict[str, FlagValue], start: Start, tmp_path: Path
) -> None:
    deployment = shorter(deployments.read(folder), **load_shape)
    configuration = with_flags(deployment.base, **flags)
    machine = Machine(Model(deployment))
    server = machine.launch(configuration, "E0007-candidate-1").server
    assert server is not None
    workload, seed = deployment.config.workload, 43
    mine = machine.run(server, workload, "E0007-candidate-1", seed, discard_first=False)
    assert mine.metrics is not None

    world.lay_out(folder, tmp_path / "simulation")
    words = tuple(flag_arguments(configuration.flags))
    process = start(
        tmp_path / "simulation", launch="E0007-candidate-1", environment=configuration.environment, baseline=words,
        OPTAGENT_SIMULATION_SPEED="1e9", **configuration.env,
    )  # fmt: skip
    process.wait_ready()
    its = generate_load(process.url, workload, seed, root=folder, run="E0007-candidate-1")
    for name in ("output_throughput", "median_tpot_ms", "p99_ttft_ms", "duration"):
        assert mine.metrics[name] == pytest.approx(its[name], rel=1e-9), name


FAILING: list[tuple[Path, dict[str, FlagValue], str]] = [
    (L40S, {"attention_backend": "flashmla"}, "memory-pool"),
    (L40S, {"tp_size": 1, "dp_size": 2}, "weight-load"),
    (L4, {"tp_size": 2}, "distributed-init"),
    (L4, {"no_such_flag": 1}, "arguments"),
]


@pytest.mark.parametrize(("folder", "flags", "phase"), FAILING)
def test_a_failing_launch_is_read_as_the_server_process_is(
    folder: Path, flags: dict[str, FlagValue], phase: str, start: Start, tmp_path: Path
) -> None:
    deployment = deployments.read(folder)
    configuration = with_flags(deployment.base, **flags)
    model = Model(deployment)
    launch = model.launch(configuration)
    reading = model.reading(model.ending(configuration), ready=False)
    assert (launch.ready, launch.phase) == (False, phase)
    world.lay_out(folder, tmp_path / "simulation")
    words = tuple(flag_arguments(configuration.flags))
    process = start(
        tmp_path / "simulation", environment=configuration.environment, baseline=words, OPTAGENT_SIMULATION_SPEED="1e9"
    )
    process.wait_dead()
    its = read_log(process.log_path, alive=False)
    assert its.cause is not None
    assert reading.cause is not None
    assert (reading.phase, reading.cause.kind) == (its.phase, its.cause.kind)


def test_a_launch_that_hangs_costs_the_patience_that_the_log_reader_has() -> None:
    deployment = deployments.read(L40S)
    model = Model(deployment)
    hung = model.ending(with_flags(deployment.base, enable_mscclpp=True))
    assert hung.hangs
    assert model.reading(hung, ready=False).status == "hung"
    assert hung.seconds > 600
    assert model.ending(deployment.base).seconds < 400


def test_a_batch_that_finds_no_memory_ends_the_server_and_its_log_says_why(start: Start, tmp_path: Path) -> None:
    deployment = shorter(deployments.read(L40S), num_prompts=32, output_len=16, warmup_requests=0)
    configuration = with_flags(deployment.base, mem_fraction_static=0.93, chunked_prefill_size=16384)
    model = Model(deployment)
    launch = model.launch(configuration)
    assert launch.ready
    with pytest.raises(Dies):
        model.load(launch, deployment.config.workload)
    assert model.value(configuration) is None

    world.lay_out(L40S, tmp_path / "simulation")
    process = start(
        tmp_path / "simulation", environment="cu13", baseline=tuple(flag_arguments(configuration.flags)),
        OPTAGENT_SIMULATION_SPEED="1e9",
    )  # fmt: skip
    process.wait_ready()
    with pytest.raises(LoadError):
        generate_load(process.url, deployment.config.workload, 43, root=L40S)
    process.wait_dead()
    cause = read_log(process.log_path, alive=False).cause
    assert cause is not None
    assert cause.kind.startswith("gpu-oom")


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_deployment_can_be_carried(folder: Path) -> None:
    deployment = deployments.read(folder)
    plan = read_plan(deployment.plan, "plan.md")
    assert [p.message for p in plan.problems if p.fatal] == []
    assert len(plan.items) == 12
    assert {i.id for i in plan.items} >= {part.item for part in the_space(deployment).parts}
    model = Model(deployment)
    assert model.launch(deployment.base).ready
    assert scenario_from(json.loads(json.dumps(asdict(deployment.scenario)))) == deployment.scenario


def the_space(deployment: Deployment) -> Space:
    return space_of(deployment.plan, deployment.base, deployment.config.principles)


def test_the_deployments_differ_in_what_matters() -> None:
    found = [deployments.read(folder) for folder in FOLDERS]
    assert len(found) >= 10
    assert {d.gpus for d in found} == {1, 2, 4, 8}
    noises = sorted(d.scenario.noise.launch_sd for d in found)
    assert noises[0] < 0.005
    assert noises[-1] >= 0.02
    launches = sorted(Model(d).ending(d.base).seconds for d in found)
    assert launches[0] < 100
    assert launches[-1] > 1400
    assert {d.config.objective.direction for d in found} == {"max", "min"}


@pytest.mark.parametrize(
    ("said", "values"),
    [
        (64, [64]),
        (True, [True]),
        ("triton", ["triton"]),
        ([8, 16, None], [8, 16, None]),
        ("0.3..1.1", [0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1]),
        ("1..4", [1, 2, 3, 4]),
        ("8..64 step 8", [8, 16, 24, 32, 40, 48, 56, 64]),
        ("2048..16384 step 1024", [2048, 4096, 6144, 7168, 9216, 11264, 13312, 14336, 16384]),
        ("a..b", ["a..b"]),
    ],
)
def test_values_of_a_range(said: object, values: list[object]) -> None:
    found = values_of(said)
    assert found[0] == values[0]
    assert found[-1] == values[-1]
    assert len(found) <= max(9, len(values))
    if len(values) < 9 or "step" not in str(said):
        assert found == pytest.approx(values) if isinstance(values[0], float) else found == values


def test_a_bundle_is_so_many_parts_and_what_belongs_together_is_one() -> None:
    item = {
        "id": "x",
        "change": {
            "flags": {
                "speculative-algorithm": "EAGLE3", "speculative-num-steps": [2, 3], "stream-interval": 4,
                "tp-size": 1, "dp-size": 2,
            },
            "env": {"NCCL_ALGO": "Tree"},
        },
    }  # fmt: skip
    parts = parts_of(item)
    assert [part.choices for part in parts] == [
        (
            Change(flags={"speculative-algorithm": "EAGLE3", "speculative-num-steps": 2}),
            Change(flags={"speculative-algorithm": "EAGLE3", "speculative-num-steps": 3}),
        ),
        (Change(flags={"stream-interval": 4}),),
        (Change(flags={"tp-size": 1, "dp-size": 2}),),
        (Change(env={"NCCL_ALGO": "Tree"}),),
    ]


def test_what_the_principles_speak_against_is_no_part() -> None:
    deployment = deployments.read(deployments.FOLDER / "kimi-8x-pro6000-one-stream")
    assert "fp8-kv" not in {part.item for part in the_space(deployment).parts}


def small() -> tuple[Model, Space]:
    """A deployment with three parts: one that helps, one that does nothing, one that fails."""
    deployment = shorter(deployments.read(H100), num_prompts=64, output_len=128, warmup_requests=0)
    parts = (
        Part("nothing", (Change(flags={"scheduler-recv-interval": 4}),)),
        Part("helps", (Change(flags={"cuda-graph-max-bs": 64}), Change(flags={"cuda-graph-max-bs": 96}))),
        Part("fails", (Change(flags={"attention-backend": "flashmla"}),)),
    )
    return Model(deployment), Space(deployment.base, parts)


def test_the_best_reachable_value_is_the_best_of_all() -> None:
    model, space = small()
    best = best_reachable(model, space)
    values = [v for point in rivals.points(space) if (v := model.value(space.configuration(point))) is not None]
    assert best.value == max(values)
    assert best.point[1] > 0
    assert best.point[2] == 0


def test_greedy_keeps_what_measures_better_in_the_order_of_the_plan() -> None:
    model, space = small()
    trace = rivals.search("greedy", model, space, 1, budget_hours=100)
    last = trace.held[-1].configuration
    assert trace.launches == 5
    assert last.flags["cuda-graph-max-bs"] in (64, 96)
    assert "attention-backend" not in last.flags
    assert trace.ended == "finished"


def test_the_grid_tries_each_value_alone_first_and_then_products_of_what_helped() -> None:
    model, space = small()
    bench = rivals.Bench(Machine(model), space)
    rivals.one_factor_then_products(bench, 1)
    alone = {space.configuration(rivals.with_choice(space.nothing, place, 1)).fingerprint() for place in range(3)}
    assert alone < set(bench.known)
    assert all("attention-backend" not in one.configuration.flags for one in bench.keeper.held)


@pytest.mark.parametrize("name", [name for name in rivals.RIVALS if name != "Optuna TPE"])
def test_the_same_seed_gives_the_same_campaign_and_the_budget_ends_it(name: str) -> None:
    model, space = small()
    one, again = (rivals.search(name, model, space, 3, budget_hours=1.5) for _ in range(2))
    assert one == again
    assert one.held[0] == Held(0.0, space.base)
    assert one.launches < 20


def test_tpe_searches_as_well() -> None:
    pytest.importorskip("optuna")
    model, space = small()
    trace = rivals.search("Optuna TPE", model, space, 3, budget_hours=1.5)
    assert trace == rivals.search("Optuna TPE", model, space, 3, budget_hours=1.5)
    assert trace.launches > 2


def test_a_launch_that_failed_is_paid_for_once() -> None:
    model, space = small()
    machine = Machine(model, budget_hours=100)
    bench = rivals.Bench(machine, space)
    assert bench.measure((0, 0, 1)) is None
    spent = machine.gpu_hours
    assert spent > 0
    assert bench.measure((0, 0, 1)) is None
    assert machine.gpu_hours == spent


def test_nothing_begins_after_the_budget() -> None:
    model, space = small()
    machine = Machine(model, budget_hours=0.01)
    machine.launch(space.base, "1")
    with pytest.raises(Spent):
        machine.launch(space.base, "2")


def traced(model: Model, *held: tuple[float, Configuration]) -> Trace:
    return Trace("x", 0, tuple(Held(hours, configuration) for hours, configuration in held), held[-1][0], 3, 3)


def test_it_has_got_there_when_it_stays_there() -> None:
    model, space = small()
    good, bad = space.configuration((0, 1, 0)), space.base
    base, best = model.value(bad), model.value(good)
    assert base is not None
    assert best is not None
    goal = Goal(base, best, 10.0)
    assert score(traced(model, (0.0, bad), (2.0, good)), model, goal).hours_to_goal == 2.0
    assert score(traced(model, (0.0, bad), (2.0, good), (3.0, bad), (4.0, good)), model, goal).hours_to_goal == 4.0
    assert score(traced(model, (0.0, bad), (2.0, good), (3.0, bad)), model, goal).hours_to_goal is None
    assert score(traced(model, (0.0, bad), (11.0, good)), model, goal).hours_to_goal is None
    assert score(traced(model, (0.0, good), (1.0, bad)), model, Goal(best, best, 10.0)).worse_than_start


def test_a_configuration_that_does_not_serve_counts_as_nothing() -> None:
    model, space = small()
    base = model.value(space.base)
    assert base is not None
    broken = score(
        traced(model, (0.0, space.base), (1.0, space.configuration((0, 0, 1)))), model, Goal(base, base * 2, 9.0)
    )
    assert broken.worse_than_start
    assert broken.kept < 0


def test_what_was_kept_for_nothing_is_counted() -> None:
    model, space = small()
    assert useless(model, space.configuration((1, 1, 0))) == ["--scheduler-recv-interval"]
    assert useless(model, space.base) == []


def test_optagent_carries_a_campaign_through_its_own_sittings(tmp_path: Path) -> None:
    deployment = shorter(deployments.read(L4), num_prompts=8, output_len=64)
    model = Model(deployment)
    budget = 30 * model.ending(deployment.base).seconds / 3600
    traces = [ours.carry(deployment.with_seed(2), model, 2, budget, tmp_path / str(n)) for n in range(2)]
    assert traces[0] == traces[1]
    assert traces[0].problem == ""
    assert traces[0].held[0] == Held(0.0, deployment.base)
    assert traces[0].launches > 3
    assert (tmp_path / "0" / ".optagent" / "journal.db").stat().st_size > 0


def test_answers_lie_as_far_apart_as_the_arithmetic() -> None:
    one = (("attention", "triton", 0.01), ("kv cache", "bfloat16", 0.26))
    assert distance(one, one) == 0
    assert distance(one, (("attention", "fa3", 0.01), one[1])) == pytest.approx(0.01)
    assert distance(one, (one[0], ("kv cache", "fp8_e4m3", 0.26))) == pytest.approx(0.26)
    assert distance(one, (*one, ("corrupt", "E1", 5.0))) == pytest.approx(5.0)


@given(st.text(max_size=60), st.text(max_size=60), st.text(max_size=60))
def test_common_tokens_are_those_of_the_common_beginning(start: str, one: str, other: str) -> None:
    one, other = start + one, start + other
    alike = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
    assert common_tokens(one, other) == alike // 4


SHAPED = [load(folder) for folder in FOLDERS if load(folder).model.shape is not None]


@given(
    st.sampled_from(SHAPED), st.integers(1, 256), st.integers(1, 256), st.floats(1, 30_000), st.sampled_from([1, 2]),
    st.booleans(),
)  # fmt: skip
def test_a_larger_batch_of_a_computed_model_takes_no_less_time(
    scenario: object, one: int, other: int, context: float, replicas: int, graphs: bool
) -> None:
    assert isinstance(scenario, type(SHAPED[0]))
    setup = Setup(tp_size=1, replicas=replicas, graph_max_bs=128 if graphs else 0, all_reduce=AllReduce(gpus=1))
    times = [
        decode_step(scenario.model, scenario.costs, setup, batch, context).total_us for batch in sorted((one, other))
    ]
    assert 0 < times[0] <= times[1] + 1e-6


@given(
    st.sampled_from([load(L40S), load(KIMI)]), st.integers(700, 20_000), st.floats(0.05, 1.5), st.integers(64, 4096),
    st.booleans(), st.integers(1, 24),
)  # fmt: skip
def test_every_request_gets_its_tokens_however_little_room_there_is(
    scenario: object, kv_tokens: int, conservativeness: float, chunk: int, mixed: bool, clients: int
) -> None:
    assert isinstance(scenario, type(SHAPED[0]))
    setup = Setup(
        tp_size=scenario.hardware.count, conservativeness=conservativeness, chunked_prefill_size=chunk, mixed_chunk=mixed,
        all_reduce=AllReduce(gpus=scenario.hardware.count),
    )  # fmt: skip
    engine = Engine(scenario.model, scenario.costs, setup, kv_tokens, estimated=True)
    jobs = [Job(n, 100 + 30 * (n % 7), 40 + 60 * (n % 5)) for n in range(clients)]
    for job in jobs:
        engine.submit(job)
    finished: Counter[int] = Counter()
    while engine.outstanding:
        finished.update(job.index for job in engine.advance())
    assert finished == Counter(range(clients))
    for job in jobs:
        assert job.produced == job.max_new_tokens
        assert job.arrived_s <= job.first_token_s <= job.finished_s
        assert 1 + sum(count for _, count in job.itl_runs) == job.max_new_tokens


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"costs": {"speeds": None}}, "go together"),
        ({"faults": {"conflicts": [{"kind": "hang", "phase": "lunch"}]}}, "phase must be one of"),
        (
            {"faults": {"conflicts": [{"kind": "error", "phase": "warmup", "error": "no"}]}},
            "an exception as Python prints it",
        ),
        ({"model": {"shape": {"colour": "blue"}}}, "unknown key 'colour'"),
    ],
)
def test_a_scenario_that_makes_no_sense_is_refused(change: dict[str, dict[str, object]], message: str) -> None:
    body = json.loads(json.dumps(asdict(load(L40S))))
    for section, keys in change.items():
        body[section] |= keys
    with pytest.raises(ScenarioError, match=message):
        scenario_from(body)


def test_a_workload_of_the_benchmark_is_an_ordinary_one() -> None:
    assert all(isinstance(deployments.read(folder).config.workload, Workload) for folder in FOLDERS)
