"""The launch's log, written without a process: order, both wordings, and each failure for its own reason."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from optagent.tools.simulator.__main__ import plan_launch
from optagent.tools.simulator.flags import parse
from optagent.tools.simulator.scenario import Faults, Injected, load, packaged
from optagent.tools.simulator.startup import write_script
from optagent.tools.simulator.surroundings import SourceSeen, Surroundings, module_constants, read_source

SCENARIO = load(packaged("kimi-k2.5-8x-rtx-pro-6000"))
TUNED = {"NCCL_P2P_LEVEL": "SYS"}
EAGLE = (
    "--speculative-algorithm EAGLE3 --speculative-draft-model-path d --speculative-num-steps 3 "
    "--speculative-eagle-topk 1 --speculative-num-draft-tokens 4"
)


def around(sglang: str = "0.5.8", environment: str = "cu128", **changes: object) -> Surroundings:
    seen = Surroundings(
        scenario=SCENARIO,
        world=None,
        versions=SCENARIO.environments[environment] | {"sglang": sglang},
        env=TUNED,
        source=SourceSeen(),
        launch="E0001",
    )
    return replace(seen, **changes)  # type: ignore[arg-type]


def launch(flags: str, seen: Surroundings) -> str:
    """The log's text, every line with its rank but without its time."""
    words = ["--model-path", "moonshotai/Kimi-K2.5", "--tp-size", "8", "--mem-fraction-static", "0.9", *flags.split()]
    plan = plan_launch(parse(words, seen.versions["sglang"]), seen)
    lines = write_script(plan).lines()
    return "".join(
        one.text if one.raw else f"[{'' if one.rank is None else f'TP{one.rank}'}] {one.text}\n" for one in lines
    )


MILESTONES = {
    "0.5.8": [
        "Attention backend not explicitly specified.", "server_args=ServerArgs(model_path=",
        "Init torch distributed begin.", "sglang is using nccl==2.27.5", "Init torch distributed ends.",
        "Load weight begin.", "Loading safetensors checkpoint shards:   0% Completed", "100% Completed",
        "Load weight end. type=KimiK25ForConditionalGeneration", "KV Cache is allocated. #tokens:", "Memory pool end.",
        "Capture cuda graph begin.", "Capture cuda graph bs [1, 2, 4", "Capturing batches (bs=128", "100%|",
        "Capture cuda graph end. Time elapsed:", "max_total_num_tokens=", "Started server process",
        "Application startup complete.", "GET /get_model_info", "Prefill batch", "POST /generate",
        "The server is fired up and ready to roll!",
    ],
    "0.5.23": [
        "Attention backend not specified.", "server_args={'model_path':", "Init parallel begin.",
        "sglang is using nccl==2.27.5", "Init parallel ends. elapsed=", "Memory baseline taken.", "Load weight begin.",
        "100% Completed", "Load weight end. elapsed=", "KV Cache is allocated. dtype: torch.bfloat16, #tokens:",
        "Memory pool end.", "Capture target decode CUDA graph begin. backend=full", "Capturing batches (bs=128",
        "Capture target decode CUDA graph end. bs=[1, 2", "max_total_num_tokens=", "Started server process",
        "GET /model_info", "#pending-token: 0, cuda graph: False", "POST /freeze_gc",
        "The server is fired up and ready to roll!",
    ],
}  # fmt: skip


@pytest.mark.parametrize("release", MILESTONES)
def test_healthy_start_in_order(release: str) -> None:
    flag = "--cuda-graph-max-bs" if release == "0.5.8" else "--cuda-graph-max-bs-decode"
    text = launch(f"{flag} 128", around(release))
    place = 0
    for milestone in MILESTONES[release]:
        found = text.find(milestone, place)
        assert found >= 0, f"{milestone!r} is missing or out of order"
        place = found


def test_all_ranks_speak_and_are_interleaved() -> None:
    text = launch("", around())
    ranks = re.findall(r"\[TP(\d)\] Load weight begin", text)
    assert sorted(ranks) == list("01234567")
    assert ranks != sorted(ranks)


def test_capture_bar_is_glued_to_the_next_message() -> None:
    text = launch("--cuda-graph-max-bs 128 --enable-torch-symm-mem", around()) + launch("", around())
    assert re.search(r"s/it\]\r?Capturing batches", text.replace("\r", ""))


@pytest.mark.parametrize(("release", "loads_before_capture"), [("0.5.8", 1), ("0.5.23", 2)])
def test_draft_model_is_loaded_before_or_after_capture(release: str, loads_before_capture: int) -> None:
    text = launch(EAGLE, around(release))
    before = text[: text.index("Capturing batches")]
    assert before.count("[TP0] Load weight begin") == loads_before_capture
    assert text.count("[TP0] Load weight begin") == 2
    assert "ready to roll" in text


FUSION = "--enable-flashinfer-allreduce-fusion"
FAILURES = [
    (FUSION, {}, "unsupported compute capability 12.0 on CUDA 12.8", "capture"),
    ("--enable-torch-symm-mem", {}, "Device capability 12.0 not supported", "init"),
    ("--enable-torch-symm-mem", {"environment": "cu13"}, "multicast operations are not supported", "init"),
    ("--moe-a2a-backend flashinfer", {}, "AssertionError: flashinfer all-to-all requires ep_size == tp_size", "load"),
    ("--moe-a2a-backend flashinfer --ep-size 8", {}, "torch.OutOfMemoryError: CUDA out of memory.", "pool"),
    ("--moe-a2a-backend deepep --ep-size 8", {}, "no NVLink or RDMA transport", "load"),
    ("", {"env": TUNED | {"NCCL_ALGO": "Tree"}}, "NCCL_ALGO was set to Tree", "capture"),
    ("--attention-backend fa3", {}, "FlashAttention v3 Backend requires SM>=80 and SM<=90.", "pool"),
    ("--attention-backend flashmla", {}, "does not support compute capability 12.0", "pool"),
    ("--attention-backend trtllm_mla", {}, "no cubin for sm_120", "capture"),
    ("--mem-fraction-static 0.5", {}, "Not enough memory. Please try to increase --mem-fraction-static.", "pool"),
    ("--mem-fraction-static 0.97", {}, "torch.OutOfMemoryError: CUDA out of memory.", "capture"),
    ("--tp-size 4", {}, "torch.OutOfMemoryError: CUDA out of memory.", "load"),
    ("--tp-size 16", {}, "invalid device ordinal", "init"),
    ("--moe-runner-backend flashinfer_trtllm", {}, "requires SM100", "load"),
    ("--moe-runner-backend cutlass", {}, "does not support compressed-tensors INT4", "load"),
    ("--context-length 999999", {}, "is greater than the derived context_length", "arguments"),
    ("--speculative-algorithm EAGLE3", {}, "requires --speculative-draft-model-path", "arguments"),
]
LAST_PHASE = {
    "arguments": "FutureWarning", "init": "Init torch distributed begin.", "load": "Loading safetensors",
    "pool": "Using KV cache dtype", "capture": "Capturing batches",
}  # fmt: skip


@pytest.mark.parametrize(("flags", "changes", "error", "phase"), FAILURES)
def test_failure_for_its_reason(flags: str, changes: dict[str, object], error: str, phase: str) -> None:
    text = launch(flags, around(**changes))  # type: ignore[arg-type]
    assert error in text
    assert "ready to roll" not in text
    assert LAST_PHASE[phase] in text
    after = list(LAST_PHASE)[list(LAST_PHASE).index(phase) + 1 :]
    assert not [name for name in after if LAST_PHASE[name] in text]
    if phase == "arguments":
        return
    assert text.index("Received sigquit from a child process.") < text.index("Scheduler hit an exception: Traceback")
    assert (phase == "capture") == ("Capture cuda graph failed:" in text) == ("Possible solutions:" in text)


@pytest.mark.parametrize(
    ("flags", "changes"),
    [
        (f"--cuda-graph-max-bs 128 {FUSION}", {"environment": "cu13"}),
        ("--mem-fraction-static 0.94 --cuda-graph-max-bs 128", {}),
        ("--cuda-graph-max-bs 512", {}),
        ("--ep-size 8", {}),
        ("--speculative-algorithm NGRAM", {}),
        (EAGLE, {}),
        ("--disable-cuda-graph", {"env": TUNED | {"NCCL_ALGO": "Tree"}}),
        ("--attention-backend flashinfer", {}),
    ],
)
def test_starts(flags: str, changes: dict[str, object]) -> None:
    assert "ready to roll" in launch(flags, around(**changes))  # type: ignore[arg-type]


def test_hints_are_those_of_the_release() -> None:
    assert "2. set --cuda-graph-max-bs to" in launch(FUSION, around("0.5.8"))
    assert "2. set --cuda-graph-max-bs-decode to" in launch(FUSION, around("0.5.23"))


def test_driver_too_old_for_cuda_13() -> None:
    versions = SCENARIO.environments["cu13"] | {"driver": "570.86.10"}
    assert "driver on your system is too old" in launch("", around(versions=versions))


def test_edits_of_the_last_session_switch_fusion_on() -> None:
    edits = packaged(SCENARIO.name) / "last-session" / "checkout"
    seen = around(source=read_source(edits))
    text = launch("", seen)
    assert "Auto enable FlashInfer AllReduce Fusion" in text
    assert "unsupported compute capability" in text
    only_half = SourceSeen({"FLASHINFER_ALLREDUCE_FUSION_BY_DEFAULT": True})
    assert "ready to roll" in launch("", around(source=only_half))


def test_source_that_does_not_parse(tmp_path: Path) -> None:
    path = tmp_path / "python/sglang/srt/server_args.py"
    path.parent.mkdir(parents=True)
    path.write_text("x = (\n")
    text = launch("", around(source=read_source(tmp_path)))
    assert "SyntaxError" in text
    assert "server_args.py" in text


@pytest.mark.parametrize(
    ("kind", "last", "absent"),
    [("hang", "Loading safetensors", "Received sigquit"), ("killed", "crashed with exit code -9", "Traceback")],
)
def test_injected_faults(kind: str, last: str, absent: str) -> None:
    faults = Faults(injected=(Injected("E00*", kind, "weight-load"),))
    scenario = replace(SCENARIO, faults=faults)
    text = launch("", around(scenario=scenario))
    assert last in text
    assert absent not in text
    assert "ready to roll" in launch("", around(scenario=scenario, launch="F1"))


def test_same_launch_same_log() -> None:
    assert launch("", around()) == launch("", around())
    assert launch("", around()) != launch("", around(launch="E0002"))


def test_constants_are_read_and_not_run() -> None:
    text = 'A = True\nB: int = 2 * 1024 - 1\nC = open("x")\nD = (1, "two")\nimport os\n'
    assert module_constants(text) == {"A": True, "B": 2047, "D": (1, "two")}
