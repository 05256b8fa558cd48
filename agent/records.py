"""The facts a campaign gathers, as they stand in the journal and in a handoff."""

from __future__ import annotations

from dataclasses import dataclass, field

from optagent.agent.change import Change
from optagent.tools.calls.configuration import Configuration


@dataclass(frozen=True)
class Claim:
    """A statement of a handoff that can be held against the world.

    `kind` and `subject` say what to look at, `expected` what was found then:
    `baseline` (subject = metric key, expected = value), `version` (subject = package, expected = version),
    `file` (subject = path in the environment's folder, expected = sha256), `revision` (expected = commit of the
    checkout), `checkout` (expected = "clean" or the sha256 of its uncommitted content), `server` (expected = "running"
    or "stopped"), `gpus` (expected = "8 x NAME"), `log` (subject = path, expected = sha256 or ""),
    `note` (cannot be checked by looking).
    """

    id: str
    text: str
    kind: str = "note"
    subject: str = ""
    expected: str = ""
    evidence: tuple[str, ...] = ()
    verified: bool = False
    verified_at: str | None = None


@dataclass(frozen=True)
class Under:
    """What numbers were measured under: `mark` is the same for the same content of a workload and the same metric, `workload`
    what it was called then."""

    mark: str
    workload: str
    metric: str


@dataclass(frozen=True)
class Measurement:
    """A metric with its interval. `value`, `low`, `high` in the metric's unit; `runs` is how many it rests on, `under` what it
    was measured under (None: not known)."""

    metric: str
    value: float
    low: float | None = None
    high: float | None = None
    runs: int = 0
    unit: str = ""
    evidence: tuple[str, ...] = ()
    verified: bool = False
    simulated: bool = False
    under: Under | None = None


@dataclass(frozen=True)
class Baseline:
    """A configuration that was kept, with what it gives."""

    configuration: Configuration
    measurement: Measurement | None = None
    label: str = ""


@dataclass(frozen=True)
class Attempt:
    """One experiment as a row: what was changed, how it ended, why. `effect` is a relative gain with its interval."""

    experiment: str
    title: str
    verdict: str
    item: str | None = None
    change: str = ""
    effect: float | None = None
    low: float | None = None
    high: float | None = None
    because: str = ""
    evidence: tuple[str, ...] = ()
    environment: str = ""
    verified: bool = False


@dataclass(frozen=True)
class DeadEnd:
    """A failed or reverted change with its cause and what would make it worth another look (`retry_when`)."""

    id: str
    title: str
    cause: str
    cause_kind: str = "unknown"
    item: str | None = None
    change: Change | None = None
    retry_when: str | None = None
    environment: str = ""
    evidence: tuple[str, ...] = ()
    verified: bool = False


@dataclass(frozen=True)
class Part:
    """One of several changes that a pending experiment bundled."""

    title: str
    item: str | None = None
    change: Change = field(default_factory=Change)


@dataclass(frozen=True)
class SplitPart:
    """A part of a change that is tried apart, under an id of its own."""

    id: str
    title: str
    change: Change = field(default_factory=Change)


@dataclass(frozen=True)
class Split:
    """An item whose change was taken apart, and why. `change` is the whole of it, `parts` are those left to be tried.

    `experiment` is the one that led to it, "" when a part was known to fail before anything was launched. Of a change that
    was `kept` the parts are in the baseline already: each is tried by taking it out.
    """

    item: str
    parts: tuple[SplitPart, ...]
    because: str
    change: Change = field(default_factory=Change)
    experiment: str = ""
    kept: bool = False


@dataclass(frozen=True)
class InFlight:
    """An experiment that was under way when the handoff was written."""

    experiment: str
    title: str
    parts: tuple[Part, ...] = ()
    log: str | None = None
    state: str = "unknown"
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True)
class Room:
    """What a launch said of its memory: the tokens that the KV cache holds, and the GB of it and of the weights on the GPU
    that has the most (None: it did not say)."""

    tokens: int
    kv_gb: float | None = None
    weights_gb: float | None = None


@dataclass(frozen=True)
class Lesson:
    """Something that was learnt, with where it comes from."""

    text: str
    evidence: tuple[str, ...] = ()
    verified: bool = False


@dataclass(frozen=True)
class Option:
    """One way to answer a question, and what it leads to."""

    key: str
    leads_to: str


@dataclass(frozen=True)
class Question:
    """A clarification: what the owner is asked, why looking or measuring cannot settle it, and what is on offer.

    It is `withdrawn` when its reason has gone before it was answered.
    """

    id: str
    reason: str
    text: str
    why: str
    options: tuple[Option, ...] = ()
    item: str | None = None
    facts: tuple[str, ...] = ()
    answer: str | None = None
    withdrawn: bool = False


@dataclass(frozen=True)
class NextStep:
    text: str
    item: str | None = None
