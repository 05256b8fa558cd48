"""Up, but is it right? What is wrong with a server that says it is ready."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from optagent.tools.calls.logs import Action
from optagent.tools.logs.advice import ROOM_GB
from optagent.tools.logs.candidates import Finding
from optagent.tools.logs.cutting import Line
from optagent.tools.logs.run import Run
from optagent.tools.logs.serving import REJECTED_BELOW

MANY_LINES = 8
"""Fewer decode lines than this say nothing about steady decoding."""
NEARLY_ALL = 0.9
NAN_LINES = 2


@dataclass(frozen=True)
class Warned:
    """Something that is not right, with the lines that show it and what to do about it."""

    kind: str
    summary: str
    lines: tuple[Line, ...]
    action: Action


def warnings_of(run: Run, findings: Sequence[Finding]) -> list[Warned]:
    """The worst first."""
    checks = (_wrong_numbers(findings), _every_draft_rejected(run), _pool_below_context(run), _eager(run))
    return [warned for warned in checks if warned is not None]


def _wrong_numbers(findings: Sequence[Finding]) -> Warned | None:
    lines = tuple(f.line for f in findings if f.signature.kind == "wrong-output")
    if len(lines) < NAN_LINES:
        return None
    row = next(f.signature for f in findings if f.signature.kind == "wrong-output")
    return Warned(
        "wrong-output", "the numbers go wrong while it serves", lines[:4], Action(kind=row.action, summary=row.remedy)
    )


def _every_draft_rejected(run: Run) -> Warned | None:
    serving = run.serving
    mean = serving.mean_accept
    if mean is None or serving.accepts < MANY_LINES or mean >= REJECTED_BELOW:
        return None
    algorithm = run.arguments.text("speculative_algorithm")
    named = f" ({algorithm})" if algorithm else ""
    return Warned(
        "speculative-config",
        f"accept length {mean:.2f} over {serving.accepts} decode lines: every draft is rejected, and costs time",
        tuple(serving.rejected_lines),
        Action(
            kind="fix-argument",
            summary=f"check that the draft model was trained for this target and this algorithm{named}; or go without",
        ),
    )


def _pool_below_context(run: Run) -> Warned | None:
    tokens, context = run.kv_tokens, run.context_len
    if tokens is None or context is None or run.kv_line is None or tokens >= context:
        return None
    free = run.free_gpu_gb
    limit = run.arguments.text("max_total_tokens")
    if limit is not None:
        action = Action(
            kind="fix-argument", summary=f"--max-total-tokens {limit} limits the pool: raise it or leave it away"
        )
    elif free is not None and free <= ROOM_GB:
        action = Action(
            kind="fix-argument", summary="the GPU is full: set --context-length to what is needed, or use more GPUs"
        )
    else:
        room = f": {free:g} GB are free after the start" if free is not None else ""
        action = Action(kind="raise-memory-fraction", summary=f"raise --mem-fraction-static{room}")
    lines = (run.kv_line, run.capped_line) if run.capped_line else (run.kv_line,)
    return Warned(
        "kv-pool-too-small", f"the KV pool holds {tokens} tokens, one context is {context} long: it can never be served",
        lines, action,
    )  # fmt: skip


def _eager(run: Run) -> Warned | None:
    serving = run.serving
    if serving.with_graph_field < MANY_LINES or serving.eager < NEARLY_ALL * serving.with_graph_field:
        return None
    settings = [
        name for name in ("disable_cuda_graph", "disable_decode_cuda_graph", "disable_cuda_graph_padding")
        if run.arguments.on(name)
    ]  # fmt: skip
    batch = run.arguments.graph_batch
    if settings:
        because = f"--{settings[0].replace('_', '-')} is set: leave it away"
    elif batch is not None:
        because = f"graphs are captured up to a batch of {batch:.0f}: raise that to what is served"
    else:
        because = "find out why no graph fits: captured batches, padding, a feature that cannot be captured"
    return Warned(
        "slow", f"{serving.eager} of {serving.with_graph_field} decode lines ran without a CUDA graph",
        tuple(serving.eager_lines), Action(kind="fix-argument", summary=because),
    )  # fmt: skip
