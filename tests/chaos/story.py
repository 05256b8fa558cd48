"""What a campaign's journal tells but for its interruptions, so that two campaigns can be compared.

Left out is what an interruption or another clock may change: sittings, intents and results, launches, stops, what was restored,
decisions that were made again, times, pids, paths of handoffs. Commits are named in the order in which they appear, since their
hashes depend on the clock.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from optagent.agent.hand_off import attempts
from optagent.agent.jsonable import to_body
from optagent.agent.ledger import Ledger, fold
from optagent.agent.plan.read import read_plan
from optagent.tools.journal_store import Entry, JournalStore

TIMED = {"began", "elapsed_s", "at", "sitting", "latency_s", "decode_kl", "latest"}
"""Keys whose values are times or are told by where a sitting began."""
INTERRUPTIONS = {"sitting", "sitting-ended", "reconciled", "restored", "intent", "result", "launched", "stopped"}
VIEWS = {"decision", "handoff", "plan-written", "took-over"}
"""Written again where a sitting begins again; what matters of them is compared by what they come to."""


def read(folder: Path) -> list[Entry]:
    path = folder / ".optagent" / "journal.db"
    if not path.exists():
        return []
    with JournalStore.open(path, create=False, read_only=True) as store:
        return list(store.entries())


def story(entries: list[Entry]) -> dict[str, Any]:
    """Same experiments, runs, values, verdicts, kept configuration and questions give the same story."""
    ledger = fold(entries)
    told = {
        "entries": [(e.kind, e.body) for e in entries if e.kind not in INTERRUPTIONS | VIEWS],
        "experiments": [to_body(e) for e in ledger.experiments.values()],
        "attempts": [to_body(a) for a in attempts(ledger)],
        "questions": [to_body(q) for q in ledger.questions.values()],
        "items": {i: (s.value, ledger.item_result[i]) for i, s in ledger.item_status.items()},
        "shown": {i: s.value for i, s in ledger.plan_written.items()},
        "dead ends": [to_body(d) for d in ledger.dead_ends.values()],
        "taken over": list(ledger.taken_over),
        "baseline": to_body(ledger.baseline),
        "lessons": [to_body(x) for x in ledger.lessons],
        "in flight": [to_body(f) for f in ledger.in_flight],
        "left": (sorted(ledger.processes), sorted(ledger.pending)),
    }
    names: dict[str, str] = {}
    return {key: _plain(value, names) for key, value in told.items()}


def _plain(value: Any, names: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {k: _plain(v, names) for k, v in value.items() if k not in TIMED}
    if isinstance(value, list | tuple):
        return [_plain(v, names) for v in value]
    if isinstance(value, str):
        value = re.sub(r"\b[0-9a-f]{40}\b", lambda m: names.setdefault(m[0], f"commit {len(names) + 1}"), value)
        return re.sub(r"-[0-9a-f]{8}\b", "-#", value)
    return value


def differences(one: Any, other: Any, where: str = "") -> list[str]:
    """Where two stories differ, in words; empty when they are the same."""
    if isinstance(one, dict) and isinstance(other, dict):
        keys = [*one, *(k for k in other if k not in one)]
        return [d for k in keys for d in differences(one.get(k), other.get(k), f"{where}/{k}")]
    if isinstance(one, list) and isinstance(other, list):
        longer = max(len(one), len(other))
        pairs = zip(one + [None] * (longer - len(one)), other + [None] * (longer - len(other)), strict=True)
        return [d for n, (a, b) in enumerate(pairs) for d in differences(a, b, f"{where}/{n}")]
    return [] if one == other else [f"{where}: {one!r} != {other!r}"]


def plan_shows(folder: Path, plan: str) -> dict[str, str]:
    return {i.id: i.status.value for i in read_plan((folder / plan).read_text()).items}


def counted_twice(entries: list[Entry]) -> list[str]:
    """Experiments, runs, verdicts and benchmarks that are in the journal more than once, or out of their order."""
    wrong = []
    begun = [e.body["id"] for e in entries if e.kind == "experiment"]
    if begun != [f"E{n:04d}" for n in range(1, len(begun) + 1)]:
        wrong.append(f"experiments {begun}")
    ended = [e.body["experiment"] for e in entries if e.kind == "verdict"]
    wrong += [f"{name} has {ended.count(name)} verdicts" for name in set(ended) if ended.count(name) > 1]
    wrong += [f"{name} has no verdict and is not the last" for name in begun[:-1] if name not in ended]
    runs = [e.body["run"].get("evidence", "") for e in entries if e.kind == "run"]
    wrong += [f"{name} is counted {runs.count(name)} times" for name in set(runs) if name and runs.count(name) > 1]
    return wrong


def ledger_of(folder: Path) -> Ledger:
    return fold(read(folder))
