"""What is known of a survey's levels before any launch: risks, costs, reach, and what the load lets one foresee."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optagent.agent.change import Change
from optagent.agent.load import Load
from optagent.agent.survey.factors import Factor, Level, set_in, settings
from optagent.agent.survey.foreseen import foreseen
from optagent.agent.survey.known import NO_CARDS, NO_ROOM, UNFIT, with_what_is_known
from optagent.tools.calls.configuration import Configuration

RTX_PRO = {
    "gpu.count": "8", "gpu.name": "NVIDIA RTX PRO 6000 Blackwell Server Edition", "gpu.memory_gb": "96",
    "compute_capability": "12.0", "cuda": "12.8",
}  # fmt: skip
SMALL = {"gpu.memory_gb": "24"}
ROOT = Configuration("default", {"model-path": "Qwen/Qwen3-32B", "tp-size": 8})
LOAD = Load(clients=64, tokens=2000)


def level(risk: float = 0.1, **change: Any) -> Level:
    return Level(Change(**change), ("a",), promise=0.05, risk=risk)


def known(
    one: Level, facts: Mapping[str, str] = RTX_PRO, load: Load | None = None, root: Configuration = ROOT
) -> Level:
    ((found,),) = [f.levels for f in with_what_is_known([Factor((one,))], set_in(root), load, facts)]
    return found


@pytest.mark.parametrize(
    ("flags", "facts", "risk"),
    [
        ({"page-size": 64}, RTX_PRO, 0.1),
        ({"attention-backend": "triton"}, RTX_PRO, 0.1),
        ({"attention-backend": "fa3"}, RTX_PRO, UNFIT),
        ({"attention_backend": "fa3"}, RTX_PRO, UNFIT),
        ({"attention-backend": "fa3"}, {}, 0.1),
        ({"attention-backend": "flashmla"}, {}, UNFIT),  # the model's path tells
        ({"page-size": 64, "enable-mscclpp": True}, RTX_PRO, UNFIT),
        ({"attention-backend": None}, RTX_PRO, 0.1),
        # 24 GB: what is left of them beside weights and KV cache
        ({"mem-fraction-static": 0.95}, SMALL, 0.6),
        ({"mem-fraction-static": 0.9}, SMALL, 0.3),
        ({"mem-fraction-static": "0.9"}, SMALL, 0.3),
        ({"mem-fraction-static": 0.8}, SMALL, 0.15),
        ({"mem-fraction-static": 0.75}, SMALL, 0.1),
        ({"mem-fraction-static": 1}, SMALL, 0.6),
        ({"mem-fraction-static": None}, SMALL, 0.1),
        ({"mem-fraction-static": "most"}, SMALL, 0.1),
        ({"mem-fraction-static": 0.95}, RTX_PRO, 0.15),
        ({"mem-fraction-static": 0.95}, {}, 0.1),
        ({"mem-fraction-static": 0.95}, {"gpu.memory_gb": "plenty"}, 0.1),
        ({"mem-fraction-static": 0.99, "attention-backend": "fa3"}, RTX_PRO, UNFIT),
    ],
)
def test_how_likely_a_level_does_not_run(flags: dict[str, Any], facts: Mapping[str, str], risk: float) -> None:
    assert known(level(flags=flags), facts).risk == pytest.approx(risk)


@pytest.mark.parametrize(
    ("flags", "risk"),
    [
        ({"tp-size": 4, "dp-size": 2}, 0.1),  # starved, and it runs
        ({"tp-size": 2, "dp-size": 4}, NO_ROOM),
        ({"page-size": 64}, 0.1),
    ],
)
def test_weights_that_have_no_room_hardly_run(flags: dict[str, Any], risk: float) -> None:
    load = Load(clients=64, tokens=2000, room=20_000, kv_gb=40.0, weights_gb=30.0)
    assert known(level(flags=flags), {}, load).risk == pytest.approx(risk)
    assert known(level(flags=flags), {}, LOAD).risk == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("flags", "facts", "root", "risk"),
    [
        ({"tp-size": 16}, RTX_PRO, {"tp-size": 8}, NO_CARDS),
        ({"tp": 4, "dp": 4}, RTX_PRO, {"tp-size": 8}, NO_CARDS),
        ({"tp-size": 4, "pp-size": 2}, RTX_PRO, {"tp-size": 8}, 0.1),
        ({"tp-size": 4, "dp-size": 4}, {}, {"tp-size": 8}, 0.1),  # nobody counted them
        ({"tp-size": 16}, RTX_PRO, {"tp-size": 8, "nnodes": 2}, 0.1),
        ({"dp-size": 8}, RTX_PRO, {"tp-size": 8, "enable-dp-attention": True}, 0.1),  # the same GPUs
        ({"page-size": 64}, {"gpu.count": "4"}, {"tp-size": 8}, 0.1),  # it runs on them, whatever was counted
        ({"tp-size": 2}, {"gpu.count": "0"}, {}, 0.1),  # on a CPU
    ],
)
def test_more_gpus_than_there_are(
    flags: dict[str, Any], facts: Mapping[str, str], root: dict[str, Any], risk: float
) -> None:
    found = known(level(flags=flags), facts, root=Configuration("default", root))
    assert found.risk == pytest.approx(risk)


def test_the_higher_of_the_plan_s_own_risk_and_the_memory_s_counts() -> None:
    assert known(level(0.5, flags={"mem-fraction-static": 0.8}), SMALL).risk == pytest.approx(0.5)
    assert known(level(0.2, flags={"mem-fraction-static": 0.95}), SMALL).risk == pytest.approx(0.6)


@pytest.mark.parametrize(
    ("change", "far"),
    [
        ({"flags": {"tp": 4}}, 1),
        ({"flags": {"attn-dp-size": 4}}, 1),
        ({"flags": {"speculative-num-steps": 2}}, 1),
        ({"flags": {"moe-runner-backend": "triton"}}, 1),
        ({"env": {"NCCL_P2P_LEVEL": "SYS"}}, 1),
        ({"flags": {"page-size": 64, "ep-size": 4}}, 1),
        ({"flags": {"stream-interval": 8, "ep-size": 4}}, 1),
        ({"flags": {"page-size": 64}}, 0),
        ({"flags": {"tp-size-of-nothing": 4}}, 0),
        ({"env": {"NCCL_ALGO": "Tree"}}, 0),
        ({"environment": "cu13"}, 0),
        ({}, 0),
        ({"flags": {"stream-interval": 8}}, -1),
        ({"flags": {"enable-mscclpp": True}}, -1),
        ({"flags": {"max-prefill-tokens": 8}}, -1),
        ({"env": {"NCCL_MAX_NCHANNELS": "4"}}, -1),
        ({"flags": {"stream-interval": 8, "page-size": 64}}, 0),
    ],
)
def test_how_far_a_level_moves_things(change: dict[str, Any], far: int) -> None:
    reach = known(level(**change)).reach
    assert (reach > 1) - (reach < 1) == far


@pytest.mark.parametrize(
    ("flags", "slow"),
    [
        ({"enable-torch-compile": True}, True),
        ({"page-size": 64, "enable_torch_compile": True}, True),
        ({"enable-torch-compile": None}, False),
        ({"enable-torch-compile": False}, False),
        ({"page-size": 64}, False),
    ],
)
def test_what_starts_slowly(flags: dict[str, Any], slow: bool) -> None:
    cost = known(level(flags=flags)).cost
    assert cost > 1 if slow else cost == 1


def test_what_is_foreseen_is_of_the_level_on_this_root() -> None:
    graphs = level(flags={"cuda-graph-max-bs": 16})
    assert known(graphs).foreseen is None, "nothing is known of the load"
    few = Configuration("default", {**ROOT.flags, "max-running-requests": 16})
    for root in (ROOT, few):
        assert known(graphs, load=LOAD, root=root).foreseen == foreseen(settings(graphs.change), set_in(root), LOAD)
    assert known(graphs, load=LOAD).foreseen != known(graphs, load=LOAD, root=few).foreseen


def test_what_the_plan_says_stays() -> None:
    one = level(flags={"page-size": 64})
    found = known(one, load=LOAD)
    assert (found.change, found.items, found.promise) == (one.change, one.items, one.promise)


# Laws

FLAGS = st.dictionaries(
    st.sampled_from(
        ["page-size", "tp-size", "mem-fraction-static", "attention-backend", "stream-interval", "enable-torch-compile"]
    ),
    st.one_of(
        st.none(), st.booleans(), st.integers(-(2**63), 2**63), st.floats(), st.sampled_from(["fa3", "abc", "0.9", ""])
    ),
    max_size=4,
)
levels = st.builds(level, st.floats(0, 0.5), flags=FLAGS, environment=st.sampled_from([None, "cu13"]))
factors = st.lists(st.lists(levels, min_size=1, max_size=3).map(lambda some: Factor(tuple(some))), max_size=3)


@given(factors, st.sampled_from([{}, RTX_PRO, SMALL]), st.sampled_from([None, LOAD]))
def test_levels_stay_where_they_are_and_get_sensible_numbers(
    given_factors: list[Factor], facts: dict[str, str], load: Load | None
) -> None:
    found = with_what_is_known(given_factors, set_in(ROOT), load, facts)
    assert [[one.change for one in f.levels] for f in found] == [
        [one.change for one in f.levels] for f in given_factors
    ]
    for factor, before in zip(found, given_factors, strict=True):
        for one, other in zip(factor.levels, before.levels, strict=True):
            assert other.risk <= one.risk < 1
            assert one.cost >= 1
            assert one.reach > 0
    assert with_what_is_known(found, set_in(ROOT), load, facts) == found


@given(st.floats(0, 1), st.floats(0, 1), st.floats(1, 200))
def test_a_larger_share_of_the_memory_is_never_safer(one: float, other: float, memory_gb: float) -> None:
    low, high = sorted((one, other))
    risks = [
        known(level(flags={"mem-fraction-static": share}), {"gpu.memory_gb": str(memory_gb)}).risk
        for share in (low, high)
    ]
    assert risks[0] <= risks[1]
