"""Re-probing a handoff: what `handoff --check` prints and what a sitting starts from, one function for both. A read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath

from optagent.agent.checks import Check, Outcome, Sight, check_claims
from optagent.agent.elsewhere import NO_MEASUREMENT, Difference, differences
from optagent.agent.errors import BadInput
from optagent.agent.handoff.claims import stated, to_look_up
from optagent.agent.handoff.folder import later_than, latest_of, of_the_same_number
from optagent.agent.handoff.model import Handoff
from optagent.agent.orient import Orientation, handoff_names, is_known, load_handoff
from optagent.agent.reconcile import facts_of
from optagent.agent.session import Session
from optagent.agent.workloads import record_under
from optagent.tools.calls.facts import LookedUp, LookUp
from optagent.tools.calls.world import World

MOST_LATER = 100
"""So many later handoffs are read to find the one that takes the place of an old one."""


@dataclass(frozen=True)
class Checked:
    """How a handoff fared: its claims, what does not carry over to here, and what there is to know of the document."""

    world: World
    checks: tuple[Check, ...] = ()
    lost: tuple[Difference, ...] = ()
    notes: tuple[str, ...] = ()

    def count(self, outcome: Outcome) -> int:
        return sum(check.outcome is outcome for check in self.checks)


def checked_handoff(session: Session, orientation: Orientation, world: World, environment: str) -> Checked:
    """The orientation's handoff held against `world`, in which `environment` was looked at, against what is looked up for
    it and against the journal."""
    handoff = orientation.handoff
    if handoff is None:
        return Checked(world)
    claims = stated(handoff)
    request = to_look_up(claims, world)
    looked = session.toolbox.look_up(request) if request != LookUp() else LookedUp()
    sight = _sight(session, handoff, world, looked, environment)
    checks = check_claims(claims, sight)
    own = handoff.id in session.ledger.handoffs and is_known(session, handoff)
    moved_on = own and handoff.baseline is not None and handoff.baseline.configuration.environment != environment
    lost = differences(handoff, world, checks, list(session.config.deployment.environments), moved_on=moved_on)
    if void := next((d for d in lost if d.what in NO_MEASUREMENT), None):
        because = f"it was measured elsewhere ({void.what}: there {void.there}, here {void.here})"
        checks = check_claims(claims, _sight(session, handoff, world, looked, environment, because))
    return Checked(world, tuple(checks), lost, tuple(_notes(session, orientation)))


def _sight(
    session: Session, handoff: Handoff, world: World, looked: LookedUp, environment: str, elsewhere: str = ""
) -> Sight:
    ledger = session.ledger
    claimed = handoff.baseline
    comparable = claimed is None or record_under(claimed, ledger.under) == claimed
    m = session.baseline().measurement if comparable and ledger.baseline else None
    known = m if m is not None and m.verified else None
    return Sight(
        world,
        looked,
        ledger,
        facts_of(world, environment, session.config.workload.name),
        {known.metric: known.value} if known else {},
        known.evidence[:3] if known else (),
        session.config.measuring.baseline_tolerance,
        handoff.id in ledger.handoffs and is_known(session, handoff),
        elsewhere,
    )


def _notes(session: Session, orientation: Orientation) -> list[str]:
    """Whether it was edited, whether another one took its place, and whether another one has its number."""
    handoff, name = orientation.handoff, PurePosixPath(orientation.handoff_path).name
    assert handoff is not None
    notes = []
    entry = session.journal.find("handoff", handoff.id) if is_known(session, handoff) else None
    written = entry.body.get("sha256") if entry else None
    if written and orientation.handoff_sha256 and written != orientation.handoff_sha256:
        notes.append("it was edited after it was written; the journal counts, and what differs from it is told below")
    for other in of_the_same_number(orientation.handoffs, name):
        later = latest_of([other, name])
        notes.append(f"{other} has the same number; of the two {later} counts: give the other a number of its own")
    return notes


def superseded_by(session: Session, path: str) -> str:
    """Which later handoff took the place of the one at `path`, "" when it is the latest: the one that says so, else the
    next one."""
    name = PurePosixPath(path).name
    names = handoff_names(session)
    later = later_than(names, name) if name in names else []
    for each in later[:MOST_LATER]:
        place = str(PurePosixPath(session.config.handoffs) / each)
        try:
            says = load_handoff(session, place).supersedes
        except BadInput:
            continue
        if says and PurePosixPath(says).name == name:
            return place
    return str(PurePosixPath(session.config.handoffs) / later[0]) if later else ""


def tell(session: Session, checked: Checked, path: str, *, new: bool) -> None:
    """Say what no longer holds and what does not carry over; of a handoff that is new, also how many claims hold."""
    narrator = session.narrator
    if new:
        held, broken, unknown = (checked.count(o) for o in (Outcome.HOLDS, Outcome.BROKEN, Outcome.UNKNOWN))
        narrator.tell(
            "step", f"handoff held against the world: {held} claims hold, {broken} do not, {unknown} cannot be checked by "
            "looking",
        )  # fmt: skip
    for note in checked.notes:
        narrator.tell("note", f"{path}: {note}")
    for difference in checked.lost:
        narrator.tell("note", f"does not carry over: {difference}")
    for check in checked.checks:
        if check.outcome is Outcome.BROKEN:
            narrator.tell("bad", f"{check.claim.id} {check.claim.text[:120]}: {check.because}")
