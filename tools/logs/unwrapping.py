"""From a line to what the server said: without what log collectors put in front, with its time and rank.

SGLang's own prefix is `[YYYY-MM-DD HH:MM:SS DP0 PP0 TP3 EP3] message`, local time; a part is there only where that
dimension is larger than 1. A line without it may be anything: a bar, the body of a traceback, NCCL, the shell.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from datetime import datetime

from optagent.tools.logs.cutting import Line

STAMP = re.compile(
    r"\[(\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d)(?:[.,]\d+)?((?: (?:[A-Z_]+\d+|gpu_id=\d+))*)\] ?"
)  # fmt: skip
TORCH_RANK = re.compile(r"^\[rank(\d+)\]:(?: ?(?=\[)| )")
LEVEL = re.compile(r"^(?:ERROR|CRITICAL): (?! )|^(?:ERROR|CRITICAL): (?=   ? ?File |    )")
COLLECTORS = re.compile(
    r"^(?:"
    r"[\w.-]+ +\| ?"  # docker compose
    r"|\[(?:pod|container)/[^\]]+\] ?"  # kubectl logs --prefix
    r"|\d{4}-\d\d-\d\dT[\d:.,]+(?:Z|[+-]\d\d:?\d\d) (?:(?:stdout|stderr) [FP] )?"  # CRI files, docker --timestamps
    r"|\([\w.:-]+ pid=\d+(?:, ip=[^)]*)?\) ?"  # Ray
    r"|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \S+ [\w.@-]+(?:\[\d+\])?: "  # journald and syslog
    r"|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d+ - \S+ - [A-Z]+ - "  # Python's logging around the server's output
    r")"
)
BARE = re.compile(r"Traceback \(most recent call last\)|usage: (?=\S)")
"""What stands at the beginning of a line that has no stamp: what is before it was put there by a collector."""
JSON_TEXT = ("log", "message", "msg", "text", "line", "content")
JSON_CUT = re.compile(r'"(?:log|message|msg|text|line|content)" ?: ?"((?:[^"\\]|\\.)*)')
LONGEST_PREFIX = 160
MOST_PREFIXES = 8


@dataclass(frozen=True, slots=True)
class Message:
    """What a process said on a line. `rank` is empty for the parent, for a single-GPU server and where nobody says."""

    line: Line
    text: str
    rank: str = ""
    stamp: datetime | None = None


@dataclass
class Unwrapper:
    """Takes wrappers off. Those of unknown collectors are learnt from the lines that carry SGLang's own stamp."""

    _learnt: dict[str, re.Pattern[str]] = field(default_factory=dict)

    def unwrap(self, line: Line) -> Message:
        text = _collected(line.text)
        found = STAMP.search(text)
        if found is None:
            return self._unstamped(line, text)
        head = text[: found.start()]
        if head and "%" not in head:
            self._learn(head)
        body = LEVEL.sub("", text[found.end() :], count=1)
        shown = Line(line.number, text if "%" in head or not head else text[found.start() :])
        return Message(shown, body, found.group(2).strip(), _time(found.group(1)))

    def _unstamped(self, line: Line, text: str) -> Message:
        if (known := BARE.search(text)) is not None and known.start() > 0 and "exception" not in text[: known.start()]:
            self._learn(text[: known.start()])
        for pattern in self._learnt.values():
            if (learnt := pattern.match(text)) is not None:
                text = text[learnt.end() :]
                break
        torch = TORCH_RANK.match(text)
        rank = f"TP{torch.group(1)[:6]}" if torch else ""
        return Message(Line(line.number, text), text[torch.end() :] if torch else text, rank)

    def _learn(self, head: str) -> None:
        shape = re.sub(r"\d+", "0", head)
        if len(head) <= LONGEST_PREFIX and shape not in self._learnt and len(self._learnt) < MOST_PREFIXES:
            self._learnt[shape] = re.compile(r"\d+".join(re.escape(part) for part in re.split(r"\d+", head)))


def _collected(text: str) -> str:
    """The text without the wrappers of the usual collectors, two of them at most."""
    if text.startswith("{"):
        text = _from_json(text)
    for _ in range(2):
        bare = COLLECTORS.sub("", text, count=1)
        if bare == text:
            break
        text = bare
    return text


def _from_json(text: str) -> str:
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):
        cut = JSON_CUT.search(text)
        return cut.group(1).replace('\\"', '"').replace("\\n", "").replace("\\\\", "\\") if cut else text
    if isinstance(fields, dict):
        for name in JSON_TEXT:
            if isinstance(said := fields.get(name), str):
                return said.rstrip("\r\n").rpartition("\r")[2]
    return text


def stamp_in(text: str) -> datetime | None:
    """The time of the first stamp in `text`."""
    found = STAMP.search(text)
    return _time(found.group(1)) if found else None


def _time(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text.replace(" ", "T"))
    except ValueError:
        return None
