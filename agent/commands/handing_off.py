"""`optagent handoff`: show one, write a new one, or hold its claims against the world."""

from __future__ import annotations

import hashlib
import json
import sys
from contextlib import AbstractContextManager
from pathlib import Path

from optagent.agent.checking import superseded_by
from optagent.agent.commands.narration import LiveNarrator, PlainNarrator, narrator_for
from optagent.agent.commands.printable import clean, clean_document
from optagent.agent.commands.showing_checks import WIDTH, check_json, check_lines, wrapped
from optagent.agent.commands.workspace import Workspace, find_workspace, looking, writing
from optagent.agent.errors import BadInput
from optagent.agent.handoff.read import read_handoff
from optagent.agent.jsonable import to_body
from optagent.agent.orient import Orientation, handoff_names, latest_handoff, load_plan, orient, oriented_by, take_over
from optagent.agent.reconciling import Reconciled, known_good_state, look_at_handoff, probe, reconcile
from optagent.agent.session import Session
from optagent.agent.standing import Standing, standing
from optagent.tools.calls.files import ReadText

SAYS_AFTER_S = 2.0
"""A check that takes longer than this says what it is doing."""


def handle_handoff(root: Path, file: Path | None, *, write: bool, check: bool, full: bool, as_json: bool) -> int:
    """Exit status 0, or 1 when a checked claim does not hold."""
    for one, other in (("--write", "--check"), ("--write", "--full"), ("--check", "--full")):
        given = {"--write": write, "--check": check, "--full": full}
        if given[one] and given[other]:
            raise BadInput(f"{one} {other}", "give one of them")
    if file is not None and (write or full):
        raise BadInput(str(file), "--write and --full tell of the campaign as it is now: give them without a file")
    space = find_workspace(root)
    if write:
        return _write(space, as_json)
    if full:
        return _full(space, as_json)
    return _check(space, file, as_json) if check else _show(space, file, as_json)


def _write(space: Workspace, as_json: bool) -> int:
    from optagent.agent.hand_off import write_handoff

    ahead = looking(space)
    orientation = orient(ahead)
    reconciled, standings = _standings(ahead, orientation)
    ahead.journal.close()
    with narrator_for(sys.stdout, quiet=as_json) as narrator, writing(space, "handoff --write", narrator) as session:
        take_over(session, orientation, reconciled.checked.lost)
        world = probe(session, known_good_state(session, orientation).configuration)
        path = write_handoff(session, world, standings, "written by hand, in the middle of the campaign")
    print(json.dumps({"handoff": path}) if as_json else f"handoff written: {path}")
    return 0


def _standings(ahead: Session, orientation: Orientation) -> tuple[Reconciled, list[Standing]]:
    """What a sitting would find now, by a session that cannot act, and where every item stands."""
    from optagent.agent.nodes import Round, situation_of

    reconciled = reconcile(ahead, orientation)
    situation = situation_of(Round(ahead, orientation, reconciled))
    return reconciled, [standing(item, situation.bench()) for item in situation.candidates()]


def _full(space: Workspace, as_json: bool) -> int:
    """All that the journal holds, as one handoff of whatever length: what the written ones leave out."""
    from optagent.agent.hand_off import whole
    from optagent.agent.handoff.render import render_handoff

    session = looking(space)
    reconciled, standings = _standings(session, orient(session))
    handoff = whole(session, reconciled.checked.world, standings, "")
    if as_json:
        print(json.dumps({"handoff": None, "content": to_body(handoff)}, ensure_ascii=False))
    else:
        print(clean_document(render_handoff(handoff)))
    return 0


def _check(space: Workspace, file: Path | None, as_json: bool) -> int:
    session = looking(space)
    with _progress() as narrator:
        narrator.now("reading plan, handoff and journal")
        orientation = _oriented(space, session, file)
        assert orientation.handoff is not None
        narrator.now("looking at processes, port, GPUs, environment, checkout, logs and results")
        checked = look_at_handoff(session, orientation)
        successor = "" if orientation.latest else superseded_by(session, orientation.handoff_path)
    if as_json:
        print(json.dumps(check_json(orientation, checked, successor), ensure_ascii=False))
    else:
        print("\n".join(check_lines(orientation, checked, successor)))
    return int(any(row.outcome == "does not hold" for row in checked.checks))


def _progress() -> AbstractContextManager[PlainNarrator | LiveNarrator]:
    return narrator_for(sys.stderr) if sys.stderr.isatty() else PlainNarrator(sys.stderr, SAYS_AFTER_S)


def _oriented(space: Workspace, session: Session, file: Path | None) -> Orientation:
    """The plan with the latest handoff, or with the one in `file`, which need not be the campaign's."""
    if file is None:
        orientation = orient(session)
        if orientation.handoff is None:
            raise BadInput(space.config.handoffs, "there is no handoff to check; `optagent handoff --write` writes one")
        return orientation
    names = handoff_names(session)
    if (inside := _in_campaign(space, file)) is not None:
        return oriented_by(session, load_plan(session), inside, names)
    content = _content(file)
    handoff = read_handoff(content.decode("utf-8", "replace"), str(file))
    return Orientation(load_plan(session), handoff, str(file), hashlib.sha256(content).hexdigest(), tuple(names))


def _in_campaign(space: Workspace, file: Path) -> str | None:
    """The file's path from the campaign's folder, None for one that lies elsewhere."""
    for place in (file.resolve(), (space.root / file).resolve()):
        if place.is_file() and place.is_relative_to(space.root):
            return str(place.relative_to(space.root))
    return None


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise BadInput(str(file), f"cannot be read: {error.strerror}") from None


def _show(space: Workspace, file: Path | None, as_json: bool) -> int:
    session = looking(space)
    path = (_in_campaign(space, file) or str(file)) if file is not None else latest_handoff(session)
    if not path:
        raise BadInput(space.config.handoffs, "there is no handoff yet; `optagent handoff --write` writes one")
    inside = file is None or _in_campaign(space, file) is not None
    text = session.toolbox.read_text(ReadText(path=path)).text or "" if inside else _content(Path(path)).decode()
    handoff = read_handoff(text, path)
    successor = superseded_by(session, path) if inside else ""
    if as_json:
        body = {"handoff": path, "superseded_by": successor or None, "content": to_body(handoff)}
        print(json.dumps(body, ensure_ascii=False))
        return 0
    if successor:
        print("\n".join(wrapped(f"{clean(path)} is superseded by {clean(successor)}", "", WIDTH)), file=sys.stderr)
    print(clean_document(text))
    return 0
