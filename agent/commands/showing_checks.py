"""How a checked handoff is shown: a screen of 80 columns, or one JSON object. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Any

from optagent.agent.checking import Checked
from optagent.agent.checks import Check, Outcome
from optagent.agent.commands.printable import clean
from optagent.agent.elsewhere import by_what
from optagent.agent.orient import Orientation

WIDTH = 80
MARKS = {Outcome.BROKEN: "✗", Outcome.UNKNOWN: "?", Outcome.HOLDS: "✓"}
"""In the order in which they are shown: what does not hold comes first."""
TEXT, FOUND = 300, 400
"""Characters of a claim, and of what was found, that are shown."""


def check_lines(orientation: Orientation, checked: Checked, superseded_by: str) -> Iterator[str]:
    """The screen, line by line."""
    handoff = orientation.handoff
    assert handoff is not None
    counts = ", ".join(f"{checked.count(o)} {words}" for o, words in _COUNTED.items())
    total = len(checked.checks)
    yield from wrapped(f"{clean(orientation.handoff_path)}: {total} claims: {counts}", "", WIDTH)
    if superseded_by:
        yield from wrapped(f"superseded by {clean(superseded_by)}: that one is where a sitting starts", "  ! ", WIDTH)
    for note in checked.notes:
        yield from wrapped(clean(note), "  ! ", WIDTH)
    if checked.lost:
        yield "does not carry over to here"
        for difference in checked.lost:
            yield from wrapped(clean(str(difference))[:FOUND], "  ! ", WIDTH)
    for outcome in MARKS:
        rows = [check for check in checked.checks if check.outcome is outcome]
        if rows:
            yield outcome.value
        for check in rows:
            yield from _row(check)


_COUNTED = {Outcome.HOLDS: "hold", Outcome.BROKEN: "do not", Outcome.UNKNOWN: "cannot be checked"}


def _row(check: Check) -> Iterator[str]:
    yield from wrapped(
        f"{clean(check.claim.id)}  {clean(check.claim.text)}"[:TEXT], f"  {MARKS[check.outcome]} ", WIDTH
    )
    seen = f" ({'; '.join(check.evidence)})" if check.evidence else ""
    yield from wrapped(clean(f"{check.because}{seen}")[:FOUND], "      ", WIDTH)


def wrapped(text: str, lead: str, width: int) -> list[str]:
    """`text` behind `lead`, on as many lines as it takes; the later ones begin where the text does."""
    return textwrap.wrap(
        text, width, initial_indent=lead, subsequent_indent=" " * len(lead), break_on_hyphens=False
    ) or [lead.rstrip()]  # fmt: skip


def check_json(orientation: Orientation, checked: Checked, superseded_by: str) -> dict[str, Any]:
    """The object that scripts get."""
    rows = [
        {
            "id": c.claim.id, "kind": c.claim.kind, "claim": c.claim.text, "outcome": c.outcome.value, "because": c.because,
            "evidence": list(c.evidence),
        }
        for c in checked.checks
    ]  # fmt: skip
    return {
        "handoff": orientation.handoff_path,
        "superseded_by": superseded_by or None,
        "notes": list(checked.notes),
        "not_carried_over": by_what(checked.lost),
        "claims": rows,
    }
