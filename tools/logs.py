"""Reads a server's log as it grows: how far the launch is, and if it failed, the first cause.

The knowledge stands in `log_signatures`; here is only how a log is read. Whatever bytes come, a reading comes out, and
where the log does not tell, the reading says so.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from optagent.tools.calls.logs import PHASES, Action, Cause, EvidenceLine, LogReading, Phase, Status
from optagent.tools.log_lines import Line, LineCutter
from optagent.tools.log_signatures import (
    BAR,
    DEATH,
    GPU_OOM,
    PHASE_MARKS,
    SIGNATURES,
    STOP,
    UNKNOWN,
    WRAPPERS,
    Signature,
    Weight,
    oom_kind,
)

PIECE_BYTES = 1024 * 1024
MOST_FINDINGS = 64
EVIDENCE_CHARACTERS = 400

PREFIX = re.compile(r"(?:^|(?<=[\]s|/ ]))\[(\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d+)?)((?: [A-Z_]+\d+)*)\] ?")
RANK = re.compile(r"\bTP(\d+)")
TORCH_RANK = re.compile(r"^\[rank(\d+)\]:")
COLLECTOR = re.compile(r"^[\w.-]+ +\| ?")
EXCEPTION = re.compile(r"^(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?=:|$)")
KV_TOKENS = re.compile(r"max_total_num_tokens=(\d+)|KV Cache is allocated.*#tokens: (\d+)")
CONTEXT = re.compile(r"\bcontext_len=(\d+)")
SUSPICIOUS = re.compile(
    r"[Ee]rror|ERROR|xception|[Tt]imeout|[Kk]illed|[Ff]ail|[Oo]ut of memory|sig[qt]|SIG[QT]|[Gg]raceful|crashed"
    r"|dead|died|Traceback|Assert|WARN|too old|leak|terminate|Bus|Segment|[Ww]atchdog|probability|Shutting"
    r"|Exit code|insufficient"
)


@dataclass(frozen=True)
class Finding:
    """A line that may be the cause, with the rank it came from and the phase that rank was in."""

    line: Line
    rank: int | None
    phase: Phase
    signature: Signature

    @property
    def weight(self) -> Weight:
        return self.signature.weight


@dataclass
class Run:
    """What the log has told about one run of the server."""

    phases: dict[str, Phase] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    ready: bool = False
    dead: bool = False
    stopped: bool = False
    last_line: Line | None = None
    last_progress: str = ""
    kv_tokens: int | None = None
    context_len: int | None = None
    settings_seen: bool = False


class LogReader:
    """Takes a log piece by piece; `reading` may be asked for at any time."""

    def __init__(self) -> None:
        self._cutter = LineCutter()
        self._run = Run()
        self._header_rank: str = ""
        self._in_traceback = False
        self._in_message = 0

    def feed(self, data: bytes) -> None:
        for line in self._cutter.feed(data):
            self._take(line)

    def finish(self) -> None:
        """Take what stands behind the last newline as a line; nothing is to follow."""
        for line in self._cutter.finish():
            self._take(line)

    def reading(self, alive: bool | None) -> LogReading:
        """Where the last run stands, given whether its process still lives."""
        run, status = self._run, self._status(alive)
        cause = self._cause() if status == "crashed" else None
        signature = cause.signature if cause else UNKNOWN
        bar = self._cutter.unfinished()
        return LogReading(
            status=status,
            phase=cause.phase if cause else self._phase(),
            cause=self._told(cause) if status == "crashed" else None,
            action=_action(status, signature, run),
            retryable=status == "crashed" and signature.retryable,
            confidence=_confidence(status, cause),
            last_progress=bar[-160:] if BAR.search(bar) else run.last_progress,
            kv_tokens=run.kv_tokens,
            context_len=run.context_len,
        )

    @property
    def http_port_taken(self) -> bool:
        """Whether the server found its HTTP port taken. Its process may well live on after that."""
        return any(f.signature.kind == "port-in-use" and "Errno 98" in f.line.text for f in self._run.findings)

    def _take(self, line: Line) -> None:
        text = COLLECTOR.sub("", line.text, count=1)
        prefix = PREFIX.search(text)
        message = text[prefix.end() :] if prefix else text
        rank = prefix.group(2).strip() if prefix else ""
        if not message:
            self._in_message = 0
            return
        if message.startswith(("server_args=", "Server args:")):
            self._open_run()
        self._run.last_line = line
        self._note_progress(message, rank)
        if message.startswith(("Decode batch", "Prefill batch", "server_args=")):
            return
        self._note_trouble(line, message, rank, prefixed=prefix is not None)

    def _open_run(self) -> None:
        if self._run.settings_seen:
            self._run = Run()
        self._run.settings_seen = True

    def _note_progress(self, message: str, rank: str) -> None:
        run = self._run
        for mark, phase in PHASE_MARKS:
            if mark in message:
                run.phases[rank if phase not in ("warmup", "serving") else ""] = phase
                run.ready = run.ready or phase == "serving"
                run.last_progress = message[:160]
                break
        else:
            if BAR.search(message):
                run.last_progress = message[-160:]
        if "tokens" in message and (tokens := KV_TOKENS.search(message)):
            run.kv_tokens = int((tokens.group(1) or tokens.group(2))[:15])
        if "context_len=" in message and (context := CONTEXT.search(message)):
            run.context_len = int(context.group(1)[:15])

    def _note_trouble(self, line: Line, message: str, rank: str, prefixed: bool) -> None:
        if prefixed:
            self._in_message = 0
        if not self._in_message and not self._in_traceback and not SUSPICIOUS.search(message):
            return
        if STOP.search(message):
            self._run.stopped = self._run.stopped or not self._run.dead
        if DEATH.search(message):
            self._run.dead = True
        if "Traceback (most recent call last)" in message:
            self._in_traceback = True
            self._header_rank = rank if prefixed else self._header_rank
            return
        exception = not prefixed and self._in_traceback and EXCEPTION.match(message) is not None
        if exception:
            self._in_traceback, self._in_message = False, 40
        elif self._in_message:
            self._in_message -= 1
        self._weigh(line, message, rank if prefixed else self._header_rank, exception)

    def _weigh(self, line: Line, message: str, rank: str, exception: bool) -> None:
        told_by_exception = exception or self._in_message > 0
        signature = next(
            (s for s in SIGNATURES if (s.anywhere or told_by_exception) and s.pattern.search(message)),
            UNKNOWN if exception else None,
        )
        if signature is None or len(self._run.findings) >= MOST_FINDINGS:
            return
        torch_rank = TORCH_RANK.match(message)
        number = torch_rank or RANK.search(rank)
        self._run.findings.append(
            Finding(line, int(number.group(1)[:6]) if number else None, self._phase_of(rank), signature)
        )

    def _phase(self) -> Phase:
        """The phase of the least advanced rank, unless the parent is past them all."""
        parent = self._run.phases.get("", "arguments")
        ranks = [phase for rank, phase in self._run.phases.items() if rank]
        if not ranks or PHASES.index(parent) >= PHASES.index("warmup"):
            return parent
        return min(ranks, key=PHASES.index)

    def _phase_of(self, rank: str) -> Phase:
        parent = self._run.phases.get("", "arguments")
        if PHASES.index(parent) >= PHASES.index("warmup"):
            return parent
        return self._run.phases.get(rank) or self._phase()

    def _status(self, alive: bool | None) -> Status:
        run = self._run
        if run.stopped and not (alive and not run.dead):
            return "stopped"
        if run.dead or alive is False:
            return "crashed"
        if run.ready:
            return "ready"
        ended_in_exception = bool(run.findings) and alive is None and not run.ready
        return "crashed" if ended_in_exception else "starting"

    def _cause(self) -> Finding | None:
        findings = [_settled(f) for f in self._run.findings]
        return min(findings, key=lambda f: (f.weight, f.line.number), default=None)

    def _told(self, cause: Finding | None) -> Cause:
        if cause is None:
            last = [_evidence(self._run.last_line)] if self._run.last_line else []
            return Cause(kind="unknown", summary="it ended without saying why", evidence=last)
        kind = _kind(cause)
        others = [f for f in self._run.findings if f.line != cause.line and f.signature == cause.signature]
        evidence = [_evidence(finding.line) for finding in [cause, *others]]
        return Cause(kind=kind, summary=_summary(cause), rank=cause.rank, evidence=evidence[:4])


def read_log(path: Path, alive: bool | None) -> LogReading:
    """What the log at `path` says. Never raises for what stands in it; a log that cannot be opened does not exist."""
    reader = LogReader()
    try:
        with path.open("rb") as file:
            while piece := file.read(PIECE_BYTES):
                reader.feed(piece)
    except OSError:
        return LogReading(exists=False)
    reader.finish()
    return reader.reading(alive)


def _settled(finding: Finding) -> Finding:
    """A wrapper that no signature knows explains less than anything that comes without one."""
    if finding.signature is UNKNOWN and WRAPPERS.search(finding.line.text):
        return Finding(finding.line, finding.rank, finding.phase, WRAPPED)
    return finding


WRAPPED = Signature(UNKNOWN.pattern, UNKNOWN.kind, UNKNOWN.action, UNKNOWN.remedy, Weight.WRAPPER)


def _evidence(line: Line) -> EvidenceLine:
    return EvidenceLine(line=line.number, text=line.text[:EVIDENCE_CHARACTERS])


def _kind(finding: Finding) -> str:
    return oom_kind(finding.phase) if finding.signature.kind == GPU_OOM else finding.signature.kind


def _summary(finding: Finding) -> str:
    where = "" if finding.rank is None else f" on rank {finding.rank}"
    said = PREFIX.sub("", finding.line.text)
    return f"{_kind(finding)} during {finding.phase}{where}: {said[:200]}"


def _action(status: Status, signature: Signature, run: Run) -> Action | None:
    if status == "starting":
        return Action(kind="wait", summary=run.last_progress or "it has only begun")
    if status == "crashed":
        return Action(kind=signature.action, summary=signature.remedy)
    return None


def _confidence(status: Status, cause: Finding | None) -> Literal["high", "medium", "low"]:
    if status != "crashed":
        return "high"
    if cause is None or cause.weight in (Weight.DEATH, Weight.WRAPPER):
        return "low"
    return "high" if cause.weight is Weight.SPECIFIC else "medium"
