"""A change's flags, held against a server's help and what is known: every rule, and what it does not mind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from optagent.agent.change import Change, apply_change, change_body
from optagent.agent.config import CampaignConfig, Principles
from optagent.agent.experiments import Failure
from optagent.agent.flag_combinations import EXCLUDED, IPC, WITHOUT_EFFECT, setup_of
from optagent.agent.flag_facts import HARDWARE, RENAMED, UNREAD, canonical, has_no_nvlink
from optagent.agent.flag_lint import Finding, is_of, lint, names_to_ask
from optagent.agent.preparing import prepare
from optagent.agent.session import LedgerJournal, Session
from optagent.tools.calls.configuration import Configuration, FlagValue
from optagent.tools.calls.server import FlagsListed, FlagTold
from optagent.tools.flags import parse_help, tell
from optagent.tools.journal_store import MemoryJournal
from optagent.tools.stub import RecordedCall, Recording, ScriptedToolbox

REAL = parse_help((Path(__file__).parent / "tools" / "helps" / "sglang-0.5.23.txt").read_text())
"""The help of a real SGLang 0.5.23, trimmed."""
NOT_KEPT = frozenset({"enable-mscclpp"})
"""Flags of that release that the trimming left out (this one is a field of `arg_groups/fields/exec_.py` in its source)."""
VERSION = "0.5.23"
PRO_6000 = {
    "gpu.count": "8",
    "gpu.name": "NVIDIA RTX PRO 6000 Blackwell Workstation Edition",
    "compute_capability": "12.0",
    "cuda": "12.8",
}
PRO_6000_CUDA_13 = PRO_6000 | {"cuda": "13.0"}
SM120_WITH_NVLINK = PRO_6000 | {"gpu.name": "a later card"}
H100 = {"gpu.count": "8", "gpu.name": "NVIDIA H100 80GB HBM3", "compute_capability": "9.0", "cuda": "12.8"}

Flags = dict[str, FlagValue]


def configured(flags: Mapping[str, FlagValue], env: Mapping[str, str] | None = None) -> Configuration:
    return Configuration("default", dict(flags), dict(env or {}))


BASE = configured({"model-path": "m", "tp-size": 8, "max-running-requests": 16})


def real(base: Configuration, change: Change, version: str | None = VERSION) -> FlagsListed:
    names = names_to_ask(base, apply_change(base, change))
    return FlagsListed(flags={name: tell(REAL, name) for name in names}, version=version)


def found(
    change: Change,
    base: Configuration = BASE,
    version: str | None = VERSION,
    facts: Mapping[str, str] | None = None,
    principles: Principles | None = None,
) -> list[tuple[str, str]]:
    listed = real(base, change, version)
    return [(f.severity, f.text) for f in lint(base, change, listed, facts, principles or Principles())]


def knowing(*configurations: Configuration, version: str | None = VERSION) -> FlagsListed:
    """A server that knows every flag it is asked about, and takes it as it is given."""
    given = {name: value for c in configurations for name, value in c.flags.items()}
    told = {
        name: FlagTold(known=name in given, switch=given.get(name) is True) for name in names_to_ask(*configurations)
    }
    return FlagsListed(flags=told, version=version)


def of_the_whole(
    flags: Mapping[str, FlagValue],
    env: Mapping[str, str] | None = None,
    base: Configuration | None = None,
    version: str | None = VERSION,
    patch: str | None = None,
) -> list[Finding]:
    """What is found when `flags` and `env` are put on an empty baseline, or on `base`."""
    before = base or configured({})
    change = Change(flags=dict(flags), env=dict(env or {}), patch=patch)
    return lint(before, change, knowing(before, apply_change(before, change), version=version))


KNOWS = "the installed server (0.5.23)"


@pytest.mark.parametrize(
    ("flags", "severity", "text"),
    [
        ({"max-runing-requests": 4}, "refuse", f"{KNOWS} does not know --max-runing-requests; did you mean --max-running-"),
        ({"max_running_requests": 4}, "refuse", f"{KNOWS} does not know --max_running_requests; did you mean --max-run"),
        ({"zzz": True}, "refuse", f"{KNOWS} does not know --zzz"),
        ({"nsa-prefill-backend": "fa3"}, "refuse", f"{KNOWS} does not know --nsa-prefill-backend; it is now --dsa-prefill-"),
        ({"enable-deepep-moe": True}, "refuse", f"{KNOWS} does not know --enable-deepep-moe; it is now --moe-a2a-backend deepep"),
        ({"cuda-graph-max-bs": 16}, "refuse",
         "--cuda-graph-max-bs could be --cuda-graph-max-bs-decode or --cuda-graph-max-bs-prefill: the server would exit "
         "with 2; it is now --cuda-graph-max-bs-decode"),
        ({"cuda-graph": "x"}, "refuse", "--cuda-graph could be --cuda-graph-backend-decode, --cuda-graph-backend-prefill, "),
        ({"speculative-algo": "NGRAM"}, "warn", "--speculative-algo is taken as --speculative-algorithm: write the full name"),
        ({"enable-dp-attention": True, "dp-size": 8}, "warn", "--enable-dp-attention: the server's help says \"Deprecated. "),
        ({"schedule-policy": "lifo"}, "refuse", f"--schedule-policy lifo: {KNOWS} takes lpm, random, fcfs, dfs-weight, lof, "),
        ({"schedule-pol": "lifo"}, "refuse", f"--schedule-pol lifo: {KNOWS} takes lpm, "),
        ({"disable-radix-cache": "true"}, "refuse", "--disable-radix-cache is a switch and takes no value, but is given 'true'"),
        ({"disable-radix": 1}, "refuse", "--disable-radix is a switch and takes no value, but is given '1'"),
        ({"chunked-prefill-size": True}, "refuse", "--chunked-prefill-size needs a value, and is given none"),
        ({"num-continuous-decode-steps": 4}, "refuse", "nothing reads --num-continuous-decode-steps in SGLang 0.5.23: "),
        ({"num-continuous": 4}, "refuse", "nothing reads --num-continuous-decode-steps in SGLang 0.5.23: a trial of"),
        ({"enable-tf32-matmul": False}, "warn",
         "--enable-tf32-matmul false only leaves the flag out, which the baseline does already; --no-enable-tf32-matmul"),
        ({"disable-radix-cache": False}, "warn", "--disable-radix-cache false only leaves the flag out, which "),
        ({"tensor-parallel-size": 4}, "warn", "--tensor-parallel-size and --tp-size are one flag: the last one counts"),
        ({"config": "more.yaml"}, "warn", "--config: the flags in that file are not checked"),
    ],
)  # fmt: skip
def test_single_flags(flags: Flags, severity: str, text: str) -> None:
    said = found(Change(flags=dict(flags)))
    assert (severity, text) in [(s, t[: len(text)]) for s, t in said]
    if severity == "warn":
        assert {s for s, _ in said} == {"warn"}


@pytest.mark.parametrize(
    "flags",
    [
        {"max-running-requests": 64},
        {"max-running-requests": None},
        {"never-heard-of": None},
        {"disable-radix-cache": True},
        {"no-enable-tf32-matmul": True},
        {"schedule-policy": "lpm"},
        {"model-checksum": True},  # its value may be left out
        {"lora-target-modules": True},
        {"lora-target-modules": "q_proj"},
        {"cuda-graph-max-bs-decode": 16},
        {"cuda-graph-bs-decode": 16},
        {"forward-pass-metrics-worker-id": "a"},  # taken, though the help does not show it
        {"port": 1, "host": "x", "nope-port": None},  # given by the deployment
    ],
)
def test_single_flags_that_are_well(flags: dict[str, FlagValue | None]) -> None:
    assert found(Change(flags=dict(flags))) == []


def test_numbers_among_choices() -> None:
    base, change = configured({}), Change(flags={"fuseep-mode": 2.0})
    told = {"fuseep-mode": FlagTold(known=True, choices=["1", "2"])}
    assert lint(base, change, FlagsListed(flags=told)) == []
    [refused] = lint(base, Change(flags={"fuseep-mode": 10**400}), FlagsListed(flags=told))
    assert refused.severity == "refuse"


def test_an_older_server_knows_the_older_name() -> None:
    told = {"cuda-graph-max-bs-decode": FlagTold(known=False), "cuda-graph-max-bs": FlagTold(known=True)}
    [refused] = lint(BASE, Change(flags={"cuda-graph-max-bs-decode": 8}), FlagsListed(flags=told, version="0.5.8"))
    assert refused == Finding(
        "refuse",
        "the installed server (0.5.8) does not know --cuda-graph-max-bs-decode; it is still --cuda-graph-max-bs there",
    )


def test_a_retired_name_that_would_be_taken_for_something_else() -> None:
    told = {
        "stream-output": FlagTold(known=False, begins=["stream-output-to-file"]),
        "incremental-streaming-output": FlagTold(known=True),
    }
    [refused] = lint(BASE, Change(flags={"stream-output": True}), FlagsListed(flags=told | {
        "stream-output": told["stream-output"].model_copy(update={"switch": True})}))  # fmt: skip
    assert refused.severity == "refuse"
    assert refused.text.endswith("is taken as --stream-output-to-file: it is now --incremental-streaming-output")


def test_a_flag_that_only_says_that_it_is_gone() -> None:
    told = {"old": FlagTold(known=True, switch=True, deprecated="Removed. Use --new.")}
    [refused] = lint(BASE, Change(flags={"old": True}), FlagsListed(flags=told))
    assert refused == Finding("refuse", '--old: the server\'s help says "Removed. Use --new."')


@pytest.mark.parametrize("name", [row.flag for row in UNREAD])
@pytest.mark.parametrize(("version", "severities"), [
    ("0.5.23", ["refuse"]), ("0.5.23.post1", ["refuse"]), ("0.5.22", []), ("0.5.24", []), (None, []), ("main", []),
])  # fmt: skip
def test_flags_that_nothing_reads_are_so_in_the_releases_that_were_looked_at(
    name: str, version: str | None, severities: list[str]
) -> None:
    base = configured({})
    change = Change(flags={name: 3})
    told = FlagsListed(flags={name: FlagTold(known=True)}, version=version)
    assert [f.severity for f in lint(base, change, told)] == severities


def test_what_the_baseline_has_already() -> None:
    """An unknown flag the server evidently runs with, an abbreviation, and a flag that nothing reads."""
    base = configured({"unknown-here": 1, "tp": 8, "num-continuous-decode-steps": 2, "schedule-policy": "odd"})
    assert found(Change(flags={"max-running-requests": 32}), base) == []
    assert found(Change(flags={"unknown-here": 2}), base) == [("warn", f"{KNOWS} does not know --unknown-here")]
    assert found(Change(flags={"schedule-policy": "odder"}), base)[0][0] == "warn"
    assert found(Change(flags={"num-continuous-decode-steps": 4}), base)[0][0] == "refuse"
    assert found(Change(flags={"unknown-here": 1, "tp": 8}), base) == []


def test_another_environment_has_to_take_the_baseline_s_flags_too() -> None:
    base = configured({"cuda-graph-max-bs": 128, "max-running-requests": 16, "disable-radix-cache": True})
    severity, text = found(Change(environment="newer"), base)[0]
    assert severity == "refuse"
    assert text.startswith("--cuda-graph-max-bs could be")
    assert (
        found(Change(environment="newer", flags={"cuda-graph-max-bs": None, "cuda-graph-max-bs-decode": 128}), base)
        == []
    )


def test_a_patch_may_bring_what_the_installed_server_lacks() -> None:
    flags: dict[str, FlagValue | None] = {
        "zzz": 1, "num-continuous-decode-steps": 4, "schedule-policy": "new", "enable-mixed-chunk": True,
        "speculative-algorithm": "NGRAM", "page-size": 16, "attention-backend": "triton",
    }  # fmt: skip
    assert {s for s, _ in found(Change(flags=flags))} == {"refuse"}
    assert {s for s, _ in found(Change(flags=flags, patch="a.diff"))} == {"warn"}


@pytest.mark.parametrize(
    ("name", "value", "broken"),
    [
        ("kv-cache-dt", "fp8_e5m2", "precision is to be preserved: --kv-cache-dtype fp8_e5m2"),
        ("speculative-accept-threshold-s", 0.5, "accepts what the model would not have said"),
        ("disable-overlap", True, "--disable-overlap-schedule is forbidden"),
        ("kv-cache-dt", "bf16", None),
    ],
)
def test_an_abbreviation_does_not_get_around_a_principle(name: str, value: FlagValue, broken: str | None) -> None:
    change = Change(flags={name: value}, patch="a.diff")
    refused = [
        t
        for s, t in found(change, principles=Principles(forbidden_flags=["disable-overlap-schedule"]))
        if s == "refuse"
    ]
    assert bool(refused) == bool(broken)
    assert not broken or broken in refused[0]


@pytest.mark.parametrize(
    ("flags", "facts", "warned"),
    [
        ({"disable-custom-all-reduce": True}, PRO_6000, True),
        ({"disable-custom-all-reduce": True}, PRO_6000 | {"gpu.count": "2"}, False),
        ({"disable-custom-all-reduce": True}, H100, False),
        ({"disable-custom-all-reduce": True}, {}, False),
        ({"enable-nccl-nvls": True}, PRO_6000, True),
        ({"enable-nccl-nvls": True}, H100, False),
        ({"enable-torch-symm-mem": True}, PRO_6000, True),
        ({"enable-torch-symm-mem": True}, H100, False),
        ({"enable-torch-symm-mem": True}, PRO_6000_CUDA_13, True),  # without NVLink at any rate
        ({"enable-torch-symm-mem": True}, SM120_WITH_NVLINK, True),
        ({"enable-torch-symm-mem": True}, SM120_WITH_NVLINK | {"cuda": "13.0"}, True),
        ({"enable-torch-symm-mem": True}, {"compute_capability": "12.0"}, True),
        ({"flashinfer-allreduce-fusion-backend": "auto"}, PRO_6000, True),
        ({"flashinfer-allreduce-fusion-backend": "auto"}, PRO_6000_CUDA_13, True),
        ({"flashinfer-allreduce-fusion-backend": "auto"}, {"compute_capability": "12.0"}, True),
        ({"flashinfer-allreduce-fusion-backend": "auto"}, H100, False),
        ({"attention-backend": "fa3"}, PRO_6000_CUDA_13, True),
        ({"attention-backend": "fa3"}, PRO_6000, True),
        ({"attention-backend": "fa3"}, H100, False),
        ({"attention-backend": "flashinfer"}, PRO_6000, False),
        ({"moe-runner-backend": "deep_gemm"}, PRO_6000 | {"sglang": "0.5.8"}, True),
        ({"moe-runner-backend": "deep_gemm"}, PRO_6000 | {"sglang": "0.5.23"}, False),
        ({"moe-runner-backend": "marlin"}, PRO_6000, False),
    ],
)
def test_hardware_is_warned_of_only_when_it_is_known(flags: Flags, facts: Mapping[str, str], warned: bool) -> None:
    assert {s for s, _ in found(Change(flags=dict(flags)), facts=facts)} == ({"warn"} if warned else set())


@pytest.mark.parametrize(
    ("name", "none"),
    [
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", True),
        ("NVIDIA GeForce RTX 4090", True),
        ("NVIDIA GeForce RTX 3090", False),
        ("NVIDIA L40S", True),
        ("NVIDIA L4", True),
        ("Tesla T4", True),
        ("NVIDIA A10G", True),
        ("NVIDIA A100-SXM4-80GB", False),
        ("NVIDIA H200", False),
        ("NVIDIA RTX A6000", False),
        ("", False),
    ],
)
def test_cards_without_nvlink(name: str, none: bool) -> None:
    assert has_no_nvlink(name) == none


EAGLE: Flags = {"speculative-algorithm": "EAGLE"}
CHAIN: Flags = {"speculative-num-steps": 3, "speculative-eagle-topk": 1, "speculative-num-draft-tokens": 4}
TREE: Flags = {"speculative-num-steps": 3, "speculative-eagle-topk": 2, "speculative-num-draft-tokens": 6}
REJECTION: Flags = {"speculative-use-rejection-sampling": True}
BLOCKS: Flags = {"speculative-use-block-verification": True}
NGRAM: Flags = {"speculative-algorithm": "NGRAM"}


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ({"speculative-algorithm": "BOGUS"}, "there is no such algorithm"),
        (EAGLE | {"speculative-num-steps": 3}, "all three, or none"),
        (EAGLE | {"speculative-eagle-topk": 1}, "all three, or none"),
        (EAGLE | {"speculative-num-draft-tokens": 4}, "all three, or none"),
        (EAGLE | {"speculative-num-steps": 3, "speculative-num-draft-tokens": 4}, "all three, or none"),
        (EAGLE | {"speculative-num-steps": 3, "speculative-eagle-topk": 2}, "all three, or none"),
        ({"speculative-algorithm": "nextn", "speculative-num-steps": 3}, "all three, or none"),
        (EAGLE | CHAIN | {"speculative-num-draft-tokens": 9}, "sets --speculative-num-draft-tokens to 4"),
        (EAGLE | TREE | {"page-size": 16, "attention-backend": "torch_native"}, "flashinfer, fa3 or triton only"),
        (NGRAM | {"page-size": 16, "attention-backend": "triton"}, "flashinfer only, not on triton"),
        (EAGLE | TREE | {"attention-backend": "trtllm_mha"}, "trtllm_mha takes"),
        (EAGLE | TREE | REJECTION, "requires --speculative-eagle-topk 1"),
        (EAGLE | TREE | BLOCKS, "requires --speculative-eagle-topk 1"),
        (EAGLE | CHAIN | REJECTION | {"speculative-accept-threshold-acc": 0.9}, "excludes acceptance thresholds"),
        ({"speculative-algorithm": "STANDALONE"} | REJECTION, "not for STANDALONE"),
        (NGRAM | BLOCKS, "needs EAGLE"),
        (BLOCKS, "needs EAGLE"),
        ({"attn-dp-size": 2, "dp-size": 2, "tp-size": 2}, "exclude each other"),
        ({"attn-dp-size": 3, "tp-size": 8}, "must be divisible by the attention's groups"),
        ({"enable-dp-attention": True, "dp-size": 3, "tp-size": 8}, "must be divisible by the attention's groups"),
        ({"attn-cp-size": 3, "tp-size": 8}, "must be divisible by the attention's groups"),
        ({"attn-dp-size": 4, "attn-cp-size": 2, "tp-size": 4}, "must be divisible by the attention's groups"),
        (NGRAM | {"attn-dp-size": 2, "tp-size": 2}, "NGRAM does not work with data-parallel attention"),
        ({"speculative-algorithm": "STANDALONE", "attn-dp-size": 2, "tp-size": 2}, "STANDALONE does not work"),
        ({"ep-size": 2, "moe-dp-size": 2, "tp-size": 2}, "does not fit --tp-size 2"),
        ({"ep-size": 2, "moe-dp-size": 2, "tp-size": 8}, "does not fit --tp-size 8"),
        ({"moe-dp-size": 3, "tp-size": 8}, "does not fit --tp-size 8"),
        ({"ep-size": 2, "moe-dp-size": 2, "tp-size": 4}, "must equal --attn-cp-size 1"),
        ({"moe-dp-size": 2, "attn-cp-size": 2, "tp-size": 2, "pp-size": 2}, "excludes pipeline parallelism"),
        ({"dcp-size": 3, "tp-size": 8}, "must be divisible by --dcp-size 3"),
        ({"dcp-size": 2, "tp-size": 4, "enable-prefill-cp": True, "cp-strategy": "zigzag"}, "excludes --enable-prefill-cp"),
        ({"dcp-comm-backend": "a2a"}, "requires --dcp-size above 1"),
        ({"dcp-replicate-q-proj": True}, "requires --dcp-size above 1"),
        ({"enable-prefill-cp": True}, "needs --cp-strategy"),
        ({"enable-two-batch-overlap": True}, "needs --attn-dp-size above 1"),
        ({"enable-eplb": True}, "needs --ep-size above 1"),
        ({"enable-tp-lm-head-all-to-all": True}, "needs --attn-dp-size equal to --tp-size"),
        ({"enable-tp-lm-head-all-to-all": True, "attn-dp-size": 2, "tp-size": 4}, "needs --attn-dp-size equal to --tp-size"),
        ({"enable-tp-lm-head-all-to-all": True, "enable-dp-lm-head": True, "attn-dp-size": 2, "tp-size": 2}, "excludes --enable"),
        ({"pp-size": 2} | NGRAM, "--pp-size 2 excludes NGRAM"),
        ({"pp-size": 2} | EAGLE, "on a prefill node only"),
        ({"enable-deterministic-inference": True, "attention-backend": "torch_native"}, "not on torch_native"),
        ({"disable-cuda-graph-padding": True, "enable-torch-compile": True}, "excludes --enable-torch-compile"),
        ({"enable-hicache": True, "disable-radix-cache": True}, "excludes --disable-radix-cache"),
        ({"enable-lmcache": True, "disable-radix-cache": True}, "--enable-lmcache excludes --disable-radix-cache"),
        ({"enable-lmcache": True, "enable-hierarchical-cache": True}, "--enable-lmcache excludes --enable-hierarchical"),
        ({"enable-lmcache": True} | NGRAM, "--enable-lmcache excludes speculation"),
        ({"enable-lmcache": True, "attn-dp-size": 2, "tp-size": 2}, "--enable-lmcache excludes data-parallel"),
        ({"enable-priority-scheduling": True, "schedule-policy": "lpm"}, "needs fcfs or lof, not lpm"),
        ({"retraction-policy": "priority"}, "needs --enable-priority-scheduling"),
        ({"chunked-prefill-size": 100, "page-size": 16}, "must be divisible by --page-size 16"),
    ],
)  # fmt: skip
def test_what_excludes_each_other(flags: Flags, says: str) -> None:
    refused = [f for f in of_the_whole(flags) if f.severity == "refuse"]
    assert any(says in f.text for f in refused), refused
    warned = of_the_whole(flags, version="0.6.0")
    assert {f.severity for f in warned} <= {"warn"}
    assert any(says in f.text and f.text.endswith("(so it is in SGLang 0.5.23)") for f in warned)


@pytest.mark.parametrize(
    "flags",
    [
        EAGLE,
        EAGLE | CHAIN,
        EAGLE | {"speculative-num-steps": 3, "speculative-eagle-topk": 1},  # the draft tokens follow
        EAGLE | {"speculative-adaptive": True, "speculative-num-steps": 3},
        EAGLE | TREE | {"page-size": 16, "attention-backend": "triton"},
        EAGLE | TREE | {"page-size": 16},  # whichever backend the server chooses
        EAGLE | TREE | {"page-size": 1, "attention-backend": "torch_native"},
        NGRAM,
        NGRAM | {"page-size": 16, "attention-backend": "flashinfer"},
        NGRAM | {"page-size": 16, "attention-backend": "triton", "speculative-ngram-max-bfs-breadth": 1},
        NGRAM | {"speculative-num-draft-tokens": 12},
        EAGLE | CHAIN | REJECTION,
        EAGLE | REJECTION,  # the server chooses the numbers
        EAGLE | CHAIN | BLOCKS,
        EAGLE | {"enable-mixed-chunk": True},
        {"speculative-algorithm": "EAGLE3", "enable-mixed-chunk": True},
        {"attn-dp-size": 2, "tp-size": 8},
        {"dp-size": 2, "tp-size": 2},
        {"enable-dp-attention": True, "dp-size": 2, "tp-size": 2},
        {"enable-dp-attention": True, "attn-dp-size": 2, "dp-size": 1, "tp-size": 2},
        {"ep-size": 4, "tp-size": 2},  # so it starts, as long as --moe-dp-size is 1
        {"attn-cp-size": 2, "dcp-size": 2, "tp-size": 4},
        {"moe-dp-size": 2, "attn-cp-size": 2, "tp-size": 4},
        {"dcp-size": 2, "tp-size": 2, "dcp-comm-backend": "a2a", "dcp-replicate-q-proj": True},
        {"enable-prefill-cp": True, "cp-strategy": "zigzag", "attn-cp-size": 2, "tp-size": 2},
        {"enable-two-batch-overlap": True, "attn-dp-size": 2, "tp-size": 2},
        {"enable-two-batch-overlap": True, "moe-a2a-backend": "deepep"},
        {"enable-single-batch-overlap": True},
        {"enable-eplb": True, "ep-size": 2, "tp-size": 2},
        {"enable-tp-lm-head-all-to-all": True, "attn-dp-size": 2, "tp-size": 2},
        {"pp-size": 2},
        {"enable-deterministic-inference": True, "attention-backend": "triton"},
        {"enable-deterministic-inference": True},
        {"enable-hierarchical-cache": True},
        {"enable-priority-scheduling": True, "schedule-policy": "lof"},
        {"chunked-prefill-size": 128, "page-size": 16},
        {"chunked-prefill-size": -1, "page-size": 16},
        {"tp-size": "many", "dp-size": "x", "page-size": 0, "attn-dp-size": 0},  # for argparse to refuse
    ],
)
def test_what_goes_together(flags: Flags) -> None:
    assert of_the_whole(flags) == []


@pytest.mark.parametrize(
    ("flags", "env", "says"),
    [
        (NGRAM | {"enable-mixed-chunk": True}, {}, "switches --enable-mixed-chunk off with NGRAM"),
        ({"speculative-algorithm": "STANDALONE", "enable-mixed-chunk": True}, {}, "off with STANDALONE"),
        (NGRAM | REJECTION, {}, "is heard by EAGLE"),
        (REJECTION, {}, "is heard by EAGLE"),
        (NGRAM | {"speculative-adaptive": True}, {}, "drops --speculative-adaptive"),
        (EAGLE | TREE | {"speculative-adaptive": True}, {}, "drops --speculative-adaptive"),
        (EAGLE | {"speculative-adaptive": True, "attn-dp-size": 2, "tp-size": 2}, {}, "drops --speculative-adaptive"),
        ({"enable-dp-lm-head": True}, {}, "drops --enable-dp-lm-head"),
        ({"speculative-num-steps": 3}, {}, "nothing is drafted"),
        (
            {"enable-deterministic-inference": True, "tp-size": 8},
            {IPC: "1"},
            "off with --enable-deterministic-inference",
        ),
        ({"tp-size": 6}, {IPC: "1"}, "not --tp-size 6"),
    ],
)
def test_what_has_no_effect(flags: Flags, env: dict[str, str], says: str) -> None:
    refused = [f for f in of_the_whole(flags, env) if says in f.text]
    assert [f.severity for f in refused] == ["refuse"]
    assert {f.severity for f in of_the_whole(flags, env, version=None)} == {"warn"}


@pytest.mark.parametrize(
    ("flags", "env"),
    [
        ({"enable-dp-lm-head": True, "attn-dp-size": 2, "tp-size": 2}, {}),
        ({"enable-dp-lm-head": True, "enable-dp-attention": True, "dp-size": 2, "tp-size": 2}, {}),
        ({"tp-size": 8}, {IPC: "1"}),
        ({"tp-size": 6}, {IPC: "0"}),
        (EAGLE | {"speculative-adaptive": True}, {}),
        ({"enable-mixed-chunk": True}, {}),
    ],
)
def test_what_has_an_effect(flags: Flags, env: dict[str, str]) -> None:
    assert of_the_whole(flags, env) == []


def test_shared_memory_of_expandable_segments_is_a_doubt() -> None:
    env = {IPC: "1", "PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:64, expandable_segments:True"}
    [doubt] = of_the_whole({"tp-size": 8}, env)
    assert (doubt.severity, "expandable_segments" in doubt.text) == ("warn", True)
    assert of_the_whole({"tp-size": 8}, env | {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:False"}) == []


def test_a_combination_counts_when_the_change_brings_it_about() -> None:
    apart = configured(EAGLE | CHAIN | {"page-size": 16, "attention-backend": "torch_native"})
    [refused] = of_the_whole({"speculative-eagle-topk": 2}, base=apart)
    assert (refused.severity, "drafting a tree" in refused.text) == ("refuse", True)
    together = configured(EAGLE | TREE | {"page-size": 16, "attention-backend": "torch_native"})
    assert of_the_whole({"schedule-conservativeness": 0.5}, base=together) == [], "not the change's doing"
    [worse] = of_the_whole({"page-size": 32}, base=together)
    assert worse.severity == "warn", "the baseline runs with it, so the rule is wrong there"
    assert of_the_whole({"page-size": 1}, base=together) == []


def test_taking_a_flag_away_can_exclude_what_is_left() -> None:
    base = configured(EAGLE | CHAIN)
    change = Change(flags={"speculative-eagle-topk": None})
    said = lint(base, change, knowing(base, apply_change(base, change)))
    assert [(f.severity, "all three" in f.text) for f in said] == [("refuse", True)]


def test_what_the_change_silences_in_the_baseline_is_a_warning() -> None:
    [warning] = of_the_whole(NGRAM, base=configured({"enable-mixed-chunk": True}))
    assert (warning.severity, "off with NGRAM" in warning.text) == ("warn", True)


def test_an_abbreviation_is_seen_through_in_combinations() -> None:
    said = found(Change(flags={"enable-two-batch": True}))
    assert any(s == "refuse" and "needs --attn-dp-size above 1" in t for s, t in said)


def test_a_server_that_could_not_be_asked() -> None:
    listed = FlagsListed(problem="no such environment", version="0.5.23")
    assert lint(BASE, Change(flags={"zzz": 1}), listed) == []
    assert [f.severity for f in lint(BASE, Change(flags=dict(NGRAM | {"attn-dp-size": 2})), listed)] == ["refuse"]


def test_which_names_are_asked_about() -> None:
    one = configured({"cuda-graph-max-bs": 8, "x": False})
    two = configured({"cuda-graph-backend-prefill": "full"})
    names = names_to_ask(one, two)
    assert names == sorted(set(names))
    assert {"cuda-graph-max-bs", "cuda-graph-max-bs-decode", "x", "no-x", "disable-piecewise-cuda-graph"} <= set(names)


@pytest.mark.parametrize(
    ("version", "releases", "is_one"),
    [
        ("0.5.23", ">=0.5.23,<0.5.24", True),
        ("0.5.23.post2", ">=0.5.23,<0.5.24", True),
        ("0.5.23+cpu", ">=0.5.23,<0.5.24", True),
        ("0.5.24rc1", ">=0.5.23,<0.5.24", False),
        ("0.5.9", ">=0.5.23,<0.5.24", False),
        ("what", ">=0.5.23,<0.5.24", False),
        (None, ">=0.5.23,<0.5.24", False),
    ],
)
def test_releases(version: str | None, releases: str, is_one: bool) -> None:
    assert is_of(version, releases) == is_one


def test_the_tables_speak_of_real_flags() -> None:
    """What a row tells people to use instead is a flag of the release that was looked at, as far as the help is kept."""
    kept = {r.new for r in RENAMED} & set(REAL)
    assert {"cuda-graph-max-bs-decode", "attn-dp-size", "moe-runner-backend", "cp-strategy"} <= kept
    assert all(r.instead.startswith(r.new) for r in RENAMED if r.instead)
    assert {canonical(row.flag) for row in HARDWARE} <= set(REAL) | NOT_KEPT


class Listener:
    """Keeps the lines it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []

    def tell(self, what: str, text: str) -> None:
        self.told.append((what, text))

    def now(self, text: str) -> None: ...

    def detail(self, text: str) -> None: ...


def prepared(change: Change, answer: Mapping[str, object]) -> tuple[Failure | None, Listener, Session]:
    """What preparing the change comes to when the server answers `answer` about its flags."""
    script = Recording("script", (RecordedCall(1, "list_flags", {"environment": "default"}, answer),), {}, [], {}, {})
    listener = Listener()
    toolbox = ScriptedToolbox(script, ScriptedToolbox(replace(script, calls=()), None))  # type: ignore[arg-type]
    session = Session(CampaignConfig(name="c"), toolbox, LedgerJournal(MemoryJournal()), listener)
    session.note(
        "experiment", {"id": "E0001", "kind": "item", "title": "t", "base": BASE, "change": change_body(change)}
    )
    return prepare(session, session.ledger.experiments["E0001"], PRO_6000), listener, session


def test_preparing_refuses_what_needs_no_launch() -> None:
    told = {"zzz": {"known": False}, "old": {"known": False, "begins": ["older"], "switch": True}}
    failure, listener, session = prepared(Change(flags={"zzz": 1, "old": True}), {"flags": told, "version": VERSION})
    assert failure == Failure("candidate", "lint", "config-error", f"{KNOWS} does not know --zzz")
    assert listener.told == [("note", "--old is taken as --older: write the full name")]
    assert session.journal.last("candidate") is None


def test_preparing_goes_on_when_the_server_cannot_be_asked() -> None:
    failure, listener, session = prepared(Change(flags={"disable-custom-all-reduce": True}), {"problem": "no python"})
    assert failure is None
    assert [what for what, _ in listener.told] == ["note", "note"]
    assert listener.told[0][1] == "flags could not be checked before the launch: no python"
    assert "RTX PRO 6000" in listener.told[1][1]
    assert session.journal.last("candidate") is not None


def test_preparing_asks_nothing_about_flags_that_stay() -> None:
    failure, listener, _ = prepared(Change(files={"a.py": "x = 1"}), {"problem": "would be told"})
    assert (failure, listener.told) == (None, [])


NAMES = st.sampled_from(
    [*REAL, "cuda-graph-max-bs", "speculative-algo", "zzz", "enable-lmcache", "dcp-comm-backend", "enable-dp-lm-head"]
)
VALUES = st.one_of(
    st.booleans(), st.integers(-4, 16), st.floats(), st.sampled_from(["NGRAM", "EAGLE", "triton", "fp8", "", "auto", "lpm"]),
    st.just(10**400),
)  # fmt: skip
FLAGS = st.dictionaries(NAMES, VALUES, max_size=8)
ENV = st.dictionaries(
    st.sampled_from([IPC, "PYTORCH_CUDA_ALLOC_CONF"]), st.sampled_from(["0", "1", "expandable_segments:True"])
)
VERSIONS = st.sampled_from([None, "0.5.23", "0.5.8"])
FACTS = st.sampled_from([{}, PRO_6000, H100])


@given(FLAGS, ENV, VERSIONS, FACTS)
def test_an_empty_change_is_never_at_fault(
    flags: Flags, env: dict[str, str], version: str | None, facts: dict[str, str]
) -> None:
    base = configured(flags, env)
    assert lint(base, Change(), real(base, Change(), version), facts, Principles()) == []
    again = Change(flags=dict(flags), env=dict(env))
    assert lint(base, again, real(base, again, version), facts, Principles()) == []


@given(FLAGS, FLAGS, ENV, VERSIONS, FACTS, st.randoms(use_true_random=False))
def test_the_order_of_flags_does_not_matter(
    before: Flags, flags: Flags, env: dict[str, str], version: str | None, facts: dict[str, str], random: Random
) -> None:
    names = [canonical("".join(tell(REAL, name).begins[:1]) or name) for name in {**before, **flags}]
    assume(len(set(names)) == len(names))  # of two names of one flag, the server takes the last
    base, change = configured(before), Change(flags=dict(flags), env=dict(env))
    shuffled = list(flags.items())
    random.shuffle(shuffled)
    backwards = Configuration("default", dict(reversed(before.items())))
    listed = real(base, change, version)
    assert lint(base, change, listed, facts) == lint(backwards, Change(dict(shuffled), dict(env)), listed, facts)


@given(FLAGS, ENV)
def test_rules_speak_of_the_whole_and_are_told_once(flags: Flags, env: dict[str, str]) -> None:
    setup = setup_of(configured(flags, env), {})
    said = [text for rule in EXCLUDED if (text := rule(setup))]
    assert len(said) == len(set(said))
    assert all(len(text) < 400 for text in said)
    for name, rule in WITHOUT_EFFECT:
        assert isinstance(rule(setup), str), name
