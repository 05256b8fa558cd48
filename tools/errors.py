"""What can go wrong in a tool's own records. What goes wrong in the world is part of a tool's result instead."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from optagent.tools.differing import Field


class ToolFailure(Exception):
    """A tool cannot work at all. The message is one line and says what the caller can do."""


class JournalFailure(ToolFailure):
    """The journal cannot be used."""


class JournalTooNew(JournalFailure):
    """A newer optagent wrote this journal: use that one, this one would misread it."""


class JournalBroken(JournalFailure):
    """The file is not a journal or is damaged: restore it from a copy, or save what can be read of it."""


class JournalLost(JournalFailure):
    """Entries that were on disk are not there any more: put the latest files back, or go on without them knowingly."""


class JournalReadOnly(JournalFailure):
    """Something was to be written to a journal that was opened for reading, or that does not exist yet."""


class JournalUnavailable(JournalFailure):
    """The file cannot be used just now (locked, disk full, no permission): mend that and try again."""


class LockFailure(ToolFailure):
    """The campaign's lock cannot be taken."""


class LockUnusable(LockFailure):
    """The lock file cannot be opened or its file system has no locks: mend that and try again."""


class RecordingBroken(ToolFailure):
    """A recording, or a file of scripted results, is not in its format: mend the line that is named."""


class ReplayDiverged(ToolFailure):
    """A replay asked something else than the recording has at that place.

    `call` counts from 1, `line` is the recording's (0: there is none), `recorded` and `asked` are the tools, `fields` those
    of the request that differ, as far as they are shown, and `more` how many others do. `where` is put in by who knows it:
    the step, node and experiment.
    """

    def __init__(
        self, call: int, line: int, recorded: str | None, asked: str, fields: Sequence[Field], more: int = 0
    ) -> None:
        super().__init__(call, line, recorded, asked, fields, more)
        self.call, self.line, self.recorded, self.asked = call, line, recorded, asked
        self.fields, self.more, self.where = list(fields), more, ""

    @property
    def headline(self) -> str:
        """The first line of the message."""
        if self.recorded is None:
            said = f"{self.asked} was asked, and the recording has no more calls"
        elif self.recorded != self.asked:
            said = f"{self.asked} was asked, the recording has {self.recorded}"
        else:
            said = f"{self.asked} was asked with another request than was recorded"
        line = f" (line {self.line})" if self.line else ""
        return f"call {self.call}{line}{f', {self.where}' if self.where else ''}: {said}"

    def __str__(self) -> str:
        from optagent.tools.differing import in_lines

        return "\n".join([self.headline, *in_lines(self.fields, self.more)])


class RecordingEnds(ReplayDiverged):
    """The recording of a sitting that was killed has no more calls: as far as it goes, everything was as recorded."""


class ReplayStopped(ToolFailure):
    """A replay was to go no further than this. There is nothing to clean up: nothing in it was real."""


class MachineExhausted(ToolFailure):
    """The machine has no room, no more open files, or takes no writes: mend that and try again. It says nothing about what
    was tried."""
