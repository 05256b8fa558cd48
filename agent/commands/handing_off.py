"""`optagent handoff`: show the latest one, write a new one, or hold its claims against the world."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from optagent.agent.commands.narration import narrator_for
from optagent.agent.commands.printable import clean, clean_document
from optagent.agent.commands.workspace import Workspace, find_workspace, looking, writing
from optagent.agent.errors import BadInput
from optagent.agent.jsonable import to_body
from optagent.agent.orient import latest_handoff, load_handoff, orient, take_over
from optagent.agent.reconcile import Outcome
from optagent.agent.reconciling import check_handoff, known_good_state, probe, reconcile
from optagent.tools.calls.files import ReadText


def handle_handoff(root: Path, *, write: bool, check: bool, as_json: bool) -> int:
    """Exit status 0, or 1 when a checked claim does not hold."""
    if write and check:
        raise BadInput("--write --check", "give one of them")
    space = find_workspace(root)
    if write:
        return _write(space, as_json)
    return _check(space, as_json) if check else _show(space, as_json)


def _write(space: Workspace, as_json: bool) -> int:
    from optagent.agent.hand_off import write_handoff
    from optagent.agent.nodes import Round, situation_of
    from optagent.agent.standing import standing

    ahead = looking(space)
    orientation = orient(ahead)
    situation = situation_of(Round(ahead, orientation, reconcile(ahead, orientation)))
    standings = [standing(item, situation.bench()) for item in situation.candidates()]
    ahead.journal.close()
    with narrator_for(sys.stdout, quiet=as_json) as narrator, writing(space, "handoff --write", narrator) as session:
        take_over(session, orientation)
        world = probe(session, known_good_state(session, orientation).configuration)
        path = write_handoff(session, world, standings, "written by hand, in the middle of the campaign")
    print(json.dumps({"handoff": path}) if as_json else f"handoff written: {path}")
    return 0


def _check(space: Workspace, as_json: bool) -> int:
    session = looking(space)
    orientation = orient(session)
    if orientation.handoff is None:
        raise BadInput(space.config.handoffs, "there is no handoff to check; `optagent handoff --write` writes one")
    world = probe(session, known_good_state(session, orientation).configuration)
    checks = check_handoff(session, orientation, world)
    broken = any(c.outcome is Outcome.BROKEN for c in checks)
    if as_json:
        rows = [
            {"id": c.claim.id, "claim": c.claim.text, "outcome": c.outcome.value, "because": c.because} for c in checks
        ]
        print(json.dumps({"handoff": orientation.handoff_path, "claims": rows}))
        return int(broken)
    print(f"{orientation.handoff_path}: {len(checks)} claims")
    for c in checks:
        mark = {Outcome.HOLDS: "✓", Outcome.BROKEN: "✗", Outcome.UNKNOWN: "?"}[c.outcome]
        print(f"  {mark} {clean(c.claim.id):<4} {clean(c.claim.text)[:70]:<70} {c.outcome.value}: {clean(c.because)}")
    return int(broken)


def _show(space: Workspace, as_json: bool) -> int:
    session = looking(space)
    path = latest_handoff(session)
    if not path:
        raise BadInput(space.config.handoffs, "there is no handoff yet; `optagent handoff --write` writes one")
    handoff = load_handoff(session, path)
    if as_json:
        print(json.dumps({"handoff": path, "content": to_body(handoff)}, ensure_ascii=False))
    else:
        print(clean_document(session.toolbox.read_text(ReadText(path=path)).text or ""))
    return 0
