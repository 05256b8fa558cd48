"""Settling an experiment: keep or put back, record the dead end, move the baseline, bring the plan up to date."""

from __future__ import annotations

from dataclasses import replace

from optagent.agent.candidates import candidates
from optagent.agent.canonical import canonical
from optagent.agent.change import describe
from optagent.agent.dead_ends import SLOW, retry_condition, says_nothing, with_earlier
from optagent.agent.errors import OptagentError
from optagent.agent.experimenting import arrange
from optagent.agent.experiments import BASELINE, BUNDLE, CONFIRM, SURVEY, TRIAL, Experiment, Failure
from optagent.agent.jsonable import to_body
from optagent.agent.measuring import mean_of
from optagent.agent.plan.model import Item, Plan, Status
from optagent.agent.plan_sync import write_statuses
from optagent.agent.records import Baseline, DeadEnd, Measurement
from optagent.agent.session import Session
from optagent.agent.splitting import Apart, settled_elsewhere, take_apart
from optagent.agent.verdict import Judgement, Verdict
from optagent.tools.calls.patch import DropPatch, KeepPatch
from optagent.tools.journal_store import Draft

STATUS_AFTER = {
    Verdict.KEEP: Status.KEPT, Verdict.REVERT: Status.REVERTED, Verdict.INCONCLUSIVE: Status.INCONCLUSIVE,
    Verdict.INVALID: Status.INVALID, Verdict.FAILED: Status.DEAD,
}  # fmt: skip


def settle(session: Session, plan: Plan, experiment: Experiment, judged: Judgement, facts: dict[str, str]) -> None:
    """Carry the verdict out and record it. Effects first, each done once; then all records in one transaction."""
    drafts = [Draft("verdict", {
        "experiment": experiment.id, "verdict": judged.verdict.value, "because": judged.because,
        "effect": judged.effect, "low": judged.low, "high": judged.high,
    }, experiment.id)]  # fmt: skip
    if experiment.kind == BASELINE:
        drafts += _baseline_measured(session, experiment, judged)
    elif experiment.kind in (BUNDLE, SURVEY):
        drafts += _bundle_settled(session, experiment, judged)
        drafts += _known_to_fail(session, plan, experiment, judged, facts)
    elif experiment.kind == TRIAL:
        drafts.append(_still_searching(experiment, judged))
    elif experiment.kind != CONFIRM:
        drafts += _item_settled(session, plan, experiment, judged, facts)
    session.journal.append_all(drafts)
    items = [i for i in (experiment.item, *experiment.items, *experiment.among) if i is not None]
    if items:
        write_statuses(session, {i: session.ledger.item_status[i] for i in items if i in session.ledger.item_status})
    if experiment.kind != BASELINE:
        arrange(session, session.baseline().configuration, f"{session.ledger.sitting}:{experiment.id}:after")
    _tell(session, experiment, judged)


def _baseline_measured(session: Session, experiment: Experiment, judged: Judgement) -> list[Draft]:
    baseline = session.baseline()
    recorded = baseline.measurement
    if judged.verdict is not Verdict.KEEP or (recorded is not None and recorded.verified):
        return []
    return [Draft("baseline", to_body(replace(baseline, measurement=_measured(session, experiment, "baseline"))))]


def _bundle_settled(session: Session, experiment: Experiment, judged: Judgement) -> list[Draft]:
    """A combination that gains is the baseline from here on; its items have their verdicts still before them either way."""
    if judged.verdict is not Verdict.KEEP:
        return []
    inside = f"{experiment.id}: kept together with others, to be looked at alone"
    known = session.ledger.item_status
    out = [i for i in experiment.among if i not in experiment.items and known.get(i) is Status.TRYING]
    statuses = [(item, Status.TRYING, inside) for item in experiment.items]
    statuses += [(item, Status.OPEN, f"{experiment.id}: out again, others gave more without it") for item in out]
    bodies = [{"item": item, "status": status.value, "result": result} for item, status, result in statuses]
    return [Draft("baseline", to_body(_kept(session, experiment))), *(Draft("item-status", b) for b in bodies)]


def _known_to_fail(
    session: Session, plan: Plan, experiment: Experiment, judged: Judgement, facts: dict[str, str]
) -> list[Draft]:
    """The dead end of the one part that a survey's launch surely failed by: nothing runs into it again. An item that is no
    more than this part is settled by it."""
    if experiment.kind != SURVEY or judged.verdict is not Verdict.FAILED:
        return []
    from optagent.agent.survey.blaming import surely_to_blame

    others = [e for e in session.ledger.experiments.values() if e.id != experiment.id]
    part = surely_to_blame(replace(experiment, verdict=judged.verdict.value), others)
    if part is None or experiment.candidate is None:
        return []
    failure = experiment.failures[-1]
    wanted = [i for i in map(plan.item, experiment.items) if i is not None and i.change and not i.space]
    item = next((i for i in wanted if i.change and canonical(i.change) == canonical(part.change)), None)
    known = DeadEnd(
        id=item.id if item else experiment.id, title=item.title if item else part.title, cause=judged.because,
        cause_kind=failure.kind, item=item.id if item else None, change=part.change,
        retry_when=retry_condition(failure.kind, facts), environment=experiment.candidate.environment,
        evidence=(experiment.id, *failure.evidence), verified=True,
    )  # fmt: skip
    drafts = [Draft("dead-end", to_body(known), experiment.id)]
    if item is not None:
        result = _result(experiment, judged)
        drafts.append(Draft("item-status", {"item": item.id, "status": Status.DEAD.value, "result": result}))
    return drafts


def _still_searching(experiment: Experiment, judged: Judgement) -> Draft:
    """One point of a search settles nothing about its item."""
    body = {"item": experiment.item, "status": Status.TRYING.value, "result": _result(experiment, judged)}
    return Draft("item-status", body)


def _measured(session: Session, experiment: Experiment, arm: str) -> Measurement | None:
    found = mean_of(experiment, arm)
    if found is None:
        return None
    value, runs = found
    evidence = tuple(r.evidence for r in experiment.runs if r.arm == arm and r.valid and r.evidence)
    return Measurement(
        session.config.objective.metric, round(value, 4), runs=runs, evidence=(experiment.id, *evidence[:3]), verified=True,
        simulated=session.config.deployment.kind == "simulator", under=experiment.under,
    )  # fmt: skip


def _item_settled(
    session: Session, plan: Plan, experiment: Experiment, judged: Judgement, facts: dict[str, str]
) -> list[Draft]:
    item = experiment.item or experiment.id
    drafts: list[Draft] = []
    if experiment.removal:
        return _taken_out(session, plan, experiment, judged, facts)
    if judged.verdict is Verdict.KEEP:
        drafts.append(Draft("baseline", to_body(_kept(session, experiment))))
    else:
        _put_back(session, experiment)
    status = STATUS_AFTER[judged.verdict]
    failure = experiment.failures[-1] if experiment.failures else None
    apart = _apart(session, plan, experiment, judged)
    if failure is not None and judged.verdict in (Verdict.FAILED, Verdict.INVALID) and says_nothing(failure):
        status = Status.OPEN
    elif failure is not None and failure.kind == "patch":
        status = Status.INVALID
    elif judged.verdict in (Verdict.FAILED, Verdict.REVERT, Verdict.INVALID):
        dead_end = _narrowed(_dead_end(session, plan, experiment, judged, failure, facts), apart)
        drafts.append(Draft("dead-end", to_body(dead_end), experiment.id))
    result = _result(experiment, judged)
    if apart.split is not None:
        drafts.append(Draft("split", to_body(apart.split), experiment.id))
        result += f"; split into {', '.join(p.id for p in apart.split.parts)}"
    drafts.append(Draft("item-status", {"item": item, "status": status.value, "result": result}))
    return drafts


def _taken_out(
    session: Session, plan: Plan, experiment: Experiment, judged: Judgement, facts: dict[str, str]
) -> list[Draft]:
    """What becomes of an item that was taken out of a kept bundle: missed, it stays; not missed, the simpler configuration
    wins. Where the rest does not run or answers differently without it, the rest needs it."""
    item = experiment.item or experiment.id
    result = _result(experiment, judged)
    if judged.verdict in (Verdict.KEEP, Verdict.FAILED, Verdict.INVALID):
        if judged.verdict is not Verdict.KEEP:
            result = f"{experiment.id}: stays, what it was kept with needs it: {judged.because}"
        return [Draft("item-status", {"item": item, "status": Status.KEPT.value, "result": result})]
    less = Baseline(
        experiment.candidate or experiment.base, _measured(session, experiment, "candidate"),
        f"without {experiment.title} ({experiment.id})",
    )  # fmt: skip
    drafts = [Draft("baseline", to_body(less))]
    if judged.verdict is Verdict.REVERT:
        drafts.append(
            Draft("dead-end", to_body(_dead_end(session, plan, experiment, judged, None, facts)), experiment.id)
        )
    status = STATUS_AFTER[judged.verdict]
    return [*drafts, Draft("item-status", {"item": item, "status": status.value, "result": result})]


def _apart(session: Session, plan: Plan, experiment: Experiment, judged: Judgement) -> Apart:
    """What a bundle is taken apart into after its verdict; nothing for every other change."""
    ledger = session.ledger
    dead_ends = tuple(ledger.dead_ends.values())
    items = candidates(plan, dead_ends, ledger.splits, ledger.item_status, ledger.plan_written)
    item = next((i for i in items if i.id == experiment.item), None)
    if item is None:
        return Apart(None)
    settled = settled_elsewhere(item.id, ledger.experiments.values(), dead_ends, items)
    taken = {i.id for i in items} | ledger.dead_ends.keys()
    return take_apart(experiment, item, judged, dead_ends, settled, taken) or Apart(None)


def _narrowed(dead_end: DeadEnd, apart: Apart) -> DeadEnd:
    """The dead end of a bundle, as that of the one part that its failure is blamed on."""
    if apart.blamed is None:
        return dead_end
    if apart.split is None:
        return replace(dead_end, change=apart.blamed.change)
    title = f"{dead_end.title}: {apart.blamed.title}"[:200]
    return replace(dead_end, id=apart.blamed_id, item=apart.blamed_id, title=title, change=apart.blamed.change)


def _kept(session: Session, experiment: Experiment) -> Baseline:
    candidate = experiment.candidate
    if candidate is None:
        raise OptagentError(f"{experiment.id} has nothing to keep: its candidate was never prepared")
    if experiment.change.patch:
        kept = session.toolbox.keep_patch(KeepPatch(key=f"{experiment.id}:keep", experiment=experiment.id))
        if kept.problem or kept.revision is None:
            raise OptagentError(f"the patch of {experiment.id} could not be merged: {kept.problem}")
        if kept.revision != candidate.revision:
            session.narrator.tell("note", "it was merged with changes that it was not measured with: measured anew")
            return Baseline(
                replace(candidate, revision=kept.revision), None, f"with {experiment.title} ({experiment.id})"
            )
    return Baseline(
        candidate, _measured(session, experiment, "candidate"), f"with {experiment.title} ({experiment.id})"
    )


def _put_back(session: Session, experiment: Experiment) -> None:
    if not experiment.change.patch or experiment.candidate is None:
        return
    dropped = session.toolbox.drop_patch(DropPatch(
        key=f"{experiment.id}:drop", experiment=experiment.id, base=experiment.base.revision,
    ))  # fmt: skip
    if dropped.problem:
        raise OptagentError(f"the patch of {experiment.id} could not be taken back: {dropped.problem}")


def _dead_end(
    session: Session,
    plan: Plan,
    experiment: Experiment,
    judged: Judgement,
    failure: Failure | None,
    facts: dict[str, str],
) -> DeadEnd:
    item: Item | None = plan.item(experiment.item) if experiment.item else None
    earlier = session.ledger.dead_ends.get(experiment.item or experiment.id)
    failed = failure is not None and judged.verdict is not Verdict.REVERT
    kind = failure.kind if failed and failure else SLOW if judged.verdict is Verdict.REVERT else "unknown"
    condition = with_earlier(retry_condition(kind, facts), earlier.retry_when if earlier else None)
    if failed and item is not None and item.retry_when and condition is None:
        condition = item.retry_when if _still_unmet(item.retry_when, facts) else None
    return DeadEnd(
        id=experiment.item or experiment.id, title=experiment.title, cause=judged.because, cause_kind=kind,
        item=experiment.item, change=experiment.change, retry_when=condition,
        environment=experiment.candidate.environment if experiment.candidate else experiment.base.environment,
        evidence=(experiment.id, *(failure.evidence if failed and failure else ())), verified=True,
    )  # fmt: skip


def _still_unmet(condition: str, facts: dict[str, str]) -> bool:
    from optagent.agent.conditions import holds, parse_condition

    try:
        return holds(parse_condition(condition), facts) is False
    except ValueError:
        return False


def _result(experiment: Experiment, judged: Judgement) -> str:
    return f"{experiment.id}: {judged.because}"


def _tell(session: Session, experiment: Experiment, judged: Judgement) -> None:
    tone = {Verdict.KEEP: "good", Verdict.REVERT: "note", Verdict.INCONCLUSIVE: "note"}.get(judged.verdict, "bad")
    interval = f" [{judged.low:+.1%}, {judged.high:+.1%}]" if judged.low is not None and judged.high is not None else ""
    what = describe(experiment.change) if experiment.item or experiment.items else experiment.kind
    what = f"taken out: {what}" if experiment.removal else what
    session.narrator.tell(tone, f"{experiment.id} {judged.verdict}: {judged.because}{interval} ({what})")
    split = session.ledger.splits.get(experiment.item or "")
    if split is not None and split.experiment == experiment.id:
        session.narrator.tell("why", f"{split.because}; tried apart: {', '.join(p.id for p in split.parts)}")
