"""Writing a handoff: the ledger and a fresh look at the world, put into the form that the next sitting reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import PurePosixPath

from optagent.agent.change import Change, describe
from optagent.agent.errors import OptagentError
from optagent.agent.experiments import BASELINE, CONFIRM, SURVEY, Experiment
from optagent.agent.handoff.folder import next_number
from optagent.agent.handoff.model import Handoff, Place
from optagent.agent.ledger import Ledger
from optagent.agent.orient import handoff_names, latest_handoff
from optagent.agent.plan.model import Status
from optagent.agent.reconcile import sha256
from optagent.agent.records import Attempt, Baseline, Claim, DeadEnd, InFlight, Lesson, NextStep, Part, Under
from optagent.agent.session import Session
from optagent.agent.standing import Kind, Standing
from optagent.agent.total_gain import total_gain
from optagent.agent.verdict import Verdict
from optagent.agent.workloads import called
from optagent.tools.calls.files import WriteText
from optagent.tools.calls.world import World

MOST_ATTEMPTS = 60
"""Of the latest experiments that are considered for a handoff; its size decides how many it holds."""
MOST_LESSONS = 20
MOST_STEPS = 12


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
    body = {"id": handoff.id, "path": path, "ended": ended, "written": handoff.written, "sha256": sha256(text)}
    session.note("handoff", body, handoff.id)
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


def compose(session: Session, world: World, standings: Sequence[Standing], ended: str) -> Handoff:
    """What the next sitting has to know, each claim with its evidence, in bounded size: the same after 5,000 steps."""
    from optagent.agent.handoff.bounds import bounded

    handoff, left = _gathered(session, world, standings, ended, MOST_ATTEMPTS)
    earlier = f"; {handoff.supersedes} has its own" if handoff.supersedes else ""
    where = f"journal up to entry {session.ledger.seq}: optagent handoff --full shows all{earlier}"
    return bounded(handoff, _weight(standings), left, where)


def whole(session: Session, world: World, standings: Sequence[Standing], ended: str) -> Handoff:
    """The same with everything that the journal holds."""
    return _gathered(session, world, standings, ended, None)[0]


def _gathered(
    session: Session, world: World, standings: Sequence[Standing], ended: str, most: int | None
) -> tuple[Handoff, dict[str, int]]:
    """Everything there is to tell, with at most so many of the latest experiments, and how many records those left out."""
    ledger, config = session.ledger, session.config
    now = session.time()
    objective = config.objective
    better = "up" if objective.direction == "max" else "down"
    rows, earlier = attempts(ledger, most)
    place = Place(world.host, world.user, world.folder)
    handoff = Handoff(
        id=f"H{next_number(handoff_names(session)):04d}", campaign=config.name, written=now, ended=ended,
        simulated=world.simulated, supersedes=latest_handoff(session) or None,
        objective=objective.statement or f"{objective.metric} {better}, by at least {objective.min_effect:.0%} a change",
        principles=tuple(principle_lines(session)),
        first_baseline=_named(ledger, ledger.first_baseline), baseline=_named(ledger, ledger.baseline),
        total_gain=total_gain(ledger),
        claims=tuple(claims(session, world)), lessons=tuple(_lessons(ledger, most is None)),
        attempts=tuple(rows), dead_ends=tuple(ledger.dead_ends.values()),
        in_flight=tuple(_in_flight(ledger)), next_steps=tuple(_next_steps(standings, most is None)),
        questions=tuple(ledger.open_questions()), place=place if place != Place() else None,
    )  # fmt: skip
    return handoff, {"attempts": earlier, "lessons": max(0, len(ledger.lessons) - MOST_LESSONS) if most else 0}


def _weight(standings: Sequence[Standing]) -> Callable[[DeadEnd], int]:
    """How much a dead end matters for what is still to be tried: it is of an open item, or sets what an open one sets."""
    still = [s.item for s in standings if s.kind in (Kind.RUNNABLE, Kind.WAITING, Kind.BLOCKED)]
    items = {item.id for item in still}
    names = {name for item in still if item.change is not None for name in _names(item.change)}

    def weight(dead_end: DeadEnd) -> int:
        if dead_end.item in items or dead_end.id in items:
            return 2
        return int(dead_end.change is not None and not names.isdisjoint(_names(dead_end.change)))

    return weight


def _names(change: Change) -> list[str]:
    whole = [change.patch] if change.patch else []
    return [*change.flags, *change.env, *change.files, *whole]


def principle_lines(session: Session) -> list[str]:
    """The owner's principles, the general ones first and the owner's own sentences after them."""
    p = session.config.principles
    lines = ["precision is preserved"] if p.preserve_precision else []
    lines.append("code may be changed" if p.allow_code_changes else "code is not changed")
    lines += [f"--{f} is forbidden" for f in p.forbidden_flags]
    return lines + list(p.statements)


def claims(session: Session, world: World) -> list[Claim]:
    """What can be held against the world later: the baseline's number, versions, checkout, files, processes, GPUs. All of
    it was looked at when the handoff was written."""
    ledger = session.ledger
    found: list[Claim] = []

    def add(text: str, kind: str, subject: str, expected: str, evidence: str = "probe", verified: bool = True) -> None:
        found.append(Claim(f"C{len(found) + 1}", text, kind, subject, expected, (evidence,), verified))

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
        gpu = world.gpus[0]
        add(f"the GPUs are {len(world.gpus)} x {gpu.name}", "gpus", "", f"{len(world.gpus)} x {gpu.name}")
        add(f"each has {gpu.memory_total_gb:g} GB", "gpu-memory", "", f"{gpu.memory_total_gb:g}")
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


def attempts(ledger: Ledger, most: int | None = None) -> tuple[list[Attempt], int]:
    """One row an experiment, the failed ones included; what an earlier handoff told comes first. With `most` only so many of
    the latest, and how many came before them. The launches of a survey that decided nothing have no rows: a lesson sums
    them up."""
    done = [e for e in ledger.experiments.values() if e.verdict and e.kind != BASELINE and not _only_looked(e)]
    latest = done if most is None else done[-most:]
    told = ledger.attempts if most is None else ledger.attempts[len(ledger.attempts) - max(0, most - len(latest)) :]
    rows = [*told, *(_row(ledger, e) for e in latest)]
    return rows, len(done) + len(ledger.attempts) - len(rows)


def _only_looked(e: Experiment) -> bool:
    return e.kind == SURVEY and e.verdict == Verdict.INCONCLUSIVE


def _row(ledger: Ledger, e: Experiment) -> Attempt:
    change = describe(e.change) if e.kind != CONFIRM else "all kept changes"
    change = f"taken out again: {change}" if e.removal else change
    runs = tuple(r.evidence for r in e.runs if r.valid and r.evidence)[:1]
    failed = tuple(line for f in e.failures[-1:] for line in f.evidence[:2])
    return Attempt(
        e.id,
        e.title,
        e.verdict,
        e.item,
        change,
        _rounded(e.effect),
        _rounded(e.low),
        _rounded(e.high),
        e.because + (_of_workload(ledger, e.under) if e.effect is not None else ""),
        (*runs, *failed),
        e.base.environment,
        True,
    )


def _rounded(fraction: float | None) -> float | None:
    return None if fraction is None else round(fraction, 5)


def _lessons(ledger: Ledger, every: bool) -> list[Lesson]:
    told = ledger.lessons if every else ledger.lessons[-MOST_LESSONS:]
    return [*told, *_split_apart(ledger, every), *_surveyed(ledger)]


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


def _split_apart(ledger: Ledger, every: bool) -> list[Lesson]:
    """What became of the parts of changes that were taken apart."""
    found = []
    for split in list(ledger.splits.values())[0 if every else -MOST_LESSONS :]:
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


def _next_steps(standings: Sequence[Standing], every: bool) -> list[NextStep]:
    order = {Kind.RUNNABLE: 0, Kind.WAITING: 1, Kind.BLOCKED: 2, Kind.DEAD: 3}
    left = sorted((s for s in standings if s.kind in order and not s.final), key=lambda s: order[s.kind])
    return [NextStep(f"{s.item.title}: {s.because}", s.item.id) for s in (left if every else left[:MOST_STEPS])]
