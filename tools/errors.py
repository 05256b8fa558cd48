"""What can go wrong in a tool's own records. What goes wrong in the world is part of a tool's result instead."""

from __future__ import annotations


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
    """A replay asked something else than the recording has at that place."""


class MachineExhausted(ToolFailure):
    """The machine has no room, no more open files, or takes no writes: mend that and try again. It says nothing about what
    was tried."""
