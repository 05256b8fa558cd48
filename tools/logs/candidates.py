"""Collecting the lines that may be the cause: exceptions with their text, and lines that tell by themselves."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime

from optagent.tools.calls.logs import Phase
from optagent.tools.logs.cutting import Line
from optagent.tools.logs.matching import LONGEST_MATCHED, Matcher
from optagent.tools.logs.signature import Signature, Weight
from optagent.tools.logs.signatures import HINT_LIST, REQUEST_LEVEL, UNKNOWN
from optagent.tools.logs.unwrapping import Message

TRACEBACK = "Traceback (most recent call last)"
CHAINED = re.compile(r"During handling of the above exception|The above exception was the direct cause")
EXCEPTION = re.compile(r"^(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?=:|$)")
STAMPED_EXCEPTION = re.compile(r"^(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit|Unsupported)(?=:|$)")
"""Where every line of a traceback is stamped, levels such as `INFO:` look like exceptions otherwise."""
ABORT = re.compile(r"^terminate called after throwing")
"""C++ dies of an exception as well: its text stands on the next lines, after `what():`."""
TELLING = re.compile(r"^\[?[EF]\d{4} \d\d:|NCCL WARN ")
"""Errors of torch's C++ part and of NCCL say of themselves what they are about, as exceptions do."""
FRAME = re.compile(r'^\s*File "([^"]{0,300})", line \d+(?:, in (\S{0,80}))?')
OTHERS = re.compile(r"^(?:\[rank\d+\]|\S+:\d+:\d+ \[\d+\] NCCL|\(?\w+ pid=|\+ )|frame #\d+")
NAMED_RANK = re.compile(r"scheduler_(\d{1,6})|\bRank (\d{1,6})\b|\[Rank (\d{1,6})\]|\bTP(\d{1,6})")
RANK = re.compile(r"\bTP(\d{1,6})|\bDP(\d{1,6})|gpu_id=(\d{1,6})")
HINTS = re.compile(HINT_LIST)
OF_A_REQUEST = re.compile(REQUEST_LEVEL)
MESSAGE_LINES = 40
OTHERS_BETWEEN = 40
"""Nobody locks the stream: so many lines of other ranks may stand within a traceback."""
MOST_FRAMES = 80
KEPT_ALIKE = 3
MOST_KINDS_OF_FINDINGS = 400


@dataclass(frozen=True, slots=True)
class Finding:
    """A line that may be the cause. `frames` are the files and functions of its traceback, outermost first."""

    line: Line
    signature: Signature
    phase: Phase
    rank: int | None
    stamp: datetime | None
    sender: str = ""
    frames: str = ""
    details: tuple[Line, ...] = ()
    text: str = ""


@dataclass
class _Traceback:
    sender: str
    phase: Phase
    stamp: datetime | None
    of_a_request: bool = False
    frames: list[str] = field(default_factory=list)
    patience: int = OTHERS_BETWEEN


@dataclass
class _Open:
    """An exception whose text may go on."""

    traceback: _Traceback
    first: Line
    text: list[str]
    known: list[tuple[Signature, Line]]
    lines_left: int = MESSAGE_LINES
    hints: bool = False


class Candidates:
    """Keeps of each kind of finding and rank the first few, so that a log of any length fits."""

    def __init__(self, matcher: Matcher) -> None:
        self.matcher = matcher
        self._kept: dict[tuple[int, str], list[Finding]] = {}
        self._traceback: _Traceback | None = None
        self._open: _Open | None = None
        self._chained: _Traceback | None = None
        self._head = ""

    @property
    def in_message(self) -> bool:
        """Whether the next lines may belong to a traceback or to an exception's text."""
        return self._traceback is not None or self._open is not None

    def findings(self) -> list[Finding]:
        """All of them in the order of the log."""
        found = [finding for alike in self._kept.values() for finding in alike]
        if self._open is not None and (last := _finding(self._open)) is not None:
            found.append(last)
        return sorted(found, key=lambda f: f.line.number)

    def forget(self, sender: str) -> None:
        """`sender` goes on after all: what it reported was not its end, and no exception of the parent was either."""
        self._close()
        kept = {key: alike for key, alike in self._kept.items() if key[1] != sender}
        self._kept = {
            key: left for key, alike in kept.items() if (left := [f for f in alike if f.sender or not f.frames])
        }

    def take(self, message: Message, phase: Phase, stamp: datetime | None) -> None:
        text = message.text
        if TRACEBACK in text:
            self._begin_traceback(message, phase, stamp)
        elif CHAINED.search(text):
            self._chained = self._open.traceback if self._open else self._traceback
            self._close()
            self._traceback = None
        elif self._traceback is not None and self._continues_traceback(message, self._traceback):
            return
        elif ABORT.match(text):
            self._close()
            self._open = _Open(
                _Traceback(message.rank, phase, stamp), message.line, [text], self._known(text, message.line)
            )
        elif self._open is not None and _continues(self._open, message):
            self._extend(self._open, message)
        else:
            self._close()
            if message.stamp is not None:
                self._head, self._chained = text[:200], None
            elif text.startswith(("ERROR", "Exception")):
                self._head = text[:200]
            self._take_line(message, phase, stamp)

    def _begin_traceback(self, message: Message, phase: Phase, stamp: datetime | None) -> None:
        self._close()
        chain = self._chained
        if message.stamp is not None or message.rank or chain is None:
            head = message.text if message.stamp is not None and not message.text.startswith("Trace") else self._head
            self._traceback = _Traceback(message.rank, phase, stamp, OF_A_REQUEST.search(head) is not None)
        else:
            self._traceback = _Traceback(chain.sender, chain.phase, chain.stamp, chain.of_a_request)
        self._chained = None
        if message.stamp is None:
            self._head = ""

    def _continues_traceback(self, message: Message, traceback: _Traceback) -> bool:
        text = message.text
        if (frame := FRAME.match(text)) is not None:
            if len(traceback.frames) < MOST_FRAMES:
                path = "/".join(frame.group(1).split("/")[-3:])
                traceback.frames.append(f"{path}:{frame.group(2) or ''}")
            return True
        if not text or text[0] in " \t":
            return True
        raised = EXCEPTION if message.stamp is None else STAMPED_EXCEPTION
        if raised.match(text) is None:
            traceback.patience -= 1
            self._traceback = traceback if traceback.patience > 0 else None
            return False
        self._traceback = None
        self._open = _Open(traceback, message.line, [text], self._known(text, message.line))
        return True

    def _take_line(self, message: Message, phase: Phase, stamp: datetime | None) -> None:
        row = self.matcher.row(message.text, exception=False)
        if row is None and TELLING.search(message.text[:LONGEST_MATCHED]):
            row = self.matcher.row(message.text, exception=True)
            row = row if row is not None and row.weight is Weight.SPECIFIC else None
        if row is not None:
            rank = _rank(message.rank, message.text)
            said = message.text[:LONGEST_MATCHED]
            self._keep(Finding(message.line, row, phase, rank, stamp, message.rank, text=said))

    def _known(self, text: str, line: Line) -> list[tuple[Signature, Line]]:
        row = self.matcher.row(text, exception=True)
        return [] if row is None else [(row, line)]

    def _extend(self, opened: _Open, message: Message) -> None:
        opened.lines_left -= 1
        if HINTS.match(message.text):
            opened.hints = True
        if not opened.hints and message.text:
            opened.text.append(message.text[:LONGEST_MATCHED])
            opened.known += self._known(message.text, message.line)

    def _close(self) -> None:
        if self._open is not None:
            if (finding := _finding(self._open)) is not None:
                self._keep(finding)
            self._open = None

    def _keep(self, finding: Finding) -> None:
        key = (id(finding.signature), finding.sender)
        alike = self._kept.get(key)
        if alike is None:
            if len(self._kept) < MOST_KINDS_OF_FINDINGS:
                self._kept[key] = [finding]
        elif len(alike) < KEPT_ALIKE:
            alike.append(finding)
        else:
            alike[1:] = [*alike[2:], finding]


def _continues(opened: _Open, message: Message) -> bool:
    return message.stamp is None and opened.lines_left > 0 and OTHERS.match(message.text) is None


def _finding(opened: _Open) -> Finding | None:
    """The finding of an exception: what explains most of its text, and where that stands."""
    traceback = opened.traceback
    if traceback.of_a_request:
        return None
    first = next((signature for signature, line in opened.known if line == opened.first), UNKNOWN)
    signature, line = min([(first, opened.first), *opened.known], key=lambda known: (known[0].weight, known[1].number))
    details = [opened.first, *(at for known, at in opened.known if known.weight <= Weight.GENERAL)]
    return Finding(
        line, signature, traceback.phase, _rank(traceback.sender, ""), traceback.stamp, traceback.sender,
        "\n".join(traceback.frames), tuple(dict.fromkeys(at for at in details if at != line)), "\n".join(opened.text),
    )  # fmt: skip


def _rank(sender: str, text: str) -> int | None:
    found = RANK.search(sender) or NAMED_RANK.search(text[:300])
    return next((int(group) for group in found.groups() if group is not None), None) if found else None
