"""How far a change may move the numbers, told from what it changes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optagent.agent.change import Change, apply_change
from optagent.agent.flag_facts import canonical
from optagent.agent.numerics import _BATCHING, _NONE, _ORDER, Numerics, between
from optagent.tools.calls.configuration import Configuration

BASE = Configuration(
    "cu128", {"model-path": "m", "tp-size": 8, "load-format": "auto"}, {"NCCL_P2P_LEVEL": "SYS"}, {}, "a1"
)

CASES: dict[str, tuple[dict[str, Any], Numerics]] = {
    "nothing": ({}, Numerics.NONE),
    "a switch that is off": ({"flags": {"enable-metrics": False}}, Numerics.NONE),
    "a switch of code that is off": ({"flags": {"enable-torch-compile": False}}, Numerics.NONE),
    "the same value": ({"flags": {"tp-size": 8}}, Numerics.NONE),
    "the same value under another name": ({"flags": {"tensor-parallel-size": 8, "tp-size": None}}, Numerics.NONE),
    "waiting longer": ({"flags": {"watchdog-timeout": 900}}, Numerics.NONE),
    "another way to load": ({"flags": {"load-format": "fastsafetensors"}}, Numerics.NONE),
    "more at a time": ({"flags": {"max-running-requests": 16}}, Numerics.BATCHING),
    "memory": ({"flags": {"mem-fraction-static": 0.85}}, Numerics.BATCHING),
    "larger chunks": ({"flags": {"chunked-prefill-size": 2048}}, Numerics.ORDER),
    "a flag that is taken away": ({"flags": {"tp-size": None}}, Numerics.ORDER),
    "speculation": ({"flags": {"speculative-algorithm": "EAGLE3"}}, Numerics.ORDER),
    "all-reduce": ({"env": {"SGLANG_ENABLE_PCIE_IPC_ALLREDUCE": "1"}}, Numerics.ORDER),
    "NCCL": ({"env": {"NCCL_ALGO": "Ring"}}, Numerics.ORDER),
    "NCCL as it is by default": ({"env": {"NCCL_P2P_LEVEL": None}}, Numerics.ORDER),
    "threads": ({"env": {"OMP_NUM_THREADS": "1"}}, Numerics.ORDER),
    "another variable": ({"env": {"SGLANG_SOMETHING": "1"}}, Numerics.UNKNOWN),
    "other kernels": ({"flags": {"attention-backend": "flashinfer"}}, Numerics.UNKNOWN),
    "a flag nobody knows": ({"flags": {"enable-wonder": True}}, Numerics.UNKNOWN),
    "another environment": ({"environment": "cu13"}, Numerics.UNKNOWN),
    "an environment file": ({"files": {"sitecustomize.py": "import os"}}, Numerics.UNKNOWN),
    "16 bits of another kind": ({"flags": {"dtype": "float16"}}, Numerics.UNKNOWN),
    "a narrower KV cache": ({"flags": {"kv-cache-dtype": "fp8_e4m3"}}, Numerics.LAW),
    "quantised weights": ({"flags": {"quantization": "fp8"}}, Numerics.LAW),
    "random weights": ({"flags": {"load-format": "dummy"}}, Numerics.LAW),
    "another model": ({"flags": {"model-path": "n"}}, Numerics.LAW),
    "lossy acceptance": ({"flags": {"speculative-accept-threshold-single": 0.8}}, Numerics.LAW),
    "underscores": ({"flags": {"kv_cache_dtype": "fp8_e4m3"}}, Numerics.LAW),
}


@pytest.mark.parametrize("name", CASES)
def test_a_change(name: str) -> None:
    parts, expected = CASES[name]
    assert between(BASE, apply_change(BASE, Change(**parts))) is expected


def test_a_patch_is_another_revision() -> None:
    assert between(BASE, replace(BASE, revision="b2")) is Numerics.UNKNOWN


def test_no_flag_is_in_two_classes_or_under_a_second_name() -> None:
    assert len(_NONE | _BATCHING | _ORDER) == len(_NONE) + len(_BATCHING) + len(_ORDER)
    assert {name for name in _NONE | _BATCHING | _ORDER if canonical(name) != name} == set()


changes = st.sampled_from([parts for parts, _ in CASES.values()])


@given(changes, changes)
def test_two_changes_move_as_much_as_the_one_that_moves_more(one: dict[str, Any], other: dict[str, Any]) -> None:
    """Unless they speak of the same things."""
    keys = [
        {(part, name) for part, value in c.items() for name in (value if isinstance(value, dict) else [""])}
        for c in (one, other)
    ]
    first = apply_change(BASE, Change(**one))
    if keys[0] & keys[1] or any("tensor-parallel-size" in c.get("flags", {}) for c in (one, other)):
        return
    assert between(BASE, apply_change(first, Change(**other))) == max(
        between(BASE, first), between(BASE, apply_change(BASE, Change(**other)))
    )


@given(changes)
def test_the_way_back_moves_as_much(parts: dict[str, Any]) -> None:
    there = apply_change(BASE, Change(**parts))
    assert between(BASE, there) is between(there, BASE)
