"""A stub toolbox that answers strictly from a recording, and tells the first call that is not the recorded one."""

from __future__ import annotations

from typing import TypeVar

from optagent.tools.calls.base import Request, Result
from optagent.tools.differing import differing, whole
from optagent.tools.errors import RecordingEnds, ReplayDiverged
from optagent.tools.recording import as_json
from optagent.tools.recording_history import CURRENT, same_but_for_names
from optagent.tools.routed import RoutedToolbox
from optagent.tools.stub import RecordedCall, Recording, answer_of

R = TypeVar("R", bound=Result)


class ReplayToolbox(RoutedToolbox):
    """Answers call by call from a recording. What is asked must be what was recorded, to the letter; of a recording of an
    earlier format what only names or words something may be otherwise, and is counted in `renamed`."""

    def __init__(self, recording: Recording) -> None:
        self._recording, self._next = recording, 0
        self.renamed = 0

    @property
    def answered(self) -> int:
        """How many calls were answered so far."""
        return self._next

    def call(self, tool: str, request: Request, answers_with: type[R]) -> R:
        number, asked = self._next + 1, as_json(request)
        if self._next >= len(self._recording.calls):
            ends = ReplayDiverged if self._recording.end else RecordingEnds
            raise ends(number, 0, None, tool, whole({}, asked))
        recorded = self._recording.calls[self._next]
        was = recorded.request or {}
        if recorded.tool != tool:
            raise ReplayDiverged(number, recorded.line, recorded.tool, tool, whole(was, asked))
        if not self._same(recorded, asked):
            raise ReplayDiverged(number, recorded.line, recorded.tool, tool, *differing(was, asked))
        self._next += 1
        return answer_of(recorded, answers_with, self._recording.name)

    def _same(self, recorded: RecordedCall, asked: dict[str, object]) -> bool:
        if recorded.request == asked:
            return True
        earlier = self._recording.version < CURRENT
        if earlier and same_but_for_names(recorded.tool, dict(recorded.request or {}), asked):
            self.renamed += 1
            return True
        return False

    def unasked(self) -> str | None:
        """What the recording has beyond what was asked; None when everything was."""
        if self._next >= len(self._recording.calls):
            return None
        left = self._recording.calls[self._next]
        return f"call {self._next + 1}: the replay ended, and the recording goes on with {left.tool} (line {left.line})"
