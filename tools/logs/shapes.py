"""Telling routine lines from those that must be read, at the speed of the bytes.

A line's shape is the line without digits. A serving log has a handful of shapes and millions of lines, so each shape is
judged once. What is judged here only decides what is looked at, never what it means.
"""

from __future__ import annotations

import re
from enum import Enum

DIGITS = b"0123456789"
MOST_SHAPES = 20_000
LONGEST_SHAPE = 400
"""Shapes of longer lines are judged each time instead of remembered."""

WORTH_READING = re.compile(
    rb"rror|xception|raceback|[Ff]ail|FAIL|FATAL|[Ff]atal|WARN|[Ww]arn|CRITICAL|ssert|[Tt]ime[d ]?-?out|[Kk]illed|crash"
    rb"|\bdead\b|\bdied\b|SIG|sigquit|raceful|[Aa]bort|[Tt]erminat|Bus |egmentation|core dumped|[Ww]atchdog|[Mm]emory|leak"
    rb"|oom|OOM|NaN|\bnan\b|probability|[Ss]hut|nterrupt|\^C|[Ee]xit|refused|denied|[Rr]eset|[Cc]losed|No space|[Nn]ot found"
    rb"|[Uu]nsupported|not support|[Cc]annot|[Uu]nable|too old|nsufficient|server_args|[Ss]erver args|begin|\bends?\b"
    rb"|allocated|[Cc]aptur|DeepGEMM|autotune|num_tokens|Uvicorn|[Ss]tart|ready to roll|usage:|Unavailable|capped|Retract"
    rb"|ninja|nvcc|File |NCCL|nccl|[Uu]ndefined|Xid|Duplicate|Health|%|^\+ |\[rank|launch_server|unbalanced"
)  # fmt: skip


class Shape(Enum):
    ROUTINE = 0
    DECODE = 1
    PREFILL = 2
    READ = 3


class Shapes:
    """Remembers how each shape was judged."""

    def __init__(self) -> None:
        self._known: dict[bytes, Shape] = {}
        self._routine: set[bytes] = set()

    def of(self, raw: bytes) -> Shape:
        if len(raw) > LONGEST_SHAPE:
            return _judge(raw.translate(None, DIGITS))
        shape = raw.translate(None, DIGITS)
        judged = self._known.get(shape)
        if judged is None:
            if len(self._known) >= MOST_SHAPES:
                self._known.clear()
            judged = self._known[shape] = _judge(shape)
        return judged

    def routine_lines(self, data: bytes) -> int | None:
        """How many lines `data` has when none of them needs reading, otherwise None."""
        shapes = data.translate(None, DIGITS).split(b"\n")
        for shape in set(shapes) - self._routine:
            if _judge(shape) is Shape.READ:
                return None
            if len(shape) <= LONGEST_SHAPE and len(self._routine) < MOST_SHAPES:
                self._routine.add(shape)
        return len(shapes)


def _judge(shape: bytes) -> Shape:
    if b"Decode batch" in shape and b"server_args" not in shape:
        return Shape.DECODE
    if b"Prefill batch" in shape and b"server_args" not in shape:
        return Shape.PREFILL
    return Shape.READ if WORTH_READING.search(shape) else Shape.ROUTINE
