"""`optagent diagnose`: what a server's log says, for scripts and for a person at 3 a.m."""

from __future__ import annotations

import json
import os
import sys
import textwrap
import time
from datetime import datetime
from io import BufferedReader
from pathlib import Path

from optagent.agent.commands.printable import clean, clip
from optagent.agent.errors import BadInput
from optagent.tools.calls.logs import Action, Cause, LogReading
from optagent.tools.logs import DAMAGED, PIECE_BYTES, LogReader, Readable, opened, read_whole

WIDTH = 80
PROOF_LINES = 3
PROOF_CHARACTERS = 200
LOOK_EVERY_S = 0.3
SAY_EVERY_S = 10.0
ENDED = ("ready", "crashed", "hung", "stopped")
CONTRACT = {"status", "phase", "cause", "warnings", "action", "retryable", "confidence"}
ADVICE_FOR = {"wait": "nothing is wrong, give it time", "none": "nothing to do"}


def diagnose_log(log: str, *, now: str | None, as_json: bool, follow: bool) -> int:
    """Exit status 0: a diagnosis was given, whatever it says. Raises BadInput for what is no log of an SGLang server."""
    clock = _clock(now)
    reading = _follow(log, quiet=as_json) if follow else _read(log, clock)
    if as_json:
        print(json.dumps(reading.model_dump(include=CONTRACT), ensure_ascii=False))
    else:
        print("\n".join(screen(reading)))
    return 0


def _clock(now: str | None) -> datetime | None:
    if now is None:
        return None
    try:
        return datetime.fromisoformat(now).replace(tzinfo=None)
    except ValueError:
        raise BadInput("--now", f"expected a time like 2026-03-14T09:30:00, and not {now!r}") from None


def _read(log: str, now: datetime | None) -> LogReading:
    if log == "-":
        return _whole(log, sys.stdin.buffer, now, None)
    path = Path(log)
    try:
        with opened(path) as file:
            return _whole(log, file, now, _silence_of(path) if now is None else None)
    except DAMAGED as error:
        raise BadInput(log, f"this compressed log is damaged or cut short: {error}") from None
    except OSError as error:
        raise _unreadable(log, error) from None


def _whole(log: str, file: Readable, now: datetime | None, silent_s: float | None) -> LogReading:
    reader = LogReader()
    read_whole(file, reader)
    reader.finish()
    if reader.blank:
        return LogReading(action=Action(kind="wait", summary="nothing written yet"), confidence="low")
    return _of_a_server(log, reader, reader.reading(None, now, silent_s))


def _of_a_server(log: str, reader: LogReader, reading: LogReading) -> LogReading:
    if reader.blank or reader.recognised:
        return reading
    raise BadInput(
        "standard input" if log == "-" else log, "no SGLang server's log: none of its lines is one that a server writes"
    )


def _silence_of(path: Path) -> float | None:
    """For how long the file has not grown. Of a copy or an archive that would tell nothing, but those look alike."""
    return None if path.suffix == ".gz" else max(0.0, time.time() - path.stat().st_mtime)


def _unreadable(log: str, error: OSError) -> BadInput:
    return BadInput(log, f"this log cannot be read: {error.strerror or error}")


def _follow(log: str, quiet: bool) -> LogReading:
    """Read on as the log grows, until the launch is ready, has crashed, hangs or was stopped."""
    if log == "-":
        with os.fdopen(sys.stdin.fileno(), "rb", closefd=False) as piped:
            return _until_settled(log, piped, ends=True, quiet=quiet)
    try:
        with Path(log).open("rb") as file:
            return _until_settled(log, file, ends=False, quiet=quiet)
    except OSError as error:
        raise _unreadable(log, error) from None


def _until_settled(log: str, file: BufferedReader, ends: bool, quiet: bool) -> LogReading:
    reader, teller = LogReader(), _Teller(quiet)
    grown = time.monotonic()
    while True:
        if piece := file.read1(PIECE_BYTES):
            reader.feed(piece)
            grown = time.monotonic()
            continue
        reading = reader.reading(alive=None, silent_s=time.monotonic() - grown)
        teller.tell(reading)
        if reading.status in ENDED or ends:
            reader.finish()
            teller.end()
            return _of_a_server(log, reader, reader.reading(alive=None, silent_s=time.monotonic() - grown))
        time.sleep(LOOK_EVERY_S)


class _Teller:
    """Says how far the launch is: one line that is written over in a terminal, few lines elsewhere."""

    def __init__(self, quiet: bool) -> None:
        self._quiet, self._live = quiet, sys.stdout.isatty()
        self._said, self._phase, self._said_at = "", "", 0.0

    def tell(self, reading: LogReading) -> None:
        text = clip(f"{reading.status}, {reading.phase}: {reading.last_progress.strip()}", WIDTH - 1)
        if self._quiet or text == self._said:
            return
        now = time.monotonic()
        if self._live:
            print(f"\r{text:<{WIDTH - 1}}", end="", flush=True)
        elif reading.phase != self._phase or now - self._said_at >= SAY_EVERY_S:
            print(text, flush=True)
        else:
            return
        self._said, self._phase, self._said_at = text, reading.phase, now

    def end(self) -> None:
        if self._live and not self._quiet:
            print()


def screen(reading: LogReading) -> list[str]:
    """What happened, the lines that prove it, what to do, and what not to believe; at most 80 columns."""
    return [
        _headline(reading),
        *_part("What happened", _happened(reading)),
        *_part("What proves it", [line for cause in _told(reading) for line in _proof(cause)]),
        *_part("What to do", _to_do(reading)),
        *_part("Do not believe", _wrapped_all(reading.disbelieve)),
    ]


def _headline(reading: LogReading) -> str:
    status = reading.status.upper()
    if reading.status == "ready":
        kinds = ", ".join(w.kind for w in reading.warnings)
        return f"{status}, but not right: {kinds}" if kinds else f"{status}: it serves, and nothing looks wrong"
    if reading.status in ("starting", "stopped"):
        return f"{status}, in {reading.phase}" if reading.status == "starting" else f"{status}: it was asked to stop"
    kind = reading.cause.kind if reading.cause else "unknown"
    rank = reading.cause.rank if reading.cause else None
    where = "" if rank is None else f", rank {rank}"
    return clip(f"{status} in {reading.phase}{where}: {kind} (confidence {reading.confidence})", WIDTH)


def _happened(reading: LogReading) -> list[str]:
    if reading.warnings:
        return _wrapped_all([w.summary for w in reading.warnings])
    if reading.explained:
        return _wrapped_all([reading.explained])
    if reading.cause is not None:
        return _wrapped_all([reading.cause.summary])
    return [clip(f"  {clean(reading.last_progress).strip()}", WIDTH)] if reading.last_progress else []


def _told(reading: LogReading) -> list[Cause]:
    return [reading.cause] if reading.cause else list(reading.warnings)


def _proof(cause: Cause) -> list[str]:
    """The first lines of the evidence with their numbers; of a very long one the beginning."""
    shown = []
    for evidence in cause.evidence[:PROOF_LINES]:
        said = clip(clean(evidence.text).strip(), PROOF_CHARACTERS)
        shown += textwrap.wrap(said, WIDTH, initial_indent=f"  {evidence.line:>6}  ", subsequent_indent=" " * 10)
    return shown


def _to_do(reading: LogReading) -> list[str]:
    if reading.action is None:
        return []
    said = [f"{reading.action.kind}: {reading.action.summary or ADVICE_FOR.get(reading.action.kind, '')}"]
    if reading.status in ("crashed", "hung"):
        said.append("The same launch may go further when it is tried again." if reading.retryable
                    else "The same launch will fail again.")  # fmt: skip
    return _wrapped_all(said)


def _wrapped_all(texts: list[str]) -> list[str]:
    return [line for text in texts for line in textwrap.wrap(
        clean(text), WIDTH, initial_indent="  ", subsequent_indent="    ", break_long_words=True,
    )]  # fmt: skip


def _part(title: str, lines: list[str]) -> list[str]:
    return ["", title, *lines] if lines else []
