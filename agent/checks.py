"""Holding what a handoff states against what was seen and against the journal: each claim with the evidence. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from optagent.agent.conditions import holds, parse_condition
from optagent.agent.ledger import Ledger
from optagent.agent.records import Claim
from optagent.tools.calls.configuration import FlagValue
from optagent.tools.calls.facts import LookedUp
from optagent.tools.calls.world import World

RUN_TOLERANCE = 0.1
"""How far one run may lie from what is claimed of all of them together."""
EFFECT_TOLERANCE = 0.0006
"""Effects are told to a tenth of a per cent."""


class Outcome(StrEnum):
    HOLDS = "holds"
    BROKEN = "does not hold"
    UNKNOWN = "cannot be checked"


@dataclass(frozen=True)
class Check:
    """What became of one claim: what was found (`because`), and what was looked at (`evidence`)."""

    claim: Claim
    outcome: Outcome
    because: str
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True)
class Sight:
    """Everything that claims are held against.

    `measured` has what was measured since, by metric, with `tolerance` as a fraction; `measured_by` says where that stands.
    `facts` are what conditions speak of. `ours` says that this campaign's journal knows the handoff as one it wrote, so that
    experiments and questions of the same name are the same; `elsewhere` says why its measurements count for nothing here.
    """

    world: World
    looked: LookedUp = field(default_factory=LookedUp)
    ledger: Ledger = field(default_factory=Ledger)
    facts: Mapping[str, str] = field(default_factory=dict)
    measured: Mapping[str, float] = field(default_factory=dict)
    measured_by: tuple[str, ...] = ()
    tolerance: float = 0.03
    ours: bool = False
    elsewhere: str = ""


def check_claims(claims: Sequence[Claim], sight: Sight) -> list[Check]:
    """Each claim with its outcome."""
    return [_CHECKERS.get(claim.kind, _nothing)(claim, sight) for claim in claims]


def _nothing(claim: Claim, sight: Sight) -> Check:
    if claim.subject == "tok/s":
        return Check(claim, Outcome.UNKNOWN, "a rate alone: of which workload, is not said")
    return Check(claim, Outcome.UNKNOWN, "nothing to look at")


def _compare(claim: Claim, seen: str | None, what: str, *evidence: str) -> Check:
    if seen is None:
        return Check(claim, Outcome.UNKNOWN, f"{what} could not be seen", evidence)
    if seen == claim.expected:
        return Check(claim, Outcome.HOLDS, f"{what} is {_short(seen)}", evidence)
    return Check(claim, Outcome.BROKEN, f"{what} is {_short(seen)}, not {_short(claim.expected)}", evidence)


def _short(text: str) -> str:
    return text[:12] if len(text) in (40, 64) and " " not in text else text


def _baseline(claim: Claim, sight: Sight) -> Check:
    if sight.elsewhere:
        return Check(claim, Outcome.UNKNOWN, f"{sight.elsewhere}: no baseline here until it is measured")
    value = sight.measured.get(claim.subject)
    if value is None:
        return Check(claim, Outcome.UNKNOWN, "not measured since")
    expected = _number(claim.expected)
    if expected is None:
        return Check(claim, Outcome.UNKNOWN, f"{claim.expected!r} is not a number")
    off = value / expected - 1 if expected else math.inf
    outcome = Outcome.HOLDS if abs(off) <= sight.tolerance else Outcome.BROKEN
    return Check(claim, outcome, f"measured {value:.4g}, {off:+.1%} against the claim", sight.measured_by)


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _version(claim: Claim, sight: Sight) -> Check:
    where = sight.facts.get("environment", "")
    seen = sight.world.versions.get(claim.subject)
    evidence = f"packages of environment {where}" if where else "packages"
    if seen is not None and seen != claim.expected and re.match(rf"{re.escape(claim.expected)}[.+]", seen):
        return Check(claim, Outcome.HOLDS, f"{claim.subject} is {seen}", (evidence,))
    return _compare(claim, seen, claim.subject, evidence)


def _file(claim: Claim, sight: Sight) -> Check:
    if claim.subject not in sight.world.files:
        return Check(claim, Outcome.UNKNOWN, f"{claim.subject} was not looked at")
    evidence = f"environment {sight.facts.get('environment', '')}: {claim.subject}"
    return _compare(claim, sight.world.files[claim.subject] or "missing", f"sha256 of {claim.subject}", evidence)


def _revision(claim: Claim, sight: Sight) -> Check:
    if claim.subject == "branch":
        return _branch(claim, sight)
    checkout = sight.world.checkout
    if checkout is None or not checkout.revision:
        because = (checkout.problem if checkout else None) or "the checkout's revision could not be seen"
        return Check(claim, Outcome.UNKNOWN, because)
    evidence = (f"HEAD of the checkout, {checkout.branch or 'detached'}",)
    if checkout.revision.startswith(claim.expected):
        return Check(claim, Outcome.HOLDS, f"the checkout's revision is {_short(checkout.revision)}", evidence)
    found = sight.looked.revisions.get(claim.expected)
    if found is None:
        known = ""
    elif not found.commit:
        known = f"; it has no commit {claim.expected[:12]}"
    else:
        where = "is part of that" if found.contained else "is not part of that"
        known = f"; {found.commit[:12]} ({found.subject}) {where}"
    if claim.subject == "commit" and found is not None and found.commit:
        return Check(
            claim, Outcome.HOLDS, f"{found.commit[:12]} is there: {found.subject}", ("git log of the checkout",)
        )
    because = f"the checkout's revision is {_short(checkout.revision)}, not {_short(claim.expected)}{known}"
    if claim.subject == "commit" and found is None:
        return Check(claim, Outcome.UNKNOWN, because, evidence)
    return Check(claim, Outcome.BROKEN, because, evidence)


def _branch(claim: Claim, sight: Sight) -> Check:
    if claim.expected not in sight.looked.branches:
        because = sight.looked.checkout_problem or "the checkout's branches could not be seen"
        return Check(claim, Outcome.UNKNOWN, because)
    commit = sight.looked.branches[claim.expected]
    evidence = ("branches of the checkout",)
    if commit is None:
        return Check(claim, Outcome.BROKEN, f"there is no branch {claim.expected}", evidence)
    current = sight.world.checkout is not None and sight.world.checkout.branch == claim.expected
    out = "checked out" if current else "not checked out"
    return Check(claim, Outcome.HOLDS, f"{claim.expected} is at {commit[:12]}, {out}", evidence)


def _checkout_state(claim: Claim, sight: Sight) -> Check:
    checkout = sight.world.checkout
    if checkout is None:
        return _compare(claim, None, "the checkout")
    seen = checkout.dirty_sha256 if checkout.dirty else "clean"
    listed = ", ".join(checkout.dirty[:5]) or "nothing uncommitted"
    return _compare(claim, seen, "the checkout's uncommitted content", f"git status: {listed}")


def _patch(claim: Claim, sight: Sight) -> Check:
    state = sight.looked.patches.get(claim.subject)
    if state is None:
        return Check(claim, Outcome.UNKNOWN, sight.looked.checkout_problem or "there is no checkout to look at")
    evidence = (f"git apply --check of {claim.subject}",)
    words = {"applied": "is applied", "fits": "is not applied", "does-not-fit": "is not applied, and does not fit"}
    if state == "missing":
        return Check(claim, Outcome.BROKEN, f"{claim.subject} is not there", evidence)
    outcome = Outcome.HOLDS if (state == "applied") == (claim.expected != "not applied") else Outcome.BROKEN
    return Check(claim, outcome, f"{claim.subject} {words[state]}", evidence)


def _server(claim: Claim, sight: Sight) -> Check:
    word, _, number = claim.subject.partition(" ")
    if word in ("port", "pid") and number.isdigit():
        return _process(claim, sight, number, sight.looked.ports if word == "port" else sight.looked.pids)
    server = sight.world.server
    who = f"pid {server.pid}: {server.command[:100]}" if server and server.pid else "the deployment's port"
    return _compare(claim, "running" if sight.world.port_open else "stopped", "the server", who)


def _process(claim: Claim, sight: Sight, number: str, seen: Mapping[str, str | None]) -> Check:
    if number not in seen:
        return Check(claim, Outcome.UNKNOWN, f"{claim.subject} was not looked at")
    found = seen[number]
    said = f"{claim.subject} is {found}" if claim.subject.startswith("pid") else f"{claim.subject}: {found}"
    because = said if found else f"nothing is there: {claim.subject}"
    outcome = Outcome.HOLDS if (claim.expected == "running") == (found is not None) else Outcome.BROKEN
    return Check(claim, outcome, because, ("sockets that listen" if claim.subject.startswith("port") else "processes",))


def _flags(claim: Claim, sight: Sight) -> Check:
    running = sight.looked.running_flags
    if running is None:
        return Check(claim, Outcome.UNKNOWN, "no server answers that could tell its flags")
    wrong = []
    for name, wanted in _flag_words(claim.expected).items():
        seen = running.get(name.replace("-", "_"))
        if seen is not None and str(seen).lower() != str(wanted).lower() and not _same_number(seen, wanted):
            wrong.append(f"--{name} {seen}, not {wanted}")
    evidence = ("/server_info of the running server",)
    if wrong:
        return Check(claim, Outcome.BROKEN, "it runs with " + ", ".join(wrong[:6]), evidence)
    return Check(claim, Outcome.HOLDS, "it runs with these flags", evidence)


def _flag_words(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for part in re.split(r"(?:\A|\s)--", text)[1:]:
        name, _, value = part.strip().partition(" ")
        found[name] = value or "true"
    return found


def _same_number(seen: FlagValue, wanted: str) -> bool:
    a, b = _number(str(seen)), _number(wanted)
    return a is not None and a == b


_GPUS = re.compile(r"\A\s*(?:(\d+)\s*[x×]\s*)?(.+?)\s*\Z")


def gpus_seen(world: World) -> str | None:
    """The GPUs as claims tell them: `8 x NAME`; None when none were seen."""
    return f"{len(world.gpus)} x {world.gpus[0].name}" if world.gpus else None


def same_gpus(there: str, here: str, *, count: bool = True) -> bool:
    """Whether two such texts mean the same GPUs: every word of the shorter name is in the longer one."""
    a, b = _GPUS.match(there), _GPUS.match(here)
    if a is None or b is None:
        return there == here
    if count and a[1] and b[1] and a[1] != b[1]:
        return False
    few, many = sorted((_words(a[2]), _words(b[2])), key=len)
    return few <= many


def _words(name: str) -> set[str]:
    return {word for word in re.findall(r"[a-z0-9]+", name.lower()) if word not in ("nvidia", "gpu", "gpus")}


def _gpus(claim: Claim, sight: Sight) -> Check:
    seen = gpus_seen(sight.world)
    if seen is not None and same_gpus(claim.expected, seen):
        memory = f", {sight.world.gpus[0].memory_total_gb:g} GB each" if sight.world.gpus else ""
        return Check(claim, Outcome.HOLDS, f"what is there is {seen}{memory}", ("the driver",))
    return _compare(claim, seen, "what is there", "the driver")


def _memory(claim: Claim, sight: Sight) -> Check:
    seen, expected = sight.facts.get("gpu.memory_gb"), _number(claim.expected)
    if seen is None or expected is None:
        return Check(claim, Outcome.UNKNOWN, "the GPUs' memory could not be seen")
    near = abs(float(seen) - expected) <= 0.1 * expected
    return Check(claim, Outcome.HOLDS if near else Outcome.BROKEN, f"each GPU has {seen} GB", ("the driver",))


def _disk(claim: Claim, sight: Sight) -> Check:
    seen, expected = sight.world.disk_free_gb, _number(claim.expected)
    if seen is None or expected is None:
        return Check(claim, Outcome.UNKNOWN, "the disk could not be looked at")
    outcome = Outcome.HOLDS if seen >= 0.9 * expected else Outcome.BROKEN
    return Check(claim, outcome, f"{seen:g} GB are free where the campaign lies", ("the file system",))


def _environment(claim: Claim, sight: Sight) -> Check:
    there = sight.world.environments.get(claim.subject)
    evidence = ("environments of optagent.toml",)
    if there is None:
        known = ", ".join(sight.world.environments) or "none"
        return Check(claim, Outcome.UNKNOWN, f"optagent.toml names no {claim.subject}, only {known}", evidence)
    if there:
        return Check(claim, Outcome.HOLDS, f"{claim.subject} is there", evidence)
    return Check(claim, Outcome.BROKEN, f"{claim.subject} is not there, or cannot run a server", evidence)


def _path(claim: Claim, sight: Sight) -> Check:
    seen = sight.looked.paths.get(claim.subject)
    if seen is None or seen.what == "not to be seen":
        return Check(claim, Outcome.UNKNOWN, f"{claim.subject} may not be looked at" if seen else "not looked at")
    if seen.what == "nothing":
        return Check(claim, Outcome.BROKEN, f"{claim.subject} is not there", (claim.subject,))
    size = f", {seen.size_bytes} bytes" if seen.size_bytes is not None else ""
    return Check(claim, Outcome.HOLDS, f"a {seen.what} is there{size}", (claim.subject,))


def _log(claim: Claim, sight: Sight) -> Check:
    reading = sight.looked.logs.get(claim.subject)
    if reading is None:
        return Check(claim, Outcome.UNKNOWN, f"{claim.subject} was not looked at")
    if not reading.exists:
        return Check(claim, Outcome.BROKEN, f"the log {claim.subject} is not there", (claim.subject,))
    cause = reading.cause
    found = f"{reading.status} during {reading.phase}" + (f"; {cause.kind}: {cause.summary}" if cause else "")
    lines = tuple(f"{claim.subject}:{e.line}: {e.text.strip()[:160]}" for e in cause.evidence[:2]) if cause else ()
    wanted = claim.expected
    if (
        wanted
        and wanted not in (reading.status, cause.kind if cause else "")
        and not re.fullmatch("[0-9a-f]{64}", wanted)
    ):
        return Check(claim, Outcome.BROKEN, f"it says {found}, not {wanted}", lines or (claim.subject,))
    return Check(claim, Outcome.HOLDS, f"it is there and says {found}", lines or (claim.subject,))


def _result(claim: Claim, sight: Sight) -> Check:
    if claim.subject not in sight.looked.benchmarks:
        return Check(claim, Outcome.UNKNOWN, f"{claim.subject} was not looked at")
    metrics = sight.looked.benchmarks[claim.subject]
    if metrics is None:
        return Check(claim, Outcome.BROKEN, "no result can be read there", (claim.subject,))
    metric, _, value = claim.expected.partition("=")
    seen, expected = metrics.get(metric), _number(value)
    if not metric or expected is None:
        return Check(claim, Outcome.HOLDS, "a result is there", (claim.subject,))
    if seen is None:
        return Check(claim, Outcome.BROKEN, f"it has no {metric}", (claim.subject,))
    outcome = Outcome.HOLDS if abs(seen - expected) <= RUN_TOLERANCE * abs(expected) else Outcome.BROKEN
    return Check(claim, outcome, f"{metric} is {seen:.4g} in it, {value} is claimed", (claim.subject,))


def _experiment(claim: Claim, sight: Sight) -> Check:
    done = sight.ledger.experiments.get(claim.subject) if sight.ours else None
    if done is None:
        told = next((a for a in sight.ledger.attempts if a.experiment == claim.subject), None)
        where = "taken over unverified" if told is not None else "not made here"
        return Check(claim, Outcome.UNKNOWN, f"this campaign's journal has no runs of it: {where}")
    verdict, _, effect = claim.expected.partition(" ")
    gain = "" if done.effect is None else f" {done.effect:+.1%}"
    evidence = (f"journal: {done.id}", *(r.evidence for r in done.runs[:2] if r.evidence))
    off = effect and (done.effect is None or abs(done.effect - (_number(effect) or 0.0)) > EFFECT_TOLERANCE)
    if done.verdict != verdict or off:
        return Check(claim, Outcome.BROKEN, f"the journal says {done.verdict or 'under way'}{gain}", evidence)
    return Check(claim, Outcome.HOLDS, f"the journal says {done.verdict}{gain}", evidence)


def _dead_end(claim: Claim, sight: Sight) -> Check:
    if sight.ours and (because := sight.ledger.reopened.get(claim.subject)):
        return Check(claim, Outcome.HOLDS, f"it was reopened: {because}", (f"journal: {claim.subject}",))
    recorded = claim.subject in sight.ledger.dead_ends
    evidence = (f"journal: dead end {claim.subject}",) if recorded else ()
    if sight.ours and not recorded:
        return Check(claim, Outcome.BROKEN, "the journal has no such dead end any more")
    if not claim.expected:
        where = "the journal has it" if recorded else "it is not in the journal yet"
        return Check(
            claim, Outcome.HOLDS if recorded else Outcome.UNKNOWN, f"no condition to look at; {where}", evidence
        )
    try:
        condition = parse_condition(claim.expected)
    except ValueError:
        return Check(claim, Outcome.UNKNOWN, f"{claim.expected!r} is no condition that can be looked at", evidence)
    seen = ", ".join(f"{t.fact} is {sight.facts.get(t.fact, 'not known')}" for t in condition.terms)
    met = holds(condition, sight.facts)
    if met is None:
        return Check(claim, Outcome.UNKNOWN, seen, evidence)
    if met:
        return Check(claim, Outcome.BROKEN, f"what it waits for is there ({seen}): worth another look", evidence)
    return Check(claim, Outcome.HOLDS, f"it still waits: {seen}", evidence)


def _question(claim: Claim, sight: Sight) -> Check:
    asked = sight.ledger.questions.get(claim.subject) if sight.ours else None
    if asked is None:
        return Check(claim, Outcome.UNKNOWN, "this campaign's journal has no such question")
    evidence = (f"journal: {asked.id}",)
    if claim.expected and asked.answer != claim.expected:
        return Check(claim, Outcome.BROKEN, f"the journal has the answer {asked.answer or '(none)'}", evidence)
    since = "it was withdrawn since" if asked.withdrawn else f"it was answered: {asked.answer}"
    return Check(claim, Outcome.HOLDS, since if asked.withdrawn or asked.answer else "it is open", evidence)


_CHECKERS: dict[str, Callable[[Claim, Sight], Check]] = {
    "baseline": _baseline,
    "version": _version,
    "file": _file,
    "revision": _revision,
    "checkout": _checkout_state,
    "patch": _patch,
    "server": _server,
    "flags": _flags,
    "gpus": _gpus,
    "gpu-memory": _memory,
    "disk": _disk,
    "environment": _environment,
    "path": _path,
    "log": _log,
    "result": _result,
    "experiment": _experiment,
    "dead-end": _dead_end,
    "question": _question,
}
