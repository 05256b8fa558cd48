"""What can be repaired, each repair said before it is done. What is damaged is kept under another name."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from optagent.agent.doctor.checks import documents, wanted_revision
from optagent.agent.doctor.patient import CHECKPOINTS, JOURNAL, LOCK, Patient
from optagent.agent.errors import OptagentError
from optagent.agent.ledger import Ledger, fold
from optagent.agent.plan.model import Plan, Status
from optagent.tools.calls.patch import RestoreCheckout
from optagent.tools.checkpoints import checkpoints_defect
from optagent.tools.deployment import Timeouts
from optagent.tools.errors import LockFailure
from optagent.tools.git_commands import CheckoutProblem
from optagent.tools.journal_salvage import salvage
from optagent.tools.journal_store import Draft, JournalStore
from optagent.tools.leftovers import branches_left, families, set_branches_aside, stop_all, temporary_files
from optagent.tools.live import LiveToolbox
from optagent.tools.lock import left_behind
from optagent.tools.patch import look_at_checkout
from optagent.tools.recording import RecordingToolbox
from optagent.tools.sqlite_copies import set_aside


@dataclass(frozen=True)
class Repair:
    """`what` would be done, in words; `do` does it and says what was done. `mark` names what is put aside."""

    name: str
    what: str
    do: Callable[[Patient, str], str]


def repairs(patient: Patient) -> list[Repair]:
    """What can be repaired now, in the order in which it is done."""
    return [
        repair
        for find in (_journal, _checkpoints, _files, _servers, _lock, _checkout, _branches)
        for repair in find(patient)
    ]


def _journal(patient: Patient) -> Iterator[Repair]:
    sick = patient.journal
    if sick is None or sick.sound or sick.newer:
        return
    lost = f"{sick.lost} are lost" if sick.once else "how many are lost cannot be told"
    kept = f"the damaged file is kept as {JOURNAL}.damaged-<time>" if sick.exists else "there is no file any more"
    yield Repair(
        "journal", f"make a fresh journal of the {sick.entries} entries that can be read ({lost}); {kept}", _salvage
    )


def _salvage(patient: Patient, mark: str) -> str:
    path = patient.state / JOURNAL
    before, aside = salvage(path, f"damaged-{mark}")
    what = f"journal salvaged: {before.entries} entries saved, {before.lost} lost"
    with JournalStore.open(path, create=True) as store:
        drafts = [Draft("restored", {"what": what})]
        if before.entries and patient.plan is not None:
            drafts += lost_verdicts(fold(store.entries()), patient.plan)
        store.append_all(drafts)
    kept = f"; the damaged file is {aside.name}" if before.exists else ""
    return f"{what}{kept}; `optagent continue` takes up what was in flight as after an interruption"


def lost_verdicts(ledger: Ledger, plan: Plan) -> list[Draft]:
    """Takes back what the plan shows of experiments that the journal knows no verdict of: those items are open again."""
    drafts = []
    for item in plan.items:
        named = re.match(r"(E\d+): ", item.result)
        known = ledger.experiments.get(named[1]) if named else None
        if named is None or (known is not None and known.verdict) or item.status is Status.OPEN:
            continue
        status = ledger.item_status.get(item.id, Status.OPEN)
        again = f"{named[1]} was lost with the journal's last entries"
        drafts.append(Draft("item-status", {"item": item.id, "status": status.value, "result": again}))
        drafts.append(Draft("plan-written", {"statuses": {item.id: item.status.value}}))
    return drafts


def _checkpoints(patient: Patient) -> Iterator[Repair]:
    path = patient.state / CHECKPOINTS
    if path.exists() and checkpoints_defect(path):
        yield Repair(
            "checkpoints", f"rename {CHECKPOINTS} to {CHECKPOINTS}.damaged-<time>; nothing is lost with it", _drop
        )


def _drop(patient: Patient, mark: str) -> str:
    return f"{CHECKPOINTS} is now {set_aside(patient.state / CHECKPOINTS, f'damaged-{mark}').name}"


def _files(patient: Patient) -> Iterator[Repair]:
    if found := temporary_files(patient.root, documents(patient)):
        names = ", ".join(path.name for path in found[:3])
        yield Repair(
            "half-written files", f"remove {len(found)} that never became what they were to be: {names}", _remove
        )


def _remove(patient: Patient, mark: str) -> str:
    found = temporary_files(patient.root, documents(patient))
    for path in found:
        path.unlink(missing_ok=True)
    return f"{len(found)} removed"


def _servers(patient: Patient) -> Iterator[Repair]:
    if running := families(patient.root):
        names = ", ".join(sorted(mark.launch for mark in running))
        pids = sorted({process.id.pid for family in running.values() for process in family.living()})
        yield Repair(
            "servers", f"stop {names} (pid {', '.join(map(str, pids))}), which carry this campaign's mark", _stop
        )


def _stop(patient: Patient, mark: str) -> str:
    timeouts = patient.config.deployment.timeouts if patient.config else Timeouts()
    pids, left = stop_all(patient.root, timeouts.stop_s)
    if left:
        raise OptagentError(f"pid {', '.join(str(p.id.pid) for p in left)} cannot be stopped: stop it by hand")
    return f"stopped pid {', '.join(map(str, pids))}"


def _lock(patient: Patient) -> Iterator[Repair]:
    try:
        dead = left_behind(patient.state / LOCK)
    except LockFailure:
        return
    if dead is not None:
        yield Repair("lock", f"release it for {dead}, which has ended", lambda patient, mark: "released")


def _checkout(patient: Patient) -> Iterator[Repair]:
    source, wanted = patient.source, wanted_revision(patient)
    if source is None or not source.exists() or not wanted or not _journal_is_sound(patient):
        return
    seen = look_at_checkout(source)
    if seen is None or seen.problem or (seen.revision == wanted and not seen.dirty):
        return
    saved = (
        f"; what is uncommitted in {len(seen.dirty)} files is committed to a branch optagent/saved/ first"
        if seen.dirty
        else ""
    )
    yield Repair(
        "checkout", f"bring {source} from {seen.revision[:12]} back to the baseline, {wanted[:12]}{saved}", _put_back
    )


def _put_back(patient: Patient, mark: str) -> str:
    assert patient.config is not None
    wanted = wanted_revision(patient)
    with JournalStore.open(patient.state / JOURNAL, create=False) as store:
        toolbox = RecordingToolbox(LiveToolbox(patient.root, patient.config.deployment, lambda told: None), store)
        key = f"doctor:checkout:{store.last_seq()}"
        back = toolbox.restore_checkout(RestoreCheckout(key=key, revision=wanted, reason="optagent doctor"))
        if back.problem:
            raise OptagentError(f"the checkout could not be brought back: {back.problem}")
        store.append("restored", {"what": f"checkout back at {wanted[:12]} by the doctor"})
    return f"back at {wanted[:12]}" + (
        f"; what was uncommitted is on branch {back.saved_branch}" if back.saved_branch else ""
    )


def _branches(patient: Patient) -> Iterator[Repair]:
    source = patient.source
    if source is None or not source.exists() or patient.ledger is None or not _journal_is_sound(patient):
        return
    try:
        left = branches_left(source, patient.under_way)
    except CheckoutProblem:
        return
    if left:
        names = ", ".join(f"optagent/{name}" for name in left)
        yield Repair(
            "patches", f"rename the branches of no experiment under way to optagent/saved/...: {names}", _set_aside
        )


def _set_aside(patient: Patient, mark: str) -> str:
    assert patient.source is not None
    try:
        done = set_branches_aside(patient.source, patient.under_way)
    except CheckoutProblem as error:
        raise OptagentError(str(error)) from error
    return f"now {', '.join(done)}" if done else "nothing left to rename"


def _journal_is_sound(patient: Patient) -> bool:
    return patient.journal is not None and patient.journal.sound
