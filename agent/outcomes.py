"""What a campaign has seen so far, as far as it says something about the items that are still to be tried. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice

from optagent.agent.change import Change
from optagent.agent.dead_ends import says_nothing, worth_another_look
from optagent.agent.experiments import ITEM, Experiment
from optagent.agent.families import BLOCKING, families_of
from optagent.agent.noise import Noise
from optagent.agent.plan.model import Item
from optagent.agent.records import DeadEnd
from optagent.agent.spending import Costs
from optagent.agent.verdict import Verdict
from optagent.tools.calls.configuration import Configuration

MOST = 400
"""So many of the latest experiments count: a step costs the same after thousands of them."""
LEAST_SHARE, MOST_SHARE = 0.1, 1.5
"""Of a promise that came true: one lucky result says no more than this of the others, and a kept one is never nothing."""


@dataclass(frozen=True)
class Outcome:
    """How an item's experiment ended. `came_true` is the share of its promised gain, 0 when it was not kept."""

    experiment: str
    families: frozenset[str]
    kept: bool
    came_true: float
    item: str = ""


@dataclass(frozen=True)
class Block:
    """A kind of cause that stands in the way of whole groups until its dead end is worth another look."""

    dead_end: str
    kind: str


@dataclass(frozen=True)
class Evidence:
    """What moves items. `costs` are the seconds that a launch and a run took here, `noise` that of one launch in the
    baseline's environment (None: not known); `runs` is how often a launch is measured."""

    outcomes: tuple[Outcome, ...] = ()
    blocks: tuple[Block, ...] = ()
    noise: Noise | None = None
    costs: Costs | None = None
    runs: int = 1
    min_effect: float = 0.02
    max_pairs: int = 12
    base: Configuration = field(default_factory=lambda: Configuration(""))


def outcomes_of(experiments: Iterable[Experiment], items: Iterable[Item]) -> tuple[Outcome, ...]:
    """The outcomes among these experiments, held against what the items promise. The latest experiments come first.

    What failed for reasons of the moment, what was given up, and what only takes settings away says nothing here.
    """
    promises = {i.id: promise_of(i) for i in items}
    found = (_outcome(e, promises.get(e.item or "")) for e in islice(experiments, MOST))
    return tuple(o for o in found if o is not None)


def promise_of(item: Item) -> float | None:
    """The middle of the gain that the item promises, as a fraction; None when it promises none."""
    middle = sum(item.expected_gain) / 2 if item.expected_gain is not None else 0.0
    return middle if middle > 0 else None


def _outcome(e: Experiment, promise: float | None) -> Outcome | None:
    if e.kind != ITEM or not e.verdict or _only_takes_away(e.change):
        return None
    if e.verdict in (Verdict.FAILED, Verdict.INVALID) and (e.removal or (e.failures and says_nothing(e.failures[-1]))):
        return None
    if e.verdict == Verdict.INCONCLUSIVE and not e.values("candidate"):
        return None
    kept = e.verdict == Verdict.KEEP
    share = _share(e.effect, promise) if kept else 0.0
    return Outcome(e.id, families_of(e.change, e.base), kept, share, e.item or "")


def _share(effect: float | None, promise: float | None) -> float:
    if effect is None or promise is None:
        return 1.0
    return min(max(effect / promise, LEAST_SHARE), MOST_SHARE)


def _only_takes_away(change: Change) -> bool:
    if change.files or change.patch or change.environment:
        return False
    return all(v is None or v is False for v in (*change.flags.values(), *change.env.values()))


def blocks_of(dead_ends: Iterable[DeadEnd], facts: Mapping[str, str]) -> tuple[Block, ...]:
    """The causes that block whole groups at present."""
    return tuple(
        Block(d.id, d.cause_kind) for d in dead_ends if d.cause_kind in BLOCKING and not worth_another_look(d, facts)
    )
