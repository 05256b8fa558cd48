"""The plan's statuses as a view of the journal: recorded first, then written into the document in place."""

from __future__ import annotations

from collections.abc import Mapping

from optagent.agent.plan.model import Item, Plan, Status
from optagent.agent.plan.owner import edited_by_owner
from optagent.agent.plan.read import read_plan
from optagent.agent.plan.write import with_status
from optagent.agent.session import Session
from optagent.tools.calls.files import ReadText, WriteText
from optagent.tools.journal_store import Draft

TRIES = 3
"""How often a plan that its owner saves at the same moment is read and written again."""


def set_status(session: Session, item: str, status: Status, result: str = "", *, because: Draft | None = None) -> None:
    """Record an item's status, together with `because` it has it, then show it in the plan."""
    recorded = Draft("item-status", {"item": item, "status": status.value, "result": result})
    session.journal.append_all([*([because] if because else []), recorded])
    write_statuses(session, {item: status})


def write_statuses(session: Session, statuses: Mapping[str, Status]) -> None:
    """Put these statuses into the plan's document, each with its recorded result, touching nothing else.

    What is noted as written is what the document shows then: a checkbox cannot say `dead`, and what it says instead is
    not an edit of its owner.
    """
    from tenacity import Retrying, retry_if_result, stop_after_attempt

    again = Retrying(
        stop=stop_after_attempt(TRIES),
        retry=retry_if_result(lambda written: written is None),
        retry_error_callback=lambda state: None,
    )
    written = again(_write_once, session, statuses)
    if written is None:
        path = session.config.plan
        session.narrator.tell("note", f"{path} could not be brought up to date; the journal has the statuses")
        return
    text, stopped = written
    shown = {i.id: i.status for i in read_plan(text).items if i.id in statuses and i.id not in stopped}
    if any(session.ledger.plan_written.get(item) != status for item, status in shown.items()):
        session.note("plan-written", {"statuses": shown})


def _write_once(session: Session, statuses: Mapping[str, Status]) -> tuple[str, set[str]] | None:
    """The plan's text with the statuses in it, and the items of which the owner's word stays; None when it cannot be read or
    its owner saved it in between."""
    path = session.config.plan
    read = session.toolbox.read_text(ReadText(path=path))
    if read.text is None:
        return None
    text = read.text
    stopped = {item.id for item in read_plan(text).items if item.id in statuses and _stopped_by_owner(session, item)}
    for item, status in statuses.items():
        if item in stopped:
            session.narrator.tell(
                "note", f"{item} was changed in {path} meanwhile: its owner's word stays, not {status}"
            )
        else:
            text = with_status(text, item, status, session.ledger.item_result.get(item, ""))
    if text == read.text:
        return text, stopped
    key = f"{session.ledger.sitting}:plan:{session.ledger.seq}:{(read.sha256 or '')[:12]}"
    done = session.toolbox.write_text(WriteText(key=key, path=path, text=text, expect_sha256=read.sha256))
    return (text, stopped) if done.written else None


def _stopped_by_owner(session: Session, item: Item) -> bool:
    """Whether the owner has dropped or parked the item since its status was written, perhaps while it was being tried."""
    return item.status in (Status.DROPPED, Status.PARKED) and edited_by_owner(item, session.ledger.plan_written)


def bring_up_to_date(session: Session, plan: Plan) -> None:
    """Write statuses that the journal has and the plan does not show, where the difference is not the owner's edit. What was
    written by a sitting that was killed before it could note that is noted."""
    ledger = session.ledger
    behind: dict[str, Status] = {}
    for item in plan.items:
        recorded = ledger.item_status.get(item.id)
        if recorded is not None and recorded != item.status and not edited_by_owner(item, ledger.plan_written):
            behind[item.id] = recorded
    unnoted = {
        item.id: item.status
        for item in plan.items
        if ledger.item_status.get(item.id) == item.status != ledger.plan_written.get(item.id)
    }
    if unnoted:
        session.note("plan-written", {"statuses": unnoted})
    if behind:
        write_statuses(session, behind)
