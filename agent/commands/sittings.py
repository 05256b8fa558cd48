"""How the sitting of a campaign stands: at work, ended, or killed without a word. For status, attach and stop."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from optagent.agent.commands.narration import duration
from optagent.agent.commands.printable import clean
from optagent.tools.lock import Holder, holder
from optagent.tools.paths import STATE
from optagent.tools.process_notes import left_running, notes_of
from optagent.tools.whereabouts import elapsed_s, is_of, left_s, read_whereabouts, whereabouts_of


@dataclass(frozen=True)
class Seen:
    """`holder` has the campaign now, whatever it does. `now` is what the latest sitting published, None before the first;
    `at_work` says whether that one is the holder. `left` are the servers that a killed one left running."""

    holder: Holder | None
    now: Mapping[str, Any] | None
    at_work: bool
    left: tuple[int, ...] = ()

    @property
    def killed(self) -> bool:
        """Whether the latest sitting ended without a word."""
        return self.now is not None and not self.at_work and not self.now.get("ended")


def look_at_sitting(root: Path) -> Seen:
    """Raises LockUnusable."""
    lock = root / STATE / "lock"
    before = read_whereabouts(whereabouts_of(root))
    found = holder(lock) if lock.exists() else None
    # Read once more: whoever has let go of the lock in between has said how it ended before.
    now = read_whereabouts(whereabouts_of(root)) or before
    seen = Seen(found, now, now is not None and is_of(now, found))
    return replace(seen, left=tuple(left_running(notes_of(root)))) if seen.killed else seen


def present(now: Mapping[str, Any]) -> dict[str, Any]:
    """What a sitting at work does, for screens and scripts."""
    names = (
        "sitting",
        "pid",
        "detached",
        "began",
        "step",
        "state",
        "phase",
        "doing",
        "detail",
        "log",
        "since",
        "usual_s",
    )
    left = left_s(now)
    return {name: now.get(name) for name in (*names, "asked_to_end")} | {
        "elapsed_s": round(elapsed_s(now), 1),
        "left_s": None if left is None else round(left, 1),
    }


def present_lines(seen: Mapping[str, Any]) -> list[str]:
    """`present` in a few lines: what is done and for how long, how long still, how far it is, the log."""
    verb = "waiting for" if seen["state"] == "waits" else "at work for"
    left = f", {told}" if (told := expected(seen)) else ""
    lines = [f"{verb} {duration(seen['elapsed_s'])}{left}: {clean(str(seen['doing']))}"]
    if seen["asked_to_end"]:
        lines.append(f"{clean(str(seen['asked_to_end']))}: ending at the next safe point")
    if seen["detail"]:
        lines.append(clean(str(seen["detail"])))
    if seen["log"]:
        lines.append(clean(str(seen["log"])))
    return lines


def expected(seen: Mapping[str, Any]) -> str:
    """How long it will still take by what earlier ones of its kind did, "" when that is not known."""
    if seen["left_s"] is None:
        return ""
    return f"about {duration(seen['left_s'])} left" if seen["left_s"] >= 1 else f"usually {duration(seen['usual_s'])}"


def end_line(seen: Seen) -> str:
    """How the latest sitting ended, in a line."""
    now = seen.now
    assert now is not None
    name = clean(str(now.get("sitting") or "the last sitting"))
    if seen.killed:
        left = f", and stops what it left running (pid {', '.join(map(str, seen.left))})" if seen.left else ""
        doing = clean(str(now.get("doing")))
        name += f" (pid {now['pid']})"
        return f"{name} was killed while it was at: {doing}; nothing is lost: `optagent continue` goes on{left}"
    ended = now.get("ended") or {}
    return f"{name} ended {ended.get('at', '')}, exit status {ended.get('exit_status')}: {clean(str(ended.get('because')))}"


def exit_status_of(seen: Seen) -> int:
    """What the latest sitting ended with; 1 when it was killed."""
    status = ((seen.now or {}).get("ended") or {}).get("exit_status")
    return status if isinstance(status, int) else 1
