"""Everything `decide` looks at, as one immutable value, and how it is taken from plan, ledger and findings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise

from optagent.agent.bundling import Bundle
from optagent.agent.candidates import candidates
from optagent.agent.dead_ends import is_of, matching, worth_another_look
from optagent.agent.experiments import BASELINE, CONFIRM, TRIAL, Experiment
from optagent.agent.judging import allowed_off
from optagent.agent.ledger import Ledger
from optagent.agent.load import Load
from optagent.agent.noise import Noise
from optagent.agent.outcomes import Evidence
from optagent.agent.plan.model import Item, Plan, Status
from optagent.agent.plan.owner import effective_status
from optagent.agent.principles import PrinciplesLike
from optagent.agent.ranking import Ranking, ranking
from optagent.agent.reconcile import Findings
from optagent.agent.records import Baseline, DeadEnd, Question, Split
from optagent.agent.splitting import concerns, settled_elsewhere, split_ahead
from optagent.agent.standing import Bench, Kind, standing
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
    `drifted` says how the output of all kept changes together differs from the first baseline's, "" when it does not.
    `searches` are the trials of items that name a range. With `surveying`, simple items may be looked at
    together; `experiments` are all of them, `bundles` the combinations that have their verdict, `removals` the experiments in
    which an item was taken out again, `tried` the items that had an experiment of their own. `splits` are the changes that
    were taken apart, `ranks` the places that items had when the plan was first read, `evidence` is what moves items in the
    plan's order. `elsewhere` names the workload of the baseline's record, where that is not the present one."""

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
    elsewhere: str = ""
    under_way: Experiment | None = None
    confirmed: bool = False
    drifted: str = ""
    reads_prose: bool = False
    searches: Mapping[str, Sequence[Experiment]] = field(default_factory=dict)
    direction: str = "max"
    seed: int = 1
    load: Load | None = None
    surveying: bool = False
    experiments: Sequence[Experiment] = ()
    bundles: tuple[Bundle, ...] = ()
    removals: Mapping[str, Sequence[str]] = field(default_factory=dict)
    tried: frozenset[str] = frozenset()
    splits: Mapping[str, Split] = field(default_factory=dict)
    ranks: Mapping[str, int | None] = field(default_factory=dict)
    evidence: Evidence = field(default_factory=Evidence)

    def bench(self) -> Bench:
        return Bench(
            self.plan, self.status, self.written, self.results, self.dead_ends, self.questions, self.approvals, self.exceptions,
            self.lifted, self.repeated, self.facts, self.principles, self.reads_prose,
            self.baseline.configuration, {**self.splits, **{s.item: s for s in self.due_splits}},
        )  # fmt: skip

    @cached_property
    def due_splits(self) -> tuple[Split, ...]:
        """What has to be taken apart before anything is launched: open items of which a part is known to fail."""
        items = self._items(self.splits)
        return tuple(s for item in items if (s := self._due_split(item, items)) is not None)

    def _due_split(self, item: Item, items: Sequence[Item]) -> Split | None:
        if item.id in self.lifted or item.change is None or concerns(self.splits.get(item.id), item):
            return None
        if effective_status(item, self.status, self.written) is not Status.OPEN:
            return None
        binding = [d for d in self.dead_ends if not worth_another_look(d, self.facts)]
        found = matching(item.change, item.id, binding, self.facts.get("sglang"))
        if not found or any(is_of(d, item.id, item.change) for d in found):
            return None
        settled = settled_elsewhere(item.id, (), self.dead_ends, items)
        taken = {i.id for i in items} | {d.id for d in self.dead_ends}
        return split_ahead(item, found, settled, self.baseline.configuration, taken)

    def _items(self, splits: Mapping[str, Split]) -> list[Item]:
        return candidates(self.plan, self.dead_ends, splits, self.status, self.written)

    @cached_property
    def ranking(self) -> Ranking:
        """Everything that may be tried, in the order in which it is."""
        bench = self.bench()
        items = self._items(bench.splits)
        to_try = {i.id for i in items if standing(i, bench).kind in (Kind.RUNNABLE, Kind.WAITING, Kind.BLOCKED)}
        evidence = replace(self.evidence, noise=self.noise, base=self.baseline.configuration)
        return ranking(items, to_try, evidence, self.ranks)

    def candidates(self) -> list[Item]:
        """The plan's items, their parts, and the dead ends that no item stands for: they may reopen too."""
        return list(self.ranking.order)


def answered_with(ledger: Ledger, reason: str, answer: str) -> frozenset[str]:
    """Items whose last answered question of this reason got this answer."""
    asked = [q for q in ledger.questions.values() if q.reason == reason and q.answer is not None]
    last = {q.item: q.answer for q in asked if q.item}
    return frozenset(item for item, given in last.items() if given == answer)


def repeated_failures(ledger: Ledger) -> dict[str, str]:
    """Items that failed twice running for the same cause, with that cause. Each `again` of the owner is one more try."""
    found: dict[str, str] = {}
    for item in {e.item for e in ledger.experiments.values() if e.item}:
        tries = [_cause(e) for e in ledger.of_item(item) if e.verdict and e.kind != TRIAL]
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
    settled = [e for e in ledger.measured_here() if e.sitting == ledger.stretch and e.verdict]
    measured, off, misses, failed = False, 0.0, 0, ""
    noise = ledger.noise_in(baseline.configuration.environment)
    for e in settled:
        if e.kind == BASELINE and e.base.fingerprint() == mark:
            off = e.effect or 0.0
            misses = 0 if e.verdict == Verdict.KEEP else misses + (e.effect is not None)
            measured = measured or e.verdict == Verdict.KEEP
            failed = e.because if e.verdict in (Verdict.FAILED, Verdict.INVALID) else ""
        elif _became_baseline(e) and e.candidate is not None and e.candidate.fingerprint() == mark:
            measured, failed = True, ""
        elif e.base.fingerprint() == mark and _baseline_failed(e):
            failed = e.because
        elif e.base.fingerprint() == mark and _has_drifted(e, baseline, tolerance, noise):
            measured = False
    return BaselineCheck(measured, off, misses, failed)


def _baseline_failed(e: Experiment) -> bool:
    """Whether it was the baseline's own launch that ended the experiment."""
    return e.verdict == Verdict.INVALID and bool(e.failures) and e.failures[-1].arm == "baseline"


def _became_baseline(e: Experiment) -> bool:
    """Whether the experiment's candidate was kept, or what is left without an item that nobody missed."""
    return e.verdict == Verdict.KEEP or (e.removal and e.verdict in (Verdict.REVERT, Verdict.INCONCLUSIVE))


def _has_drifted(e: Experiment, baseline: Baseline, tolerance: float, noise: Noise | None) -> bool:
    """Whether the baseline's own runs in this experiment lie out of tolerance of its record: it has to be looked at
    again before anything else is held against it."""
    values, record = list(e.values("baseline").values()), baseline.measurement
    if not values or record is None:
        return False
    allowed = allowed_off(tolerance, noise, len(values), record.runs)
    return abs(geometric_mean(values) / record.value - 1) > allowed


def is_confirmed(ledger: Ledger, baseline: Baseline, first: Baseline | None) -> bool:
    """Whether the present baseline is the first one, or was already held against it side by side, under this workload."""
    mark = baseline.configuration.fingerprint()
    if first is None or first.configuration.fingerprint() == mark:
        return True
    start = first.configuration.fingerprint()
    return any(
        e.verdict
        and e.candidate
        and e.candidate.fingerprint() == mark
        and (e.kind == CONFIRM or (e.base.fingerprint() == start and not e.pooled))
        for e in ledger.measured_here()
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
