"""Families: which part of the server a change works on, told from names."""

from __future__ import annotations

from pathlib import Path

import pytest

from optagent.agent.change import Change
from optagent.agent.families import BLOCKING, families_of, family_of, is_suspected, runs_into
from optagent.tools.calls.configuration import Configuration


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("speculative-algorithm", "speculative"),
        ("speculative-attention-mode", "speculative"),
        ("speculative-draft-model-quantization", "speculative"),
        ("verify-without-sync.diff", "speculative"),
        ("cuda-graph-max-bs-decode", "cuda graph"),
        ("enable-torch-compile", "cuda graph"),
        ("cuda-graph-backend-prefill", "cuda graph"),
        ("attention-backend", "attention backend"),
        ("prefill-attention-backend", "attention backend"),
        ("dsa-decode-backend", ""),
        ("NCCL_MAX_NCHANNELS", "all-reduce"),
        ("flashinfer-allreduce-fusion-backend", "all-reduce"),
        ("enable-torch-symm-mem", "all-reduce"),
        ("pcie-all-reduce.diff", "all-reduce"),
        ("SGLANG_ENABLE_PCIE_IPC_ALLREDUCE", "all-reduce"),
        ("max-running-requests", "scheduler"),
        ("chunked-prefill-size", "scheduler"),
        ("schedule-conservativeness", "scheduler"),
        ("mem-fraction-static", "memory"),
        ("disable-radix-cache", "memory"),
        ("hicache-ratio", "memory"),
        ("PYTORCH_CUDA_ALLOC_CONF", "memory"),
        ("moe-runner-backend", "MoE"),
        ("ep-size", "MoE"),
        ("moe-a2a-backend", "MoE"),
        ("disable-overlap-schedule", "overlap"),
        ("enable-two-batch-overlap", "overlap"),
        ("kv-cache-dtype", "quantisation"),
        ("quantization", "quantisation"),
        ("fp8-gemm-backend", "quantisation"),
        ("served-model-name", ""),
        ("OMP_NUM_THREADS", ""),
        ("step-size", ""),
    ],
)
def test_the_family_of_a_name(name: str, family: str) -> None:
    assert family_of(name) == family


def test_a_change_is_of_all_families_that_its_parts_name() -> None:
    change = Change(
        flags={"tp": 8, "enable-hicache": True}, env={"NCCL_ALGO": "Tree"}, patch="changes/fast-verify.diff"
    )
    assert families_of(change) == {"memory", "all-reduce", "speculative"}
    assert families_of(None) == families_of(Change()) == families_of(Change(environment="cu13")) == frozenset()


def test_of_an_environment_file_only_what_it_changes_counts() -> None:
    before = 'SETTINGS = {"NCCL_P2P_LEVEL": "SYS", "SGLANG_MOE_PADDING": "1"}'
    after = 'SETTINGS = {"NCCL_P2P_LEVEL": "SYS", "SGLANG_MOE_PADDING": "0"}'
    base = Configuration("cu128", files={"sitecustomize.py": before})
    assert families_of(Change(files={"sitecustomize.py": after}), base) == {"MoE"}
    assert families_of(Change(files={"sitecustomize.py": after})) == {"MoE", "all-reduce"}
    assert families_of(Change(files={"sitecustomize.py": before}), base) == frozenset()


@pytest.mark.parametrize(
    ("kind", "name", "blocked"),
    [
        ("allreduce-unsupported", "flashinfer-allreduce-fusion-backend", True),
        ("allreduce-unsupported", "allreduce-fusion.diff", True),
        ("allreduce-unsupported", "enable-torch-symm-mem", True),
        ("allreduce-unsupported", "NCCL_MAX_NCHANNELS", False),  # needs no kernels
        ("allreduce-unsupported", "pcie-all-reduce.diff", False),
        ("attention-backend-unsupported", "prefill-attention-backend", True),
        ("attention-backend-unsupported", "moe-runner-backend", False),
        ("unsupported-arch", "moe-runner-backend", True),
        ("unsupported-arch", "attention-backend", True),
        ("unsupported-arch", "max-running-requests", False),
        ("graph-capture-incompatible", "enable-torch-compile", True),
        ("gpu-oom-weights", "speculative-draft-model-path", True),
        ("gpu-oom-weights", "mem-fraction-static", False),  # lower or higher: either may be the remedy
        ("slow", "attention-backend", False),
        ("unknown", "attention-backend", False),
    ],
)
def test_what_a_cause_stands_in_the_way_of(kind: str, name: str, blocked: bool) -> None:
    assert runs_into(kind, [name]) is blocked
    assert runs_into(kind, ["served-model-name", name]) is blocked
    assert not runs_into(kind, [])


@pytest.mark.parametrize(
    ("kind", "name", "suspected"),
    [
        ("hang", "enable-mscclpp", True),
        ("hang", "enable-nccl-nvls", True),
        ("hang", "NCCL_P2P_LEVEL", True),
        ("hang", "NCCL_MAX_NCHANNELS", True),
        ("hang", "disable-custom-all-reduce", True),
        ("hang", "SGLANG_ENABLE_PCIE_IPC_ALLREDUCE", True),
        ("hang", "flashinfer-allreduce-fusion-backend", True),
        ("hang", "max-running-requests", False),
        ("hang", "attention-backend", False),
        ("slow", "enable-mscclpp", False),
        ("unknown", "enable-mscclpp", False),
    ],
)
def test_what_a_hang_usually_comes_from(kind: str, name: str, suspected: bool) -> None:
    assert is_suspected(kind, [name]) is suspected
    assert is_suspected(kind, ["served-model-name", name]) is suspected
    assert not is_suspected(kind, [])
    assert not runs_into(kind, [name]), "a change is not left out because another one hung"


SETTINGS = (
    "enable-mscclpp", "attention-backend", "moe-runner-backend", "enable-torch-compile", "max-running-requests",
    "speculative-algorithm", "NCCL_ALGO", "page-size", "ep-size", "quantization",
)  # fmt: skip


@pytest.mark.parametrize("kind", sorted(BLOCKING))
def test_what_a_cause_stands_in_the_way_of_is_suspected_of_it(kind: str) -> None:
    blocked = [name for name in SETTINGS if runs_into(kind, [name])]
    assert blocked
    assert [name for name in SETTINGS if is_suspected(kind, [name])] == blocked


def test_the_kinds_are_those_of_the_diagnosis() -> None:
    told = (Path(__file__).parents[1] / "docs" / "diagnosis.md").read_text(encoding="utf-8")
    assert not [kind for kind in BLOCKING if f"`{kind}`" not in told]
