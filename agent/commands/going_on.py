"""`optagent continue`: a sitting, or a look at what the next one would do."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from optagent.agent.commands.attendance import Attendance
from optagent.agent.commands.interrupting import signals_ask
from optagent.agent.commands.narration import narrator_for
from optagent.agent.commands.preflight import check_usable
from optagent.agent.commands.printable import clean, optagent_in
from optagent.agent.commands.workspace import Silent, Workspace, find_workspace, live, looking, who_is_at_work, writing
from optagent.agent.config import config_from
from optagent.agent.decide import Decision, Verb
from optagent.agent.errors import INTERRUPTED, BadInput
from optagent.agent.jsonable import to_body
from optagent.agent.ledger import KINDS
from optagent.agent.records import Question
from optagent.agent.session import Session
from optagent.agent.sitting import WAITING, WENT_ON, Ended, look, run_sitting
from optagent.tools.recording import RecordingFile, header
from optagent.tools.stop_request import StopRequest
from optagent.tools.stub import Recording


def go_on(
    root: Path, *, steps: int | None, dry_run: bool, as_json: bool, record: Path | None, stub: Path | None,
    detached: bool = False,
) -> int:  # fmt: skip
    """The exit status of `optagent continue`."""
    if stub is not None and not dry_run:
        raise BadInput("--stub", "scripted results can only be decided on: give --dry-run with it")
    if dry_run and record is not None:
        raise BadInput("--record", "a dry run does nothing that could be recorded")
    if dry_run and detached:
        raise BadInput("--detach", "a dry run ends at once: give one of them")
    space = find_workspace(root)
    ready = None
    if detached:
        from optagent.agent.commands.detaching import split_off, tell_detached

        process = split_off()
        if process.pid is not None:
            return tell_detached(process, root, as_json=as_json)
        ready = process.ready
    if stub is None:
        with narrator_for(sys.stdout, quiet=as_json) as narrator:
            check_usable(space, narrator)
    if dry_run:
        return _dry_run(space, stub, as_json)
    if record is not None:
        _check_new(record)
    steps = steps if steps is not None else space.config.budget.steps
    return _sit(root, space, steps, as_json, record, ready)


def _check_new(record: Path) -> None:
    if record.exists():
        raise BadInput(str(record), "this file exists already; a recording is always a new file")
    above = next(folder for folder in record.absolute().parents if folder.exists())
    if not (above.is_dir() and os.access(above, os.W_OK)):
        raise BadInput(str(record), f"{above} is not a folder that can be written")


def _sit(
    root: Path,
    space: Workspace,
    steps: int | None,
    as_json: bool,
    record: Path | None,
    ready: Callable[[], None] | None,
) -> int:
    recorder = _Recorder(record) if record else None
    with narrator_for(sys.stdout, quiet=as_json) if ready is None else nullcontext(Silent()) as screen:
        attendance = Attendance(space, screen, ready)
        sink = recorder.sink_until(attendance.stop) if recorder else None
        with (
            writing(space, "continue", attendance.narrator, sink, attendance.toolbox) as session,
            attendance.present(session.ledger),
        ):
            session.step_limit, session.stop = steps, attendance.stop
            if recorder is not None:
                recorder.begin(session, steps)
            with signals_ask(attendance.asked_to_end, attendance.end_at_once):
                ended = run_sitting(session, space.checkpoints)
            if recorder is not None and ended.exit_status != INTERRUPTED:
                recorder.end(ended)
            lines = end_lines(ended, root)
            attendance.ended(lines, _summary(ended))
    if ready is None:
        show(json.dumps(_summary(ended), ensure_ascii=False) if as_json else "\n".join(lines))
    return ended.exit_status


class _Recorder:
    """Writes a recording as the session goes, so that a killed one leaves what it did."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: RecordingFile | None = None

    def begin(self, session: Session, steps: int | None) -> None:
        self._file = RecordingFile(self._path)
        config = session.config.model_dump(mode="json")  # whole: defaults change
        self._file.write(header(config, list(session.journal.entries()), {"steps": steps}))

    def sink_until(self, stop: StopRequest) -> Callable[[dict[str, Any]], None]:
        """Takes lines until the sitting is interrupted: nobody interrupts a replay, which would not go on from there."""

        def sink(line: dict[str, Any]) -> None:
            if self._file is not None and not stop.heeded:
                self._file.write(line)

        return sink

    def end(self, ended: Ended) -> None:
        assert self._file is not None
        self._file.write({"end": _summary(ended)})
        self._file.close()


def _dry_run(space: Workspace, stub: Path | None, as_json: bool) -> int:
    from optagent.tools.stub import load_recording

    script = load_recording(stub) if stub else None
    session = _scripted(space, script) if script else looking(space)
    at_work = None if script else who_is_at_work(space.root)
    decision = look(session, begin=script is None or not script.journal)
    if as_json:
        print(json.dumps(decision_json(decision) | {"at_work": at_work}, ensure_ascii=False))
    else:
        if at_work:
            print(f"{clean(at_work)} is at work on this campaign. As it would be decided if that ended now:\n")
        show_decision(decision)
    return WAITING if decision.verb is Verb.ASK else WENT_ON


def _scripted(space: Workspace, script: Recording) -> Session:
    """A session that only looks, against scripted tool results; the script may bring its own journal and settings."""
    from optagent.agent.replay import recorded_journal
    from optagent.tools.stub import ScriptedToolbox

    if unknown := sorted({e["kind"] for e in script.journal} - KINDS):
        raise BadInput(script.name, f"`journal` has no kind {unknown[0]!r}; known are {', '.join(sorted(KINDS))}", 1)
    config = space.config
    if script.config:
        merged = _merged(config.model_dump(mode="json", exclude_defaults=True), script.config)
        config = config_from(merged, script.name, 1)
    return looking(
        Workspace(space.root, config),
        ScriptedToolbox(script, live(space, Silent())),
        recorded_journal(script) if script.journal else None,
    )


def _merged(base: dict[str, Any], over: Any) -> dict[str, Any]:
    merged = dict(base)
    for key, value in over.items():
        mine = merged.get(key)
        merged[key] = _merged(mine, value) if isinstance(mine, dict) and isinstance(value, dict) else value
    return merged


def decision_json(decision: Decision) -> dict[str, Any]:
    """The decision as scripts get it; docs/recordings.md lists the keys."""
    step = decision.step
    return {
        "decision": decision.verb.value,
        "reason": decision.reason,
        "because": decision.because,
        "step": None
        if step is None
        else {"kind": step.kind.value, "title": step.title, "item": step.item.id if step.item else None},
        "questions": [to_body(q) for q in decision.questions],
        "items": [
            {"id": s.item.id, "rank": s.item.rank, "standing": s.kind.value, "because": s.because}
            for s in decision.standings
        ],
        "moot": list(decision.moot),
        "reopened": [{"dead_end": d, "because": b} for d, b in decision.reopened],
    }


def _summary(ended: Ended) -> dict[str, Any]:
    return {
        "decision": ended.verb.value, "reason": ended.reason, "because": ended.because, "steps": ended.steps,
        "exit_status": ended.exit_status, "questions": [to_body(q) for q in ended.questions], "total_gain": ended.total_gain,
    }  # fmt: skip


def show_decision(decision: Decision) -> None:
    """The decision as a screen: what comes next, why, and where every item stands."""
    title = f": {decision.step.title}" if decision.step else ""
    print(f"{decision.verb.value}{title} ({decision.reason})\n  {clean(decision.because)}")
    for question in decision.questions:
        show_question(question)
    if decision.standings:
        print("items")
        for s in decision.standings:
            print(
                f"  {s.item.rank if s.item.rank is not None else '-':>3} {s.kind.value:<9} {s.item.id}: {clean(s.because)[:140]}"
            )


def show_question(question: Question) -> None:
    print("\n".join(question_lines(question)))


def question_lines(question: Question) -> list[str]:
    name = f"{question.id} " if question.id else ""
    return [
        f"\n? {name}({question.reason}) {clean(question.text)}",
        *(f"    {clean(fact)}" for fact in question.facts),
        f"    why I ask: {clean(question.why)}",
        *(f"    - {option.key}: {clean(option.leads_to)}" for option in question.options),
    ]


def end_lines(ended: Ended, root: Path) -> list[str]:
    """The last words of a sitting: what was gained, what is open, what to type next."""
    optagent = optagent_in(root)
    lines = [f"\ntotal gain: {ended.total_gain}"] if ended.total_gain else []
    for question in ended.questions:
        lines += question_lines(question)
    if ended.exit_status == INTERRUPTED:
        lines.append(f"\n{ended.because}. Next: {optagent} continue")
    elif ended.questions and ended.exit_status == WAITING:
        first = next((q for q in ended.questions if q.reason == ended.reason), ended.questions[0])
        options = "|".join(o.key for o in first.options) or '"your answer"'
        lines.append(f"\nwaiting for you. Next: {optagent} answer {first.id} {options}, then {optagent} continue")
    elif ended.verb is Verb.CONTINUE:
        lines.append(f"\nstopped in order: {ended.because}. Next: {optagent} continue")
    else:
        lines.append(f"\ndone: {ended.because}")
    return lines


def show(text: str) -> None:
    """Print the last words, or nothing to a terminal or reader that has gone."""
    try:
        print(text, flush=True)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nor complain when the process ends
