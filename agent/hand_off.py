"""Writing a handoff: the ledger and a fresh look at the world, put into the form that the next sitting reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import PurePosixPath

from optagent.agent.change import describe
from optagent.agent.errors import OptagentError
from optagent.agent.experiments import BASELINE, CONFIRM, SURVEY, Experiment
from optagent.agent.handoff.model import Handoff
from optagent.agent.ledger import Ledger
from optagent.agent.orient import latest_handoff
from optagent.agent.plan.model import Status
from optagent.agent.records import Attempt, Baseline, Claim, InFlight, Lesson, NextStep, Part, Under
from optagent.agent.session import Session
from optagent.agent.standing import Kind, Standing
from optagent.agent.total_gain import total_gain
from optagent.agent.verdict import Verdict
from optagent.agent.workloads import called
from optagent.tools.calls.files import ListFolder, WriteText
from optagent.tools.calls.world import World

MOST_ATTEMPTS = 40
MOST_LESSONS = 20


def write_handoff(session: Session, world: World, standings: Sequence[Standing], ended: str) -> str:
    """Compose, render and write a handoff; returns its path. The one it supersedes stays as it is, named in it."""
    from optagent.agent.handoff.render import render_handoff

    handoff = compose(session, world, standings, ended)
    number = int(handoff.id.removeprefix("H"))
    path = str(PurePosixPath(session.config.handoffs) / f"{number:04d}-{handoff.written[:10]}.md")
    text = render_handoff(handoff)
    written = session.toolbox.write_text(
        WriteText(key=f"handoff:{handoff.id}:{session.ledger.seq}", path=path, text=text)
    )
    if not written.written:
        raise OptagentError(f"{path} could not be written: {written.problem}")
    session.note("handoff", {"id": handoff.id, "path": path, "ended": ended}, handoff.id)
    return path


def _named(ledger: Ledger, baseline: Baseline | None) -> Baseline | None:
    """The baseline with the workload of its record by its name, where there is more than one; without it otherwise."""
    if baseline is None or baseline.measurement is None or baseline.measurement.under is None:
        return baseline
    under = baseline.measurement.under if len(ledger.workloads) > 1 else None
    named = replace(under, workload=called(under, ledger.workloads)) if under else None
    return replace(baseline, measurement=replace(baseline.measurement, under=named))


def _of_workload(ledger: Ledger, under: Under | None) -> str:
    """What a number belongs to, where there is more than one workload; "" otherwise."""
    return f" under {called(under, ledger.workloads)}" if under is not None and len(ledger.workloads) > 1 else ""


def _number(session: Session) -> int:
    names = session.toolbox.list_folder(ListFolder(path=session.config.handoffs)).names
    return max([int(n[:4]) for n in names if n[:4].isdigit()], default=0) + 1


def compose(session: Session, world: World, standings: Sequence[Standing], ended: str) -> Handoff:
    """Everything the next sitting has to know, each claim with its evidence."""
    ledger, config = session.ledger, session.config
    now = session.time()
    objective = config.objective
    better = "up" if objective.direction == "max" else "down"
    first = ledger.first_baseline
    return Handoff(
        id=f"H{_number(session):04d}", campaign=config.name, written=now, ended=ended, simulated=world.simulated,
        supersedes=latest_handoff(session) or None,
        objective=objective.statement or f"{objective.metric} {better}, by at least {objective.min_effect:.0%} a change",
        principles=tuple(principle_lines(session)),
        first_baseline=_named(ledger, first), baseline=_named(ledger, ledger.baseline), total_gain=total_gain(ledger),
        claims=tuple(claims(session, world, now)), lessons=tuple(_lessons(ledger)),
        attempts=tuple(attempts(ledger)[-MOST_ATTEMPTS:]), dead_ends=tuple(ledger.dead_ends.values()),
        in_flight=tuple(_in_flight(ledger)), next_steps=tuple(_next_steps(standings)),
        questions=tuple(ledger.open_questions()),
    )  # fmt: skip


def principle_lines(session: Session) -> list[str]:
    """The owner's principles, the general ones first and the owner's own sentences after them."""
    p = session.config.principles
    lines = ["precision is preserved"] if p.preserve_precision else []
    lines.append("code may be changed" if p.allow_code_changes else "code is not changed")
    lines += [f"--{f} is forbidden" for f in p.forbidden_flags]
    return lines + list(p.statements)


def claims(session: Session, world: World, now: str) -> list[Claim]:
    """What can be held against the world later: the baseline's number, versions, checkout, files, processes, GPUs."""
    ledger = session.ledger
    found: list[Claim] = []

    def add(text: str, kind: str, subject: str, expected: str, evidence: str = "probe", verified: bool = True) -> None:
        found.append(
            Claim(f"C{len(found) + 1}", text, kind, subject, expected, (evidence,), verified, now if verified else None)
        )

    baseline = ledger.baseline
    if baseline and baseline.measurement:
        m = baseline.measurement
        add(
            f"the baseline gives {m.metric} {m.value:.4g}{_of_workload(ledger, m.under)}",
            "baseline",
            m.metric,
            f"{m.value:.6g}",
            ", ".join(m.evidence[:2]),
            m.verified,
        )
    for name, version in sorted(world.versions.items()):
        add(f"{name} is {version}", "version", name, version)
    if world.gpus:
        add(f"{len(world.gpus)} GPUs", "gpus", "", f"{len(world.gpus)} x {world.gpus[0].name}")
    if world.checkout is not None and not world.checkout.problem:
        add(f"the checkout is at {world.checkout.revision[:12]}", "revision", "", world.checkout.revision)
        state = world.checkout.dirty_sha256 if world.checkout.dirty else "clean"
        add(
            "the checkout is clean" if state == "clean" else "the checkout has uncommitted changes",
            "checkout",
            "",
            state or "clean",
        )
    for name, digest in sorted(world.files.items()):
        if digest is not None:
            add(f"{name} is as recorded", "file", name, digest)
    add(
        "a server is running" if world.port_open else "no server is running",
        "server",
        "",
        "running" if world.port_open else "stopped",
    )
    return found


def attempts(ledger: Ledger) -> list[Attempt]:
    """One row an experiment, the failed ones included; what an earlier handoff told comes first. The launches of a survey
    that decided nothing have no rows: a lesson sums them up."""
    done = (e for e in ledger.experiments.values() if e.verdict and e.kind != BASELINE)
    return [*ledger.attempts, *(_row(ledger, e) for e in done if not _only_looked(e))]


def _only_looked(e: Experiment) -> bool:
    return e.kind == SURVEY and e.verdict == Verdict.INCONCLUSIVE


def _row(ledger: Ledger, e: Experiment) -> Attempt:
    change = describe(e.change) if e.kind != CONFIRM else "all kept changes"
    change = f"taken out again: {change}" if e.removal else change
    runs = tuple(r.evidence for r in e.runs if r.valid and r.evidence)[:2]
    failed = tuple(line for f in e.failures[-1:] for line in f.evidence[:2])
    return Attempt(
        e.id,
        e.title,
        e.verdict,
        e.item,
        change,
        e.effect,
        e.low,
        e.high,
        e.because + (_of_workload(ledger, e.under) if e.effect is not None else ""),
        (*runs, *failed),
        e.base.environment,
        True,
    )


def _lessons(ledger: Ledger) -> list[Lesson]:
    return [*ledger.lessons[-MOST_LESSONS:], *_split_apart(ledger), *_surveyed(ledger)]


def _surveyed(ledger: Ledger) -> list[Lesson]:
    """What the surveys looked at, all launches of one in one sentence."""
    looks = [e for e in ledger.experiments.values() if e.kind == SURVEY and e.verdict]
    if not looks:
        return []
    among = list(dict.fromkeys(i for e in looks for i in e.among))
    failed = sum(e.verdict in (Verdict.FAILED, Verdict.INVALID) for e in looks)
    kept = [e.id for e in looks if e.verdict == Verdict.KEEP]
    took = f"kept for the time being: {', '.join(kept)}" if kept else "none was kept"
    text = (
        f"A survey looked at {len(looks)} combinations of {len(among)} items ({', '.join(among[:12])}), one launch each; "
        f"{failed} did not run; {took}"
    )
    return [Lesson(text, (looks[0].id, looks[-1].id), True)]


def _split_apart(ledger: Ledger) -> list[Lesson]:
    """What became of the parts of changes that were taken apart."""
    found = []
    for split in list(ledger.splits.values())[-MOST_LESSONS:]:
        ends = "; ".join(f"{p.title}: {ledger.item_status.get(p.id, Status.OPEN)}" for p in split.parts)
        evidence = (split.experiment,) if split.experiment else ()
        found.append(Lesson(f"{split.item} was taken apart, since {split.because}. {ends}", evidence, True))
    return found


def _in_flight(ledger: Ledger) -> list[InFlight]:
    """What nobody has looked into yet, of earlier sittings and of this one."""
    current = ledger.current()
    if current is None:
        return ledger.in_flight
    part = Part(current.title, current.item, current.change)
    done = (
        f"{len(current.values('candidate'))} candidate and {len(current.values('baseline'))} baseline runs are measured"
    )
    return [*ledger.in_flight, InFlight(current.id, current.title, (part,), None, done, (current.id,))]


def _next_steps(standings: Sequence[Standing]) -> list[NextStep]:
    order = {Kind.RUNNABLE: 0, Kind.WAITING: 1, Kind.BLOCKED: 2, Kind.DEAD: 3}
    left = sorted((s for s in standings if s.kind in order and not s.final), key=lambda s: order[s.kind])
    return [NextStep(f"{s.item.title}: {s.because}", s.item.id) for s in left[:12]]
