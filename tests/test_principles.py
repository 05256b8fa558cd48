"""The owner's principles, held against a change: every rule, and what none of them minds."""

from __future__ import annotations

import pytest

from optagent.agent.change import Change
from optagent.agent.config import Principles
from optagent.agent.principles import conflicts
from optagent.tools.calls.configuration import FlagValue


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("quantization", "fp8"),
        ("quantization", "w4afp8"),
        ("kv-cache-dtype", "fp8_e5m2"),
        ("dtype", "float8"),
        ("quantize-and-serve", True),
        ("torchao-config", "int4wo-128"),
        ("rl-quant-profile", "profile.json"),
        ("speculative-accept-threshold-single", 0.9),
        ("speculative-accept-threshold-acc", 0),
        ("speculative-accept-threshold-acc", "0.5"),
        ("load-format", "dummy"),
    ],
)
def test_flags_that_cut_precision(name: str, value: FlagValue) -> None:
    [found] = conflicts(Change(flags={name: value}), Principles())
    assert found.startswith("precision is to be preserved: ")
    assert f"--{name}" in found
    assert conflicts(Change(flags={name: value}), Principles(preserve_precision=False)) == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("kv-cache-dtype", "auto"),
        ("kv-cache-dtype", "bf16"),
        ("dtype", "BFloat16"),
        ("dtype", "float16"),
        ("quantization", None),  # taking it away
        ("speculative-accept-threshold-single", 1.0),
        ("speculative-accept-threshold-single", 1),
        ("load-format", "auto"),
        ("cuda-graph-max-bs", 64),
        ("speculative-algorithm", "EAGLE3"),
    ],
)
def test_flags_that_do_not(name: str, value: FlagValue | None) -> None:
    assert conflicts(Change(flags={name: value}), Principles()) == []


@pytest.mark.parametrize(
    ("name", "value", "minds"),
    [
        ("SGLANG_USE_FP8_W8A8_MOE", "1", True),
        ("VLLM_MARLIN_INT4", "true", True),
        ("MY_QUANT_MODE", "awq", True),
        ("SGLANG_USE_FP8_W8A8_MOE", "0", False),
        ("SGLANG_USE_FP8_W8A8_MOE", "false", False),
        ("SGLANG_USE_FP8_W8A8_MOE", None, False),
        ("NCCL_ALGO", "Tree", False),
    ],
)
def test_variables(name: str, value: str | None, minds: bool) -> None:
    assert bool(conflicts(Change(env={name: value}), Principles())) is minds


def test_code_changes() -> None:
    patch = Change(patch="changes/a.diff")
    assert conflicts(patch, Principles()) == []
    assert conflicts(patch, Principles(allow_code_changes=False)) == [
        "code changes are not allowed: patch changes/a.diff"
    ]


@pytest.mark.parametrize("forbidden", ["disable-radix-cache", "--disable-radix-cache", "disable_radix_cache"])
def test_forbidden_flags_in_any_spelling(forbidden: str) -> None:
    principles = Principles(forbidden_flags=[forbidden])
    assert conflicts(Change(flags={"disable-radix-cache": True}), principles) == ["--disable-radix-cache is forbidden"]
    assert conflicts(Change(flags={"disable-radix-cache": None}), principles) == []
    assert conflicts(Change(flags={"disable-cuda-graph": True}), principles) == []


def test_every_broken_principle_is_named() -> None:
    change = Change(flags={"quantization": "fp8", "tp-size": 4}, env={"USE_FP4": "1"}, patch="a.diff")
    found = conflicts(change, Principles(allow_code_changes=False, forbidden_flags=["tp-size"]))
    assert len(found) == 4


def test_an_empty_change_breaks_nothing() -> None:
    strict = Principles(allow_code_changes=False, forbidden_flags=["tp-size"])
    assert conflicts(Change(), strict) == []
