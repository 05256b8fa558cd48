"""`optagent status`: one screen. Kept light: it reads the journal, the plan and a few keys of optagent.toml."""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from optagent.agent.errors import BadInput
from optagent.agent.ledger import Ledger, fold, total_gain
from optagent.agent.plan.model import Plan, Status
from optagent.agent.plan.read import read_plan
from optagent.agent.records import Baseline
from optagent.agent.standing import edited_by_owner
from optagent.tools.journal_store import JournalStore
from optagent.tools.lock import holder

WIDTH = 78


@dataclass(frozen=True)
class Outline:
    """The few settings that a screen needs."""

    name: str
    objective: str
    plan: str
    steps: int | None
    hours: float | None
    simulated: bool


def show_status(root: Path, *, as_json: bool) -> int:
    """Print where the campaign stands. Raises BadInput when there is no campaign or its files cannot be read."""
    root = root.resolve()
    outline = read_outline(root)
    plan = _read_plan(root, outline.plan)
    with JournalStore.open(root / ".optagent" / "journal.db", create=False, read_only=True) as store:
        ledger = fold(store.entries())
    at_work = holder(root / ".optagent" / "lock")
    view = status_view(outline, plan, ledger, str(at_work) if at_work else None)
    print(json.dumps(view, ensure_ascii=False) if as_json else "\n".join(screen(view)))
    return 0


def read_outline(root: Path) -> Outline:
    """The settings a screen needs, from a file that is otherwise in order; a wrong one is reported in full."""
    path = root / "optagent.toml"
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
        objective, budget = data.get("objective", {}), data.get("budget", {})
        sense = "up" if objective.get("direction", "max") == "max" else "down"
        words = objective.get("statement") or f"{objective.get('metric', 'output_throughput')} {sense}"
        kind = data.get("deployment", {}).get("kind", "simulator")
        return Outline(
            str(data["name"]), str(words), str(data.get("plan", "plans/plan.md")), budget.get("steps"), budget.get("hours"),
            kind == "simulator",
        )  # fmt: skip
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        from optagent.agent.config import load_config

        load_config(root)
        raise BadInput(str(path), "cannot be used") from None


def _read_plan(root: Path, name: str) -> Plan:
    try:
        return read_plan((root / name).read_text(encoding="utf-8"), name)
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(name, f"this plan cannot be read: {getattr(error, 'strerror', None) or error}") from None


def status_view(outline: Outline, plan: Plan, ledger: Ledger, at_work: str | None) -> dict[str, Any]:
    """The status as a JSON object; the screen is drawn from it."""
    current = ledger.current()
    return {
        "campaign": outline.name,
        "simulated": outline.simulated,
        "objective": outline.objective,
        "at_work": at_work,
        "first_baseline": _baseline(ledger.first_baseline),
        "baseline": _baseline(ledger.baseline),
        "total_gain": total_gain(ledger),
        "under_way": f"{current.id} {current.title}" if current else None,
        "plan": outline.plan,
        "problems": [f"{outline.plan}:{p.line}: {p.message}" for p in plan.problems if p.fatal],
        "items": [
            {
                "id": i.id,
                "rank": i.rank,
                "title": i.title,
                "status": str(_status(i, ledger)),
                "result": ledger.item_result.get(i.id, i.result),
            }
            for i in plan.items
        ],
        "dead_ends": len(ledger.dead_ends),
        "questions": [
            {"id": q.id, "reason": q.reason, "text": q.text, "options": [o.key for o in q.options]}
            for q in ledger.open_questions()
        ],
        "budget": {
            "sitting": ledger.sitting or None,
            "steps": ledger.steps,
            "steps_allowed": outline.steps,
            "hours_allowed": outline.hours,
        },
        "experiments": len(ledger.experiments),
        "last_steps": ledger.recent[-6:],
        "handoff": ledger.handoffs[-1] if ledger.handoffs else None,
    }


def _status(item: Any, ledger: Ledger) -> Status:
    recorded = ledger.item_status.get(item.id)
    if recorded is None or (
        edited_by_owner(item, ledger.plan_written) and item.status in (Status.OPEN, Status.DROPPED)
    ):
        return Status(item.status)
    return recorded


def _baseline(baseline: Baseline | None) -> dict[str, Any] | None:
    if baseline is None:
        return None
    m = baseline.measurement
    return {
        "label": baseline.label, "environment": baseline.configuration.environment,
        "metric": m.metric if m else None, "value": m.value if m else None, "verified": bool(m and m.verified),
    }  # fmt: skip


def screen(view: dict[str, Any]) -> list[str]:
    """The view as lines of at most 78 columns."""
    from optagent.agent.commands.printable import clip

    simulated = "  (simulated deployment)" if view["simulated"] else ""
    lines = [f"{view['campaign']}{simulated}", *_entry("objective", view["objective"])]
    lines += _entry("baseline", _figure(view["baseline"]))
    if view["first_baseline"] and view["first_baseline"] != view["baseline"]:
        lines += _entry("started at", _figure(view["first_baseline"]))
    if view["total_gain"]:
        lines += _entry("gain", view["total_gain"])
    if view["at_work"]:
        lines.append(f"at work    {view['at_work']}")
    if view["under_way"]:
        lines.append(f"under way  {view['under_way']}")
    lines += ["", f"plan       {view['plan']}"]
    lines += [f"  ! {p}" for p in view["problems"]]
    for item in view["items"]:
        rank = item["rank"] if item["rank"] is not None else "-"
        lines.append(f"  {rank:>2} {item['status']:<12} {item['title']}")
    lines += ["", f"questions  {len(view['questions']) or 'none'}"]
    for q in view["questions"]:
        lines.append(f"  {q['id']} ({q['reason']}) {q['text']}")
        lines.append(f"     optagent answer {q['id']} {'|'.join(q['options']) or 'TEXT'}")
    b = view["budget"]
    allowed = f" of {b['steps_allowed']}" if b["steps_allowed"] else ""
    hours = f", {b['hours_allowed']} h a sitting" if b["hours_allowed"] else ""
    lines += [
        "",
        f"budget     {b['steps']}{allowed} steps in sitting {b['sitting'] or '-'}{hours}; "
        f"{view['experiments']} experiments in all",
    ]
    lines += ["last steps" if view["last_steps"] else "nothing has been done yet: optagent continue"]
    lines += [f"  {line}" for line in view["last_steps"]]
    return [clip(line, WIDTH) for line in lines]


def _entry(name: str, text: str) -> list[str]:
    """A named line, wrapped under its name."""
    from textwrap import wrap

    return wrap(text, WIDTH, initial_indent=f"{name:<11}", subsequent_indent=" " * 11) or [name]


def _figure(baseline: dict[str, Any] | None) -> str:
    if baseline is None:
        return "not measured yet"
    value = f"{baseline['metric']} {baseline['value']:.4g}" if baseline["value"] is not None else "not measured yet"
    state = "" if baseline["verified"] else " (unverified)"
    return f"{value}{state}, {baseline['label']}, environment {baseline['environment']}"
