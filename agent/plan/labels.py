"""What a prose item says of itself in labels such as `**Expected impact:** 10-20 % | **Effort:** low`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from optagent.agent.markdown import plain
from optagent.agent.plan.gains import find_gain
from optagent.agent.plan.marks import status_of_words
from optagent.agent.plan.model import Risk

READ_LINES = 60
"""Labels stand near the top of an item; what comes later belongs to its details."""

_LABEL = re.compile(
    r"(?:\A|[|·•;,]|(?<=\s)[-*])\s*(?:[-*+]\s+)?\*{0,2}\s*(?:(?P<expected_gain>(?:(?:expected|estimated|projected|potential)\s+)?"
    r"(?:impact|gains?|improvement|speed-?up|magnitude|benefit))|(?P<cost>effort|cost|complexity)|"
    r"(?P<risk>(?:quality\s+)?risk)|(?P<status>status|state))\s*(?::\s*\*{0,2}|\*{0,2}\s*:)\s*(?P<value>[^|]{1,200}?)\s*(?=\||\Z)",
    re.IGNORECASE,
)
_RISKS = {"none": Risk.LOW, "very low": Risk.LOW, "low": Risk.LOW, "med": Risk.MEDIUM, "medium": Risk.MEDIUM,
          "moderate": Risk.MEDIUM, "high": Risk.HIGH, "very high": Risk.HIGH}  # fmt: skip


def read_labels(lines: Sequence[str]) -> dict[str, Any]:
    """The fields that labels in `lines` give; what cannot be read is left out. The first of a kind counts."""
    found: dict[str, Any] = {}
    for line in lines[:READ_LINES]:
        for match in _LABEL.finditer(line[:1000]):
            name = str(
                match.lastgroup if match.lastgroup != "value" else next(k for k, v in match.groupdict().items() if v)
            )
            value = read_value(name, match["value"])
            if value is not None:
                found.setdefault(name, value)
    return found


def read_value(name: str, text: str) -> Any:
    """The value of one label or table cell, or None."""
    text = plain(text)
    if name == "expected_gain":
        return find_gain(text)
    if name == "status":
        return status_of_words(text)
    if name == "risk":
        word = re.match(r"[^\w]*((?:very )?[a-z]+)", text.lower())
        return _RISKS.get(word[1]) or _RISKS.get(word[1].split()[0]) if word else None
    return text[:200] or None
