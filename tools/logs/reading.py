"""From what is known of a run to what is said about it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from optagent.tools.calls.logs import Action, EvidenceLine, LogReading, Phase, Status
from optagent.tools.calls.logs import Cause as ToldCause
from optagent.tools.logs.advice import advise, worth_a_retry
from optagent.tools.logs.candidates import Finding
from optagent.tools.logs.causality import Cause, alike, first_cause
from optagent.tools.logs.cutting import Line
from optagent.tools.logs.ready import warnings_of
from optagent.tools.logs.run import Run
from optagent.tools.logs.signature import Weight
from optagent.tools.logs.silence import allowed_silence_s, hung_because, minutes
from optagent.tools.logs.unwrapping import STAMP

EVIDENCE_CHARACTERS = 400
MOST_EVIDENCE = 4
Confidence = Literal["high", "medium", "low"]


def reading_of(run: Run, alive: bool | None, silent: float | None) -> LogReading:
    """What is said about `run`: its status first, and all else by it."""
    findings = run.candidates.findings()
    status, because = _status(run, findings, alive, silent)
    if status == "crashed":
        return _crashed(run, findings)
    if status == "hung":
        return _hung(run, because or "")
    if status == "ready":
        return _ready(run, findings)
    action = Action(kind="wait", summary=_waiting_for(run, silent)) if status == "starting" else None
    return _told(run, status, run.phase, action=action)


def _status(
    run: Run, findings: Sequence[Finding], alive: bool | None, silent: float | None
) -> tuple[Status, str | None]:
    if run.stopped and not (alive and not run.dead):
        return "stopped", None
    if run.dead or alive is False:
        return "crashed", None
    ended_in_exception = any(f.signature.weight <= Weight.DEATH for f in findings)
    if alive is None and not run.ready and ended_in_exception:
        return "crashed", None
    if silent is not None and (because := hung_because(run, silent)) is not None:
        return "hung", because
    return ("ready", None) if run.ready else ("starting", None)


def _crashed(run: Run, findings: Sequence[Finding]) -> LogReading:
    cause = first_cause(findings, run.arguments)
    if cause is None:
        told = ToldCause(
            kind="unknown", summary="it ended without saying why", evidence=_shown(list(run.last_lines)[-1:])
        )
        action = Action(kind="ask", summary="look at the exit status, at dmesg, and at the logs of the other ranks")
        return _told(run, "crashed", run.phase, told, action, confidence="low")
    finding = cause.finding
    where = "" if finding.rank is None else f" on rank {finding.rank}"
    lines = [finding.line, *finding.details, *(f.line for f in alike(findings, cause))]
    told = ToldCause(
        kind=cause.kind, summary=f"{cause.kind} during {finding.phase}{where}: {_said(finding.line)}", rank=finding.rank,
        evidence=_shown(lines),
    )  # fmt: skip
    action = advise(cause, run)
    return _told(
        run, "crashed", finding.phase, told, action, retryable=worth_a_retry(cause, action),
        confidence=_confidence(cause), explained=cause.explained, disbelieve=_disbelieved(run, cause.signature.hints),
    )  # fmt: skip


def _hung(run: Run, because: str) -> LogReading:
    health = list(run.serving.failing_health)
    lines = health or list(run.last_lines)
    told = ToldCause(kind="hang", summary=because, evidence=_shown(lines))
    action = Action(
        kind="restart", summary="take a stack of every rank (py-spy dump), then kill what is left and start again"
    )
    return _told(
        run, "hung", run.phase, told, action, retryable=True, confidence="high" if health else "medium",
        disbelieve=_disbelieved(run, ""),
    )  # fmt: skip


def _ready(run: Run, findings: Sequence[Finding]) -> LogReading:
    warned = warnings_of(run, findings)
    told = [ToldCause(kind=w.kind, summary=w.summary, evidence=_shown(w.lines)) for w in warned]
    reading = _told(run, "ready", "serving", action=warned[0].action if warned else None)
    return reading.model_copy(update={"warnings": told})


def _told(
    run: Run, status: Status, phase: Phase, cause: ToldCause | None = None, action: Action | None = None,
    retryable: bool = False, confidence: Confidence = "high", explained: str = "", disbelieve: Sequence[str] = (),
) -> LogReading:  # fmt: skip
    return LogReading(
        status=status, phase=phase, cause=cause, action=action, retryable=retryable, confidence=confidence,
        last_progress=run.last_progress, kv_tokens=run.kv_tokens, kv_gb=run.kv_gb, weights_gb=run.weights_gb,
        context_len=run.context_len,
        explained=explained, disbelieve=list(disbelieve),
    )  # fmt: skip


def _waiting_for(run: Run, silent: float | None) -> str:
    done = f" at {run.bar.percent} %" if run.bar is not None else ""
    since = f", last sign {minutes(silent)} ago" if silent is not None and silent >= 1 else ""
    patience = f"; hung after {minutes(allowed_silence_s(run))} of silence"
    return f"nothing is wrong: {run.phase}{done}{since}{patience}"


def _shown(lines: Iterable[Line]) -> list[EvidenceLine]:
    distinct = {line.number: line for line in reversed(list(lines))}
    order = list(dict.fromkeys(line.number for line in lines))
    return [EvidenceLine(line=n, text=distinct[n].text[:EVIDENCE_CHARACTERS]) for n in order[:MOST_EVIDENCE]]


def _said(line: Line) -> str:
    found = STAMP.search(line.text)
    return (line.text[found.end() :] if found else line.text)[:200].strip()


def _confidence(cause: Cause) -> Confidence:
    if cause.signature.weight >= Weight.UNKNOWN:
        return "low"
    return "medium" if cause.hinted or cause.signature.weight is Weight.GENERAL else "high"


def _disbelieved(run: Run, hints: str) -> list[str]:
    said = [f"it does not show {hints}" if hints.startswith("that ") else f"this is not about {hints}"] if hints else []
    return said + [f"line {line.number}: {text}" for text, line in run.misleading.items()]
