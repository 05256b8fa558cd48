"""The reconcile node: look at the world, hold the handoff against it, diagnose what was in flight, restore."""

from __future__ import annotations

from dataclasses import dataclass, replace

from optagent.agent.checking import Checked, checked_handoff, tell
from optagent.agent.dead_ends import blame, cause_text, log_evidence, met, retry_condition
from optagent.agent.elsewhere import NO_BASELINE
from optagent.agent.errors import OptagentError
from optagent.agent.orient import Orientation, adopt_configured_baseline, take_over
from optagent.agent.plan.model import Plan, Status
from optagent.agent.plan_sync import bring_up_to_date, set_status
from optagent.agent.reconcile import Findings, facts_of, find
from optagent.agent.records import Attempt, Baseline, DeadEnd, InFlight, Part
from optagent.agent.session import Session
from optagent.agent.workloads import record_under
from optagent.tools.calls.configuration import Configuration
from optagent.tools.calls.logs import LogReading, ReadLog
from optagent.tools.calls.patch import RestoreCheckout
from optagent.tools.calls.server import InstallFiles, Stop
from optagent.tools.calls.world import ProbeWorld, World


@dataclass(frozen=True)
class Reconciled:
    """The world after reconciling, what is still not as it should be, and how the handoff's claims fared."""

    world: World
    findings: Findings
    checked: Checked
    facts: dict[str, str]


def probe(session: Session, known_good: Configuration | None = None) -> World:
    """Look at everything that the ledger and the known-good state speak of."""
    configuration = known_good or session.baseline().configuration
    return session.toolbox.probe(ProbeWorld(
        environment=configuration.environment, known=session.ledger.known_processes(),
        launches=session.ledger.pending_launches(), files=sorted(configuration.files),
    ))  # fmt: skip


def reconcile(session: Session, orientation: Orientation, *, check: bool = True) -> Reconciled:
    """Bring the world and the records together. With `check` the handoff is held against the world first."""
    if check:
        checked = look_at_handoff(session, orientation)
        new = take_over(session, orientation, checked.lost)
        if any(difference.what in NO_BASELINE for difference in checked.lost):
            checked = replace(checked, world=probe(session, known_good_state(session, orientation).configuration))
    else:
        checked, new = Checked(probe(session, known_good_state(session, orientation).configuration)), False
    world = checked.world
    if session.ledger.baseline is None:
        dirty = world.checkout is not None and bool(world.checkout.dirty)
        if not dirty:
            adopt_configured_baseline(session, world.checkout.revision if world.checkout else "")
            world = probe(session)
    known_good = known_good_state(session, orientation).configuration
    facts = facts_of(world, known_good.environment, session.config.workload.name)
    if check:
        tell(session, checked, orientation.handoff_path, new=new)
    for pending in session.ledger.in_flight:
        _settle_pending(session, orientation.plan, pending, facts)
    findings = find(world, known_good, session.ledger)
    findings, world = _restore(session, findings, known_good, world)
    if session.ledger.pending and findings.clean:
        session.note("reconciled", {"keys": sorted(session.ledger.pending)})
    if session.ledger.baseline is None and not findings.unrecorded:
        adopt_configured_baseline(session, world.checkout.revision if world.checkout else "")
    bring_up_to_date(session, orientation.plan)
    return Reconciled(world, findings, checked, facts)


def known_good_state(session: Session, orientation: Orientation) -> Baseline:
    """The journal's baseline; without one, that of a handoff which was not taken over yet; without one, the configured."""
    if session.ledger.baseline is not None:
        return session.baseline()
    handoff = orientation.handoff
    if handoff is None or handoff.baseline is None or handoff.id in session.ledger.taken_over:
        return session.baseline()
    known = handoff.baseline.configuration.environment in session.config.deployment.environments
    return record_under(handoff.baseline, session.ledger.under) if known else session.baseline()


def look_at_handoff(session: Session, orientation: Orientation) -> Checked:
    """Look at the world, and hold the orientation's handoff against it. Changes nothing."""
    configuration = known_good_state(session, orientation).configuration
    return checked_handoff(session, orientation, probe(session, configuration), configuration.environment)


def _settle_pending(session: Session, plan: Plan, pending: InFlight, facts: dict[str, str]) -> None:
    """Find out how an experiment ended that the last sitting left open, and record it."""
    reading = (
        session.toolbox.read_log(ReadLog(path=pending.log, alive=False)) if pending.log else LogReading(exists=False)
    )
    _tell_pending(session, pending, reading)
    verdict = blame(pending.parts, reading.cause) if pending.parts else None
    if verdict is not None and verdict.part is not None:
        _record_dead_end(session, plan, pending, verdict.part, reading, facts)
        others = ", ".join(p.title for p in pending.parts if p != verdict.part)
        if others:
            session.narrator.tell(
                "note", f"blamed on {verdict.part.title} ({verdict.because}); {others} stays open, to be tried alone"
            )
    elif verdict is not None:
        session.narrator.tell("note", f"{verdict.because}: each of its changes stays open, to be tried apart")
    session.note("attempt", Attempt(
        experiment=pending.experiment, title=pending.title, verdict="failed" if reading.exists else "unknown",
        change=" + ".join(p.title for p in pending.parts),
        because=cause_text(reading) if reading.exists else "its log is gone; how it ended cannot be told",
        evidence=log_evidence(pending.log or "", reading), environment=facts.get("environment", ""), verified=True,
    ), pending.experiment)  # fmt: skip


def _record_dead_end(
    session: Session, plan: Plan, pending: InFlight, part: Part, reading: LogReading, facts: dict[str, str]
) -> None:
    item = plan.item(part.item) if part.item else None
    kind = reading.cause.kind if reading.cause else "unknown"
    condition = (item.retry_when if item else None) or retry_condition(kind, facts)
    if condition and met(condition, facts):
        condition = retry_condition(kind, facts)
    dead_end = DeadEnd(
        id=part.item or f"{pending.experiment}-{part.title}", title=part.title, cause=cause_text(reading), cause_kind=kind,
        item=part.item, change=part.change, retry_when=condition, environment=facts.get("environment", ""),
        evidence=log_evidence(pending.log or "", reading), verified=True,
    )  # fmt: skip
    session.note("dead-end", dead_end, f"{pending.experiment}:{dead_end.id}")
    look = f"; worth another look when {condition}" if condition else ""
    session.narrator.tell("bad", f"dead end: {part.title}{look}")
    if item is not None:
        set_status(session, item.id, Status.DEAD, f"{cause_text(reading)}{look}")


def _tell_pending(session: Session, pending: InFlight, reading: LogReading) -> None:
    if not reading.exists:
        session.narrator.tell("bad", f"pending launch {pending.experiment}: its log {pending.log} is not there")
        return
    session.narrator.tell(
        "step", f"pending launch {pending.experiment} ({pending.title}): {reading.status} during {reading.phase}"
    )
    if reading.cause is not None:
        session.narrator.tell("bad", f"{reading.cause.kind}: {reading.cause.summary}")
        for line in reading.cause.evidence[:3]:
            session.narrator.tell("plain", f"{pending.log}:{line.line}: {line.text.strip()[:160]}")


def _restore(session: Session, findings: Findings, known_good: Configuration, world: World) -> tuple[Findings, World]:
    """Clean what is ours to clean: leftover servers, the checkout, environment files."""
    if findings.foreign or findings.unrecorded or findings.missing_environment:
        return findings, world
    done: list[str] = []
    for left in findings.leftovers:
        stop_server(session, left.pid, left.start_time, f"leftover-{left.pid}")
        done.append(f"stopped the leftover server of {left.launch}")
    if findings.checkout_off:
        revision = known_good.revision or (world.checkout.revision if world.checkout else "")
        done.append(_restore_checkout(session, revision, findings.checkout_off))
    if findings.drifted:
        install(session, known_good, f"{session.ledger.sitting}:restore:{session.ledger.seq}")
        done.append(f"put back {', '.join(findings.drifted)}")
    if not done:
        return findings, world
    session.note("restored", {"what": "; ".join(done)})
    for line in done:
        session.narrator.tell("good", f"restored: {line}")
    world = probe(session)
    return find(world, known_good, session.ledger), world


def _restore_checkout(session: Session, revision: str, reason: str) -> str:
    key = f"{session.ledger.sitting}:checkout:{session.ledger.seq}"
    back = session.toolbox.restore_checkout(RestoreCheckout(key=key, revision=revision, reason=reason))
    if back.problem:
        raise OptagentError(f"the source checkout could not be brought back to {revision[:12]}: {back.problem}")
    saved = f" (kept on branch {back.saved_branch})" if back.saved_branch else ""
    return f"checkout back at {(back.revision or revision)[:12]}: {reason}{saved}"


def install(session: Session, configuration: Configuration, key: str) -> None:
    """Put the configuration's environment files in place. Raises OptagentError when that cannot be done."""
    if not configuration.files:
        return
    done = session.toolbox.install_files(
        InstallFiles(key=key, environment=configuration.environment, files=configuration.files)
    )
    if done.problem:
        raise OptagentError(f"environment files of {configuration.environment} could not be written: {done.problem}")


def stop_server(session: Session, pid: int, start_time: float, name: str) -> None:
    """Stop a server of ours and record that it is gone. Raises OptagentError when it would not go."""
    stopped = session.toolbox.stop(
        Stop(key=f"{session.ledger.sitting}:{name}:stop:{pid}", pid=pid, start_time=start_time)
    )
    if not stopped.gone:
        raise OptagentError(f"server pid {pid} could not be stopped: {stopped.problem}; stop it by hand and continue")
    if stopped.problem:
        session.narrator.tell("note", f"the server is gone, but {stopped.problem}")
    session.note("stopped", {"pid": pid, "start_time": start_time}, f"{pid}:{start_time}")
