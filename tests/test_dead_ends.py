"""Dead ends: what runs into one, what would make it worth another look, and which of several changes is to blame."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optagent.agent.change import Change
from optagent.agent.conditions import holds, parse_condition
from optagent.agent.dead_ends import (
    blame,
    blame_words,
    is_same_or_more,
    matching,
    no_value_works,
    retry_condition,
    worth_another_look,
)
from optagent.agent.records import DeadEnd, Part
from optagent.tools.calls.logs import Cause, EvidenceLine

FUSION = Change(flags={"enable-flashinfer-allreduce-fusion": True})
TREE = Change(env={"NCCL_ALGO": "Tree"})
FACTS = {"cuda": "12.8", "sglang": "0.5.8", "gpu.memory_gb": "96", "gpu.count": "8"}


@pytest.mark.parametrize(
    ("change", "dead", "same"),
    [
        (FUSION, FUSION, True),
        (Change(flags=FUSION.flags, env=TREE.env), TREE, True),
        (TREE, Change(flags=FUSION.flags, env=TREE.env), False),
        (Change(env={"NCCL_ALGO": "Ring"}), TREE, False),
        (Change(flags={"quantization": None}), Change(flags={"quantization": None}), True),
        (Change(), Change(flags={"quantization": None}), False),  # leaving a flag alone is not taking it away
        (Change(patch="b.diff"), Change(patch="a.diff"), False),
        (TREE, Change(), False),  # a dead end whose change nobody knows stops no other change
    ],
)
def test_doing_all_that_failed_and_perhaps_more(change: Change, dead: Change, same: bool) -> None:
    assert is_same_or_more(change, dead) is same


def test_a_dead_end_is_met_by_its_item_or_by_its_change() -> None:
    by_item = DeadEnd("fusion", "fusion", "no kernels", item="fusion")
    by_change = DeadEnd("tree", "tree", "no capture", change=TREE)
    ends = [by_item, by_change]
    assert matching(None, "fusion", ends) == [by_item]
    assert matching(TREE, "another-name", ends) == [by_change]
    assert matching(TREE, "fusion", ends) == ends
    assert matching(FUSION, "another-name", ends) == []
    assert matching(None, None, ends) == []


@pytest.mark.parametrize(
    ("condition", "worth"),
    [
        ("cuda>=13", False),
        ("cuda>=12.8", True),
        ("cuda>=12 and gpu.count>=8", True),
        ("cuda>=12 and gpu.count>=16", False),
        ("driver>=999", False),  # nobody knows the driver: unknown is not met
        ("when somebody has time", False),
        ("", False),
        (None, False),
    ],
)
def test_worth_another_look(condition: str | None, worth: bool) -> None:
    assert worth_another_look(DeadEnd("a", "A", "why", retry_when=condition), FACTS) is worth


@pytest.mark.parametrize(
    ("kind", "condition"),
    [
        ("unsupported-arch", "cuda>=13"),
        ("allreduce-unsupported", "cuda>=13"),
        ("attention-backend-unsupported", "cuda>=13"),
        ("gpu-oom-weights", "gpu.memory_gb>96"),
        ("gpu-oom-pool", "gpu.memory_gb>96"),
        ("gpu-oom-graph-capture", "gpu.memory_gb>96"),
        ("gpu-oom-runtime", "gpu.memory_gb>96"),
        ("package-mismatch", "sglang>0.5.8"),
        ("model-unsupported", "sglang>0.5.8"),
        ("graph-capture-incompatible", "sglang>0.5.8"),
        ("illegal-memory-access", "sglang>0.5.8"),
        ("slow", None),
        ("config-error", None),
        ("unknown", None),
    ],
)
def test_what_would_make_a_failure_worth_another_look(kind: str, condition: str | None) -> None:
    assert retry_condition(kind, FACTS) == condition
    assert retry_condition(kind, {}) is None  # nothing can be said about facts that nobody knows
    if condition is not None:
        assert holds(parse_condition(condition), FACTS) is False


# Blame


def cause(*lines: str) -> Cause:
    return Cause(kind="x", summary="it died", evidence=[EvidenceLine(line=n, text=t) for n, t in enumerate(lines, 1)])


CHANNELS = Part(
    "fewer channels", "nccl-channels", Change(files={"sitecustomize.py": 'X = {"NCCL_MAX_NCHANNELS": "4"}'})
)
FUSED = Part("fusion", "allreduce-fusion", Change(patch="changes/allreduce-fusion.diff"))


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ("RuntimeError: trtllm_allreduce_fusion: no supported CUDA architectures", FUSED),
        ("NCCL WARN invalid NCHANNELS 4", CHANNELS),
        ("Killed", None),
        ("allreduce over nchannels", None),  # both are named as often
    ],
)
def test_the_part_whose_words_stand_in_the_evidence_is_to_blame(line: str, part: Part | None) -> None:
    found = blame([CHANNELS, FUSED], cause(line))
    assert found.part == part
    assert blame([FUSED, CHANNELS], cause(line)).part == part


def test_words_that_all_parts_share_count_for_none() -> None:
    one = Part("one", change=Change(flags={"moe-runner-backend": "triton", "moe-padding": True}))
    other = Part("other", change=Change(flags={"moe-runner-backend": "cutlass"}))
    assert blame([one, other], cause("the moe runner died")).part is None
    assert blame([one, other], cause("the moe runner died in triton")).part == one


def part(**flags: bool | int | str) -> Part:
    return Part("a part", change=Change(flags={name.replace("_", "-"): value for name, value in flags.items()}))


GPUS, COPIES, PAGES, GRAPHS = part(tp=8), part(dp_size=2), part(page_size=64), part(cuda_graph_max_bs=8)
ATTENTION, DECODE = part(attn_dp_size=2), part(cuda_graph_max_bs_decode=8)
MSCCLPP, ALGO = part(enable_mscclpp=True), Part("tree", change=TREE)
MIXED, CHUNK = part(enable_mixed_chunk=True), part(chunked_prefill_size=4096)


@pytest.mark.parametrize(
    ("parts", "text", "expected"),
    [
        # some failures are about a setting that they do not name
        ([PAGES, GPUS], "RuntimeError: CUDA error: invalid device ordinal", GPUS),
        ([PAGES, COPIES], "RuntimeError: CUDA error: Invalid device ordinal", COPIES),
        ([GPUS, COPIES], "RuntimeError: CUDA error: invalid device ordinal", None),
        ([PAGES, GRAPHS], "RuntimeError: CUDA error: invalid device ordinal", None),
        # every lack of memory is one of CUDA
        ([GRAPHS, PAGES], "torch.OutOfMemoryError: CUDA out of memory", None),
        ([GRAPHS, PAGES], "CUDA out of memory in graph capture", GRAPHS),
        # a flag's whole name counts, and more than a word that it shares with others
        ([PAGES, GPUS], "error: argument --tp-size: invalid int value", GPUS),
        ([PAGES, GPUS], "AssertionError: tp_size must divide the heads", GPUS),
        ([MIXED, CHUNK], "ValueError: chunked_prefill_size must be a multiple of the page", CHUNK),
        ([MIXED, CHUNK], "error: argument --chunked-prefill-size: invalid int value", CHUNK),
        ([MIXED, CHUNK], "unrecognized arguments: --enable-mixed-chunk", MIXED),
        # a name inside a longer one is not meant
        ([COPIES, ATTENTION], "AssertionError: attn_dp_size must divide tp_size", ATTENTION),
        ([COPIES, MIXED], "AssertionError: attn_dp_size must divide tp_size", None),
        ([GRAPHS, DECODE], "error: argument --cuda-graph-max-bs-decode: invalid int value", DECODE),
        # MSCCL++ is written otherwise in the flag's name
        ([MSCCLPP, MIXED], "RuntimeError: MSCCL++ could not connect to rank 3", MSCCLPP),
        ([MSCCLPP, ALGO], "mscclpp::Error: unhandled cuda error", MSCCLPP),
        ([MSCCLPP, ALGO], "NCCL error: unhandled system error", ALGO),
        ([MSCCLPP, MIXED], "ncclInternalError in g++", None),
    ],
)
def test_what_a_failure_speaks_of_is_to_blame(parts: list[Part], text: str, expected: Part | None) -> None:
    assert blame_words(parts, text).part == expected
    assert blame_words(parts[::-1], text).part == expected


def test_of_one_part_it_is_always_that() -> None:
    assert blame([FUSED], cause("Killed")).part == FUSED


def test_without_a_cause_nobody_is_blamed() -> None:
    assert blame([FUSED], None).part is None


changes = st.builds(
    Change,
    st.dictionaries(st.sampled_from(["alpha-beta", "gamma-delta", "epsilon"]), st.sampled_from(["zeta", "theta"])),
)
parts = st.lists(st.builds(Part, st.text(max_size=3), change=changes), min_size=2, max_size=4)


@settings(deadline=None, max_examples=60)
@given(parts, st.lists(st.sampled_from(["alpha", "gamma", "zeta", "theta", "epsilon", "word"]), max_size=4))
def test_blame_is_one_of_the_parts_or_none_and_says_why(bundle: list[Part], words: list[str]) -> None:
    found = blame(bundle, cause(" ".join(words)))
    assert found.part is None or found.part in bundle
    assert found.because


@settings(deadline=None, max_examples=30)
@given(changes, st.text(max_size=40))
def test_equal_changes_are_never_told_apart(change: Change, line: str) -> None:
    assert blame([Part("one", change=change), Part("two", change=change)], cause(line)).part is None


TOO_LOW, TOO_HIGH = "memory-fraction-too-low", "gpu-oom-graph-capture"


def fraction(value: float) -> Change:
    return Change(flags={"mem-fraction-static": value})


@pytest.mark.parametrize(
    ("change", "kind", "earlier", "exhausted"),
    [
        (fraction(0.7), TOO_LOW, [], False),
        (fraction(0.95), TOO_HIGH, [(fraction(0.97), TOO_HIGH)], False),
        (fraction(0.7), TOO_LOW, [(fraction(0.95), TOO_HIGH)], True),
        (fraction(0.95), "gpu-oom-runtime", [(fraction(0.7), TOO_LOW)], True),
        (fraction(0.7), TOO_LOW, [(fraction(0.95), "port-in-use")], False),
        (fraction(0.7), TOO_LOW, [(Change(flags={"page-size": 64}), TOO_HIGH)], False),
        (Change(flags={"page-size": 64}), TOO_LOW, [(fraction(0.95), TOO_HIGH)], False),
    ],
)
def test_two_errors_that_alternate_mean_that_no_value_works(
    change: Change, kind: str, earlier: list[tuple[Change, str]], exhausted: bool
) -> None:
    assert (no_value_works(change, kind, earlier) is not None) == exhausted
