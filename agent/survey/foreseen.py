"""What the load at hand lets one foresee of a setting before it is launched. Pure.

A server that has room for all requests at once gains nothing from more room, and one that has not gains or loses by it:
how many requests come at a time, how long they are, what the baseline's KV cache holds and what it found in its prefix
cache say which of the two it is. What is foreseen decides what is launched first. It is never a verdict.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from optagent.agent.flag_facts import UNREAD
from optagent.agent.load import Load
from optagent.agent.search.space import number_in
from optagent.tools.calls.configuration import FlagValue

Value = FlagValue | None
Settings = Mapping[str, Value]
"""Flags by their first names and variables, with their values."""

NOTHING_SD, LITTLE_SD, USUAL_SD = 0.004, 0.012, 0.06
"""How far off a foresight may lie, as a standard deviation: of what the load cannot feel, of what it hardly feels, and of
anything that is not known (differences of logarithms)."""
STARVES, RELIEVES, TAKES_AWAY = -0.3, 0.08, -0.03
"""What is expected of too little room, of enough where there was too little, and of switching off what is on by default."""
SPARE = 0.004
"""What twice as much room as is wanted takes away: room costs memory."""
SCARCE = 0.5
"""Share of the room that the load wants from which down a model that is spread otherwise is starved, whatever else it gains."""
RUNNING_WITH_DRAFTS = 48
"""Requests at once with speculation where no number is given (SGLang 0.5.23)."""
HIT = 0.05
"""Share of the prompts' tokens found in the prefix cache from which on the cache matters."""


@dataclass(frozen=True)
class Foreseen:
    """How far ahead of the baseline a setting is expected to be, with its standard deviation (both differences of
    logarithms where more is better), and why."""

    ahead: float
    sd: float
    because: str


def foreseen(sets: Settings, before: Settings, load: Load) -> Foreseen | None:
    """What is foreseen of these settings put on the configuration `before`; None where nothing is known of one of them.

    What starves the server outweighs everything else, what relieves it the rest.
    """
    changed = {name: value for name, value in sets.items() if before.get(name) != value}
    after = {**before, **changed}
    found = [_of(name, value, before, after, load) for name, value in changed.items()]
    known = [f for f in found if f is not None]
    if starving := [f for f in known if f.ahead <= STARVES]:
        return starving[0]
    if not known or len(known) < len(found):
        return None
    return max(known, key=lambda f: (f.sd, abs(f.ahead)))


def _of(name: str, value: Value, before: Settings, after: Settings, load: Load) -> Foreseen | None:
    rule = _RULES.get(name)
    if rule is not None:
        return rule(value, before, after, load)
    if name.startswith("disable-") and value is True:
        return Foreseen(TAKES_AWAY, LITTLE_SD, "it switches off what is on because it helps")
    return None


def _count(settings: Settings, name: str) -> int:
    number = number_in(settings.get(name))
    return max(1, int(number)) if number else 1


def _wanted(settings: Settings, load: Load) -> int:
    """Requests at once for each of those among which they are divided: replicas, and ranks of data parallel attention."""
    return -(-load.clients // (_count(settings, "dp-size") * _count(settings, "attn-dp-size")))


def _at_once(settings: Settings, load: Load) -> float:
    """Requests that one of them runs at a time."""
    wanted, limit = _wanted(settings, load), _running_limit(settings)
    return min(wanted, limit) if limit is not None else wanted


def _running_limit(settings: Settings) -> float | None:
    """Requests that one of them may run. A replica has the number to itself, ranks of data parallel attention share it."""
    given = number_in(settings.get("max-running-requests"))
    if given is None and settings.get("speculative-algorithm") is not None:
        given = RUNNING_WITH_DRAFTS
    ranks = _count(settings, "attn-dp-size")
    if ranks == 1 and settings.get("enable-dp-attention"):
        ranks = _count(settings, "dp-size")
    return given if given is None or ranks == 1 else max(1, given // ranks)


def _room(name: str, had: float | None, has: float | None, wanted: float, what: str) -> Foreseen | None:
    """Of a number that limits: `had` before and `has` now, None where that is not known, of what is `wanted`."""
    if has is not None and has < wanted:
        if had is not None and has >= had:
            return Foreseen(
                RELIEVES, USUAL_SD, f"{name} {had:g} is less than the {wanted:g} {what}, and {has:g} is nearer"
            )
        return Foreseen(STARVES, USUAL_SD, f"{name} {has:g} is less than the {wanted:g} {what}")
    if had is not None and had < wanted:
        spare = 0.0 if has is None else SPARE * math.log2(has / wanted)
        return Foreseen(max(0.0, RELIEVES - spare), USUAL_SD, f"{name} {had:g} is less than the {wanted:g} {what}")
    return Foreseen(
        0.0, NOTHING_SD if had is not None else LITTLE_SD, f"{name} has room for the {wanted:g} {what} as it is"
    )


def _gpus(settings: Settings) -> int:
    """Over how many of them a replica's weights are spread."""
    return _count(settings, "tp-size") * _count(settings, "pp-size")


def gpus_of(settings: Settings) -> int:
    """How many GPUs all replicas take together."""
    return _gpus(settings) * (1 if settings.get("enable-dp-attention") else _count(settings, "dp-size"))


def room_of(before: Settings, after: Settings, load: Load) -> float | None:
    """Tokens that a replica's KV cache holds where its weights are spread over another number of GPUs. None: not known, or as
    many as before."""
    had, has = _gpus(before), _gpus(after)
    divided = (
        any(after.get(name) for name in ("enable-dp-attention", "max-total-tokens"))
        or _count(after, "attn-dp-size") > 1
    )
    return None if had == has or divided else load.room_over(has, had)


def _spread(value: Value, before: Settings, after: Settings, load: Load) -> Foreseen | None:
    room, wanted = room_of(before, after, load), load.tokens * _at_once(after, load)
    if room is None or room >= SCARCE * wanted:
        return None
    words = (
        f"over {_gpus(after)} GPUs the weights leave a KV cache of {room:.0f} tokens, and the load wants {wanted:.0f}"
    )
    return Foreseen(STARVES, USUAL_SD, words)


def _max_running(value: Value, before: Settings, after: Settings, load: Load) -> Foreseen | None:
    if not load.throughput:
        return None
    had, has = _running_limit(before), _running_limit(after)
    return _room(
        "max-running-requests", math.inf if had is None else had, has, _wanted(after, load), "requests at once"
    )


def _graphs(value: Value, before: Settings, after: Settings, load: Load) -> Foreseen | None:
    """Graphs that are larger than what runs take memory and time: fewer of them may gain, and nobody knows how much."""
    had, has = number_in(before.get("cuda-graph-max-bs-decode") or before.get("cuda-graph-max-bs")), number_in(value)
    wanted = _at_once(after, load)
    if has is not None and has >= wanted and (had is None or has < had):
        return None
    return _room("the largest CUDA graph's batch", had, has, wanted, "requests that run at once")


def _memory(value: Value, before: Settings, after: Settings, load: Load) -> Foreseen | None:
    had, has = number_in(before.get("mem-fraction-static")), number_in(value)
    if load.room is None or has is None:
        return None
    wanted = load.tokens * _at_once(before, load)
    more = had is None or has > had
    left = load.room if more or not had else load.room * has / had  # at most: the weights stay as they are
    if load.room >= wanted and left >= wanted:
        sd = NOTHING_SD if more else LITTLE_SD
        return Foreseen(0.0, sd, f"the KV cache holds {load.room} tokens, and the load fills {wanted:.0f}")
    words = f"the KV cache holds {min(left, load.room):.0f} tokens at most, and the load wants {wanted:.0f}"
    return Foreseen(RELIEVES if more else STARVES, USUAL_SD, words)


def _pool(value: Value, before: Settings, after: Settings, load: Load) -> Foreseen | None:
    has, given = number_in(value), number_in(before.get("max-total-tokens"))
    wanted = load.tokens * _wanted(after, load)
    had = min((n for n in (load.room, given) if n is not None), default=math.inf)
    if has is not None and has >= had and (given is None or given > had):
        return Foreseen(0.0, NOTHING_SD, f"memory ends the KV cache at {had:g} tokens, before that limit")
    return _room("the KV cache", had, has, wanted, "tokens of the load")


def _admission(value: Value, before: Settings, after: Settings, load: Load) -> Foreseen | None:
    if load.room is None or load.room < load.tokens * _wanted(after, load):
        return None
    return Foreseen(0.0, NOTHING_SD, f"nothing waits for the KV cache: it holds {load.room} tokens")


def _policy(value: Value, before: Settings, after: Settings, load: Load) -> Foreseen | None:
    wanted = _wanted(after, load)
    if load.room is None or load.room < load.tokens * wanted or _at_once(after, load) < wanted:
        return None
    return Foreseen(0.0, LITTLE_SD, "nothing waits for its turn: there is room for all requests at once")


def _no_prefix_cache(value: Value, before: Settings, after: Settings, load: Load) -> Foreseen | None:
    if load.cached is None or value is not True:
        return None
    if load.cached >= HIT:
        return Foreseen(STARVES, USUAL_SD, f"{load.cached:.0%} of the prompts come from the prefix cache")
    return Foreseen(0.0, LITTLE_SD, "the prefix cache serves none of the prompts")


def _nothing(value: Value, before: Settings, after: Settings, load: Load) -> Foreseen | None:
    return Foreseen(0.0, NOTHING_SD, "nothing in the server reads it")


def _drafts(value: Value, before: Settings, after: Settings, load: Load) -> Foreseen | None:
    wanted, had, limit = _wanted(after, load), _running_limit(before), _running_limit(after)
    if load.throughput and limit is not None and limit < wanted and (had is None or limit < had):
        return Foreseen(STARVES, USUAL_SD, f"speculation lets {limit:g} requests run at once, and {wanted} come")
    return None


_RULES: dict[str, Callable[[Value, Settings, Settings, Load], Foreseen | None]] = {
    "tp-size": _spread,
    "pp-size": _spread,
    "dp-size": _spread,
    "max-running-requests": _max_running,
    "cuda-graph-max-bs": _graphs,
    "cuda-graph-max-bs-decode": _graphs,
    "mem-fraction-static": _memory,
    "max-total-tokens": _pool,
    "schedule-conservativeness": _admission,
    "schedule-policy": _policy,
    "disable-radix-cache": _no_prefix_cache,
    **{row.flag: _nothing for row in UNREAD},
    "speculative-algorithm": _drafts,
}
