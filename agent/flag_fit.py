"""Whether a flag fits the GPUs and the model at hand, before a launch is spent on it. Pure.

The tables `flag_facts.HARDWARE` and `flag_facts.MLA_ONLY` decide. They only warn: a patch may lift a guard.
"""

from __future__ import annotations

from collections.abc import Mapping

from optagent.agent.dead_ends import met
from optagent.agent.flag_facts import HARDWARE, MLA_ONLY, has_no_mla, has_no_nvlink
from optagent.tools.calls.configuration import FlagValue


def misfits(flag: str, value: FlagValue | None, facts: Mapping[str, str], model: str = "") -> list[str]:
    """Why the flag of this first name, set to this value, does not go with these cards or this model (the path of it)."""
    if value is None or value is False:
        return []
    given = f" {value}" if value is not True else ""
    card = facts.get("gpu.name", "this GPU")[:60]
    found = []
    for row in HARDWARE:
        concerned = row.flag == flag and (not row.values or str(value) in row.values)
        fits = not row.without_nvlink or has_no_nvlink(facts.get("gpu.name", ""))
        if concerned and fits and met(row.when, facts):
            found.append(f"--{flag}{given if row.values else ''} on {card}: {row.says}")
    if str(value) in MLA_ONLY.get(flag, frozenset()) and has_no_mla(model):
        found.append(f"--{flag}{given}: these kernels are for models with MLA, which {model[:60]} is not")
    return found
