"""Stub toolboxes: one that answers strictly from a recording, one from scripted results. Neither touches the world."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import unified_diff
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from pydantic import ValidationError

from optagent.tools.calls.base import Request, Result
from optagent.tools.errors import RecordingBroken, ReplayDiverged
from optagent.tools.recording import RECORDING_VERSION, as_json, read_recording
from optagent.tools.routed import RoutedToolbox
from optagent.tools.toolbox import Toolbox

R = TypeVar("R", bound=Result)

TOOLS = tuple(n for n in vars(Toolbox) if not n.startswith("_"))
_READS_FILES = frozenset({"read_text", "list_folder", "clock"})
"""What a scripted stub leaves to the campaign folder itself when the script says nothing about it."""


@dataclass(frozen=True)
class RecordedCall:
    """One tool call of a recording, with the line it stands on. `request` may be partial in a script."""

    line: int
    tool: str
    request: Mapping[str, Any] | None
    result: Mapping[str, Any]


@dataclass(frozen=True)
class Recording:
    """A whole recording, or a script: `config`, `journal`, `started` and `end` are empty when the file has none."""

    name: str
    calls: tuple[RecordedCall, ...]
    config: Mapping[str, Any]
    journal: Sequence[Mapping[str, Any]]
    started: Mapping[str, Any]
    end: Mapping[str, Any]


def load_recording(path: Path) -> Recording:
    """Read and check a recording. Raises RecordingBroken with file, line and what was expected."""
    head: dict[str, Any] = {}
    end: dict[str, Any] = {}
    calls: list[RecordedCall] = []
    for number, line in read_recording(path):
        if "optagent_recording" in line or (number == 1 and "tool" not in line):
            head = _checked_header(path, number, line)
        elif "end" in line:
            end = line["end"] if isinstance(line["end"], dict) else {}
        else:
            calls.append(_checked_call(path, number, line))
    return Recording(
        str(path), tuple(calls), head.get("config", {}), head.get("journal", []), head.get("started", {}), end
    )


def _checked_header(path: Path, number: int, line: dict[str, Any]) -> dict[str, Any]:
    version = line.get("optagent_recording", RECORDING_VERSION)
    if not isinstance(version, int) or version > RECORDING_VERSION:
        raise RecordingBroken(
            f"{path}:{number}: recording version {version!r}; this optagent reads up to {RECORDING_VERSION}"
        )
    unknown = set(line) - {"optagent_recording", "config", "journal", "started"}
    if unknown:
        raise RecordingBroken(f"{path}:{number}: unknown key {sorted(unknown)[0]!r} in the header")
    if not isinstance(line.get("journal", []), list) or not isinstance(line.get("config", {}), dict):
        raise RecordingBroken(f"{path}:{number}: `journal` must be a list of entries and `config` an object")
    started = line.get("started", {})
    if not isinstance(started, dict) or not isinstance(started.get("steps"), int | None):
        raise RecordingBroken(f"{path}:{number}: `started` must be an object with the number of `steps`, or null")
    for entry in line.get("journal", []):
        if (
            not isinstance(entry, dict)
            or not isinstance(entry.get("kind"), str)
            or not isinstance(entry.get("body"), dict)
            or not all(isinstance(entry.get(name), str | None) for name in ("key", "at"))
        ):
            raise RecordingBroken(f"{path}:{number}: an entry of `journal` needs a `kind` and a `body`")
    return line


def _checked_call(path: Path, number: int, line: dict[str, Any]) -> RecordedCall:
    tool = line.get("tool")
    if tool not in TOOLS:
        raise RecordingBroken(f"{path}:{number}: `tool` must be one of {', '.join(TOOLS)}, not {tool!r}")
    if unknown := set(line) - {"tool", "request", "result"}:
        raise RecordingBroken(
            f"{path}:{number}: unknown key {sorted(unknown)[0]!r}; a call has tool, request and result"
        )
    result, request = line.get("result", {}), line.get("request")
    if not isinstance(result, dict) or not (request is None or isinstance(request, dict)):
        raise RecordingBroken(f"{path}:{number}: `request` and `result` must be JSON objects")
    return RecordedCall(number, tool, request, result)


def _answer(call: RecordedCall, answers_with: type[R], name: str) -> R:
    try:
        return answers_with.model_validate(call.result)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise RecordingBroken(f"{name}:{call.line}: result of {call.tool}, {where}: {first['msg']}") from None


class ReplayToolbox(RoutedToolbox):
    """Answers call by call from a recording; what is asked must be what was recorded, to the letter."""

    def __init__(self, recording: Recording) -> None:
        self._recording, self._next = recording, 0

    def call(self, tool: str, request: Request, answers_with: type[R]) -> R:
        number = self._next + 1
        if self._next >= len(self._recording.calls):
            raise ReplayDiverged(
                f"call {number}: {tool} was asked, and the recording has no more calls\n{_shown(as_json(request))}"
            )
        recorded = self._recording.calls[self._next]
        asked = as_json(request)
        if recorded.tool != tool or recorded.request != asked:
            raise ReplayDiverged(_difference(number, recorded, tool, asked))
        self._next += 1
        return _answer(recorded, answers_with, self._recording.name)

    def unasked(self) -> str | None:
        """What the recording has beyond what was asked; None when everything was."""
        if self._next >= len(self._recording.calls):
            return None
        left = self._recording.calls[self._next]
        return f"call {self._next + 1}: the replay ended, and the recording goes on with {left.tool} (line {left.line})"


def _difference(number: int, recorded: RecordedCall, tool: str, asked: Mapping[str, Any]) -> str:
    head = f"call {number} (line {recorded.line}): {tool} was asked, the recording has {recorded.tool}"
    if tool == recorded.tool:
        head = f"call {number} (line {recorded.line}): {tool} was asked with another request than was recorded"
    lines = unified_diff(
        _shown(recorded.request or {}).splitlines(), _shown(asked).splitlines(), "recorded", "asked", lineterm="", n=2
    )
    return "\n".join([head, *list(lines)[:40]])


def _shown(body: Mapping[str, Any]) -> str:
    return json.dumps(body, indent=1, sort_keys=True, ensure_ascii=False).replace("\\n", "\n")


class ScriptedToolbox(RoutedToolbox):
    """Answers each tool from its own list of scripted results; the last one of a tool is repeated.

    A scripted call with a `request` answers only calls that contain it. What the script leaves open: files are read
    from the campaign folder through `files`, everything else is answered with an empty result.
    """

    def __init__(self, script: Recording, files: Toolbox) -> None:
        self._script, self._files = script, files
        self._used: dict[int, int] = {}
        for call in script.calls:
            _check_scripted(call, script.name)

    def call(self, tool: str, request: Request, answers_with: type[R]) -> R:
        asked = request.model_dump(mode="json")
        fitting = [c for c in self._script.calls if c.tool == tool and _contains(asked, c.request or {})]
        if fitting:
            fresh = next((c for c in fitting if c.line not in self._used), fitting[-1])
            self._used[fresh.line] = 1
            return _answer(fresh, answers_with, self._script.name)
        if tool in _READS_FILES:
            result: R = getattr(self._files, tool)(request)
            return result
        return _answer(RecordedCall(0, tool, None, _EMPTY.get(tool, {})), answers_with, self._script.name)


def _check_scripted(call: RecordedCall, name: str) -> None:
    """A result of the wrong shape is found before anything is decided, and so is a request that no call can contain."""
    types = get_type_hints(getattr(Toolbox, call.tool))
    unknown = set(call.request or {}) - set(types["request"].model_fields)
    if unknown:
        known = ", ".join(types["request"].model_fields) or "nothing"
        raise RecordingBroken(
            f"{name}:{call.line}: {call.tool} is not asked with {sorted(unknown)[0]!r}, but with {known}"
        )
    _answer(call, types["return"], name)


_EMPTY: dict[str, dict[str, Any]] = {
    "read_log": {"exists": False},
    "launch": {"outcome": "not-started", "problem": "the script has no launch"},
    "stop": {"gone": True},
    "bench": {"valid": False, "invalid_because": ["the script has no benchmark run"]},
    "examine": {"problem": "the script has no examination"},
    "evaluate": {"problem": "the script has no evaluation"},
    "prepare_environment": {"ready": False, "problem": "the script has no environment"},
}


def _contains(asked: Any, wanted: Any) -> bool:
    if isinstance(wanted, Mapping):
        return isinstance(asked, Mapping) and all(k in asked and _contains(asked[k], v) for k, v in wanted.items())
    return bool(asked == wanted)
