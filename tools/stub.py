"""A recording as it is read, and a stub toolbox that answers from scripted results without touching the world."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from pydantic import ValidationError

from optagent.tools.calls.base import Request, Result
from optagent.tools.errors import RecordingBroken
from optagent.tools.recording import read_recording
from optagent.tools.recording_history import CURRENT, RecordedLine, migrate
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
    """A whole recording, or a script: `config`, `journal`, `started` and `end` are empty when the file has none.

    `version` is the format it was written in; the calls are in today's, and `notes` say what was read otherwise. `cut` says
    where the file was cut off, "" when it is whole.
    """

    name: str
    calls: tuple[RecordedCall, ...]
    config: Mapping[str, Any]
    journal: Sequence[Mapping[str, Any]]
    started: Mapping[str, Any]
    end: Mapping[str, Any]
    version: int = CURRENT
    made_by: str = ""
    notes: tuple[str, ...] = ()
    cut: str = ""


def load_recording(path: Path) -> Recording:
    """Read and check a recording, one of an earlier format as today's. Raises RecordingBroken with file, line and what was
    expected."""
    head: dict[str, Any] = {}
    end: dict[str, Any] = {}
    calls: list[RecordedLine] = []
    lines, cut = read_recording(path)
    for number, line in lines:
        if "optagent_recording" in line or (number == 1 and "tool" not in line):
            head = _checked_header(path, number, line)
        elif "end" in line:
            end = line["end"] if isinstance(line["end"], dict) else {}
        else:
            calls.append(RecordedLine(number, line.get("tool"), line))
    version = head.get("optagent_recording", CURRENT)
    migrated = migrate(version, head.get("config", {}), calls)
    return Recording(
        str(path), tuple(_checked_call(path, c.number, c.body) for c in migrated.calls), migrated.config,
        head.get("journal", []), head.get("started", {}), end, version, head.get("made_by", ""), migrated.notes, cut,
    )  # fmt: skip


def _checked_header(path: Path, number: int, line: dict[str, Any]) -> dict[str, Any]:
    version = line.get("optagent_recording", CURRENT)
    if not isinstance(version, int) or isinstance(version, bool) or not 1 <= version <= CURRENT:
        written = f", written by {made_by[:40]}" if isinstance(made_by := line.get("made_by"), str) else ""
        raise RecordingBroken(
            f"{path}:{number}: recording version {version!r}{written}; this optagent reads up to {CURRENT}"
        )
    unknown = set(line) - {"optagent_recording", "made_by", "config", "journal", "started"}
    if unknown:
        raise RecordingBroken(f"{path}:{number}: unknown key {sorted(unknown)[0]!r} in the header")
    if not isinstance(line.get("made_by", ""), str):
        raise RecordingBroken(f"{path}:{number}: `made_by` must be a text")
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


def answer_of(call: RecordedCall, answers_with: type[R], name: str) -> R:
    try:
        return answers_with.model_validate(call.result)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise RecordingBroken(f"{name}:{call.line}: result of {call.tool}, {where}: {first['msg']}") from None


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
            return answer_of(fresh, answers_with, self._script.name)
        if tool in _READS_FILES:
            result: R = getattr(self._files, tool)(request)
            return result
        return answer_of(RecordedCall(0, tool, None, _EMPTY.get(tool, {})), answers_with, self._script.name)


def _check_scripted(call: RecordedCall, name: str) -> None:
    """A result of the wrong shape is found before anything is decided, and so is a request that no call can contain."""
    types = get_type_hints(getattr(Toolbox, call.tool))
    unknown = set(call.request or {}) - set(types["request"].model_fields)
    if unknown:
        known = ", ".join(types["request"].model_fields) or "nothing"
        raise RecordingBroken(
            f"{name}:{call.line}: {call.tool} is not asked with {sorted(unknown)[0]!r}, but with {known}"
        )
    answer_of(call, types["return"], name)


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
