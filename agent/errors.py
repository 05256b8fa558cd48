"""What can go wrong, drawn as one small tree. Every message tells a person what to do next."""

from __future__ import annotations

INTERRUPTED = 130
"""Exit status of a command that somebody ended."""


class OptagentError(Exception):
    """Base of all errors that end a command. `exit_status` is what the command then ends with."""

    exit_status = 1


class BadInput(OptagentError):
    """A file, option or answer that cannot be used as it is. Nothing on disk has changed."""

    exit_status = 2

    def __init__(self, where: str, expected: str, line: int | None = None) -> None:
        self.where, self.expected, self.line = where, expected, line
        place = f"{where}:{line}" if line else where
        super().__init__(f"{place}: {expected}")


class CampaignBusy(OptagentError):
    """Another live process is writing to this campaign."""

    exit_status = 4


class Diverged(OptagentError):
    """A replay asked something that the recording does not have there."""
