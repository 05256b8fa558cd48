"""What screens show of a ledger, as a small JSON object that the journal keeps beside its entries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from optagent.agent.ledger import Ledger
from optagent.agent.records import Baseline
from optagent.agent.session import LedgerJournal
from optagent.agent.total_gain import total_gain
from optagent.agent.workloads import called

VIEW = "ledger"


def ledger_view(ledger: Ledger) -> dict[str, Any]:
    """The ledger's side of `optagent status`."""
    current = ledger.current()
    return {
        "first_baseline": _baseline(ledger, ledger.first_baseline),
        "baseline": _baseline(ledger, ledger.baseline),
        "total_gain": total_gain(ledger),
        "under_way": f"{current.id} {current.title}" if current else None,
        "recorded": _names(ledger.item_status),
        "written": _names(ledger.plan_written),
        "results": dict(ledger.item_result),
        "dead_ends": len(ledger.dead_ends),
        "questions": [
            {"id": q.id, "reason": q.reason, "text": q.text, "options": [o.key for o in q.options]}
            for q in ledger.open_questions()
        ],
        "sitting": ledger.sitting or None,
        "steps": ledger.steps,
        "experiments": len(ledger.experiments),
        "last_steps": ledger.recent[-6:],
        "handoff": ledger.handoffs[-1] if ledger.handoffs else None,
    }


def keep_view(journal: LedgerJournal) -> None:
    """Keep the view for the entries so far, so that `status` need not fold them."""
    journal.save_view(VIEW, journal.last_seq(), ledger_view(journal.ledger))


def _names(statuses: Mapping[str, Any]) -> dict[str, str]:
    return {item: str(status) for item, status in statuses.items()}


def _baseline(ledger: Ledger, baseline: Baseline | None) -> dict[str, Any] | None:
    if baseline is None:
        return None
    m = baseline.measurement
    return {
        "label": baseline.label, "environment": baseline.configuration.environment,
        "metric": m.metric if m else None, "value": m.value if m else None, "verified": bool(m and m.verified),
        "workload": called(m.under, ledger.workloads) if m and m.under and len(ledger.workloads) > 1 else None,
    }  # fmt: skip
