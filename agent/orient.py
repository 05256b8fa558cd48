"""Reading what a sitting starts from: the plan and the latest handoff."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from optagent.agent.elsewhere import NO_MEASUREMENT, Difference, by_what, carried, carried_dead_ends, in_words
from optagent.agent.errors import BadInput
from optagent.agent.handoff.folder import handoffs_in
from optagent.agent.handoff.model import Handoff
from optagent.agent.handoff.read import read_handoff
from optagent.agent.jsonable import to_body
from optagent.agent.plan.fits import misfits
from optagent.agent.plan.model import Plan
from optagent.agent.plan.read import read_plan
from optagent.agent.reconcile import sha256
from optagent.agent.records import Baseline, Lesson
from optagent.agent.session import Session
from optagent.tools.calls.configuration import Configuration
from optagent.tools.calls.files import ListFolder, ReadText
from optagent.tools.journal_store import Draft

NO_PLAN = "no plan here; write one, or name another with `plan` in optagent.toml"


@dataclass(frozen=True)
class Orientation:
    """The plan, and the latest handoff with its path (None when there is none), its hash, and the names of all of them."""

    plan: Plan
    handoff: Handoff | None = None
    handoff_path: str = ""
    handoff_sha256: str | None = None
    handoffs: tuple[str, ...] = ()

    @property
    def latest(self) -> bool:
        """Whether the handoff is the newest one."""
        return bool(self.handoffs) and PurePosixPath(self.handoff_path).name == self.handoffs[-1]


def orient(session: Session) -> Orientation:
    """Read plan and latest handoff. Raises BadInput when one of them cannot be read at all."""
    names = handoff_names(session)
    plan = load_plan(session)
    if not names:
        return Orientation(plan)
    return oriented_by(session, plan, str(PurePosixPath(session.config.handoffs) / names[-1]), names)


def oriented_by(session: Session, plan: Plan, path: str, names: Sequence[str]) -> Orientation:
    """The plan with the handoff at `path`, be it the latest or not. Raises BadInput when it cannot be read."""
    handoff, digest = _read(session, path)
    return Orientation(plan, handoff, path, digest, tuple(names))


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


def handoff_names(session: Session) -> list[str]:
    """The names of all handoffs, oldest first."""
    return handoffs_in(session.toolbox.list_folder(ListFolder(path=session.config.handoffs)).names)


def latest_handoff(session: Session) -> str:
    """The path of the newest handoff by its number, then by its name; "" when there is none."""
    names = handoff_names(session)
    return str(PurePosixPath(session.config.handoffs) / names[-1]) if names else ""


def newest(names: Sequence[str]) -> str | None:
    """Which of these files is the newest handoff, None when none is one."""
    found = handoffs_in(names)
    return found[-1] if found else None


def load_handoff(session: Session, path: str) -> Handoff:
    return _read(session, path)[0]


def _read(session: Session, path: str) -> tuple[Handoff, str | None]:
    read = session.toolbox.read_text(ReadText(path=path))
    if read.text is None:
        raise BadInput(path, _without(path, read.problem) or "this handoff has disappeared; run the command again")
    return read_handoff(read.text, path), read.sha256


def is_known(session: Session, handoff: Handoff) -> bool:
    """Whether the journal wrote this handoff or took it over. One that somebody else wrote may have the same id: then it
    is of another time."""
    ledger = session.ledger
    if handoff.id not in ledger.taken_over and handoff.id not in ledger.handoffs:
        return False
    entries = [session.journal.find(kind, handoff.id) for kind in ("handoff", "took-over")]
    return any(e is not None and e.body.get("written", handoff.written) == handoff.written for e in entries)


def take_over(session: Session, orientation: Orientation, lost: Sequence[Difference] = ()) -> bool:
    """Take a handoff that the journal does not know yet into it, without what is `lost`. Returns whether there was one.

    Its dead ends bind from now on, its attempts and lessons are remembered as unverified, and its baseline becomes the
    known-good state unless the journal already has one. What does not carry over is a lesson: the next handoff tells it.
    """
    handoff, ledger = orientation.handoff, session.ledger
    if handoff is None:
        return False
    if _is_our_own(session, handoff.id, orientation.handoff_path):
        written = {
            "id": handoff.id,
            "path": orientation.handoff_path,
            "ended": handoff.ended,
            "written": handoff.written,
        }
        session.note("handoff", written, handoff.id)
        return False
    if is_known(session, handoff):
        _note_moved(session, handoff, orientation.handoff_path, lost)
        return False
    named = handoff.id
    if named in ledger.taken_over or named in ledger.handoffs:  # another one of this id
        named = f"{handoff.id} of {handoff.written}"
        if named in ledger.taken_over:
            return False
    dirt = [c.expected for c in handoff.claims if c.kind == "checkout" and c.expected != "clean"]
    lessons = (*handoff.lessons, *(Lesson(text, (handoff.id,), True) for text in in_words(lost, handoff.id)))
    body = {
        "handoff": named, "path": orientation.handoff_path, "written": handoff.written, "structured": handoff.structured,
        "attempts": to_body(handoff.attempts), "lessons": to_body(lessons),
        "dead_ends": to_body(carried_dead_ends(handoff.dead_ends, lost)), "in_flight": to_body(handoff.in_flight),
        "dirt": dirt[0] if dirt else None,
    }  # fmt: skip
    drafts = [Draft("took-over", body | ({"lost": by_what(lost)} if lost else {}), named)]
    baseline = carried(handoff.baseline, lost)
    if ledger.baseline is None and baseline is not None:
        if (first := carried(handoff.first_baseline, lost)) is not None:
            drafts.append(Draft("first-baseline", to_body(first)))
        drafts.append(Draft("baseline", to_body(baseline)))
    session.journal.append_all(drafts)
    return True


def _note_moved(session: Session, handoff: Handoff, path: str, lost: Sequence[Difference]) -> None:
    """Record what a campaign lost that was moved with its journal, once for each place that it is moved to."""
    if not lost:
        return
    key = f"{handoff.id}@{sha256(repr(lost))[:12]}"
    if session.journal.find("took-over", key) is not None:
        return
    lessons = [Lesson(text, (handoff.id,), True) for text in in_words(lost, handoff.id)]
    body = {"handoff": handoff.id, "path": path, "lessons": to_body(lessons), "lost": by_what(lost)}
    drafts = [Draft("took-over", body, key)]
    baseline = session.ledger.baseline
    if baseline is not None and any(d.what in NO_MEASUREMENT for d in lost):
        drafts.append(Draft("baseline", to_body(replace(baseline, measurement=None))))
    session.journal.append_all(drafts)


def _is_our_own(session: Session, handoff: str, path: str) -> bool:
    """Whether a sitting of this campaign wrote it, and was killed before that was recorded: it tells nothing new."""
    if handoff in session.ledger.handoffs or handoff in session.ledger.taken_over:
        return False
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
