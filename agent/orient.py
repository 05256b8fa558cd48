"""Reading what a sitting starts from: the plan and the latest handoff."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath

from optagent.agent.errors import BadInput
from optagent.agent.handoff.model import Handoff
from optagent.agent.handoff.read import read_handoff
from optagent.agent.jsonable import to_body
from optagent.agent.plan.fits import misfits
from optagent.agent.plan.model import Plan
from optagent.agent.plan.read import read_plan
from optagent.agent.records import Baseline
from optagent.agent.session import Session
from optagent.tools.calls.configuration import Configuration
from optagent.tools.calls.files import ListFolder, ReadText
from optagent.tools.journal_store import Draft

NO_PLAN = "no plan here; write one, or name another with `plan` in optagent.toml"


@dataclass(frozen=True)
class Orientation:
    """The plan, and the latest handoff with its path (None when there is none)."""

    plan: Plan
    handoff: Handoff | None = None
    handoff_path: str = ""


def orient(session: Session) -> Orientation:
    """Read plan and latest handoff. Raises BadInput when one of them cannot be read at all."""
    path = latest_handoff(session)
    return Orientation(load_plan(session), load_handoff(session, path) if path else None, path)


def load_plan(session: Session) -> Plan:
    """The plan as it stands now. Mistakes of form raise BadInput; what is merely ambiguous is left to `decide`."""
    path = session.config.plan
    read = session.toolbox.read_text(ReadText(path=path))
    if read.text is None:
        raise BadInput(path, _without(path, read.problem) or NO_PLAN)
    plan = read_plan(read.text, path)
    for problem in plan.problems:
        if problem.fatal and not problem.ambiguous:
            raise BadInput(path, problem.message, problem.line)
    return plan


def _without(path: str, problem: str | None) -> str:
    """A problem with a file, without the file's name in front."""
    return (problem or "").removeprefix(f"{path}: ").removeprefix(f"{path} ")


def check_fit(session: Session, plan: Plan) -> None:
    """Raise BadInput when the plan refers to something that is not there."""

    def is_text(name: str) -> bool:
        path = str(PurePosixPath(session.config.plan).parent / name)
        return bool((session.toolbox.read_text(ReadText(path=path)).text or "").strip())

    for problem in misfits(plan, session.config.deployment.environments, is_text):
        raise BadInput(session.config.plan, problem.message, problem.line)


def has_prompts(session: Session) -> bool:
    """Whether the workload's file of prompts can be read, where it has one."""
    workload = session.config.workload
    if workload.dataset != "custom":
        return True
    return bool((session.toolbox.read_text(ReadText(path=workload.prompts or "")).text or "").strip())


def latest_handoff(session: Session) -> str:
    """The path of the newest handoff by its number, then by its name; "" when there is none."""
    folder = session.config.handoffs
    names = [n for n in session.toolbox.list_folder(ListFolder(path=folder)).names if n.lower() != "readme.md"]
    return str(PurePosixPath(folder) / max(names, key=_handoff_order)) if names else ""


def _handoff_order(name: str) -> tuple[int, str]:
    number = re.match(r"\d+", name)
    return (int(number[0]) if number else -1, name)


def load_handoff(session: Session, path: str) -> Handoff:
    read = session.toolbox.read_text(ReadText(path=path))
    if read.text is None:
        raise BadInput(path, _without(path, read.problem) or "this handoff has disappeared; run the command again")
    return read_handoff(read.text, path)


def take_over(session: Session, orientation: Orientation) -> bool:
    """Take a handoff that the journal does not know yet into it. Returns whether there was one.

    Its dead ends bind from now on, its attempts and lessons are remembered as unverified, and its baseline becomes
    the known-good state unless the journal already has one.
    """
    handoff = orientation.handoff
    if handoff is None or handoff.id in session.ledger.taken_over or handoff.id in session.ledger.handoffs:
        return False
    if _is_our_own(session, handoff.id, orientation.handoff_path):
        session.note(
            "handoff", {"id": handoff.id, "path": orientation.handoff_path, "ended": handoff.ended}, handoff.id
        )
        return False
    dirt = [c.expected for c in handoff.claims if c.kind == "checkout" and c.expected != "clean"]
    drafts = [Draft("took-over", {
        "handoff": handoff.id, "path": orientation.handoff_path, "structured": handoff.structured,
        "attempts": to_body(handoff.attempts), "lessons": to_body(handoff.lessons),
        "dead_ends": to_body(handoff.dead_ends), "in_flight": to_body(handoff.in_flight),
        "dirt": dirt[0] if dirt else None,
    }, handoff.id)]  # fmt: skip
    if session.ledger.baseline is None and handoff.baseline is not None:
        if handoff.first_baseline is not None:
            drafts.append(Draft("first-baseline", to_body(handoff.first_baseline)))
        drafts.append(Draft("baseline", to_body(handoff.baseline)))
    session.journal.append_all(drafts)
    return True


def _is_our_own(session: Session, handoff: str, path: str) -> bool:
    """Whether a sitting of this campaign wrote it, and was killed before that was recorded: it tells nothing new."""
    return any(
        (entry.key or "").startswith(f"handoff:{handoff}:") and entry.body["request"].get("path") == path
        for entry in session.journal.entries(kind="intent")
    )


def adopt_configured_baseline(session: Session, revision: str) -> Baseline:
    """Make the configuration of optagent.toml the known-good state, for a campaign that has no other."""
    configured = session.configured()
    files: dict[str, str] = {}
    for name, path in session.config.deployment.files.items():
        read = session.toolbox.read_text(ReadText(path=path))
        if read.text is None:
            raise BadInput("optagent.toml", f"deployment.files: {path} for {name} cannot be read")
        files[name] = read.text
    configuration = Configuration(configured.environment, configured.flags, configured.env, files, revision)
    baseline = Baseline(configuration, None, "as configured")
    session.note("baseline", baseline)
    return baseline
