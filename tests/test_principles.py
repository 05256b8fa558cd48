"""The owner's principles, held against a change: every rule, and what none of them minds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optagent.agent.change import Change
from optagent.agent.config import Principles
from optagent.agent.plan.model import Item, Plan
from optagent.agent.principles import SCANNED, assignments, conflicts
from optagent.agent.records import Baseline
from optagent.agent.situation import Situation
from optagent.agent.standing import Kind, standing
from optagent.tools.calls.configuration import Configuration, FlagValue

PRECISION = "precision is to be preserved: "
NOT_ITS_OWN = "the output would not be the model's: "


def on(flags: dict[str, FlagValue], env: dict[str, str] | None = None, file: str = "") -> Configuration:
    return Configuration("default", flags, env or {}, {"sitecustomize.py": file} if file else {})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("quantization", "fp8"),
        ("quantization", "w4afp8"),
        ("kv-cache-dtype", "fp8_e5m2"),
        ("kv-cache-dtype", "nvfp4"),
        ("kv_cache_dtype", "fp8_e5m2"),
        ("dtype", "float8"),
        ("quantize-and-serve", True),
        ("modelopt-quant", "nvfp4"),
        ("torchao-config", "int4wo-128"),
        ("rl-quant-profile", "profile.json"),
        ("fp8-gemm-backend", "triton"),
        ("fp4-gemm-backend", "marlin"),
        ("flashinfer-mxfp4-moe-precision", "fp8"),
        ("flashinfer-a2a-dispatch-type", "nvfp4"),
        ("deepep-dispatcher-output-dtype", "int8"),
        ("qsa-indexer-dtype", "fp8_e4m3"),
        ("mamba-ssm-dtype", "bfloat16"),
        ("enable-tf32-matmul", True),
        ("enable-quant-communications", True),
        ("enable-w4a4-mxfp4-megamoe", True),
        ("enable-deepseek-v4-fp4-indexer", True),
        ("enable-int8-mamba-checkpoint", True),
        ("speculative-accept-threshold-single", 0.9),
        ("speculative-accept-threshold-acc", 0),
        ("speculative-accept-threshold-acc", "0.5"),
        ("load-format", "dummy"),
        ("load-format", "bitsandbytes"),
        ("load-format", "flash_rl"),
        ("speculative-draft-load-format", "dummy"),
        ("model-path", "a/quantised-model"),
        ("model", "a/quantised-model"),
        ("revision", "fp8"),
        ("json-model-override-args", '{"num_hidden_layers": 2}'),
    ],
)
def test_flags_that_cut_precision(name: str, value: FlagValue) -> None:
    [found] = conflicts(Change(flags={name: value}), Principles())
    assert found.startswith(PRECISION)
    assert f"--{name}" in found
    assert conflicts(Change(flags={name: value}), Principles(preserve_precision=False)) == []
    assert conflicts(Change(flags={name: value}), Principles(), on({name: value})) == [], "the baseline has it already"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("kv-cache-dtype", "auto"),
        ("kv-cache-dtype", "bf16"),
        ("dtype", "BFloat16"),
        ("dtype", "float16"),
        ("dtype", "float32"),
        ("quantization", None),  # taking it away
        ("quantization", "unquant"),
        ("quantization", ""),
        ("fp8-gemm-backend", "auto"),
        ("bf16-gemm-backend", "cutedsl"),
        ("mamba-ssm-dtype", "float32"),
        ("enable-tf32-matmul", False),
        ("no-enable-tf32-matmul", True),
        ("enable-fp32-lm-head", True),
        ("enable-fp32-lm-head", None),
        ("speculative-accept-threshold-single", 1.0),
        ("speculative-accept-threshold-single", 1),
        ("speculative-draft-kv-cache-dtype", "fp8_e4m3"),  # decides what is proposed, not what is said
        ("speculative-draft-model-quantization", "fp8"),
        ("speculative-draft-model-path", "a/draft"),
        ("load-format", "auto"),
        ("load-format", "fastsafetensors"),
        ("json-model-override-args", "{}"),
        ("cuda-graph-max-bs", 64),
        ("attention-backend", "triton"),
        ("speculative-algorithm", "EAGLE3"),
    ],
)
def test_flags_that_do_not(name: str, value: FlagValue | None) -> None:
    assert conflicts(Change(flags={name: value}), Principles()) == []


@pytest.mark.parametrize(
    ("base", "change", "broken"),
    [
        ({"load-format": "dummy"}, {"speculative-draft-load-format": "dummy"}, False),
        ({"load-format": "dummy"}, {"load-format": "dummy"}, False),
        ({"load-format": "auto"}, {"load-format": "dummy"}, True),
        ({"kv-cache-dtype": "fp8_e5m2"}, {"kv-cache-dtype": "FP8_E5M2"}, False),
        ({"kv-cache-dtype": "fp8_e5m2"}, {"kv-cache-dtype": "fp8_e4m3"}, True),
        ({"kv-cache-dtype": "fp8_e5m2"}, {"kv-cache-dtype": None}, False),
        ({"quantization": "fp8"}, {"quantization": "fp8", "kv-cache-dtype": "fp8_e4m3"}, True),
        ({"speculative-accept-threshold-acc": 0.9}, {"speculative-accept-threshold-acc": 0.9}, False),
        ({"speculative-accept-threshold-acc": 0.9}, {"speculative-accept-threshold-acc": 0.8}, True),
        ({"model": "a"}, {"model-path": "a"}, False),
        ({"dtype": "float32"}, {"dtype": "bfloat16"}, True),
        ({"dtype": "float32"}, {"dtype": None}, True),
        ({"dtype": "float32"}, {"dtype": "float"}, False),
        ({"dtype": "float32"}, {"dtype": "float8"}, True),
        ({"dtype": "bfloat16"}, {"dtype": None}, False),
        ({"mamba-ssm-dtype": "float32"}, {"mamba-ssm-dtype": None}, True),
        ({"enable-fp32-lm-head": True}, {"enable-fp32-lm-head": None}, True),
        ({"enable-fp32-lm-head": True}, {"enable-fp32-lm-head": False}, True),
        ({"enable-fp32-lm-head": True}, {"page-size": 16}, False),
    ],
)
def test_what_the_baseline_has(base: dict[str, FlagValue], change: dict[str, FlagValue | None], broken: bool) -> None:
    found = conflicts(Change(flags=change), Principles(), on(base))
    assert len(found) == broken
    assert all(f.startswith(PRECISION) for f in found)


@pytest.mark.parametrize(
    ("name", "value", "minds"),
    [
        ("SGLANG_USE_FP8_W8A8_MOE", "1", True),
        ("VLLM_MARLIN_INT4", "true", True),
        ("MY_QUANT_MODE", "awq", True),
        ("NVIDIA_TF32_OVERRIDE", "1", True),
        ("SGLANG_MAMBA_SSM_DTYPE", "bfloat16", True),
        ("SGLANG_SKIP_SOFTMAX_DECODE_THRESHOLD_SCALE_FACTOR", "2.0", True),
        ("SGLANG_MAMBA_SSM_DTYPE", "float32", False),
        ("SGLANG_MAMBA_CONV_DTYPE", "bfloat16", False),
        ("SGLANG_USE_FP8_W8A8_MOE", "0", False),
        ("SGLANG_USE_FP8_W8A8_MOE", "false", False),
        ("SGLANG_USE_FP8_W8A8_MOE", None, False),
        ("ROCM_QUICK_REDUCE_QUANTIZATION", "NONE", False),
        ("SGLANG_DISABLE_M3_FP8_ATTN_GEMM", "1", False),
        ("SGLANG_FP8_IGNORED_LAYERS", "lm_head", False),
        ("NCCL_ALGO", "Tree", False),
    ],
)
def test_variables(name: str, value: str | None, minds: bool) -> None:
    change = Change(env={name: value})
    found = conflicts(change, Principles())
    assert bool(found) is minds
    assert all(f.startswith(PRECISION) and f.endswith(f"{name}={value}") for f in found)
    assert conflicts(change, Principles(preserve_precision=False)) == []
    assert value is None or conflicts(change, Principles(), on({}, {name: value})) == []


@pytest.mark.parametrize(
    ("env", "minds"),
    [
        ({"SGLANG_SIMULATE_ACC_LEN": "3.5"}, True),
        ({"SIMULATE_ACC_LEN": "4"}, True),
        ({"SGLANG_SIMULATE_UNIFORM_EXPERTS": "1"}, True),
        ({"SGLANG_MAX_NEW_TOKENS_LIMIT": "8"}, True),
        ({"SGLANG_SIMULATE_ACC_LEN": "-1"}, False),
        ({"SGLANG_SIMULATE_ACC_LEN": "0"}, False),
        ({"OPTAGENT_SIMULATION_SPEED": "3"}, False),
    ],
)
def test_variables_that_make_answers_up(env: dict[str, str | None], minds: bool) -> None:
    for principles in (Principles(), Principles(preserve_precision=False)):
        assert [f.startswith(NOT_ITS_OWN) for f in conflicts(Change(env=env), principles)] == [True] * minds


def test_flags_that_make_answers_up() -> None:
    [found] = conflicts(Change(flags={"ep-dispatch-algorithm": "fake"}), Principles(preserve_precision=False))
    assert found.startswith(NOT_ITS_OWN)
    assert conflicts(Change(flags={"ep-dispatch-algorithm": "dynamic"}), Principles()) == []


@pytest.mark.parametrize(
    ("text", "assigned"),
    [
        ('os.environ["SGLANG_USE_FP8"] = "1"', [("SGLANG_USE_FP8", "1")]),
        ("os.environ['SGLANG_USE_FP8']='1'", [("SGLANG_USE_FP8", "1")]),
        ('os.environ.setdefault("SGLANG_USE_FP8", "1")', [("SGLANG_USE_FP8", "1")]),
        ('os.putenv("SGLANG_USE_FP8", "1")', [("SGLANG_USE_FP8", "1")]),
        ('os.environ.update(SGLANG_USE_FP8="1", B_C="2")', [("SGLANG_USE_FP8", "1"), ("B_C", "2")]),
        ('    "SGLANG_USE_FP8": "1",', [("SGLANG_USE_FP8", "1")]),
        ("export SGLANG_USE_FP8=1", [("SGLANG_USE_FP8", "1")]),
        ("SGLANG_USE_FP8=1 B_C='x y'", [("SGLANG_USE_FP8", "1"), ("B_C", "x y")]),
        ('os.environ["SGLANG_USE_FP8"] = value', [("SGLANG_USE_FP8", "value")]),
        ('os.environ["SGLANG_USE_FP8"] = str(1)', [("SGLANG_USE_FP8", "str(1")]),
        ('# os.environ["SGLANG_USE_FP8"] = "1"', []),
        ("FP8: not used here", []),
        ("import os", []),
        ("", []),
        ("A_B=1\nA_B=1", [("A_B", "1")]),
    ],
)
def test_assignments_in_environment_files(text: str, assigned: list[tuple[str, str]]) -> None:
    assert assignments(text) == assigned


def test_variables_set_in_environment_files() -> None:
    text = 'import os\nos.environ["SGLANG_USE_FP8_W8A8_MOE"] = "1"\nos.environ["NCCL_ALGO"] = "Tree"\n'
    change = Change(files={"sitecustomize.py": text})
    assert conflicts(change, Principles()) == [f"{PRECISION}SGLANG_USE_FP8_W8A8_MOE=1 in sitecustomize.py"]
    assert conflicts(change, Principles(preserve_precision=False)) == []
    assert conflicts(change, Principles(), on({}, None, text)) == []
    off = Change(files={"sitecustomize.py": text.replace('"1"', '"0"')})
    assert conflicts(off, Principles()) == []
    made_up = Change(files={"a.sh": "export SGLANG_SIMULATE_ACC_LEN=4"})
    assert conflicts(made_up, Principles()) == [f"{NOT_ITS_OWN}SGLANG_SIMULATE_ACC_LEN=4 in a.sh"]


@given(st.text(max_size=400), st.text(alphabet="A_B=\"': ,[]1", max_size=4000))
def test_any_environment_file_is_read_in_bounds(text: str, dense: str) -> None:
    for name, value in assignments(text + "\n" + dense):
        assert "_" in name
        assert name == name.upper()
        assert len(name) + len(value) < 400


def test_a_long_environment_file_is_looked_through_up_to_a_bound() -> None:
    assert assignments("x = 1\n" * 100 + "A_B=1") == [("A_B", "1")]
    assert assignments("x" * SCANNED + "\nA_B=1") == []


def test_code_changes() -> None:
    patch = Change(patch="changes/a.diff")
    assert conflicts(patch, Principles()) == []
    assert conflicts(patch, Principles(allow_code_changes=False)) == [
        "code changes are not allowed: patch changes/a.diff"
    ]


def test_forbidden_flags_by_their_other_names() -> None:
    principles = Principles(forbidden_flags=["tp-size"])
    assert conflicts(Change(flags={"tensor-parallel-size": 4}), principles) == ["--tensor-parallel-size is forbidden"]
    assert conflicts(Change(flags={"ep-size": 4}), principles) == []


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


def test_the_baseline_s_own_declaration_raises_no_question() -> None:
    """Dummy weights are the owner's own choice when the baseline has them, and a question when it has not."""
    item = Item("i", "try it", 1, change=Change(flags={"load-format": "dummy", "page-size": 16}))
    for flags, kind in (({"load-format": "dummy"}, Kind.RUNNABLE), ({}, Kind.WAITING)):
        baseline = Baseline(Configuration("default", dict(flags)), None, "as configured")
        stands = standing(item, Situation(Plan("p", (item,)), baseline, None, Principles()).bench())
        assert stands.kind is kind
        assert (stands.question is not None and stands.question.reason == "principle-conflict") == (
            kind is Kind.WAITING
        )
