"""`optagent replay --until N --then PLANNER`: what another planner, or another plan, does from there."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from itertools import zip_longest
from pathlib import Path
from typing import Any

from optagent.agent.branch import Course, StepTaken, course_of
from optagent.agent.branching import Branch, lay_out
from optagent.agent.commands.interrupting import signals_interrupt
from optagent.agent.commands.narration import narrator_for
from optagent.agent.commands.printable import clean, clip
from optagent.agent.commands.replaying import read_otherwise, session_recording
from optagent.agent.commands.workspace import Silent, Workspace, live, open_session
from optagent.agent.errors import BadInput
from optagent.agent.experiments import BASELINE
from optagent.agent.ledger_view import keep_view
from optagent.agent.planners import PLANNERS
from optagent.agent.replay import Replayed, recorded_journal, replay
from optagent.agent.session import LedgerJournal, Narrator, Session
from optagent.agent.sitting import run_sitting
from optagent.tools.errors import RecordingEnds, ReplayDiverged
from optagent.tools.journal_store import JournalStore
from optagent.tools.lock import hold
from optagent.tools.network import free_port
from optagent.tools.paths import STATE
from optagent.tools.recording import RecordingToolbox
from optagent.tools.replaying import ReplayToolbox
from optagent.tools.stub import Recording

WIDTH = 44
"""Characters of one side of the table."""


def branch_off(
    root: Path,
    path: Path,
    *,
    until: int,
    planner: str,
    plan: Path | None,
    steps: int | None,
    into: Path | None,
    as_json: bool,
) -> int:
    """Exit status 0 when the branch was carried through. Raises ReplayDiverged where the recorded part does not replay."""
    if planner not in PLANNERS:
        raise BadInput("--then", f"expected one of {', '.join(PLANNERS)}, not {planner[:40]!r}")
    recording = session_recording(path)
    replayed = replay(recording, Silent(), until)
    recorded = _recorded_course(recording, replayed)
    with _folder(into) as folder, narrator_for(sys.stdout, quiet=as_json) as narrator:
        narrator.now("laying the simulated deployment out")
        branch = lay_out(
            recording, replayed, folder, free_port(), planner, plan, _owner(root, recording), narrator.detail
        )
        _tell_begin(narrator, recording, replayed, branch)
        limit = steps if steps is not None else max(1, len(recorded.steps)) + 1
        course = _run(branch, narrator, limit)
    if as_json:
        print(json.dumps(_json(recording, until, planner, branch, recorded, course, into), ensure_ascii=False))
    else:
        print("\n".join(_table(recording, until, planner, recorded, course)))
        if into is not None:
            print(f"\nthe branch is a campaign of its own: optagent -C {clean(str(into))} status")
    return 0


def _owner(root: Path, recording: Recording) -> Path | None:
    """The campaign's own folder when the command stands in it: read for files that the recording does not tell of."""
    from optagent.agent.config import load_config

    try:
        same = load_config(root.resolve()).name == recording.config.get("name")
    except BadInput:
        return None
    return root.resolve() if same else None


def _recorded_course(recording: Recording, replayed: Replayed) -> Course:
    """What the recording did from there, as far as it replays."""
    known = len(replayed.session.ledger.experiments)
    after = replayed.session.journal.last_seq()
    journal = LedgerJournal(recorded_journal(recording))
    session = Session(
        replayed.session.config, RecordingToolbox(ReplayToolbox(recording), journal), journal, Silent(),
        recording.started.get("steps"),
    )  # fmt: skip
    try:
        ended = run_sitting(session, None).because
    except RecordingEnds:
        ended = "the sitting was killed"
    except ReplayDiverged as error:
        ended = f"no longer replays from call {error.call} on"
    return course_of(session.ledger, journal.entries(), after, known, ended)


@contextmanager
def _folder(into: Path | None) -> Iterator[Path]:
    if into is None:
        scratch = Path(tempfile.mkdtemp(prefix="optagent-branch-"))
        try:
            yield scratch.resolve()
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        return
    try:
        into.mkdir(parents=True)
    except FileExistsError:
        raise BadInput("--into", f"{into} exists already; a branch goes into a new folder") from None
    except OSError as error:
        raise BadInput("--into", f"{into} cannot be made: {error.strerror}") from None
    yield into.resolve()


def _tell_begin(narrator: Narrator, recording: Recording, replayed: Replayed, branch: Branch) -> None:
    for line in read_otherwise(recording):
        narrator.tell("note", line)
    narrator.tell(
        "step", f"{replayed.calls} recorded calls, {replayed.steps} steps; from here on everything is simulated"
    )
    for line in branch.missing:
        narrator.tell("note", f"not as recorded: {line}")


def _run(branch: Branch, narrator: Narrator, steps: int) -> Course:
    space = Workspace(branch.folder, branch.config)
    with (
        hold(branch.folder / STATE / "lock", "replay --then"),
        JournalStore.open(space.journal_path, create=True) as store,
    ):
        store.append_all(branch.journal)
        session = open_session(space, store, live(space, narrator), narrator)
        known, after = len(session.ledger.experiments), session.journal.last_seq()
        session.step_limit = steps
        with signals_interrupt():
            ended = run_sitting(session, space.checkpoints)
        keep_view(session.journal)
        return course_of(session.ledger, store.entries(), after, known, ended.because)


def _json(
    recording: Recording, until: int, planner: str, branch: Branch, recorded: Course, course: Course, into: Path | None
) -> dict[str, Any]:
    return {
        "recording": recording.name, "until": until, "then": planner, "simulated": True,
        "not_as_recorded": list(branch.missing), "folder": str(into) if into else None,
        "recorded": asdict(recorded), "branch": asdict(course),
    }  # fmt: skip


def _table(recording: Recording, until: int, planner: str, recorded: Course, course: Course) -> list[str]:
    """Both courses side by side."""
    real = recording.config.get("deployment", {}).get("kind", "simulator") != "simulator"
    lines = ["", _row("", f"recorded{' (real)' if real else ''}", f"{planner} (simulated)")]
    branch = list(course.steps)
    if branch and branch[0].kind == BASELINE and (not recorded.steps or recorded.steps[0].kind != BASELINE):
        lines += _two_rows("baseline", None, branch.pop(0))
    for number, (one, other) in enumerate(zip_longest(recorded.steps, branch), until + 1):
        lines += _two_rows(f"step {number}", one, other)
    for name, left, right in (
        ("kept", ", ".join(recorded.kept) or "nothing", ", ".join(course.kept) or "nothing"),
        ("best", recorded.best, course.best),
        ("gain", recorded.total_gain or "-", course.total_gain or "-"),
        ("launches", str(recorded.launches), str(course.launches)),
        ("ended", recorded.ended, course.ended),
    ):
        lines.append(_row(name, left, right))
    return lines


def _row(name: str, left: str, right: str) -> str:
    return f"{name:<10}{clip(left, WIDTH):<{WIDTH + 2}}{clip(right, WIDTH)}".rstrip()


def _two_rows(name: str, one: StepTaken | None, other: StepTaken | None) -> list[str]:
    return [_row(name, _tried(one), _tried(other)), _row("", _verdict(one), _verdict(other))]


def _tried(step: StepTaken | None) -> str:
    return "" if step is None else f"{step.experiment} {step.item or step.title}"


def _verdict(step: StepTaken | None) -> str:
    if step is None:
        return ""
    return f"  {step.verdict}" + (f" {step.effect:+.1%}" if step.effect is not None else "")
