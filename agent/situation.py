"""Everything `decide` looks at, as one immutable value, and how it is taken from plan, ledger and findings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from optagent.agent.ledger import BASELINE, CONFIRM, Experiment, Ledger
from optagent.agent.noise import Noise, pooled
from optagent.agent.plan.model import Item, Plan, Status
from optagent.agent.principles import PrinciplesLike
from optagent.agent.reconcile import Findings
from optagent.agent.records import Baseline, DeadEnd, Question
from optagent.agent.standing import Bench
from optagent.agent.verdict import Verdict, geometric_mean


@dataclass(frozen=True)
class Limits:
    """The hours of a sitting, and what is left of them; None is no limit."""

    hours: float | None = None
    hours_left: float | None = None


@dataclass(frozen=True)
class BaselineCheck:
    """How the baseline stands in this sitting. `off` is how far the re-measured value lies from its record (a
    fraction, signed), `misses` how often in a row it was out of tolerance."""

    measured: bool = False
    off: float = 0.0
    misses: int = 0
    failed: str = ""


@dataclass(frozen=True)
class Situation:
    """The world as `decide` sees it. `noise_df_wanted` is how well the noise has to be known before items are tried.
    `drifted` says how the output of all kept changes together differs from the first baseline's, "" when it does not."""

    plan: Plan
    baseline: Baseline
    first_baseline: Baseline | None
    principles: PrinciplesLike
    status: Mapping[str, Status] = field(default_factory=dict)
    written: Mapping[str, Status] = field(default_factory=dict)
    results: Mapping[str, str] = field(default_factory=dict)
    dead_ends: tuple[DeadEnd, ...] = ()
    questions: tuple[Question, ...] = ()
    approvals: frozenset[str] = frozenset()
    exceptions: frozenset[str] = frozenset()
    lifted: frozenset[str] = frozenset()
    repeated: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, str] = field(default_factory=dict)
    findings: Findings = field(default_factory=Findings)
    limits: Limits = Limits()
    check: BaselineCheck = BaselineCheck()
    noise: Noise | None = None
    noise_df_wanted: int = 1
    min_effect: float = 0.02
    max_pairs: int = 12
    tolerance: float = 0.03
    under_way: Experiment | None = None
    confirmed: bool = False
    drifted: str = ""
    reads_prose: bool = False

    def bench(self) -> Bench:
        return Bench(
            self.plan, self.status, self.written, self.results, self.dead_ends, self.questions, self.approvals, self.exceptions,
            self.lifted, self.repeated, self.facts, self.principles, self.reads_prose,
            self.baseline.configuration,
        )  # fmt: skip

    def candidates(self) -> list[Item]:
        """The plan's items, then the dead ends that no item stands for: they may reopen too."""
        known = {i.id for i in self.plan.items}
        orphans = [
            Item(d.id, d.title, 0, status=Status.DEAD, change=d.change, retry_when=d.retry_when)
            for d in self.dead_ends
            if d.change is not None and d.id not in known and (d.item is None or d.item not in known)
        ]
        return [*self.plan.items, *orphans]


def answered_with(ledger: Ledger, reason: str, answer: str) -> frozenset[str]:
    """Items whose last answered question of this reason got this answer."""
    asked = [q for q in ledger.questions.values() if q.reason == reason and q.answer is not None]
    last = {q.item: q.answer for q in asked if q.item}
    return frozenset(item for item, given in last.items() if given == answer)


def repeated_failures(ledger: Ledger) -> dict[str, str]:
    """Items that failed twice running for the same cause, with that cause. Each `again` of the owner is one more try."""
    found: dict[str, str] = {}
    for item in {e.item for e in ledger.experiments.values() if e.item}:
        tries = [_cause(e) for e in ledger.of_item(item) if e.verdict]
        same = [a == b != "" for a, b in pairwise(tries)]
        asked = [q for q in ledger.questions.values() if q.item == item and q.reason == "repeated-failure"]
        if same and same[-1] and sum(same) > sum(q.answer == "again" for q in asked):
            found[item] = ledger.of_item(item)[-1].failures[-1].summary
    return found


def _cause(experiment: Experiment) -> str:
    """What can be compared between two failures: the kind, or where it says nothing the words; "" without a failure."""
    if experiment.verdict != Verdict.FAILED or not experiment.failures:
        return ""
    last = experiment.failures[-1]
    return last.summary if last.kind in ("", "unknown") else last.kind


def baseline_check(ledger: Ledger, baseline: Baseline, tolerance: float) -> BaselineCheck:
    """What this sitting's measurements of the baseline say about its record."""
    mark = baseline.configuration.fingerprint()
    settled = [e for e in ledger.experiments.values() if e.sitting == ledger.stretch and e.verdict]
    measured, off, misses, failed = False, 0.0, 0, ""
    for e in settled:
        if e.kind == BASELINE and e.base.fingerprint() == mark:
            off = e.effect or 0.0
            misses = 0 if e.verdict == Verdict.KEEP else misses + (e.effect is not None)
            measured = measured or e.verdict == Verdict.KEEP
            failed = e.because if e.verdict in (Verdict.FAILED, Verdict.INVALID) else ""
        elif e.verdict == Verdict.KEEP and e.candidate is not None and e.candidate.fingerprint() == mark:
            measured, failed = True, ""
        elif e.base.fingerprint() == mark and _baseline_failed(e):
            failed = e.because
        elif e.base.fingerprint() == mark and _has_drifted(e, baseline, tolerance):
            measured = False
    return BaselineCheck(measured, off, misses, failed)


def _baseline_failed(e: Experiment) -> bool:
    """Whether it was the baseline's own launch that ended the experiment."""
    return e.verdict == Verdict.INVALID and bool(e.failures) and e.failures[-1].arm == "baseline"


def _has_drifted(e: Experiment, baseline: Baseline, tolerance: float) -> bool:
    """Whether the baseline's own runs in this experiment lie out of tolerance of its record: it has to be looked at
    again before anything else is held against it."""
    values, record = list(e.values("baseline").values()), baseline.measurement
    return bool(values) and record is not None and abs(geometric_mean(values) / record.value - 1) > tolerance


def noise_for(ledger: Ledger, environment: str) -> Noise | None:
    """The noise of one launch in this environment, from all that was measured there; None when nothing was."""
    found = ledger.noise_in(environment)
    return pooled(found) if found else None


def is_confirmed(ledger: Ledger, baseline: Baseline, first: Baseline | None) -> bool:
    """Whether the present baseline is the first one, or was already held against it side by side."""
    mark = baseline.configuration.fingerprint()
    if first is None or first.configuration.fingerprint() == mark:
        return True
    start = first.configuration.fingerprint()
    return any(
        e.verdict
        and e.candidate
        and e.candidate.fingerprint() == mark
        and (e.kind == CONFIRM or e.base.fingerprint() == start)
        for e in ledger.experiments.values()
    )


def output_drift(ledger: Ledger, baseline: Baseline) -> str:
    """What the gate found when the present baseline was last held against the first one, "" when it passed."""
    mark = baseline.configuration.fingerprint()
    held = [e for e in ledger.experiments.values() if e.kind == CONFIRM and e.verdict and e.candidate]
    last = next((e for e in reversed(held) if e.candidate and e.candidate.fingerprint() == mark), None)
    if last is None or last.verdict != Verdict.INVALID or not last.failures:
        return ""
    failure = last.failures[-1]
    return f"{last.id}: {failure.summary}" if (failure.stage, failure.arm) == ("gate", "candidate") else ""
