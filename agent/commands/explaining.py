"""`optagent plan --why ITEM`: rank, evidence, and what would change it. Looks, and writes nothing."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from optagent.agent.commands.printable import clip
from optagent.agent.commands.workspace import find_workspace, looking
from optagent.agent.errors import BadInput
from optagent.agent.explaining import Explanation, explain, nearest
from optagent.agent.jsonable import to_body
from optagent.agent.sitting import situation_now
from optagent.agent.spending import about

LONGEST = 320
"""Characters of a line: what a log says can be long, and all of it stands in --json."""


def explain_item(root: Path, name: str, *, as_json: bool) -> int:
    """Exit status 0. Raises BadInput when no item has that name."""
    session = looking(find_workspace(root))
    try:
        situation, ledger = situation_now(session), session.ledger
        told = explain(situation, name, ledger.experiments.values(), ledger.attempts)
        if told is None:
            meant = ", ".join(nearest(name, situation))
            raise BadInput("--why", f"no item is called {name[:80]!r}" + (f"; did you mean {meant}?" if meant else ""))
    finally:
        session.journal.close()
    print(json.dumps(_everything(told), ensure_ascii=False) if as_json else "\n".join(screen(told)))
    return 0


def _everything(told: Explanation) -> dict[str, object]:
    """All keys, those at their defaults as well."""
    body = {name: to_body(getattr(told, name)) for name in Explanation.__dataclass_fields__}
    return body | {"cost": asdict(told.cost)}


def screen(told: Explanation) -> list[str]:
    """The explanation as lines for people."""
    rank = f"{told.rank} in the plan" if told.rank is not None else "none in the plan"
    apart = "settled" if told.standing == "done" else "not to be tried as things are"
    place = f"place {told.place} of the {told.to_try} still to be tried" if told.place else apart
    owner = ", where its owner put it" if told.placed_by_owner else ""
    promised = f"{told.promised[0]:+.1%} to {told.promised[1]:+.1%}" if told.promised else "nothing stated"
    lines = [f"{told.item}: {told.title}", f"  rank      {rank}; {place}{owner}"]
    if told.moved:
        lines.append(f"  moved     from place {told.planned} to {told.place}: {told.moved}")
    lines.append(f"  promise   {promised}" + (f"; {told.expected_gain:+.1%} counted with" if told.place else ""))
    if told.place:
        stated = f", {about(told.cost.stated_s)} of it as the plan says" if told.cost.stated_s else ""
        timed = "" if told.cost.timed else " (the time of a launch is assumed)"
        lines.append(f"  chance    {told.chance:.0%} that it is kept")
        lines.append(f"  cost      about {told.cost.launches:.0f} launches, {about(told.cost.seconds)}{stated}{timed}")
    lines.append(f"  standing  {told.standing}: {told.because}")
    lines += _listed("evidence", told.evidence or ("none yet",))
    lines += _listed("changes", told.would_change or ("nothing that is known",))
    return [clip(line, LONGEST) for line in lines]


def _listed(name: str, texts: tuple[str, ...]) -> list[str]:
    return [f"  {name if n == 0 else '':<9} {text}" for n, text in enumerate(texts)]
