"""What is looked at, one function a line of the report. A later check goes to the end of `CHECKS`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path, PurePosixPath

from optagent.agent.doctor.line import Line, fine, problem, unknown
from optagent.agent.doctor.patient import CHECKPOINTS, LOCK, Patient
from optagent.agent.errors import BadInput
from optagent.agent.handoff.read import read_handoff
from optagent.agent.orient import newest
from optagent.tools.calls.files import ListFolder, ReadText
from optagent.tools.checkpoints import checkpoints_defect
from optagent.tools.errors import ToolFailure
from optagent.tools.exhausted import free_bytes
from optagent.tools.files import list_folder, read_text
from optagent.tools.git_commands import CheckoutProblem
from optagent.tools.leftovers import branches_left, families, temporary_files
from optagent.tools.lock import left_behind
from optagent.tools.network import address_of, held_by, listeners
from optagent.tools.patch import look_at_checkout
from optagent.tools.paths import environment_folder

REPAIR = "optagent doctor --repair"
LEAST_FREE_GB = 1.0
"""A sitting of a real campaign writes logs and results of tens of megabytes a launch."""


def _configuration(patient: Patient) -> Line:
    if patient.config is None:
        return problem("configuration", patient.config_problem, "mend that setting")
    return fine("configuration", f"optagent.toml can be used (campaign {patient.config.name})")


def _plan(patient: Patient) -> Line:
    if patient.config is None:
        return unknown("plan", "where it lies stands in the configuration")
    name = patient.config.plan
    if patient.plan is None:
        return problem("plan", patient.plan_problem, "write it, or name another with `plan` in optagent.toml")
    wrong = next((p for p in patient.plan.problems if p.fatal), None)
    if wrong is not None:
        return problem(
            "plan", f"{name}:{wrong.line}: {wrong.message}", "mend that line; `optagent plan --check` shows all"
        )
    return fine("plan", f"{name}: {len(patient.plan.items)} items")


def _journal(patient: Patient) -> Line:
    sick = patient.journal
    if sick is None:
        if patient.journal_problem:
            return problem("journal", patient.journal_problem, "put its permissions right, or restore it from a copy")
        return unknown("journal", "it is being written to; it can be read", "look again when the sitting has ended")
    if sick.newer:
        return problem(
            "journal", f"it is of version {sick.version}, of a newer optagent", "use the optagent that wrote it"
        )
    if not sick.sound:
        saved = (
            f"{sick.entries} entries can be read, {sick.lost} are lost" if sick.once else "nothing of it can be read"
        )
        return problem(
            "journal", f"{sick.defect or 'entries are missing'}: {saved}", f"restore a copy of it, or {REPAIR}"
        )
    if not sick.exists:
        return fine("journal", "nothing has been recorded yet")
    if patient.ledger is None:
        return problem("journal", patient.journal_problem, "restore it from a copy, or use the optagent that wrote it")
    return fine("journal", f"{sick.entries} entries, sound, version {sick.version}")


def _checkpoints(patient: Patient) -> Line:
    path = patient.state / CHECKPOINTS
    if patient.at_work is not None:
        return unknown("checkpoints", "they are being written to")
    if not path.exists():
        return fine("checkpoints", "there are none, and none are needed")
    if defect := checkpoints_defect(path):
        return problem("checkpoints", f"{path.name} is damaged ({defect})", f"{REPAIR} (nothing is lost with them)")
    return fine("checkpoints", "sound")


def _handoff(patient: Patient) -> Line:
    if patient.config is None:
        return unknown("handoff", "where they lie stands in the configuration")
    folder = patient.config.handoffs
    latest = newest(list_folder(patient.root, ListFolder(path=folder)).names)
    if latest is None:
        return fine("handoff", "there is none yet")
    path = str(PurePosixPath(folder) / latest)
    read = read_text(patient.root, ReadText(path=path))
    remedy = "restore it, or move it away: the one before it counts then"
    if read.text is None:
        return problem("handoff", read.problem or f"{path} cannot be read", remedy)
    try:
        handoff = read_handoff(read.text, path)
    except BadInput as error:
        return problem("handoff", str(error), remedy)
    return fine("handoff", f"{path} can be read: {len(handoff.claims)} claims, {len(handoff.dead_ends)} dead ends")


def _lock(patient: Patient) -> Line:
    if patient.at_work is not None:
        return fine("lock", f"held by {patient.at_work}")
    try:
        dead = left_behind(patient.state / LOCK)
    except ToolFailure as error:
        return problem("lock", str(error), "put the campaign on a local disk, and its permissions right")
    if dead is not None:
        return problem("lock", f"{dead} ended without releasing it", f"`optagent continue` takes it over, or {REPAIR}")
    return fine("lock", "free")


def _checkout(patient: Patient) -> Line:
    if patient.config is None:
        return unknown("checkout", "where it lies stands in the configuration")
    source = patient.source
    if source is None:
        return fine("checkout", "the deployment names none")
    if not (source.exists() or wanted_revision(patient)) and patient.config.deployment.kind == "simulator":
        return fine("checkout", "the simulated one is made by the first sitting")
    seen = look_at_checkout(source)
    if seen is None or seen.problem:
        return problem("checkout", seen.problem or "" if seen else "", "finish that, or name another `source`")
    where = f"at {seen.revision[:12]} ({seen.branch or 'detached'})"
    if seen.dirty:
        files = ", ".join(seen.dirty[:3]) + (" ..." if len(seen.dirty) > 3 else "")
        return problem(
            "checkout", f"{where}, with uncommitted changes in {files}", f"commit or remove them, or {REPAIR}"
        )
    wanted = wanted_revision(patient)
    if patient.at_work is None and not patient.under_way and wanted and wanted != seen.revision:
        return problem(
            "checkout", f"{where}, and the baseline is {wanted[:12]}", f"`optagent continue` settles it, or {REPAIR}"
        )
    try:
        left = branches_left(source, patient.under_way) if patient.ledger and patient.at_work is None else []
    except CheckoutProblem as error:
        return problem("checkout", str(error), "mend that with git")
    if left:
        names = ", ".join(f"optagent/{name}" for name in left[:3])
        return problem("checkout", f"patches of no experiment under way are left over: {names}", REPAIR)
    return fine("checkout", f"clean, {where}")


def wanted_revision(patient: Patient) -> str:
    """The baseline's revision, "" where none is recorded."""
    baseline = patient.ledger.baseline if patient.ledger else None
    return baseline.configuration.revision if baseline else ""


def _servers(patient: Patient) -> Line:
    running = families(patient.root)
    pids = sorted({process.id.pid for family in running.values() for process in family.living()})
    if not pids:
        return fine("servers", "none of this campaign runs")
    names = ", ".join(sorted(mark.launch for mark in running)[:3])
    told = f"{names} (pid {', '.join(map(str, pids[:6]))}{' ...' if len(pids) > 6 else ''})"
    if patient.at_work is not None:
        return fine("servers", f"{told}, of the sitting at work")
    return problem("servers", f"{told} runs, and no sitting does", f"`optagent continue` stops it, or {REPAIR}")


def _port(patient: Patient) -> Line:
    if patient.config is None:
        return unknown("port", "it stands in the configuration")
    address = address_of(patient.config.deployment)
    if not address.local:
        return unknown("port", f"{address.host} is another machine")
    found = listeners(address)
    if not found:
        return fine("port", f"{address.port} is free")
    ours = {process.id.pid for family in families(patient.root).values() for process in family.living()}
    if all(listener.pid in ours for listener in found):
        return fine("port", f"{address.port} is held by this campaign's own server")
    return problem("port", held_by(address, found[0]), "stop that process, or set another deployment.port")


def _disk(patient: Patient) -> Line:
    free = free_bytes(patient.root)
    if free is None:
        return unknown("disk", "how much is free cannot be asked")
    if free < LEAST_FREE_GB * 1e9:
        return problem("disk", f"{free / 1e9:.2f} GB are free", f"make room: {LEAST_FREE_GB:g} GB at least")
    return fine("disk", f"{free / 1e9:.0f} GB are free")


def _permissions(patient: Patient) -> Line:
    refused = [path for path in _written(patient) if path.exists() and not os.access(path, os.W_OK)]
    if refused:
        named = ", ".join(str(path) for path in refused[:3])
        return problem("permissions", f"{named} cannot be written", "chown or chmod it to whoever runs optagent")
    return fine("permissions", "everything that is written to can be")


def _written(patient: Patient) -> Iterable[Path]:
    yield patient.root
    if patient.state.exists():
        yield patient.state
        yield from (entry for entry in sorted(patient.state.iterdir()) if entry.name not in ("simulation",))
    yield from documents(patient)


def documents(patient: Patient) -> list[Path]:
    """The folders of plan, handoffs and environment files, where files are written whole."""
    if patient.config is None:
        return [patient.root]
    config = patient.config
    environments = [
        environment_folder(patient.root, config.deployment, name) for name in config.deployment.environments
    ]
    return [patient.root, (patient.root / config.plan).parent, patient.root / config.handoffs, *environments]


def _temporary(patient: Patient) -> Line:
    if patient.at_work is not None:
        return fine("half-written files", "a sitting is at work")
    found = temporary_files(patient.root, documents(patient))
    if found:
        first = found[0].relative_to(patient.root) if found[0].is_relative_to(patient.root) else found[0]
        return problem(
            "half-written files", f"{len(found)}, such as {first}", f"{REPAIR} (none of them was ever in use)"
        )
    return fine("half-written files", "none")


CHECKS: tuple[Callable[[Patient], Line], ...] = (
    _configuration, _plan, _journal, _checkpoints, _handoff, _lock, _checkout, _servers, _port, _disk, _permissions,
    _temporary,
)  # fmt: skip


def report(patient: Patient) -> list[Line]:
    """Every line, in order."""
    return [check(patient) for check in CHECKS]
