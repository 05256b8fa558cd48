"""The planners there are: who chooses among a plan's items what is tried next."""

from __future__ import annotations

from collections.abc import Mapping

PLANNERS: Mapping[str, str] = {
    "ranked": "the plan's own order as the evidence moves it; needs no model and no network",
}
"""By the name that `planner` of optagent.toml and `replay --then` take, with what it is in one line."""
