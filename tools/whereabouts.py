"""Where a sitting is: a small file that the running process writes and that other processes read.

It holds the present alone and is written over, at most about once a second, so that waiting for days leaves nothing behind.
Whether it tells of a living process is for the campaign's lock to say (`tools/lock.py`), since the file outlives whoever
was killed. A sitting that ends writes how.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from optagent.tools.lock import Holder, this_boot
from optagent.tools.paths import STATE
from optagent.tools.redact import redact_json

EVERY_S = 1.0
LONGEST = 300
"""Characters of any text in it."""
REMEMBERED = 20

PHASES = {
    "launch": "launch", "bench": "benchmark", "examine": "gate", "evaluate": "gate", "probe": "look", "read_log": "look",
    "list_flags": "look", "prepare_environment": "environment", "install_files": "environment", "apply_patch": "checkout",
    "keep_patch": "checkout", "drop_patch": "checkout", "restore_checkout": "checkout", "stop": "stop", "write_text": "write",
}  # fmt: skip
"""The phase that a tool's call is; between the calls it is "decide"."""
WAITED_FOR = frozenset({"launch", "benchmark", "gate"})
"""Phases in which the server is what is waited for."""
TWICE = "bench, twice"
"""The kind of a benchmark that puts its load on twice, and discards the first."""


def whereabouts_of(root: Path) -> Path:
    return root / STATE / "now.json"


class Whereabouts:
    """Publishes where this process is. It is told what a narrator is told, and which tool is at work.

    Nothing here ever fails: what cannot be written (a full disk) is left out, and written when it can be.
    """

    def __init__(self, path: Path, holder: Holder, detached: bool) -> None:
        self._path = path
        self._lock = threading.RLock()  # the handler of a signal may tell something while the main thread does
        self._took: dict[str, list[float]] = {}
        self._began, self._written_at, self._changed = 0.0, float("-inf"), True
        self._parts = 0
        self._now: dict[str, Any] = {
            "pid": holder.pid, "start_ticks": holder.start_ticks, "boot_id": holder.boot_id, "host": holder.host,
            "detached": detached, "sitting": "", "began": _utc(), "step": "", "state": "works", "phase": "decide",
            "doing": "starting", "detail": "", "log": None, "since": _utc(), "since_s": time.monotonic(), "usual_s": None,
            "asked_to_end": None, "ended": None,
        }  # fmt: skip
        self._done = threading.Event()
        self._ticker = threading.Thread(target=self._tick, daemon=True)

    def __enter__(self) -> Whereabouts:
        self._write()
        self._ticker.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._ticker.join()

    def remember(self, sitting: str, took: Mapping[str, list[float]]) -> None:
        """The sitting's name, and how many seconds earlier calls took, by their kind."""
        self._took = {kind: list(each) for kind, each in took.items()}
        self._change(sitting=sitting)

    def tell(self, what: str, text: str) -> None:
        if what == "step":
            self._change(step=text)

    def now(self, text: str) -> None:
        self._change(doing=text, detail="", since=_utc(), since_s=time.monotonic(), usual_s=None)

    def detail(self, text: str) -> None:
        self._change(detail=text)

    @contextmanager
    def calling(self, tool: str, kind: str, log: str | None) -> Iterator[None]:
        """A tool is at work, on a call of this kind; `log` is the file it writes to while it is."""
        phase = PHASES.get(tool)
        if phase is None:
            yield
            return
        waits = phase in WAITED_FOR
        since = {"since": _utc(), "since_s": time.monotonic()} if waits else {}
        usual_s = self._usual_s(kind) if waits else None
        self._change(phase=phase, state="waits" if waits else "works", log=log, usual_s=usual_s, **since)
        try:
            yield
        finally:
            self._change(phase="decide", state="works", detail="", log=None, usual_s=None)

    def _usual_s(self, kind: str) -> float | None:
        took = self._took.get(kind) or [2 * once for once in self._took.get("bench", []) if kind == TWICE]
        return round(median(took), 1) if took else None

    def took(self, kind: str, seconds: float) -> None:
        """A call of this kind came to its end."""
        self._took[kind] = [*self._took.get(kind, [])[1 - REMEMBERED :], seconds]

    def asked_to_end(self, by: str) -> None:
        self._change(asked_to_end=by)
        self._write()

    def ended(self, how: Mapping[str, Any]) -> None:
        """The last word: how the sitting ended, with its `exit_status`."""
        self._done.set()
        self._change(
            state="ended", phase="ended", doing="", detail="", log=None, usual_s=None, ended={"at": _utc(), **how}
        )
        self._write()

    @property
    def doing(self) -> str:
        return str(self._now["doing"])

    def _change(self, **what: Any) -> None:
        with self._lock:
            if self._now["ended"] is not None:
                return
            self._now.update(what)
            self._changed = True
            if time.monotonic() - self._written_at >= EVERY_S:
                self._write()

    def _write(self) -> None:
        with self._lock, suppress(OSError):
            self._changed, self._written_at = False, time.monotonic()
            self._parts += 1
            part = self._path.with_name(f".{self._path.name}.{os.getpid()}-{self._parts}.part")
            try:
                part.parent.mkdir(parents=True, exist_ok=True)
                part.write_text(json.dumps(_bounded(redact_json(self._now)), ensure_ascii=False), encoding="utf-8")
                part.replace(self._path)
            except OSError:
                self._changed = True
                part.unlink(missing_ok=True)
                raise

    def _tick(self) -> None:
        while not self._done.wait(EVERY_S):
            if self._changed:
                self._write()


def read_whereabouts(path: Path) -> dict[str, Any] | None:
    """What was published last, None when there is nothing that can be read."""
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and isinstance(found.get("pid"), int) else None


def is_of(now: Mapping[str, Any], holder: Holder | None) -> bool:
    """Whether this was published by the process that holds the campaign."""
    if holder is None:
        return False
    return all(now.get(name) == getattr(holder, name) for name in ("pid", "start_ticks", "boot_id", "host"))


def elapsed_s(now: Mapping[str, Any]) -> float:
    """For how long the present has lasted, by the clock that nobody sets; on another machine, by the other one."""
    if now.get("boot_id") != this_boot():
        with suppress(ValueError, TypeError):
            return max(0.0, (datetime.now(UTC) - datetime.fromisoformat(now["since"])).total_seconds())
    since = now.get("since_s")
    return max(0.0, time.monotonic() - since) if isinstance(since, int | float) else 0.0


def left_s(now: Mapping[str, Any]) -> float | None:
    """How long it will still take, as earlier calls did; negative when it takes longer than usual, None when unknown."""
    usual = now.get("usual_s")
    return usual - elapsed_s(now) if isinstance(usual, int | float) else None


def _bounded(value: Any) -> Any:
    if isinstance(value, str):
        return value if len(value) <= LONGEST else value[: LONGEST - 1] + "…"
    if isinstance(value, Mapping):
        return {k: _bounded(v) for k, v in value.items()}
    return [_bounded(v) for v in value] if isinstance(value, list | tuple) else value


def _utc() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
