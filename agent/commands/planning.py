"""`optagent plan`: the plan as it is understood, and what is wrong with it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from optagent.agent.change import describe
from optagent.agent.commands.printable import clean
from optagent.agent.errors import BadInput
from optagent.agent.jsonable import to_body
from optagent.agent.plan.fits import misfits
from optagent.agent.plan.model import Plan
from optagent.agent.plan.read import read_plan
from optagent.agent.search.space import describe as describe_space

if TYPE_CHECKING:
    from optagent.agent.config import CampaignConfig


def show_plan(root: Path, file: Path | None, *, check: bool, as_json: bool, why: str | None = None) -> int:
    """Exit status 2 when something fatal is wrong with the plan, otherwise 0."""
    if why is not None:
        return _explain(root, file, why, check=check, as_json=as_json)
    path = file or root / _config(root).plan
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(str(path), f"this plan cannot be read: {getattr(error, 'strerror', None) or error}") from None
    plan = read_plan(text, str(path))
    if file is None:
        missing = misfits(plan, _config(root).deployment.environments, lambda name: _is_text(path.parent / name))
        plan = replace(plan, problems=(*plan.problems, *missing))
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


def _explain(root: Path, file: Path | None, item: str, *, check: bool, as_json: bool) -> int:
    if file is not None or check:
        raise BadInput("--why", "explains an item of the campaign's own plan; give neither a file nor --check with it")
    from optagent.agent.commands.explaining import explain_item

    return explain_item(root, item, as_json=as_json)


def _config(root: Path) -> CampaignConfig:
    from optagent.agent.config import load_config

    return load_config(root.resolve())


def _is_text(path: Path) -> bool:
    try:
        return bool(path.read_text(encoding="utf-8").strip())
    except (OSError, UnicodeDecodeError):
        return False


def _print(plan: Plan, path: str, check: bool) -> None:
    for problem in plan.problems:
        print(f"{path}:{problem.line}: {'' if problem.fatal else 'note: '}{clean(problem.message)}")
    if check:
        if not plan.problems:
            print(f"{path}: {len(plan.items)} items, nothing wrong")
        return
    print(clean(plan.title))
    for item in plan.items:
        gain = f"  {item.expected_gain[0]:+.0%}..{item.expected_gain[1]:+.0%}" if item.expected_gain else ""
        print(
            f"{item.rank if item.rank is not None else '-':>3}  {item.status:<12} {clean(item.title)} ({item.id}){gain}"
        )
        fixed = describe(item.change) if item.change and not (item.space and item.change.empty) else ""
        print(f"       {clean(' '.join(p for p in (fixed, describe_space(item.space)) if p) or 'prose')}")
