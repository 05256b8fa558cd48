"""Runs sittings of one campaign that die, for the tests beside: `python dying.py CAMPAIGN DIED`.

It reads one line of JSON a sitting: `{"words": ["continue"]}`, `["answer", ID, TEXT]` or `["handoff"]`. Each runs in a process
of its own, which kills itself with SIGKILL at the first place that DIED, a file with a place a line, does not name yet. After
every death that place is in it, so that sitting after sitting dies once at every place there is and then comes through. The
reply is a line of JSON: `status` as of `os.waitpid`, and `place` or null.

Places are every journal append, the effects that a result is not recorded of yet, and within an effect every process that is
started, every file that is opened for writing, moved or removed, and some of the connections (as CPython's audit events tell).
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

from optagent.agent.commands.answering import give_answer
from optagent.agent.commands.handing_off import handle_handoff
from optagent.agent.commands.workspace import Silent, find_workspace, live, open_session
from optagent.agent.graph import build
from optagent.agent.sitting import run_sitting
from optagent.tools.calls.base import EffectRequest, Request, Result
from optagent.tools.journal_store import Draft, Entry, JournalStore
from optagent.tools.lock import hold
from optagent.tools.processes import all_processes, mark_of
from optagent.tools.routed import RoutedToolbox
from optagent.tools.toolbox import Toolbox

R = TypeVar("R", bound=Result)
UNTIDY = 70
"""Exit status of a sitting that decided before everything was put back."""
CONNECTIONS = {1, 4}
"""Which connections of a benchmark or an examination are places to die at."""
WRITES = os.O_WRONLY | os.O_RDWR


class Fate:
    """Decides where this process dies."""

    def __init__(self, died: Path) -> None:
        self._died = died
        self._known = set(died.read_text().splitlines()) if died.exists() else set()
        self._doing, self._seen = "", Counter[str]()

    def here(self, place: str) -> None:
        """Die, unless somebody died here before."""
        place = neutral(place)
        if place in self._known:
            return
        self._doing = ""  # writing it down is no place
        with self._died.open("a") as file:
            file.write(place + "\n")
        os.kill(os.getpid(), signal.SIGKILL)

    def during(self, doing: str) -> None:
        """From now on each event is a place; "" for none any more."""
        self._doing, self._seen = doing, Counter()

    def event(self, name: str, args: tuple[Any, ...]) -> None:
        """An audit event, of which CPython tells before it happens."""
        if not self._doing or (what := event_in_words(name, args)) is None:
            return
        self._seen[what] += 1
        count = self._seen[what]
        if name == "socket.connect" and count not in CONNECTIONS:
            return
        self.here(f"{self._doing}: {what} {count}")


def neutral(place: str) -> str:
    """The place without what differs each time: sittings, sequence numbers, pids, hashes, temporary names."""
    place = re.sub(r"\bS\d+\b", "S", place)
    place = re.sub(r"-(baseline|candidate)-\d+", r"-\1", place)  # of several launches alike, the first is enough
    place = re.sub(r"\b(optagent|simulation)-\w+", r"\1-*", place)
    place = re.sub(r"\b[0-9a-f]{8,}\b", "#", place)
    return re.sub(r"\b\d{2,}(\.\d+)?\b", "#", place)


def event_in_words(name: str, args: tuple[Any, ...]) -> str | None:
    if name == "subprocess.Popen":
        words = [w if isinstance(w, str) else os.fsdecode(w) for w in args[1]]
        git = next((w for w in words[1:] if re.fullmatch(r"[a-z][a-z-]+", w)), "") if "git" in words[0] else ""
        return f"starts {Path(words[0]).name} {git}".strip()
    if name == "open":
        path, mode, flags = args
        writes = any(c in mode for c in "wax+") if isinstance(mode, str) else bool(flags & WRITES)
        on_disk = isinstance(path, str | bytes | os.PathLike) and not os.fsdecode(path).startswith(("/dev/", "/proc/"))
        return f"writes {named(path)}" if writes and on_disk else None
    if name in ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.symlink", "sqlite3.connect"):
        return f"{name} {named(args[0])}"
    return name if name in ("socket.connect", "os.truncate") else None


def named(path: Any) -> str:
    path = Path(os.fsdecode(path)) if isinstance(path, str | bytes | os.PathLike) else Path("-")
    return f"{path.parent.name}/*{path.suffix if not path.suffix[1:].isdigit() else ''}"


class MortalJournal(JournalStore):
    """The journal; each entry may be the last this process writes."""

    fate: Fate
    root: Path

    def append_all(self, drafts: Sequence[Draft]) -> list[Entry]:
        if any(draft.kind == "decision" for draft in drafts):
            self._check_tidy()
        what = ", ".join(f"{d.kind} {d.body.get('tool', '')} {d.key or ''}" for d in drafts)
        last = self.last("experiment")
        what = f"{last.body['id'] if last else 'E0'} {what}"
        if any(draft.kind in ("result", "sitting-ended") for draft in drafts):
            self.fate.here(f"before {what}")
        entries = super().append_all(drafts)
        self.fate.here(f"after {what}")
        return entries

    def _check_tidy(self) -> None:
        """Whoever decides has cleaned up: no server, and the checkout as git knows it."""
        left = [pid for pid in all_processes() if (m := mark_of(pid)) and m.campaign == str(self.root)]
        checkout = self.root / ".optagent" / "simulation" / "checkout"
        git = subprocess.run(["git", "-C", checkout, "status", "--porcelain"], capture_output=True, text=True)
        if left or git.stdout:
            print("untidy", left, git.stdout, file=sys.stderr, flush=True)
            os._exit(UNTIDY)


class MortalToolbox(RoutedToolbox):
    """The toolbox; each event within an effect may be the last of this process."""

    def __init__(self, inner: Toolbox, fate: Fate) -> None:
        self._inner, self._fate = inner, fate

    def call(self, tool: str, request: Request, answers_with: type[R]) -> R:
        self._fate.during(tool if isinstance(request, EffectRequest) else "")
        result: R = getattr(self._inner, tool)(request)
        self._fate.during("")
        return result


def sit(root: Path, fate: Fate) -> int:
    """`optagent continue`, on a mortal journal and mortal tools."""
    space = find_workspace(root)
    MortalJournal.fate, MortalJournal.root = fate, space.root
    with (
        hold(space.root / ".optagent" / "lock", "continue"),
        MortalJournal.open(space.journal_path, create=True) as store,
    ):
        toolbox = MortalToolbox(live(space, Silent()), fate)
        session = open_session(space, store, toolbox, Silent())
        return run_sitting(session, space.checkpoints).exit_status


def run(words: list[str], root: Path, died: Path) -> int:
    """One command, in the process that may die of it."""
    fate = Fate(died)
    sys.addaudithook(fate.event)
    if words[0] == "continue":
        return sit(root, fate)
    fate.during(words[0])
    if words[0] == "answer":
        return give_answer(root, words[1], words[2], as_json=True)
    return handle_handoff(root, None, write=True, check=False, full=False, as_json=True)


def main(root: Path, died: Path) -> None:
    build()  # what is imported slowly is imported once
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        words = json.loads(line)["words"]
        before = died.read_text() if died.exists() else ""
        if not (child := os.fork()):
            status = 1
            try:
                status = run(words, root, died)
            except BaseException as error:  # noqa: BLE001 - the outermost edge of this process
                print(f"{type(error).__name__}: {error}", file=sys.stderr)
            finally:
                sys.stderr.flush()
                os._exit(status)
        _, status = os.waitpid(child, 0)
        place = (died.read_text() if died.exists() else "")[len(before) :].strip() or None
        replies.write(json.dumps({"status": os.waitstatus_to_exitcode(status), "place": place}) + "\n")
        replies.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
