"""Settling an experiment: keep or put back, record the dead end, move the baseline, bring the plan up to date."""

from __future__ import annotations

from dataclasses import replace

from optagent.agent.change import describe
from optagent.agent.dead_ends import retry_condition
from optagent.agent.errors import OptagentError
from optagent.agent.experimenting import arrange
from optagent.agent.jsonable import to_body
from optagent.agent.ledger import BASELINE, CONFIRM, Experiment, Failure
from optagent.agent.measuring import mean_of
from optagent.agent.plan.model import Plan, Status
from optagent.agent.plan_sync import write_statuses
from optagent.agent.records import Baseline, DeadEnd, Measurement
from optagent.agent.session import Session
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
    elif experiment.kind != CONFIRM:
        drafts += _item_settled(session, plan, experiment, judged, facts)
    session.journal.append_all(drafts)
    if experiment.item is not None:
        write_statuses(session, {experiment.item: session.ledger.item_status[experiment.item]})
    if experiment.kind != BASELINE:
        arrange(session, session.baseline().configuration, f"{session.ledger.sitting}:{experiment.id}:after")
    _tell(session, experiment, judged)


def _baseline_measured(session: Session, experiment: Experiment, judged: Judgement) -> list[Draft]:
    baseline = session.baseline()
    recorded = baseline.measurement
    if judged.verdict is not Verdict.KEEP or (recorded is not None and recorded.verified):
        return []
    return [Draft("baseline", to_body(replace(baseline, measurement=_measured(session, experiment, "baseline"))))]


def _measured(session: Session, experiment: Experiment, arm: str) -> Measurement | None:
    found = mean_of(experiment, arm)
    if found is None:
        return None
    value, runs = found
    evidence = tuple(r.evidence for r in experiment.runs if r.arm == arm and r.valid and r.evidence)
    return Measurement(
        session.config.objective.metric, round(value, 4), runs=runs, evidence=(experiment.id, *evidence[:3]), verified=True,
        simulated=session.config.deployment.kind == "simulator",
    )  # fmt: skip


def _item_settled(
    session: Session, plan: Plan, experiment: Experiment, judged: Judgement, facts: dict[str, str]
) -> list[Draft]:
    item = experiment.item or experiment.id
    drafts: list[Draft] = []
    if judged.verdict is Verdict.KEEP:
        drafts.append(Draft("baseline", to_body(_kept(session, experiment))))
    else:
        _put_back(session, experiment)
    status = STATUS_AFTER[judged.verdict]
    failure = experiment.failures[-1] if experiment.failures else None
    if failure is not None and judged.verdict in (Verdict.FAILED, Verdict.INVALID) and _says_nothing(failure):
        status = Status.OPEN
    elif failure is not None and failure.kind == "patch":
        status = Status.INVALID
    elif judged.verdict in (Verdict.FAILED, Verdict.REVERT, Verdict.INVALID):
        drafts.append(Draft("dead-end", to_body(_dead_end(plan, experiment, judged, failure, facts)), experiment.id))
    result = _result(experiment, judged)
    drafts.append(Draft("item-status", {"item": item, "status": status.value, "result": result}))
    return drafts


PASSING = frozenset({"port-in-use", "peer-died", "download-failed", "environment"})
"""Kinds of failures that another try may not meet again."""


def _says_nothing(failure: Failure) -> bool:
    """Whether the failure says nothing about the change: the baseline's own, or one that another try may not meet."""
    return failure.arm == "baseline" or (failure.kind in PASSING and failure.stage == "launch")


def _kept(session: Session, experiment: Experiment) -> Baseline:
    candidate = experiment.candidate
    if candidate is None:
        raise OptagentError(f"{experiment.id} has nothing to keep: its candidate was never prepared")
    if experiment.change.patch:
        kept = session.toolbox.keep_patch(KeepPatch(key=f"{experiment.id}:keep", experiment=experiment.id))
        if kept.problem or kept.revision is None:
            raise OptagentError(f"the patch of {experiment.id} could not be merged: {kept.problem}")
        candidate = replace(candidate, revision=kept.revision)
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
    plan: Plan, experiment: Experiment, judged: Judgement, failure: Failure | None, facts: dict[str, str]
) -> DeadEnd:
    item = plan.item(experiment.item) if experiment.item else None
    failed = failure is not None and judged.verdict is not Verdict.REVERT
    kind = failure.kind if failed and failure else "slow" if judged.verdict is Verdict.REVERT else "unknown"
    condition = retry_condition(kind, facts)
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
    what = describe(experiment.change) if experiment.item else experiment.kind
    session.narrator.tell(tone, f"{experiment.id} {judged.verdict}: {judged.because}{interval} ({what})")
