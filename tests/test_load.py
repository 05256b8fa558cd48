"""The load that the objective is measured under, from what runs and launches of this sitting showed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from optagent.agent.experiments import BASELINE, ITEM, Run
from optagent.agent.jsonable import to_body
from optagent.agent.ledger import Ledger, fold
from optagent.agent.load import Load, load_of
from optagent.tools.calls.bench import Workload
from optagent.tools.calls.configuration import Configuration
from optagent.tools.journal_store import Draft, MemoryJournal

HERE = Configuration("default", {"tp-size": 8})
OTHER = Configuration("default", {"tp-size": 8, "disable-radix-cache": True})
WORKLOAD = Workload(name="own", input_len=1000, output_len=200, num_prompts=100, max_concurrency=64)
METRIC = "output_throughput"
SITTING = Draft("sitting", {"id": "S001"}, "S001")
SEEN = {"output_throughput": 200.0, "total_throughput": 1400.0}


def experiment(number: int = 1, candidate: Configuration | None = None) -> Draft:
    kind = ITEM if candidate else BASELINE
    body = {"id": f"E{number:04d}", "kind": kind, "title": "t", "base": HERE, "candidate": candidate}
    return Draft("experiment", to_body(body), f"E{number:04d}")


def run(metrics: dict[str, float], valid: bool = True, number: int = 1, arm: str = "baseline", pair: int = 1) -> Draft:
    body = Run(arm, pair, 200.0, valid=valid, metrics=metrics)
    return Draft(
        "run", {"experiment": f"E{number:04d}", "run": to_body(body)}, f"E{number:04d}-{arm}-{pair}-{len(metrics)}"
    )


def launch(
    tokens: int | None, configuration: Configuration = HERE, outcome: str = "ready", key: str = "k1"
) -> tuple[Draft, Draft]:
    """A launch that was begun, and how it ended."""
    request = {"launch": "E0001-baseline-1", "configuration": to_body(configuration)}
    memory = {"kv_tokens": tokens, "kv_gb": 40.0, "weights_gb": 30.0}
    reading: dict[str, Any] | None = {"exists": True, **memory} if tokens is not None else None
    result = {"outcome": outcome, "pid": 7, "start_time": 1.5, "reading": reading}
    return Draft("intent", {"tool": "launch", "request": request}, key), Draft("result", {"result": result}, key)


def folded(*drafts: Draft) -> Ledger:
    memory = MemoryJournal()
    memory.append_all([replace(d, at="2026-03-14T09:00:00+00:00") for d in drafts])
    return fold(memory.entries())


def shown(*drafts: Draft, workload: Workload = WORKLOAD, metric: str = METRIC) -> Load:
    found = load_of(folded(SITTING, experiment(), *drafts), workload, metric, HERE)
    assert found is not None
    return found


def test_nothing_is_known_of_a_load_before_a_run_counted() -> None:
    assert load_of(Ledger(), WORKLOAD, METRIC, HERE) is None
    for drafts in [(), (*launch(9000),), (run(SEEN, valid=False),)]:
        assert load_of(folded(SITTING, experiment(), *drafts), WORKLOAD, METRIC, HERE) is None
    other = folded(SITTING, experiment(1, OTHER), run(SEEN, arm="candidate"))
    assert load_of(other, WORKLOAD, METRIC, HERE) is None
    assert load_of(other, WORKLOAD, METRIC, OTHER) is not None


def test_a_load_of_an_earlier_sitting_is_not_this_one_s() -> None:
    end = Draft("sitting-ended", {"because": "done"})
    ledger = folded(SITTING, experiment(), run(SEEN), end, Draft("sitting", {"id": "S002"}, "S002"))
    assert load_of(ledger, WORKLOAD, METRIC, HERE) is None


@pytest.mark.parametrize(
    ("metrics", "tokens"),
    [
        (SEEN, 1400),  # seven tokens in all for each of the answer's 200
        ({"output_throughput": 100.0, "total_throughput": 1400.0}, 2800),
        ({"output_throughput": 200.0}, 1200),
        ({"total_throughput": 1400.0}, 1200),
        ({"output_throughput": 0.0, "total_throughput": 1400.0}, 1200),
        ({}, 1200),
    ],
)
def test_a_request_s_tokens_are_those_seen_or_those_asked_for(metrics: dict[str, float], tokens: float) -> None:
    assert shown(run(metrics)).tokens == pytest.approx(tokens)


def test_the_latest_launch_counts() -> None:
    assert shown(
        run({"output_throughput": 100.0, "total_throughput": 300.0}), run(SEEN, pair=2)
    ).tokens == pytest.approx(1400)


@pytest.mark.parametrize(("prompts", "at_a_time", "clients"), [(100, 64, 64), (10, 64, 10), (64, 1, 1)])
def test_no_more_requests_at_a_time_than_there_are(prompts: int, at_a_time: int, clients: int) -> None:
    workload = WORKLOAD.model_copy(update={"num_prompts": prompts, "max_concurrency": at_a_time})
    assert shown(run(SEEN), workload=workload).clients == clients


@pytest.mark.parametrize(
    ("metric", "throughput"),
    [
        ("output_throughput", True), ("total_throughput", True), ("request_throughput", True), ("median_ttft_ms", False),
        ("p99_tpot_ms", False), ("mean_e2e_latency_ms", False), ("accept_length", False),
    ],
)  # fmt: skip
def test_a_throughput_or_not(metric: str, throughput: bool) -> None:
    assert shown(run(SEEN), metric=metric).throughput is throughput


def test_the_share_of_the_prefix_cache_is_that_of_the_latest_run_that_knows_it() -> None:
    assert shown(run(SEEN)).cached is None
    assert shown(run(SEEN | {"cached_share": 0.0})).cached == 0.0
    first, second = run(SEEN | {"cached_share": 0.3}), run(SEEN | {"cached_share": 0.2}, pair=2)
    assert shown(first, second).cached == 0.2
    assert shown(first, run(SEEN, pair=2)).cached == 0.3
    elsewhere = (experiment(2, OTHER), run(SEEN | {"cached_share": 0.0}, number=2, arm="candidate"))
    assert shown(first, *elsewhere).cached == 0.3
    spoilt = run(SEEN | {"cached_share": 0.9}, valid=False, pair=2)
    assert shown(first, spoilt).cached == 0.3


@pytest.mark.parametrize(
    ("drafts", "room"),
    [
        ([], None),
        ([*launch(9000)], 9000),
        ([*launch(9000), *launch(8000, key="k2")], 8000),
        ([*launch(9000), *launch(None, key="k2")], 9000),
        ([*launch(None)], None),
        ([*launch(9000, outcome="crashed")], None),  # a pool that did not come up tells nothing
        ([*launch(9000, OTHER)], None),
        ([launch(9000)[0]], None),
        ([launch(9000)[1]], None),
    ],
)
def test_the_kv_cache_is_that_of_the_configuration_s_latest_launch(drafts: list[Draft], room: int | None) -> None:
    assert shown(run(SEEN), *drafts).on(HERE).room == room


@pytest.mark.parametrize(
    ("gpus", "before", "room"),
    [
        (4, 4, 20_000),  # as it is
        (2, 4, 2_500),  # 30 GB of weights become 60: of the 40 GB of the cache 10 are left, on half as many GPUs
        (1, 4, 0),  # 120 GB of weights: no room at all
        (8, 4, 55_000),
    ],
)
def test_weights_that_are_spread_otherwise_leave_another_room(gpus: int, before: int, room: float) -> None:
    load = Load(64, 2000, room=20_000, kv_gb=40.0, weights_gb=30.0)
    assert load.room_over(gpus, before) == pytest.approx(room)


def test_what_a_log_does_not_tell_is_not_made_up() -> None:
    assert Load(64, 2000, room=20_000, weights_gb=30.0).room_over(2, 4) is None
    assert Load(64, 2000, room=20_000, kv_gb=40.0).room_over(2, 4) is None
    assert Load(64, 2000, kv_gb=40.0, weights_gb=30.0).room_over(2, 4) is None


def test_each_configuration_has_its_own_kv_cache() -> None:
    load = shown(run(SEEN), *launch(9000), *launch(500, OTHER, key="k2"))
    assert (load.room, load.on(HERE).room, load.on(OTHER).room) == (None, 9000, 500)
    assert (load.kv_gb, load.on(HERE).kv_gb, load.on(HERE).weights_gb) == (None, 40.0, 30.0)
    assert load.on(HERE).on(OTHER) == load.on(OTHER)
    reordered = Configuration("default", {"disable-radix-cache": True, "tp-size": 8})
    assert load.on(reordered).room == 500
    assert load.on(Configuration("elsewhere", {"tp-size": 8})).room is None
