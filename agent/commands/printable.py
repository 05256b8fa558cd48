"""Text made safe to print: logs and file names may hold anything, and none of it moves the cursor."""

from __future__ import annotations

import shlex
from pathlib import Path

_CONTROL = {c: None for c in range(32) if c != 9} | {127: None} | dict.fromkeys(range(128, 160))


def clean(text: str) -> str:
    """One printable line."""
    return text.replace("\n", " ⏎ ").translate(_CONTROL).encode(errors="replace").decode()


def clean_document(text: str) -> str:
    """A document of many lines without anything that moves the cursor but line ends and tabs."""
    return "\n".join(line.translate(_CONTROL) for line in text.split("\n"))


def optagent_in(root: Path) -> str:
    """How the command begins that is typed next, for the campaign in this folder."""
    return "optagent" if root == Path() else f"optagent -C {shlex.quote(clean(str(root)))}"


def clip(text: str, width: int) -> str:
    """One printable line of at most `width` characters."""
    line = clean(text).rstrip()
    return line if len(line) <= width else line[: width - 1] + "…"
