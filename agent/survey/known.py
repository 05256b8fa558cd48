"""What is known of a survey's levels before any of them was launched: how likely they run, what they cost, how far they move
things, and what the load lets one foresee. Pure.

None of it is a verdict. It says which combination is launched first, and which level is suspected first.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from optagent.agent.flag_fit import misfits
from optagent.agent.load import Load
from optagent.agent.search.space import number_in
from optagent.agent.survey.factors import Factor, Level, Value, settings
from optagent.agent.survey.foreseen import foreseen, gpus_of, room_of

UNFIT = 0.6
"""How likely what does not go with these cards or this model is not to run: a patch may lift a guard, and a table may err."""
REACH = (
    (re.compile(r"(?:tp|dp|pp|ep|attn-dp)-size\Z|speculative-|moe-a2a|moe-runner|NCCL_P2P"), 2.0),
    (re.compile(r"stream-interval\Z|recv-interval\Z|mscclpp\Z|nvls\Z|-prefill-tokens\Z|NCHANNELS\Z"), 0.5),
)
"""How far settings move things: how the model is laid out and how many tokens a step gives, by far; how often results are
handed on, little. By their names, beside a usual setting."""
LEFT_BESIDE = ((2.0, 0.6), (3.5, 0.3), (5.0, 0.15))
"""GB that a memory share leaves beside weights and KV cache, and how likely that is too little (the documentation's advice is
to leave 5 to 8)."""
NO_ROOM = 0.9
"""How likely weights that the baseline's log leaves no room for do not run."""
NO_CARDS = 0.999
"""How likely what asks for more GPUs than were counted does not run."""
SLOW_STARTS = {"enable-torch-compile": 3.0}
"""How many usual launches one takes that compiles the model first."""


def with_what_is_known(
    factors: Sequence[Factor], before: Mapping[str, Value], load: Load | None, facts: Mapping[str, str]
) -> tuple[Factor, ...]:
    """The factors, whose levels change what was set `before`, with what the load and the facts about the machine tell."""
    return tuple(Factor(tuple(_known(level, before, load, facts) for level in f.levels)) for f in factors)


def _known(level: Level, before: Mapping[str, Value], load: Load | None, facts: Mapping[str, str]) -> Level:
    """The level with what is known of it before any launch."""
    sets = settings(level.change)
    model = str(before.get("model-path", ""))
    unfit = any(misfits(name, value, facts, model) for name, value in sets.items())
    return replace(
        level,
        risk=max(
            UNFIT if unfit else level.risk,
            _risk_of_memory(sets, facts),
            _risk_of_weights(sets, before, load),
            _risk_of_cards(sets, before, facts),
        ),
        cost=max((times for name, times in SLOW_STARTS.items() if sets.get(name)), default=1.0),
        reach=max((_reach(name) for name in sets), default=1.0),
        foreseen=foreseen(sets, before, load) if load is not None else None,
    )


def _risk_of_memory(sets: Mapping[str, Value], facts: Mapping[str, str]) -> float:
    """How likely a share of the GPU's memory leaves too little of it beside, as far as that can be told."""
    share, memory_gb = number_in(sets.get("mem-fraction-static")), number_in(facts.get("gpu.memory_gb"))
    if share is None or memory_gb is None:
        return 0.0
    return next((risk for left_gb, risk in LEFT_BESIDE if (1 - share) * memory_gb < left_gb), 0.0)


def _risk_of_weights(sets: Mapping[str, Value], before: Mapping[str, Value], load: Load | None) -> float:
    """How likely the weights have no room on as many GPUs as these settings spread them over."""
    room = room_of(before, {**before, **sets}, load) if load is not None else None
    return NO_ROOM if room == 0 else 0.0


def _risk_of_cards(sets: Mapping[str, Value], before: Mapping[str, Value], facts: Mapping[str, str]) -> float:
    """How likely settings do not run that ask for more GPUs than the machines have, as far as that is known."""
    there = number_in(facts.get("gpu.count"))
    after = {**before, **sets}
    if not there or gpus_of(after) <= gpus_of(before):
        return 0.0
    return NO_CARDS if gpus_of(after) > there * (number_in(after.get("nnodes")) or 1) else 0.0


def _reach(name: str) -> float:
    return next((reach for names, reach in REACH if names.search(name)), 1.0)
