"""Whether a plan fits its campaign: what it refers to must be there before anything is launched."""

from __future__ import annotations

from collections.abc import Callable, Collection

from optagent.agent.plan.model import Plan, Problem, Status

RESERVED = frozenset({"host", "port"})
"""Flags that the deployment sets itself; a change of them would never be in force."""


def misfits(plan: Plan, environments: Collection[str], is_text: Callable[[str], bool]) -> list[Problem]:
    """What open items refer to and is not there. `is_text` tells whether a patch file can be read."""
    found: list[Problem] = []
    for item in plan.items:
        change = item.change
        if change is None or item.status not in (Status.OPEN, Status.TRYING, Status.PARKED, Status.DEAD):
            continue
        if change.patch and not is_text(change.patch):
            found.append(
                Problem(item.line, f"{item.id}: its patch {change.patch} is not there, is empty or cannot be read")
            )
        if change.environment and change.environment not in environments:
            known = ", ".join(environments)
            found.append(Problem(item.line, f"{item.id}: environment {change.environment} is not among {known}"))
        for name in sorted(RESERVED & {*change.flags, *(a.name for a in item.space if a.kind == "flag")}):
            found.append(Problem(item.line, f"{item.id}: --{name} is set by the deployment and cannot be a change"))
    return found
