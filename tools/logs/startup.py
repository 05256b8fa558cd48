"""How far a start is: the lines that open a phase, and the bars that move within one."""

from __future__ import annotations

import re
from dataclasses import dataclass

from optagent.tools.calls.logs import PHASES, Phase

MARKS: tuple[tuple[str, Phase], ...] = (
    # what stands in the line, the phase it opens          # wording of
    ("Init nccl begin", "distributed-init"),  # 0.3
    ("Init torch distributed begin", "distributed-init"),  # 0.4 to 0.5.1x
    ("Init parallel begin", "distributed-init"),  # 0.5.2x
    ("Init distributed begin", "distributed-init"),
    ("Load weight begin", "weight-load"),
    ("Load weight end", "memory-pool"),
    ("Cache is allocated", "memory-pool"),
    ("Memory pool end", "memory-pool"),
    ("sliding window memory pool", "memory-pool"),
    ("CUDA graph begin", "graph-capture"),  # 0.5.1x and later, piecewise as well
    ("cuda graph begin", "graph-capture"),
    ("CPU graph begin", "graph-capture"),
    ("NPU graph begin", "graph-capture"),
    ("npu graph begin", "graph-capture"),
    ("Capture cuda graph bs", "graph-capture"),
    ("Capture cuda graph end", "graph-capture"),
    ("CUDA graph end", "graph-capture"),
    ("Capturing batches", "graph-capture"),
    ("FlashInfer autotune", "graph-capture"),
    ("DeepGEMM JIT Pre-Compile", "graph-capture"),
    ("DeepGEMM warmup", "graph-capture"),
    ("Started server process", "warmup"),
    ("Application startup complete", "warmup"),
    ("Uvicorn running on", "warmup"),
    ("fired up and ready to roll", "serving"),
)
SETTINGS = re.compile(r"^(?:server_args ?=|Server args:)")
RUN_BEGINS = re.compile(
    r"^\+ (?:exec )?\S*python.*sglang|launch_server\.py:\d+: UserWarning: .*is still supported"
    r"|The pynvml package is deprecated|Attention backend not (?:explicitly )?specified|^usage: .*(?:launch_server|sglang)"
)
"""Lines that a server prints before its settings: after a death they are the next run already."""

BAR = re.compile(
    r"(\d{1,3})%(?: Completed)? ?(?:\|[^|]{0,200})?\| ?([\d.]+[KMGTk]?)/([\d.]+[KMGTk]?)"
    r"(?: \[(\S+?)<(\S+?)(?:, +(\S+))?\])?"
)
LOOSE_BAR = re.compile(r"\d%(?: Completed)?[ |]|\d/\d{1,12} \[")
COMPILING = re.compile(r"DeepGEMM|[Aa]utotun|torch\.compile|[Ii]nductor|[Cc]ompil(?:e|ing)|[Jj]it")


@dataclass(frozen=True, slots=True)
class Bar:
    """A progress bar. `elapsed_s` and `per_step_s` are None when it does not tell."""

    percent: int
    elapsed_s: float | None
    per_step_s: float | None


def phase_opened(text: str) -> Phase | None:
    """The phase that a message opens, or shows that its sender is in."""
    if len(text) > 2000:
        return None
    return next((phase for mark, phase in MARKS if mark in text), None)


def read_bar(text: str) -> Bar | None:
    """The last bar on a line."""
    bars = list(BAR.finditer(text[-2000:]))
    if not bars:
        return None
    found = bars[-1]
    return Bar(int(found.group(1)), _seconds(found.group(4)), _per_step(found.group(6)))


def least_advanced(phases: dict[str, Phase]) -> Phase:
    """The phase of the slowest rank, unless the parent is past them all."""
    parent = phases.get("", "arguments")
    ranks = [phase for rank, phase in phases.items() if rank]
    if not ranks or PHASES.index(parent) >= PHASES.index("warmup"):
        return parent
    return min(ranks, key=PHASES.index)


def _seconds(clock: str | None) -> float | None:
    parts = (clock or "").split(":")
    if not 2 <= len(parts) <= 3 or not all(p.isdecimal() and len(p) < 6 for p in parts):
        return None
    total = 0
    for part in parts:
        total = total * 60 + int(part)
    return float(total)


def _per_step(rate: str | None) -> float | None:
    found = re.match(r"([\d.]{1,12})(s/it|it/s)", rate or "")
    if found is None or found.group(1).count(".") > 1 or not (value := float(found.group(1).strip(".") or 0)):
        return None
    return value if found.group(2) == "s/it" else 1 / value
