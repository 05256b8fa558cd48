"""`optagent status`: one screen. Kept light: it reads the journal, the plan and a few keys of optagent.toml."""

from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

from optagent.agent.errors import BadInput
from optagent.agent.plan.model import Plan
from optagent.agent.plan.owner import effective_status
from optagent.agent.plan.read import read_plan

WIDTH = 78
EMPTY: dict[str, Any] = {
    "first_baseline": None, "baseline": None, "total_gain": "", "under_way": None, "recorded": {}, "written": {},
    "results": {}, "dead_ends": 0, "questions": [], "sitting": None, "steps": 0, "experiments": 0, "last_steps": [],
    "handoff": None,
}  # fmt: skip
"""What the journal says before anything was recorded."""


class Outline(NamedTuple):
    """The few settings that a screen needs."""

    name: str
    objective: str
    plan: str
    steps: int | None
    hours: float | None
    simulated: bool


def show_status(root: Path, *, as_json: bool) -> int:
    """Print where the campaign stands. Raises BadInput when there is no campaign or its files cannot be read."""
    from optagent.agent.commands.printable import optagent_in

    optagent = optagent_in(root)
    root = root.resolve()
    outline = read_outline(root)
    plan = _read_plan(root, outline.plan)
    view = status_view(outline, plan, read_ledger(root)) | _at_work(root)
    print(json.dumps(view, ensure_ascii=False) if as_json else "\n".join(screen(view, optagent)))
    return 0


def _at_work(root: Path) -> dict[str, Any]:
    """Who holds the campaign, what the sitting does now, and how the last one ended where that was not in order."""
    found: dict[str, Any] = {"at_work": None, "now": None, "last_sitting": None}
    if not (root / ".optagent").exists():
        return found
    from optagent.agent.commands.sittings import end_line, exit_status_of, look_at_sitting, present

    seen = look_at_sitting(root)
    found["at_work"] = str(seen.holder) if seen.holder else None
    if seen.at_work and seen.now is not None:
        found["now"] = present(seen.now)
    elif seen.now is not None:
        ended = seen.now.get("ended") or {}
        found["last_sitting"] = {
            "exit_status": exit_status_of(seen), "killed": seen.killed, "reason": ended.get("reason"), "told": end_line(seen),
        }  # fmt: skip
    return found


def read_outline(root: Path) -> Outline:
    """The settings a screen needs, from a file that is otherwise in order; a wrong one is reported in full. Where
    variables may override it, all of it is read as every other command does."""
    path = root / "optagent.toml"
    if any(variable.upper().startswith("OPTAGENT_") for variable in os.environ):
        return _overridden(root)
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


def _overridden(root: Path) -> Outline:
    from optagent.agent.config import load_config

    config = load_config(root)
    objective, budget = config.objective, config.budget
    words = objective.statement or f"{objective.metric} {'up' if objective.direction == 'max' else 'down'}"
    simulated = config.deployment.kind == "simulator"
    return Outline(config.name, words, config.plan, budget.steps, budget.hours, simulated)


def _read_plan(root: Path, name: str) -> Plan:
    try:
        return read_plan((root / name).read_text(encoding="utf-8"), name)
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(name, f"this plan cannot be read: {getattr(error, 'strerror', None) or error}") from None


def read_ledger(root: Path) -> dict[str, Any]:
    """What the journal says, from the view that was kept with its last entry, or by folding all of them."""
    path = root / ".optagent" / "journal.db"
    if not (path.exists() or path.with_name(f"{path.name}.seq").exists()):
        return EMPTY
    from optagent.tools.journal_store import JournalStore

    with JournalStore.open(path, create=False, read_only=True) as store:
        kept = store.load_view("ledger")
        if kept is not None and kept.seq == store.last_seq():
            return kept.body
        from optagent.agent.ledger import fold
        from optagent.agent.ledger_view import ledger_view

        return ledger_view(fold(store.entries()))


def status_view(outline: Outline, plan: Plan, seen: dict[str, Any]) -> dict[str, Any]:
    """The status as a JSON object; the screen is drawn from it."""
    results, recorded, written = seen["results"], seen["recorded"], seen["written"]
    return {
        "campaign": outline.name,
        "simulated": outline.simulated,
        "objective": outline.objective,
        "plan": outline.plan,
        "problems": [f"{outline.plan}:{p.line}: {p.message}" for p in plan.problems if p.fatal],
        "items": [
            {
                "id": i.id,
                "rank": i.rank,
                "title": i.title,
                "status": str(effective_status(i, recorded, written)),
                "result": results.get(i.id, i.result),
            }
            for i in plan.items
        ],
        "budget": {
            "sitting": seen["sitting"],
            "steps": seen["steps"],
            "steps_allowed": outline.steps,
            "hours_allowed": outline.hours,
        },
        **{k: v for k, v in seen.items() if k not in ("results", "recorded", "written", "sitting", "steps")},
    }


def screen(view: dict[str, Any], optagent: str) -> list[str]:
    """The view as lines of at most 78 columns, but for commands: half a command is of no use."""
    return [*_clipped(_top(view)), *_questions(view, optagent), *_clipped(_budget(view)), *_steps(view, optagent)]


def _clipped(lines: list[str]) -> list[str]:
    from optagent.agent.commands.printable import clip

    return [clip(line, WIDTH) for line in lines]


def _top(view: dict[str, Any]) -> list[str]:
    simulated = "  (simulated deployment)" if view["simulated"] else ""
    lines = [f"{view['campaign']}{simulated}", *_entry("objective", view["objective"])]
    lines += _entry("baseline", _figure(view["baseline"]))
    if view["first_baseline"] and view["first_baseline"] != view["baseline"]:
        lines += _entry("started at", _figure(view["first_baseline"]))
    if view["total_gain"]:
        lines += _entry("gain", view["total_gain"])
    if view["at_work"]:
        lines.append(f"at work    {view['at_work']}")
    if view["now"]:
        from optagent.agent.commands.sittings import present_lines

        first, *more = present_lines(view["now"])
        lines += [f"now        {first}", *(f"           {line}" for line in more)]
    if view["last_sitting"] and view["last_sitting"]["exit_status"] not in (0, 3):
        lines += _entry("sitting", view["last_sitting"]["told"])
    if view["under_way"]:
        lines.append(f"under way  {view['under_way']}")
    lines += ["", f"plan       {view['plan']}"]
    lines += [f"  ! {p}" for p in view["problems"]]
    for item in view["items"]:
        rank = item["rank"] if item["rank"] is not None else "-"
        lines.append(f"  {rank:>2} {item['status']:<12} {item['title']}")
    return lines


def _questions(view: dict[str, Any], optagent: str) -> list[str]:
    lines = ["", f"questions  {len(view['questions']) or 'none'}"]
    for q in view["questions"]:
        lines += _clipped([f"  {q['id']} ({q['reason']}) {q['text']}"])
        lines.append(f"     {optagent} answer {q['id']} {'|'.join(q['options']) or 'TEXT'}")
    return lines


def _budget(view: dict[str, Any]) -> list[str]:
    b = view["budget"]
    allowed = f" of {b['steps_allowed']}" if b["steps_allowed"] else ""
    hours = f", {b['hours_allowed']} h a sitting" if b["hours_allowed"] else ""
    return [
        "",
        f"budget     {b['steps']}{allowed} steps in sitting {b['sitting'] or '-'}{hours}; "
        f"{view['experiments']} experiments in all",
    ]


def _steps(view: dict[str, Any], optagent: str) -> list[str]:
    """The last steps; before the first has ended, why there are none and what to type."""
    if view["last_steps"]:
        return ["last steps", *_clipped([f"  {line}" for line in view["last_steps"]])]
    if view["at_work"]:
        return ["no step has ended yet; one is under way" if view["under_way"] else "no step has ended yet"]
    if view["budget"]["sitting"] or view["under_way"]:
        return [f"no step has ended yet; go on with: {optagent} continue"]
    return [f"nothing has been done yet: {optagent} continue"]


def _entry(name: str, text: str) -> list[str]:
    """A named line, wrapped under its name."""
    from textwrap import wrap

    return wrap(text, WIDTH, initial_indent=f"{name:<11}", subsequent_indent=" " * 11) or [name]


def _figure(baseline: dict[str, Any] | None) -> str:
    if baseline is None:
        return "not measured yet"
    value = f"{baseline['metric']} {baseline['value']:.4g}" if baseline["value"] is not None else "not measured yet"
    state = "" if baseline["verified"] else " (unverified)"
    of = f" under {baseline['workload']}" if baseline.get("workload") else ""
    return f"{value}{of}{state}, {baseline['label']}, environment {baseline['environment']}"
