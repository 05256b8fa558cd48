"""The order in which items are tried: the plan's, moved by evidence, by expected gain x chance / cost. Pure.

The plan's order is what its owner believes, and the gains it promises say how strongly. An item therefore passes another
only where evidence outweighs both. Scores as promised are first made to fall along the plan (isotonic regression by pooling
adjacent violators, on logarithms), by at least `STEP` from place to place; then each is multiplied by what was seen since:
how often its family was kept and how much of the promises came true, what blocks its group, and what a verdict really costs.
Without evidence nothing moves, and what became of an item says nothing about its own parts. An item that the owner placed
stays between its neighbours, whatever the evidence.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

from optagent.agent.families import family_of, names_of, runs_into
from optagent.agent.outcomes import Block, Evidence, Outcome, promise_of
from optagent.agent.part_ids import root_of
from optagent.agent.plan.model import Item
from optagent.agent.rank_edits import placed_by_owner
from optagent.agent.search.proposing import trials_wanted
from optagent.agent.spending import Costs, about
from optagent.agent.verdict import MIN_PAIRS, expected_pairs

CHANCE = 0.5
"""That an item is kept, before anything is known of its family."""
WEIGHT = 4.0
"""Experiments that this belief is worth: after four more, half of it comes from them."""
STEP = 1.1
"""By how much an item must at least be better than the next one for its owner to have put it in front."""
BLOCKED = 0.5
"""What one blocking cause leaves of a chance."""
MOST_BLOCKS = 3
MOST_BY_COST = 4.0
"""Costs move an item by this factor at most: a time that a plan states is a guess."""
ASSUMED = Costs(300.0, 60.0)
"""Seconds of a launch and a run before the first was timed; they only weigh hours that the plan states against launches."""


@dataclass(frozen=True)
class Factor:
    """Something that was seen, by how much it multiplies the score, and what it is in words."""

    value: float
    words: str


@dataclass(frozen=True)
class Score:
    """What an item is worth trying. `promised` and `gain` are fractions (the middle of the plan's range, and what is left of
    it by what came true), `launches` what a verdict takes, `cost_s` with the times measured so far. `planned` and `place`
    are its places among the items still to be tried, by the plan and now; 0 for an item that is settled."""

    promised: float
    gain: float
    chance: float
    launches: float
    cost_s: float
    factors: tuple[Factor, ...] = ()
    planned: int = 0
    place: int = 0

    @property
    def value(self) -> float:
        """Expected gain by hour."""
        return self.gain * self.chance / self.cost_s * 3600

    @property
    def strength(self) -> float:
        """The logarithm of all that was seen."""
        return sum(math.log(f.value) for f in self.factors)


@dataclass(frozen=True)
class Moved:
    item: str
    planned: int
    place: int
    because: str

    @property
    def line(self) -> str:
        """One line for people."""
        return f"{self.item} moves from place {self.planned} to {self.place}: {self.because}"


@dataclass(frozen=True)
class Ranking:
    """Items in the order in which they are tried, those that moved, and what each is worth by its id. `placed` are those
    that the owner put where they are."""

    order: tuple[Item, ...]
    moved: tuple[Moved, ...] = ()
    scores: Mapping[str, Score] = field(default_factory=dict)
    placed: frozenset[str] = frozenset()


def ranking(
    items: Sequence[Item],
    to_try: Collection[str],
    evidence: Evidence,
    recorded: Mapping[str, int | None] | None = None,
) -> Ranking:
    """The items in their order. Only those in `to_try` (by id) move, among the places of their kind: ranked before unranked.

    `items` are in the plan's order; `recorded` are the ranks that they had when the plan was first read.
    """
    placed = placed_by_owner(items, recorded or {})
    scores = _scores(items, evidence)
    ranked = [i for i in items if i.id in to_try and i.rank is not None]
    unranked = [i for i in items if i.id in to_try and i.rank is None]
    after = [i for part in _between(ranked, placed) for i in _ordered(part, scores)]
    if evidence.outcomes or evidence.blocks:
        unranked.sort(key=lambda i: -round(scores[i.id].value, 12))
    before = [i.id for i in items if i.id in to_try]
    moving = {True: iter(after), False: iter(unranked)}
    order = tuple(next(moving[i.rank is not None]) if i.id in to_try else i for i in items)
    now = [i.id for i in order if i.id in to_try]
    for name in before:
        scores[name] = replace(scores[name], planned=before.index(name) + 1, place=now.index(name) + 1)
    return Ranking(order, _moves(before, now, scores), scores, placed)


# Scores


def _scores(items: Sequence[Item], evidence: Evidence) -> dict[str, Score]:
    by_cost = _cost_factors(items, evidence)
    overall = _overall_share(evidence.outcomes)
    return {i.id: _score(i, evidence, overall, by_cost.get(i.id)) for i in items}


def _score(item: Item, evidence: Evidence, overall: float, by_cost: Factor | None) -> Score:
    promised = _promised(item, evidence)
    names = [*names_of(item.change, evidence.base), *(axis.name for axis in item.space)]
    families = sorted({f for name in names if (f := family_of(name))})
    others = [o for o in evidence.outcomes if root_of(o.item) != root_of(item.id)]
    tallies = [_Tally(f, [o for o in others if f in o.families]) for f in families]
    seen = [t for t in tallies if t.outcomes]
    chance = sum(t.chance for t in tallies) / len(tallies) if tallies else CHANCE
    rate = sum(t.rate for t in tallies) / len(tallies) if tallies else CHANCE
    factors = [Factor(rate / CHANCE, "; ".join(t.words for t in seen))] if seen else []
    blocks = [] if item.change is None or item.change.environment else _in_the_way(item, evidence.blocks, names)
    left = BLOCKED ** min(len(blocks), MOST_BLOCKS)
    factors += [Factor(left, _blocking(blocks))] if blocks else []
    factors += [by_cost] if by_cost is not None else []
    launches, seconds = _cost(item, evidence, measured=True)
    return Score(promised, promised * overall * rate / chance, chance * left, launches, seconds, tuple(factors))


@dataclass(frozen=True)
class _Tally:
    """What became of a family's experiments. `chance` is the share that is kept, `rate` the share of their promises that
    comes true, both drawn towards what is believed of any."""

    family: str
    outcomes: Sequence[Outcome]

    @property
    def chance(self) -> float:
        return (WEIGHT * CHANCE + sum(o.kept for o in self.outcomes)) / (WEIGHT + len(self.outcomes))

    @property
    def rate(self) -> float:
        return (WEIGHT * CHANCE + sum(o.came_true for o in self.outcomes)) / (WEIGHT + len(self.outcomes))

    @property
    def words(self) -> str:
        kept = [o for o in self.outcomes if o.kept]
        share = f", {sum(o.came_true for o in kept) / len(kept):.0%} of what they promised" if kept else ""
        names = ", ".join(o.experiment for o in self.outcomes[:3])
        return f"{self.family}: {len(kept)} of {len(self.outcomes)} kept{share} ({names})"


def _overall_share(outcomes: Sequence[Outcome]) -> float:
    """The share of promises that came true, of what was kept. It shrinks the promises of all items alike, and moves none."""
    kept = [o.came_true for o in outcomes if o.kept]
    return (WEIGHT + sum(kept)) / (WEIGHT + len(kept))


def _in_the_way(item: Item, blocks: Sequence[Block], names: Sequence[str]) -> list[Block]:
    return [b for b in blocks if root_of(b.dead_end) != root_of(item.id) and runs_into(b.kind, names)]


def _blocking(blocks: Sequence[Block]) -> str:
    return "; ".join(f"{b.kind} ({b.dead_end}) is likely to stop it too" for b in blocks[:2])


def _promised(item: Item, evidence: Evidence) -> float:
    """What the item promises; the minimum effect where it says nothing, and a tenth of that at least."""
    if item.expected_gain is None:
        return evidence.min_effect
    return max(promise_of(item) or 0.0, evidence.min_effect / 10)


# Costs


def _cost(item: Item, evidence: Evidence, *, measured: bool) -> tuple[float, float]:
    """(launches, seconds) of a verdict on the item, as assumed before anything was measured or as it is known now."""
    pairs = float(MIN_PAIRS)
    if measured and evidence.noise is not None:
        told = expected_pairs(evidence.noise, max(evidence.min_effect, _promised(item, evidence)))
        pairs = min(told, float(evidence.max_pairs))
    launches = 2 * pairs + (trials_wanted(item.space) if item.space else 0)
    costs = evidence.costs if measured and evidence.costs is not None else ASSUMED
    return launches, costs.of(launches, evidence.runs) + stated_seconds(item.cost)


def _cost_factors(items: Sequence[Item], evidence: Evidence) -> dict[str, Factor]:
    """By how much items cost less or more than assumed, against each other."""
    if not items or (evidence.noise is None and evidence.costs is None):
        return {}
    ratios: dict[str, float] = {}
    for item in items:
        ratios[item.id] = _cost(item, evidence, measured=False)[1] / _cost(item, evidence, measured=True)[1]
    usual = median(ratios.values())
    found: dict[str, Factor] = {}
    for item in items:
        value = min(max(ratios[item.id] / usual, 1 / MOST_BY_COST), MOST_BY_COST)
        if abs(value - 1) > 1e-9:
            launches, seconds = _cost(item, evidence, measured=True)
            found[item.id] = Factor(value, f"a verdict takes about {launches:.0f} launches, {about(seconds)}")
    return found


_TIME = re.compile(
    r"(?<![\w.])(?:(\d{1,5}(?:\.\d{1,3})?)\s*(?:-|–|to|\.\.)\s*)?(\d{1,5}(?:\.\d{1,3})?)\s*"
    r"(days?|d|hours?|hrs?|h|minutes?|mins?|min|seconds?|secs?|s)\b",
    re.IGNORECASE,
)
_SECONDS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0}
READ_CHARACTERS = 500


def stated_seconds(cost: str) -> float:
    """The time that a plan's words on a cost state, in seconds; 0 when they state none. Of a range it is the middle."""
    total = 0.0
    for match in _TIME.finditer(cost[:READ_CHARACTERS]):
        high = float(match[2])
        low = float(match[1]) if match[1] else high
        total += (low + high) / 2 * _SECONDS[match[3][0].lower()]
    return total


# Order


def _between(items: Sequence[Item], placed: Collection[str]) -> list[list[Item]]:
    """The items in runs that may be put in order by themselves: nothing passes an item that the owner placed."""
    runs: list[list[Item]] = [[]]
    for item in items:
        if item.id in placed:
            runs += [[item], []]
        else:
            runs[-1].append(item)
    return runs


def _ordered(items: Sequence[Item], scores: Mapping[str, Score]) -> list[Item]:
    """By promise along the plan, which its owner gave with its costs in mind, times what was seen since."""
    believed = falling([math.log(scores[i.id].promised) for i in items])
    worth = {i.id: round(believed[n] - n * math.log(STEP) + scores[i.id].strength, 9) for n, i in enumerate(items)}
    return sorted(items, key=lambda i: -worth[i.id])


def falling(values: Sequence[float]) -> list[float]:
    """The sequence that never rises and is nearest to `values` (least squares; pool adjacent violators)."""
    pools: list[tuple[float, int]] = []
    for value in values:
        pools.append((value, 1))
        while len(pools) > 1 and pools[-2][0] < pools[-1][0]:
            (one, n), (other, m) = pools[-2:]
            pools[-2:] = [((one * n + other * m) / (n + m), n + m)]
    return [value for value, count in pools for _ in range(count)]


# What moved, and why


def _moves(before: Sequence[str], now: Sequence[str], scores: Mapping[str, Score]) -> tuple[Moved, ...]:
    """The fewest items by which the new order can be told, those with the most evidence where that can be done in several
    ways; one line each, in their new order."""
    stayed = _stayed(before, now, scores)
    moved = [name for name in now if name not in stayed]
    return tuple(
        Moved(name, scores[name].planned, scores[name].place, _why(name, before, now, scores)) for name in moved
    )


def _stayed(before: Sequence[str], now: Sequence[str], scores: Mapping[str, Score]) -> set[str]:
    """A longest subsequence that both orders share, with the least evidence among its items."""
    place = {name: n for n, name in enumerate(before)}
    best: list[tuple[tuple[int, float], int]] = []
    for i, name in enumerate(now):
        weight = round(abs(scores[name].strength), 9)
        earlier = [j for j in range(i) if place[now[j]] < place[name]]
        last = max(earlier, key=lambda j: best[j][0], default=-1)
        count, evidence = best[last][0] if last >= 0 else (0, 0.0)
        best.append(((count + 1, evidence - weight), last))
    at = max(range(len(now)), key=lambda i: best[i][0], default=-1)
    kept: set[str] = set()
    while at >= 0:
        kept.add(now[at])
        at = best[at][1]
    return kept


def _why(name: str, before: Sequence[str], now: Sequence[str], scores: Mapping[str, Score]) -> str:
    forward = scores[name].place < scores[name].planned
    if words := _words(scores[name], forward):
        return words
    was, is_now = before.index(name), now.index(name)
    passed = [o for o in before if (before.index(o) < was) == forward and (now.index(o) < is_now) != forward]
    other = next((o for o in passed if _words(scores[o], not forward)), None)
    if other is None:
        return "what it promises"
    return f"{'before' if forward else 'behind'} {other}: {_words(scores[other], not forward)}"


def _words(score: Score, forward: bool) -> str:
    """What was seen that speaks for a place further to the front, or to the back."""
    fitting = [f for f in score.factors if (f.value > 1) == forward and f.value != 1]
    return "; ".join(f.words for f in sorted(fitting, key=lambda f: -abs(math.log(f.value))))
