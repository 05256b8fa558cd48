"""`optagent doctor`: what state the campaign is in, and with --repair what can be done about it, said before it is done."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import click

from optagent.agent.commands.printable import clean, optagent_in
from optagent.agent.doctor.checks import report
from optagent.agent.doctor.line import Line, State
from optagent.agent.doctor.patient import LOCK, examine
from optagent.agent.doctor.repairs import Repair, repairs
from optagent.agent.errors import BadInput, CampaignBusy, OptagentError
from optagent.tools.errors import ToolFailure
from optagent.tools.lock import Held, hold
from optagent.tools.paths import STATE

LONGEST = 300
MARKS = {State.OK: "✓", State.PROBLEM: "✗", State.UNKNOWN: "?"}


def doctor(root: Path, *, repair: bool, yes: bool, as_json: bool) -> int:
    """Exit status 0 when nothing is wrong, 1 when something is. Raises BadInput where there is no campaign, or where a
    repair was neither confirmed nor can be."""
    if yes and not repair:
        raise BadInput("--yes", "it confirms repairs: give --repair with it")
    if not ((root / "optagent.toml").exists() or (root / STATE).exists()):
        raise BadInput(str(root), "no campaign here; `optagent init DIR` makes one, `-C DIR` names another folder")
    patient = examine(root)
    if not repair:
        return _tell(root, report(patient), [], as_json)
    if patient.at_work is not None:
        raise CampaignBusy(f"{patient.at_work} is at work on this campaign; wait until it ends, or stop it")
    planned = repairs(patient)
    if planned and not yes:
        _preview(planned, as_json)
        _confirm(root)
    done = _repair(patient.root, planned)
    return _tell(root, report(examine(root)), done, as_json)


def _preview(planned: Sequence[Repair], as_json: bool) -> None:
    if as_json:
        print(json.dumps({"would": [{"name": r.name, "what": r.what} for r in planned]}, ensure_ascii=False))
        return
    print("this would be done:")
    for each in planned:
        print(f"  {each.name}: {clean(each.what)[:LONGEST]}")


def _confirm(root: Path) -> None:
    sys.stdout.flush()
    if sys.stdin.isatty() and click.confirm("do it?"):
        return
    raise BadInput("--repair", f"nothing was changed; {optagent_in(root)} doctor --repair --yes does it")


def _repair(root: Path, planned: Sequence[Repair]) -> list[tuple[str, str]]:
    """Do what was planned, each as far as it is still called for: what was seen may have changed while somebody thought."""
    if not planned:
        return []
    mark = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    try:
        with hold(root / STATE / LOCK, "doctor --repair"):
            return [(each.name, _done(root, each.name, mark)) for each in planned]
    except Held as error:
        raise CampaignBusy(f"{error.holder} is at work on this campaign; wait until it ends, or stop it") from None


def _done(root: Path, name: str, mark: str) -> str:
    patient = examine(root, held_by_us=True)
    repair = next((each for each in repairs(patient) if each.name == name), None)
    if repair is None:
        return "released" if name == "lock" else "in order by now"
    try:
        return repair.do(patient, mark)
    except (OptagentError, ToolFailure, OSError) as error:
        return f"could not be repaired: {error}"


def _tell(root: Path, lines: Sequence[Line], done: Sequence[tuple[str, str]], as_json: bool) -> int:
    wrong = sum(line.state is State.PROBLEM for line in lines)
    if as_json:
        told = {"campaign": str(root.resolve()), "problems": wrong, "checks": [asdict(line) for line in lines]}
        print(json.dumps(told | {"repaired": [{"name": n, "what": w} for n, w in done]}, ensure_ascii=False))
        return int(bool(wrong))
    for name, what in done:
        print(f"repaired {name}: {clean(what)[:LONGEST]}")
    for line in lines:
        print(f"{MARKS[line.state]} {line.name:<18} {line.state.value:<11} {clean(line.text)[:LONGEST]}")
        if line.remedy and line.state is not State.OK:
            print(f"{'':<33}{clean(line.remedy)[:LONGEST]}")
    return int(bool(wrong))
