"""Everything that a handoff states and that can be held against the world, whether it calls it a claim or not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

from optagent.agent.handoff.model import Handoff
from optagent.agent.records import Baseline, Claim
from optagent.tools.calls.configuration import flag_arguments
from optagent.tools.calls.facts import LookUp
from optagent.tools.calls.world import World

MOST = 40
"""Facts of one kind that are looked up of one handoff."""

_RESULTS = (".json", ".jsonl")


def stated(handoff: Handoff) -> tuple[Claim, ...]:
    """The claims of the handoff, and what else in it is one: the baseline's paths, environment and results, what is in
    flight, how experiments ended, what dead ends wait for, which questions are open. Each thing once."""
    found: dict[tuple[str, str], Claim] = {}
    for claim in (*handoff.claims, *_of_baseline(handoff), *_of_the_rest(handoff)):
        key = (claim.kind, claim.subject) if claim.kind != "note" else ("note", claim.text)
        if handoff.structured:
            found.setdefault(key, claim)
        else:
            found[claim.kind, f"{claim.id} {claim.subject}"] = claim
    return tuple(found.values())


def _of_baseline(handoff: Handoff) -> Iterator[Claim]:
    baseline = handoff.baseline
    if baseline is None:
        return
    c = baseline.configuration
    yield Claim("B1", f"the baseline's environment {c.environment} is there", "environment", c.environment)
    if c.revision:
        yield Claim(
            "B2", f"the baseline's commit {c.revision[:12]} is in the checkout", "revision", "commit", c.revision
        )
    for flag, value in c.flags.items():
        if isinstance(value, str) and is_path(value):
            yield Claim("B3", f"--{flag} {value} is there", "path", value)
    if any(claim.kind == "server" and claim.expected == "running" for claim in handoff.claims):
        words = " ".join(flag_arguments(c.flags))
        yield Claim("B4", "the server runs with the baseline's flags", "flags", "", words)
    yield from _of_measurement(baseline)


def _of_measurement(baseline: Baseline) -> Iterator[Claim]:
    m = baseline.measurement
    if m is None:
        return
    yield Claim(
        "B5", f"the baseline gives {m.metric} {m.value:.4g}", "baseline", m.metric, f"{m.value:.6g}", m.evidence
    )
    for path in (e for e in m.evidence if e.endswith(_RESULTS)):
        text = f"{PurePosixPath(path).name} is a run of the baseline, {m.metric} about {m.value:.4g}"
        yield Claim("B6", text, "result", path, f"{m.metric}={m.value:.6g}", m.evidence, m.verified)


def _of_the_rest(handoff: Handoff) -> Iterator[Claim]:
    for pending in handoff.in_flight:
        if pending.log:
            yield Claim(pending.experiment, f"{pending.title} is in flight, with a log", "log", pending.log)
    for a in handoff.attempts:
        gain = "" if a.effect is None else f" {a.effect:+.1%}"
        told = f"{a.title or a.change}: {a.verdict}{gain}"
        expected = a.verdict if a.effect is None else f"{a.verdict} {a.effect:.6g}"
        yield Claim(a.experiment, told, "experiment", a.experiment, expected, a.evidence, a.verified)
    for d in handoff.dead_ends:
        waits = f"waits for {d.retry_when}" if d.retry_when else "waits for nothing that is known"
        yield Claim(d.id, f"dead end {d.title}: {waits}", "dead-end", d.id, d.retry_when or "", d.evidence, d.verified)
    for q in handoff.questions:
        yield Claim(q.id, f"asked: {q.text}", "question", q.id, q.answer or "")


def is_path(text: str) -> bool:
    """Whether a flag's value is a path of a file system and not a name, such as that of a model on a hub."""
    return text.startswith(("/", "~/", "./", "../"))


def to_look_up(claims: Iterable[Claim], world: World) -> LookUp:
    """What has to be looked up for these claims beyond what the probe saw. Bounded."""
    of: dict[str, list[str]] = {}
    for claim in claims:
        if (what := _looked_up_as(claim, world)) is not None:
            of.setdefault(what[0], []).append(what[1])

    def some(kind: str) -> list[str]:
        return list(dict.fromkeys(of.get(kind, [])))[:MOST]

    return LookUp(
        paths=some("path"),
        logs=some("log"),
        benchmarks=some("result"),
        revisions=some("commit"),
        branches=some("branch"),
        patches=some("patch"),
        ports=[int(port) for port in some("port")],
        pids=[int(pid) for pid in some("pid")],
        server_flags="flags" in of and world.port_open,
    )


def _looked_up_as(claim: Claim, world: World) -> tuple[str, str] | None:
    if claim.kind in ("path", "log", "result", "patch"):
        return claim.kind, claim.subject
    if claim.kind == "flags":
        return "flags", ""
    if claim.kind == "revision" and claim.subject == "branch":
        return "branch", claim.expected
    if claim.kind == "revision":
        here = world.checkout.revision if world.checkout else ""
        return None if not here or here.startswith(claim.expected) else ("commit", claim.expected)
    word, _, number = claim.subject.partition(" ")
    if claim.kind == "server" and word in ("port", "pid") and number.isdigit():
        return word, number
    return None
