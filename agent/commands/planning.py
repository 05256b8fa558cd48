"""`optagent plan`: the plan as it is understood, and what is wrong with it."""

from __future__ import annotations

import json
from pathlib import Path

from optagent.agent.change import describe
from optagent.agent.errors import BadInput
from optagent.agent.jsonable import to_body
from optagent.agent.plan.model import Plan
from optagent.agent.plan.read import read_plan


def show_plan(root: Path, file: Path | None, *, check: bool, as_json: bool) -> int:
    """Exit status 2 when something fatal is wrong with the plan, otherwise 0."""
    path = file or root / _configured(root)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(str(path), f"this plan cannot be read: {getattr(error, 'strerror', None) or error}") from None
    plan = read_plan(text, str(path))
    fatal = any(p.fatal for p in plan.problems)
    if as_json:
        print(
            json.dumps(
                {
                    "title": plan.title,
                    "items": [to_body(i) for i in plan.items],
                    "problems": [to_body(p) for p in plan.problems],
                }
            )
        )
    else:
        _print(plan, str(path), check)
    return 2 if fatal else 0


def _configured(root: Path) -> str:
    from optagent.agent.config import load_config

    return load_config(root.resolve()).plan


def _print(plan: Plan, path: str, check: bool) -> None:
    for problem in plan.problems:
        print(f"{path}:{problem.line}: {'' if problem.fatal else 'note: '}{problem.message}")
    if check:
        if not plan.problems:
            print(f"{path}: {len(plan.items)} items, nothing wrong")
        return
    print(plan.title)
    for item in plan.items:
        gain = f"  {item.expected_gain[0]:+.0%}..{item.expected_gain[1]:+.0%}" if item.expected_gain else ""
        print(f"{item.rank if item.rank is not None else '-':>3}  {item.status:<12} {item.title} ({item.id}){gain}")
        print(f"       {describe(item.change) if item.change else 'prose'}")
