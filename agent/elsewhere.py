"""What of a handoff does not carry over to where it is read: another machine, folder, GPUs, environments. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from optagent.agent.checks import Check, Outcome, gpus_seen, same_gpus
from optagent.agent.conditions import as_value
from optagent.agent.dead_ends import SLOW
from optagent.agent.handoff.model import Handoff
from optagent.agent.reconcile import GPU_MODEL
from optagent.agent.records import Baseline, DeadEnd
from optagent.tools.calls.world import World

GPUS, DEPLOYMENT = "GPUs", "deployment"
ENVIRONMENT, COMMIT = "environment", "commit"
NO_MEASUREMENT = frozenset({GPUS, DEPLOYMENT})
"""What, when it differs, makes a measurement say nothing here."""
NO_BASELINE = frozenset({ENVIRONMENT, COMMIT})
"""What, when it is not here, makes the baseline one that cannot be launched here."""


@dataclass(frozen=True)
class Difference:
    """One fact that differs from what the handoff says: how it was there, how it is here, what that makes void."""

    what: str
    there: str
    here: str
    voids: str

    def __str__(self) -> str:
        here = f", here {self.here}" if self.here else ", not here"
        return f"{self.what}: there {self.there}{here}; {self.voids}"


def differences(
    handoff: Handoff, world: World, checks: Sequence[Check], environments: Sequence[str], *, moved_on: bool = False
) -> tuple[Difference, ...]:
    """Everything that does not carry over. What is not known on either side is no difference. A campaign that has `moved_on`
    to another environment since it wrote the handoff looks at other versions, and by its own doing."""
    found = [*_place(handoff, world), *_hardware(handoff, world)]
    found += [] if moved_on else _software(handoff, world)
    found += [*_baseline(handoff, world, checks, environments), *_missing(checks)]
    return tuple(found)


def _place(handoff: Handoff, world: World) -> Iterator[Difference]:
    place = handoff.place
    if place is None:
        return
    if place.host and world.host and place.host != world.host:
        voids = "processes, ports and paths that it names are of the other machine"
        yield Difference("machine", place.host, world.host, voids)
    if place.user and world.user and place.user != world.user:
        yield Difference("user", place.user, world.user, "home folders and permissions are another's")
    if place.folder and world.folder and place.folder != world.folder:
        voids = "absolute paths below it, and servers that were started from it, are not this campaign's"
        yield Difference("folder", place.folder, world.folder, voids)


def gpus_there(handoff: Handoff) -> str:
    """The GPUs that the handoff was written beside, as it claims them; "" when it does not say."""
    return next((c.expected for c in handoff.claims if c.kind == "gpus" and c.expected), "")


def _hardware(handoff: Handoff, world: World) -> Iterator[Difference]:
    there, here = gpus_there(handoff), gpus_seen(world)
    if there and here is not None and not same_gpus(there, here, count=False):
        voids = "its measurements are no baseline here, and what gained nothing there may gain here"
        yield Difference(GPUS, there, here, voids)
    elif there and here is not None and not same_gpus(there, here):
        yield Difference("number of GPUs", there, here, "the layout over GPUs may not fit")
    measured = handoff.baseline.measurement if handoff.baseline else None
    simulated = handoff.simulated or (measured is not None and measured.simulated)
    real = measured is not None and measured.verified and not simulated
    if (simulated and not world.simulated) or (real and world.simulated):
        kinds = ("simulated", "real") if simulated else ("real", "simulated")
        yield Difference(DEPLOYMENT, kinds[0], kinds[1], "its measurements are no baseline here")


def _software(handoff: Handoff, world: World) -> Iterator[Difference]:
    seen: set[str] = set()
    for claim in handoff.claims:
        here = world.versions.get(claim.subject) if claim.kind == "version" else None
        if here is None or claim.subject in seen or here == claim.expected or here.startswith(f"{claim.expected}."):
            continue
        seen.add(claim.subject)
        voids = "what failed or gained there was seen with the other one"
        yield Difference(claim.subject, claim.expected, here, voids)


def _baseline(
    handoff: Handoff, world: World, checks: Sequence[Check], environments: Sequence[str]
) -> Iterator[Difference]:
    if handoff.baseline is None:
        return
    configuration = handoff.baseline.configuration
    name = configuration.environment
    if name not in environments:
        here = f"{', '.join(environments)} in optagent.toml"
        yield Difference(ENVIRONMENT, name, here, "its baseline cannot be launched: optagent.toml's is where it starts")
    lost = next((c for c in checks if c.claim.id == "B2" and c.outcome is Outcome.BROKEN), None)
    if lost is not None and configuration.revision:
        voids = "changes of the source that were kept there are not here: optagent.toml's baseline is where it starts"
        here = world.checkout.revision[:12] if world.checkout else ""
        yield Difference(COMMIT, configuration.revision[:12], here, voids)
    for left in handoff.left_out:
        if left.what.startswith("baseline: "):
            voids = "the handoff was too small for it: put it into the environment by hand"
            yield Difference(left.what.removeprefix("baseline: "), left.where, "", voids)


def _missing(checks: Sequence[Check]) -> Iterator[Difference]:
    for check in checks:
        if check.claim.kind in ("path", "log", "result") and check.outcome is Outcome.BROKEN:
            words = {"path": "what needs it cannot run", "log": "how that run ended cannot be told from it"}
            voids = words.get(check.claim.kind, "its numbers cannot be looked up again")
            yield Difference(check.claim.kind, check.claim.subject, "", voids)


def carried(baseline: Baseline | None, lost: Sequence[Difference]) -> Baseline | None:
    """What of a handoff's baseline holds here: None when it cannot be launched, without its number when that is of
    another GPU or of a simulation."""
    what = {difference.what for difference in lost}
    if baseline is None or what & NO_BASELINE:
        return None
    return replace(baseline, measurement=None) if what & NO_MEASUREMENT else baseline


def carried_dead_ends(dead_ends: Sequence[DeadEnd], lost: Sequence[Difference]) -> list[DeadEnd]:
    """The dead ends as they bind here: what gained nothing on other GPUs is worth another look on these."""
    there = next((d.there for d in lost if d.what == GPUS), "")
    if not there:
        return list(dead_ends)
    model = there.partition(" x ")[2] or there
    wait = f"{GPU_MODEL}!={as_value(model)}"
    return [replace(d, retry_when=wait) if d.cause_kind == SLOW else d for d in dead_ends]


def in_words(lost: Sequence[Difference], handoff_id: str) -> list[str]:
    """The differences as lessons for the journal and for the next handoff."""
    return [f"Not carried over from {handoff_id}: {difference}" for difference in lost]


def by_what(lost: Sequence[Difference]) -> list[Mapping[str, str]]:
    """The differences as the journal keeps them."""
    return [{"what": d.what, "there": d.there, "here": d.here, "voids": d.voids} for d in lost]
