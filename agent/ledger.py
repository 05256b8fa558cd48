"""The ledger: what the journal says so far, folded entry by entry. Every view of a campaign is taken from it.

Each kind of entry has one handler below; the docstring of `Ledger` names them all. Folding is incremental, so that a
step costs the same at the start of a campaign and after thousands of steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from optagent.agent.change import change_from
from optagent.agent.experiments import (
    BASELINE,
    BUNDLE,
    ITEM,
    SURVEY,
    TRIAL,
    Experiment,
    Failure,
    Launches,
    Outlook,
    Run,
)
from optagent.agent.jsonable import from_body
from optagent.agent.noise import Noise
from optagent.agent.plan.model import Status
from optagent.agent.records import (
    Attempt,
    Baseline,
    DeadEnd,
    InFlight,
    Lesson,
    Measurement,
    Question,
    Room,
    Split,
    Under,
)
from optagent.agent.spread import Spread, spread_of
from optagent.agent.verdict import Verdict, geometric_mean
from optagent.agent.workloads import adopted, called, of_workload, same
from optagent.tools.calls.configuration import Configuration, configuration_from
from optagent.tools.calls.world import KnownProcess

CHECKOUT_TOOLS = frozenset({"apply_patch", "keep_patch", "drop_patch", "restore_checkout"})
NO_FACTS = frozenset(
    {"handoff", "sitting", "sitting-ended", "launched", "stopped", "intent", "result", "plan-written", "reconciled"}
    | {"ranks", "interrupted"}
)
"""Kinds of entries after which a new handoff would have nothing more to tell."""
BAND_LENGTH = 40
"""So many of the latest comparisons of a configuration with itself are remembered."""
COSTS_REMEMBERED = 20
"""So many of the latest launches and runs tell what one takes."""


class Entry(Protocol):
    """An entry of the journal."""

    @property
    def seq(self) -> int: ...
    @property
    def at(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def key(self) -> str | None: ...
    @property
    def body(self) -> dict[str, Any]: ...


@dataclass
class Ledger:
    """Folded state. `lifted` are items whose own dead ends do not bind them until they have a verdict: an experiment on
    them is under way, or a question about them was asked, which happens only when no dead end binds them.

    `noise` is the spread of launches and runs by environment, `launch_s` and `run_s` what the latest of them took in seconds.
    `pools` are this sitting's launches by their configuration's fingerprint, `openings` how the latest answers of this
    sitting began, by fingerprint and seed. Experiments by what they are: `bundles` (of several items),
    `removals` and `trials` (of a search) by their item; `tried` are the items that were tried alone. `splits` are changes that
    were taken apart, by their item; `ranks` the places that the items had when the plan was first read.

    `under` is what is measured under now, `workloads` all that was measured under, by its mark. `noise` and `run_s` are of the
    present workload, `other_noise` has that of others by their marks. `simulated` is what the last benchmark run said.

    By a configuration's fingerprint: `examined` is the entry of the first gate it passed, `evaluated` its score on tasks,
    `bands` how later launches of it compared with the first one, as a baseline; `bands` has the same by environment.

    Kinds of entries it knows:

    sitting, sitting-ended, reconciled, took-over, attempt, baseline, first-baseline, experiment, candidate, run,
    failure, gate, verdict, dead-end, reopened, item-status, plan-written, question, answer, withdrawn, intent, result, launched,
    stopped, restored, handoff, split, ranks.
    """

    seq: int = 0
    sittings: list[str] = field(default_factory=list)
    founded: str = ""
    stretch: str = ""
    ended: bool = True
    steps: int = 0
    taken_over: list[str] = field(default_factory=list)
    handoffs: list[str] = field(default_factory=list)
    handoff_seq: int = 0
    fact_seq: int = 0
    first_baseline: Baseline | None = None
    baseline: Baseline | None = None
    experiments: dict[str, Experiment] = field(default_factory=dict)
    dead_ends: dict[str, DeadEnd] = field(default_factory=dict)
    reopened: dict[str, str] = field(default_factory=dict)
    attempts: list[Attempt] = field(default_factory=list)
    in_flight: list[InFlight] = field(default_factory=list)
    lessons: list[Lesson] = field(default_factory=list)
    item_status: dict[str, Status] = field(default_factory=dict)
    item_result: dict[str, str] = field(default_factory=dict)
    plan_written: dict[str, Status] = field(default_factory=dict)
    examined: dict[str, dict[str, Any]] = field(default_factory=dict)
    evaluated: dict[str, dict[str, Any]] = field(default_factory=dict)
    bands: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    questions: dict[str, Question] = field(default_factory=dict)
    noise: dict[str, Spread] = field(default_factory=dict)
    launch_s: list[float] = field(default_factory=list)
    run_s: list[float] = field(default_factory=list)
    pools: dict[str, Launches] = field(default_factory=dict)
    openings: dict[tuple[str, int], tuple[str, ...]] = field(default_factory=dict)
    measured_launches: int = 0
    rooms: dict[str, Room] = field(default_factory=dict)
    bundles: list[str] = field(default_factory=list)
    removals: dict[str, list[str]] = field(default_factory=dict)
    trials: dict[str, list[str]] = field(default_factory=dict)
    tried: set[str] = field(default_factory=set)
    splits: dict[str, Split] = field(default_factory=dict)
    ranks: dict[str, int | None] = field(default_factory=dict)
    processes: dict[tuple[int, float], str] = field(default_factory=dict)
    commands: dict[tuple[int, float], str] = field(default_factory=dict)
    known_dirt: set[str] = field(default_factory=set)
    to_set_aside: set[str] = field(default_factory=set)
    lifted: set[str] = field(default_factory=set)
    pending: dict[str, dict[str, Any]] = field(default_factory=dict)
    recent: list[str] = field(default_factory=list)
    started_at: str = ""
    under: Under | None = None
    workloads: dict[str, Under] = field(default_factory=dict)
    other_noise: dict[str, dict[str, Spread]] = field(default_factory=dict)
    simulated: bool | None = None
    restored: list[dict[str, Any]] = field(default_factory=list)

    def apply(self, entry: Entry) -> None:
        """Take one more entry in."""
        self.seq = entry.seq
        handler = _HANDLERS.get(entry.kind)
        if handler is not None:
            handler(self, entry)
            if entry.kind not in NO_FACTS:
                self.fact_seq = entry.seq

    def interrupted_in_checkout(self) -> bool:
        """Whether something was being done to the checkout when a sitting was killed."""
        return any(b["tool"] in CHECKOUT_TOOLS for b in self.pending.values())

    def known_processes(self) -> list[KnownProcess]:
        """Servers of ours that may still run, as far as their end was not written down."""
        return [
            KnownProcess(pid=pid, start_time=start_time, command_sha256=self.commands.get((pid, start_time), ""))
            for pid, start_time in self.processes
        ]

    def pending_launches(self) -> list[str]:
        """Launches that were begun and whose end nobody wrote down."""
        return [b["request"]["launch"] for b in self.pending.values() if b["tool"] == "launch"]

    @property
    def sitting(self) -> str:
        return self.sittings[-1] if self.sittings else ""

    def open_questions(self) -> list[Question]:
        return [q for q in self.questions.values() if q.answer is None and not q.withdrawn]

    def current(self) -> Experiment | None:
        """The experiment that is under way, if any."""
        return next((e for e in reversed(self.experiments.values()) if not e.verdict), None)

    def measured_here(self) -> list[Experiment]:
        """The experiments whose numbers are those of the present workload."""
        return list(of_workload(self.experiments.values(), self.under))

    def of_item(self, item: str) -> list[Experiment]:
        return [e for e in self.experiments.values() if e.item == item]

    def spread_in(self, environment: str) -> Spread:
        """How launches and runs vary in this environment, from all that was measured there."""
        return self.noise.get(environment, Spread())

    def noise_in(self, environment: str, runs: int = 1) -> Noise | None:
        """The noise of a launch of so many runs in this environment; None when nothing is known of it."""
        return self.spread_in(environment).noise(runs)

    def band_of(self, configuration: Configuration) -> list[dict[str, Any]]:
        """How this configuration compared with itself, or where that was not seen, any in its environment."""
        return self.bands.get(configuration.fingerprint()) or self.bands.get(configuration.environment, [])

    def first_examined(self) -> tuple[Configuration, dict[str, Any]] | None:
        """The first baseline with its examination; where it has none, the configuration that was examined first."""
        if self.first_baseline and (body := self.examined.get(self.first_baseline.configuration.fingerprint())):
            return self.first_baseline.configuration, body
        for body in self.examined.values():
            experiment = self.experiments[body["experiment"]]
            return experiment.candidate if body[
                "arm"
            ] == "candidate" and experiment.candidate else experiment.base, body
        return None

    def launches_of(self, configuration: Configuration) -> Launches:
        """This sitting's launches of this configuration, in whichever experiment they were made."""
        return self.pools.get(configuration.fingerprint(), Launches())


def fold(entries: Iterable[Entry]) -> Ledger:
    """The ledger after all of these entries."""
    ledger = Ledger()
    for entry in entries:
        ledger.apply(entry)
    return ledger


def _sitting(ledger: Ledger, entry: Entry) -> None:
    ledger.sittings.append(entry.body["id"])
    ledger.founded = ledger.founded or entry.at
    if ledger.ended:
        ledger.stretch, ledger.ended, ledger.steps, ledger.started_at = entry.body["id"], False, 0, entry.at
        ledger.pools.clear()
        ledger.openings.clear()
    if entry.body.get("under"):
        _come_under(ledger, from_body(Under, entry.body["under"]))


def _come_under(ledger: Ledger, now: Under) -> None:
    """What is measured under from here on. What did not say so before was measured under the first that does."""
    before, ledger.under = ledger.under, now
    ledger.workloads[now.mark] = now
    if before is None:
        ledger.experiments = {name: adopted(e, now) for name, e in ledger.experiments.items()}
        ledger.baseline = adopted(ledger.baseline, now) if ledger.baseline else None
        ledger.first_baseline = adopted(ledger.first_baseline, now) if ledger.first_baseline else None
    elif before.mark != now.mark:
        ledger.other_noise[before.mark] = ledger.noise
        ledger.noise = ledger.other_noise.pop(now.mark, {})
        ledger.run_s = []
        ledger.pools.clear()
        ledger.openings.clear()
        _remember(ledger, f"the workload changed: {called(now, ledger.workloads)}")


def _sitting_ended(ledger: Ledger, entry: Entry) -> None:
    ledger.ended = True


def _reconciled(ledger: Ledger, entry: Entry) -> None:
    for key in entry.body["keys"]:
        ledger.pending.pop(key, None)


def _took_over(ledger: Ledger, entry: Entry) -> None:
    body = entry.body
    ledger.taken_over.append(body["handoff"])
    ledger.attempts += [from_body(Attempt, a) for a in body.get("attempts", [])]
    ledger.lessons += [from_body(Lesson, a) for a in body.get("lessons", [])]
    for each in body.get("dead_ends", []):
        dead_end = from_body(DeadEnd, each)
        ledger.dead_ends.setdefault(dead_end.id, dead_end)
    ledger.in_flight += [from_body(InFlight, each) for each in body.get("in_flight", [])]
    if dirt := body.get("dirt"):
        ledger.known_dirt.add(dirt)
    if any(each["what"] in ("GPUs", "deployment") for each in body.get("lost", [])):
        for measured in (ledger.noise, ledger.rooms, ledger.bands, ledger.launch_s, ledger.run_s):
            measured.clear()  # of other GPUs
    _remember(ledger, f"took over {body['handoff']}")


def _attempt(ledger: Ledger, entry: Entry) -> None:
    attempt = from_body(Attempt, entry.body)
    ledger.attempts.append(attempt)
    ledger.in_flight = [f for f in ledger.in_flight if f.experiment != attempt.experiment]
    _remember(ledger, f"{attempt.experiment} {attempt.title}: {attempt.verdict}")


def _baseline_of(ledger: Ledger, body: Mapping[str, Any]) -> Baseline:
    measured = from_body(Measurement, body["measurement"]) if body.get("measurement") else None
    baseline = Baseline(configuration_from(body["configuration"]), measured, body.get("label", ""))
    if measured is None or measured.under is None:
        return adopted(baseline, ledger.under) if ledger.under else baseline
    ledger.workloads.setdefault(measured.under.mark, measured.under)
    return baseline


def _baseline(ledger: Ledger, entry: Entry) -> None:
    ledger.baseline = now = _baseline_of(ledger, entry.body)
    first = ledger.first_baseline
    if first is None or (first.configuration == now.configuration and _is_newer(now.measurement, first.measurement)):
        ledger.first_baseline = now


def _is_newer(measured: Measurement | None, record: Measurement | None) -> bool:
    """Whether it takes the record's place as that of the first baseline: there was none, or one of another workload."""
    return record is None or (measured is not None and not same(measured.under, record.under))


def _first_baseline(ledger: Ledger, entry: Entry) -> None:
    ledger.first_baseline = _baseline_of(ledger, entry.body)


def _experiment(ledger: Ledger, entry: Entry) -> None:
    b = entry.body
    ledger.experiments[b["id"]] = Experiment(
        id=b["id"], kind=b["kind"], title=b["title"], base=configuration_from(b["base"]), sitting=ledger.stretch,
        item=b.get("item"), change=change_from(b.get("change", {})), goal=b.get("goal", 0), began=entry.at,
        repeats=b.get("repeats", 1), pooled=b.get("pooled", False), removal=b.get("removal", False),
        items=tuple(b.get("items", ())), among=tuple(b.get("among", ())),
        root=configuration_from(b["root"]) if b.get("root") else None,
        outlook=from_body(Outlook, b["outlook"]) if b.get("outlook") else None,
        candidate=configuration_from(b["candidate"]) if b.get("candidate") else None,
        under=from_body(Under, b["under"]) if b.get("under") else ledger.under,
    )  # fmt: skip
    if b.get("item"):
        ledger.lifted.add(b["item"])
    if b["kind"] in (BUNDLE, SURVEY):
        ledger.bundles.append(b["id"])
    if b.get("removal"):
        ledger.removals.setdefault(b["item"], []).append(b["id"])
    if b["kind"] == ITEM and b.get("item"):
        ledger.tried.add(b["item"])
    if b["kind"] == TRIAL:
        ledger.trials.setdefault(b["item"], []).append(b["id"])
    ledger.steps += 1


def _edit(ledger: Ledger, entry: Entry, **changes: Any) -> Experiment:
    edited = replace(ledger.experiments[entry.body["experiment"]], **changes)
    ledger.experiments[edited.id] = edited
    return edited


def _candidate(ledger: Ledger, entry: Entry) -> None:
    b = entry.body
    _edit(ledger, entry, candidate=configuration_from(b["configuration"]), versions=dict(b.get("versions", {})))


def _run(ledger: Ledger, entry: Entry) -> None:
    run = from_body(Run, entry.body["run"])
    runs = ledger.experiments[entry.body["experiment"]].runs
    done = _edit(ledger, entry, runs=(*runs, run), latest="run")
    if run.elapsed_s is not None:
        ledger.run_s = [*ledger.run_s[1 - COSTS_REMEMBERED :], run.elapsed_s]
    configuration = done.candidate if run.arm == "candidate" else done.base
    if run.valid and run.value is not None and configuration is not None:
        mark = configuration.fingerprint()
        if run.openings and run.seed is not None:
            ledger.openings[mark, run.seed] = run.openings
        ledger.measured_launches += len(done.launches(run.arm)[run.pair]) == 1
        ledger.pools[mark] = _with_run(ledger.pools.get(mark, Launches()), done, run, ledger.measured_launches)


def _with_run(pool: Launches, experiment: Experiment, run: Run, at: int) -> Launches:
    """The pool with one more run: a launch of its own, or one more of the last launch."""
    runs = experiment.launches(run.arm)[run.pair]
    kept = len(pool) - (len(runs) > 1)
    names = [n for n in run.metrics if all(r.metrics.get(n, 0) > 0 for r in runs)]
    means = {n: geometric_mean([r.metrics[n] for r in runs]) for n in names}
    return Launches(
        (*pool.values[:kept], experiment.values(run.arm)[run.pair]),
        (*pool.metrics[:kept], means),
        (*pool.experiments[:kept], experiment.id),
        (*pool.at[:kept], at),
    )


def _failure(ledger: Ledger, entry: Entry) -> None:
    failures = ledger.experiments[entry.body["experiment"]].failures
    _edit(ledger, entry, failures=(*failures, from_body(Failure, entry.body["failure"])), latest="failure")


def _gate(ledger: Ledger, entry: Entry) -> None:
    body = entry.body
    candidate = body["arm"] == "candidate"
    gated = ledger.experiments[body["experiment"]].gated
    done = _edit(ledger, entry, gated=(*gated, body["arm"]), **({"candidate_gate": body} if candidate else {}))
    configuration = done.candidate if candidate else done.base
    if configuration is None:
        return
    mark = configuration.fingerprint()
    itself = body.get("itself")
    if body.get("file") and (mark not in ledger.examined or (itself and not body["held"])):
        ledger.examined[mark] = body
    if itself and body["held"]:
        for name in (mark, configuration.environment):
            ledger.bands[name] = [*ledger.bands.get(name, [])[1 - BAND_LENGTH :], itself]
    if (body.get("evaluated") or {}).get("score") is not None:
        ledger.evaluated[mark] = body["evaluated"]


def _verdict(ledger: Ledger, entry: Entry) -> None:
    b = entry.body
    done = _edit(
        ledger, entry, verdict=b["verdict"], because=b["because"], sitting=ledger.stretch,
        effect=b.get("effect"), low=b.get("low"), high=b.get("high"), candidate_gate=None,
    )  # fmt: skip
    for arm, configuration in (("baseline", done.base), ("candidate", done.candidate)):
        if configuration:
            shown = [[r.value for r in runs if r.value is not None] for runs in done.launches(arm).values()]
            noise = _noise_of(ledger, done)
            noise[configuration.environment] = noise.get(configuration.environment, Spread()) + spread_of(shown)
    ledger.lifted.discard(done.item or "")
    if done.verdict == Verdict.KEEP and done.item is not None:
        ledger.dead_ends = {k: d for k, d in ledger.dead_ends.items() if d.item != done.item and k != done.item}
    effect = f" {done.effect:+.1%}" if done.effect is not None and done.kind != BASELINE else ""
    _remember(ledger, f"{done.id} {done.title}: {done.verdict}{effect}")


def _noise_of(ledger: Ledger, experiment: Experiment) -> dict[str, Spread]:
    """The noise of the workload that the experiment was measured under."""
    if experiment.under is None or same(experiment.under, ledger.under):
        return ledger.noise
    return ledger.other_noise.setdefault(experiment.under.mark, {})


def _dead_end(ledger: Ledger, entry: Entry) -> None:
    dead_end = from_body(DeadEnd, entry.body)
    ledger.dead_ends[dead_end.id] = dead_end
    ledger.reopened.pop(dead_end.id, None)
    ledger.lifted.discard(dead_end.item or "")
    _remember(ledger, f"dead end: {dead_end.title}")


def _reopened(ledger: Ledger, entry: Entry) -> None:
    ledger.reopened[entry.body["dead_end"]] = entry.body["because"]
    _remember(ledger, f"reopened {entry.body['dead_end']}: {entry.body['because']}")


def _item_status(ledger: Ledger, entry: Entry) -> None:
    ledger.item_status[entry.body["item"]] = Status(entry.body["status"])
    ledger.item_result[entry.body["item"]] = entry.body.get("result", "")


def _plan_written(ledger: Ledger, entry: Entry) -> None:
    ledger.plan_written.update({item: Status(status) for item, status in entry.body["statuses"].items()})


def _question(ledger: Ledger, entry: Entry) -> None:
    question = from_body(Question, entry.body)
    ledger.questions[question.id] = question
    if question.item is not None and question.reason != "plan-ambiguous":
        ledger.lifted.add(question.item)
    _remember(ledger, f"asked {question.id} ({question.reason})")


def _answer(ledger: Ledger, entry: Entry) -> None:
    asked, answer = ledger.questions[entry.body["id"]], entry.body["answer"]
    ledger.questions[asked.id] = replace(asked, answer=answer)
    if asked.reason == "unrecorded-work" and answer == "set-aside":
        ledger.to_set_aside.update(asked.facts)
    if asked.reason == "too-noisy" and answer == "quiet":
        ledger.noise.clear()
    if asked.reason == "baseline-moved" and answer == "accept" and ledger.baseline is not None:
        _accept_what_was_measured(ledger, ledger.baseline)
    if asked.item is not None:
        _answer_about_item(ledger, asked, asked.item, answer)
    _remember(ledger, f"{asked.id} was answered: {answer}")


def _accept_what_was_measured(ledger: Ledger, baseline: Baseline) -> None:
    """What the question's measurements gave becomes the baseline's record, and that of the first one where it is the same."""
    now = replace(baseline, measurement=_latest_measured(ledger, baseline))
    if ledger.first_baseline is not None and ledger.first_baseline.configuration == baseline.configuration:
        ledger.first_baseline = now
    ledger.baseline = now


def _latest_measured(ledger: Ledger, baseline: Baseline) -> Measurement | None:
    """What the last launches of the baseline in this sitting gave, that is, all those since it was last as recorded; None
    when there were none."""
    looks: list[Experiment] = []
    for e in ledger.measured_here():
        if e.kind == BASELINE and e.sitting == ledger.stretch and e.base == baseline.configuration and e.verdict:
            looks = [] if e.verdict == Verdict.KEEP else [*looks, e]
    values = [v for e in looks for v in e.values("baseline").values()]
    record = baseline.measurement
    if not values or record is None:
        return None
    evidence = [*(e.id for e in looks), *(r.evidence for e in looks for r in e.runs if r.valid and r.evidence)]
    simulated = record.simulated if ledger.simulated is None else ledger.simulated
    return Measurement(
        record.metric, round(geometric_mean(values), 4), runs=len(values), unit=record.unit, evidence=tuple(evidence[:4]),
        verified=True, simulated=simulated, under=ledger.under,
    )  # fmt: skip


def _answer_about_item(ledger: Ledger, asked: Question, item: str, answer: str) -> None:
    """The item's status after the answer. An answer that is none of the options leaves it parked."""
    if answer in ("decline", "drop"):
        ledger.item_status[item], ledger.item_result[item] = Status.DROPPED, f"left out by the owner ({asked.id})"
        ledger.lifted.discard(item)
    elif answer in ("approve", "allow", "again"):
        ledger.item_status[item], ledger.item_result[item] = Status.OPEN, ""
        ledger.lifted.add(item)
    if asked.reason == "plan-ambiguous" and answer in ("journal", "again"):
        ledger.plan_written.pop(item, None)


def _withdrawn(ledger: Ledger, entry: Entry) -> None:
    asked = ledger.questions[entry.body["id"]]
    ledger.questions[asked.id] = replace(asked, withdrawn=True)
    _remember(ledger, f"{asked.id} was withdrawn: {entry.body['because']}")


def _intent(ledger: Ledger, entry: Entry) -> None:
    ledger.pending[str(entry.key or entry.body["request"]["key"])] = entry.body  # without a key: begun once more


def _result(ledger: Ledger, entry: Entry) -> None:
    begun, result = ledger.pending.pop(str(entry.key), None), entry.body.get("result", {})
    if begun is not None and begun["tool"] == "bench":
        ledger.simulated = bool(result.get("simulated"))
    if begun is not None and begun["tool"] == "launch" and result.get("outcome") == "ready" and "pid" in result:
        process = result["pid"], result["start_time"]
        if result.get("elapsed_s") is not None:
            ledger.launch_s = [*ledger.launch_s[1 - COSTS_REMEMBERED :], result["elapsed_s"]]
        ledger.processes[process] = begun["request"]["launch"]
        ledger.commands[process] = result.get("command_sha256", "")
        reading = result.get("reading") or {}
        if tokens := reading.get("kv_tokens"):
            mark = configuration_from(begun["request"]["configuration"]).fingerprint()
            ledger.rooms[mark] = Room(tokens, reading.get("kv_gb"), reading.get("weights_gb"))


def _launched(ledger: Ledger, entry: Entry) -> None:
    ledger.processes[(entry.body["pid"], entry.body["start_time"])] = entry.body["launch"]


def _stopped(ledger: Ledger, entry: Entry) -> None:
    process = entry.body["pid"], entry.body["start_time"]
    ledger.processes.pop(process, None)
    ledger.commands.pop(process, None)


def _restored(ledger: Ledger, entry: Entry) -> None:
    ledger.restored.append(entry.body)
    _remember(ledger, f"restored the known-good state: {entry.body['what']}")


def _handoff(ledger: Ledger, entry: Entry) -> None:
    ledger.handoffs.append(entry.body["id"])
    ledger.handoff_seq = entry.seq


def _split(ledger: Ledger, entry: Entry) -> None:
    split = from_body(Split, entry.body)
    ledger.splits[split.item] = split
    _remember(ledger, f"{split.item} was split: {split.because}")


def _ranks(ledger: Ledger, entry: Entry) -> None:
    """Places of items when they were first read; later ones are the owner's edits, and change nothing here."""
    for item, rank in entry.body["ranks"].items():
        ledger.ranks.setdefault(item, rank)


def _remember(ledger: Ledger, line: str) -> None:
    ledger.recent = [*ledger.recent[-11:], line]


_HANDLERS: dict[str, Callable[[Ledger, Entry], None]] = {
    "sitting": _sitting,
    "sitting-ended": _sitting_ended,
    "reconciled": _reconciled,
    "took-over": _took_over,
    "attempt": _attempt,
    "baseline": _baseline,
    "first-baseline": _first_baseline,
    "experiment": _experiment,
    "candidate": _candidate,
    "run": _run,
    "failure": _failure,
    "gate": _gate,
    "verdict": _verdict,
    "dead-end": _dead_end,
    "reopened": _reopened,
    "item-status": _item_status,
    "plan-written": _plan_written,
    "question": _question,
    "answer": _answer,
    "withdrawn": _withdrawn,
    "intent": _intent,
    "result": _result,
    "launched": _launched,
    "stopped": _stopped,
    "restored": _restored,
    "handoff": _handoff,
    "split": _split,
    "ranks": _ranks,
}
KINDS = frozenset(_HANDLERS) | {"decision", "interrupted"}
"""All kinds of entries; decisions and interruptions are recorded for people, and nothing is taken from them."""
