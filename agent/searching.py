"""The search inside an item: what its points gave so far, and which change is tried next. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from optagent.agent.change import Change
from optagent.agent.experiments import Experiment
from optagent.agent.noise import Noise
from optagent.agent.plan.model import Item
from optagent.agent.search.choosing import Trial, best
from optagent.agent.search.feasible import FailedTrial
from optagent.agent.search.proposing import next_point, trials_wanted
from optagent.agent.search.space import Point, at, own_point, shown, written_name
from optagent.agent.verdict import Verdict, geometric_mean
from optagent.tools.calls.configuration import Configuration


@dataclass(frozen=True)
class Searched:
    """What is tried next of an item that names a range: `look` at one more point, or the change that was found to be the
    best (of those that failed the first one, where none ran: its failure is known, and settles the item)."""

    look: bool
    change: Change
    words: str


def next_of(
    item: Item, base: Configuration, experiments: Sequence[Experiment], noise: Noise | None, direction: str, seed: int
) -> Searched:
    """`experiments` are the item's trials so far. Those on another base than `base` say nothing about this one."""
    mark, own = base.fingerprint(), own_point(item.space, base)
    trials: list[Trial] = []
    failed: list[FailedTrial] = []
    for e in experiments:
        if e.base.fingerprint() != mark or not e.verdict:
            continue
        point = point_of(item, e.change)
        values = list(e.values("candidate").values())
        if e.verdict in (Verdict.FAILED, Verdict.INVALID) or not values:
            failed.append(FailedTrial(point, e.failures[-1].kind if e.failures else "unknown"))
        else:
            trials.append(Trial(point, geometric_mean(values)))
    fixed = item.change or Change()
    done = len(trials) + len(failed)
    coming = next_point(item.space, trials, failed, seed, direction, own)
    if coming is not None:
        words = f"point {done + 1} of at most {trials_wanted(item.space)} of its search: {_written(item, coming)}"
        return Searched(True, at(fixed, item.space, coming), words)
    found = best(trials, noise, direction, item.space, own)
    if found is not None:
        words = f"the best of {done} points: {_written(item, found.point)}"
        return Searched(False, at(fixed, item.space, found.point), words)
    tried = failed[0].point if failed else own
    return Searched(False, at(fixed, item.space, tried), f"none of {done} points ran")


def point_of(item: Item, change: Change) -> Point:
    """The point of the item's space that a change of one of its experiments stands for."""
    return {a.name: (change.flags if a.kind == "flag" else change.env).get(a.name) for a in item.space}


def _written(item: Item, point: Point) -> str:
    return ", ".join(f"{written_name(a.name, a.kind)} {shown(point[a.name])}" for a in item.space)
