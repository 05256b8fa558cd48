"""One row of the knowledge table: a family of messages and what it means."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property


class Weight(IntEnum):
    """How much a line explains. The cause is the earliest line of the lowest number."""

    SPECIFIC = 0
    """It says what went wrong."""
    GENERAL = 1
    """It says in which part it went wrong."""
    UNKNOWN = 2
    """An exception that no row knows: it is the cause, but means nothing to us."""
    DEATH = 3
    """A process ended, and with which exit code."""
    PEER = 4
    """Only the loss of somebody else shows."""
    WRAPPER = 5
    """It carries another exception's text, or says that there was one."""


@dataclass(frozen=True)
class Signature:
    """`family` is a regular expression over one line. With `alone` it tells also outside of an exception's text.

    `proves` is what the line shows beyond doubt, `hints` what it is often taken for and does not show. `versions` are
    those of SGLang whose wording it is, empty where it is another program's; `source` is who prints it.
    """

    family: str
    kind: str
    action: str
    proves: str
    remedy: str
    hints: str = ""
    versions: str = ""
    source: str = ""
    weight: Weight = Weight.SPECIFIC
    alone: bool = False
    retryable: bool = False

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        return re.compile(self.family)


GPU_OOM = "gpu-oom"
"""Stands for one of the gpu-oom kinds: which one follows from where it happened."""
