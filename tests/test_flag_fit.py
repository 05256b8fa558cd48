"""Whether a flag fits the cards and the model at hand, and what is said when it does not."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optagent.agent.conditions import parse_condition
from optagent.agent.flag_facts import HARDWARE, MLA_ONLY, canonical, has_no_mla
from optagent.agent.flag_fit import misfits
from optagent.tools.calls.configuration import FlagValue


def cards(name: str, capability: str, count: int = 8, cuda: str = "12.8") -> dict[str, str]:
    return {"gpu.count": str(count), "gpu.name": name, "compute_capability": capability, "cuda": cuda}


A100, H100, B200 = (
    cards("NVIDIA A100-SXM4-80GB", "8.0"),
    cards("NVIDIA H100 80GB HBM3", "9.0"),
    cards("NVIDIA B200", "10.0"),
)
T4 = cards("Tesla T4", "7.5")
L40S, RTX_PRO = cards("NVIDIA L40S", "8.9"), cards("NVIDIA RTX PRO 6000 Blackwell Server Edition", "12.0")
NEWER = {**RTX_PRO, "cuda": "13.0"}
ALONE = {**RTX_PRO, "gpu.count": "1"}


@pytest.mark.parametrize(
    ("flag", "value", "fits", "misfit"),
    [
        ("attention-backend", "fa3", [A100, L40S, H100], [T4, B200, RTX_PRO, NEWER]),
        ("attention-backend", "flashmla", [H100, B200], [A100, L40S, RTX_PRO]),
        ("attention-backend", "trtllm_mla", [B200], [A100, L40S, H100, RTX_PRO]),
        ("attention-backend", "cutedsl_mla", [B200], [A100, L40S, H100, RTX_PRO]),
        ("attention-backend", "trtllm_mha", [H100, B200, RTX_PRO], [A100, L40S]),
        ("attention-backend", "triton", [A100, L40S, H100, B200, RTX_PRO], []),
        ("attention-backend", "flashinfer", [A100, L40S, H100, B200, RTX_PRO], []),
        ("moe-runner-backend", "flashinfer_trtllm", [B200], [A100, L40S, H100, RTX_PRO]),
        ("moe-runner-backend", "flashinfer_megamoe", [B200], [A100, L40S, H100, RTX_PRO]),
        ("moe-runner-backend", "deep_gemm", [H100, B200], [A100, L40S]),
        ("moe-runner-backend", "triton", [A100, L40S, H100, B200, RTX_PRO], []),
        ("moe-a2a-backend", "deepep", [A100, H100, B200, ALONE], [L40S, RTX_PRO]),
        ("moe-a2a-backend", "none", [L40S, RTX_PRO], []),
        ("flashinfer-allreduce-fusion-backend", "auto", [H100, B200], [A100, L40S, RTX_PRO]),
        ("flashinfer-allreduce-fusion-backend", "trtllm", [H100, B200], [A100, L40S, RTX_PRO]),
        ("enable-flashinfer-allreduce-fusion", True, [H100, B200], [A100, L40S, RTX_PRO]),
        ("enable-torch-symm-mem", True, [H100, B200], [A100, L40S, RTX_PRO, NEWER]),
        ("enable-nccl-nvls", True, [H100, B200], [A100, L40S, RTX_PRO]),
        ("enable-mscclpp", True, [A100, H100, B200, ALONE], [L40S, RTX_PRO]),
        ("disable-custom-all-reduce", True, [A100, H100, ALONE, cards("NVIDIA L40S", "8.9", 2)], [L40S, RTX_PRO]),
        ("max-running-requests", 16, [A100, L40S, H100, B200, RTX_PRO], []),
    ],
)  # fmt: skip
def test_which_cards_a_flag_fits(
    flag: str, value: FlagValue, fits: list[Mapping[str, str]], misfit: list[Mapping[str, str]]
) -> None:
    assert [facts["gpu.name"] for facts in fits if misfits(flag, value, facts)] == []
    assert [facts["gpu.name"] for facts in misfit if not misfits(flag, value, facts)] == []


def test_the_cards_and_the_value_are_named() -> None:
    (text,) = misfits("attention-backend", "fa3", RTX_PRO)
    assert text.startswith("--attention-backend fa3 on NVIDIA RTX PRO 6000 Blackwell Server Edition: ")
    assert misfits("enable-nccl-nvls", True, RTX_PRO)[0].startswith("--enable-nccl-nvls on NVIDIA RTX PRO 6000")
    assert misfits("attention-backend", "fa3", {"compute_capability": "12.0"})[0].startswith(
        "--attention-backend fa3 on this GPU: "
    )


@pytest.mark.parametrize(
    ("model", "without"),
    [
        ("/models/Llama-3.3-70B-Instruct", True),
        ("Qwen/Qwen3-235B-A22B", True),
        ("mistralai/Mixtral-8x7B-v0.1", True),
        ("mistralai/Mistral-7B-Instruct-v0.3", True),
        ("openai/gpt-oss-120b", True),
        ("google/gemma-3-27b-it", True),
        ("microsoft/Phi-4", True),
        ("microsoft/phi4-mini", True),
        ("deepseek-ai/DeepSeek-V3", False),
        ("deepseek-ai/DeepSeek-R1-Distill-Llama-70B", False),  # not told apart: nothing is said
        ("moonshotai/Kimi-K2-Instruct", False),
        ("zai-org/GLM-5", False),
        ("someone/delphi-2", False),  # no phi
        ("/models/a", False),
        ("", False),
    ],
)
def test_kernels_for_mla_are_for_models_with_it(model: str, without: bool) -> None:
    assert has_no_mla(model) is without
    for value in ("flashmla", "trtllm_mla", "cutedsl_mla"):
        assert bool(misfits("attention-backend", value, B200, model)) is without
    assert misfits("attention-backend", "trtllm_mha", B200, model) == []


def test_cards_and_model_are_told_apart() -> None:
    cards_only = misfits("attention-backend", "flashmla", RTX_PRO, "deepseek-ai/DeepSeek-V3")
    both = misfits("attention-backend", "flashmla", RTX_PRO, "Qwen/Qwen3-32B")
    assert len(cards_only) == 1
    assert both[:1] == cards_only
    assert "Qwen/Qwen3-32B" in both[1]


# Laws

FLAGS = sorted({row.flag for row in HARDWARE} | set(MLA_ONLY) | {"page-size"})
VALUES = sorted(
    {v for row in HARDWARE for v in row.values} | {v for values in MLA_ONLY.values() for v in values} | {"triton"}
)
values = st.one_of(st.sampled_from(VALUES), st.booleans(), st.none(), st.integers(), st.floats(), st.text(max_size=5))
everything = st.sampled_from([A100, H100, B200, L40S, RTX_PRO, NEWER, ALONE])
MODELS = st.sampled_from(["", "Qwen/Qwen3-32B", "deepseek-ai/DeepSeek-V3"])


@given(st.sampled_from(FLAGS), values, everything, MODELS, st.sets(st.sampled_from(sorted(H100))))
def test_who_knows_less_warns_of_less(
    flag: str, value: FlagValue | None, facts: Mapping[str, str], model: str, unknown: set[str]
) -> None:
    told = {name: fact for name, fact in facts.items() if name not in unknown}
    reasons = {text.partition(": ")[2] for text in misfits(flag, value, facts, model)}
    assert {text.partition(": ")[2] for text in misfits(flag, value, told, model)} <= reasons


@given(st.sampled_from(FLAGS), st.sampled_from([None, False]), everything, MODELS)
def test_a_flag_that_is_not_given_fits(
    flag: str, value: FlagValue | None, facts: Mapping[str, str], model: str
) -> None:
    assert misfits(flag, value, facts, model) == []


def test_every_row_can_be_met() -> None:
    """Each row speaks of a flag by its first name, and under a condition that can be read and met by some cards."""
    for row in HARDWARE:
        assert canonical(row.flag) == row.flag
        parse_condition(row.when)
        value = min(row.values) if row.values else True
        met = [
            facts
            for facts in (T4, A100, H100, B200, L40S, RTX_PRO, {**RTX_PRO, "sglang": "0.5.8"})
            if misfits(row.flag, value, facts)
        ]
        assert any(row.says in text for facts in met for text in misfits(row.flag, value, facts)), row
