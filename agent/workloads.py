"""What numbers are measured under: the workload's own content, whatever it is called, and the objective's metric. Pure.

Numbers of two workloads say nothing about each other. What is not known to be of another one counts: journals and handoffs
of before this was recorded do not say.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from optagent.agent.records import Baseline, Under
from optagent.agent.verdict import Verdict

if TYPE_CHECKING:
    from optagent.agent.experiments import Experiment
    from optagent.tools.calls.bench import Workload


class Measured(Protocol):
    """Something that holds numbers, and knows what they were measured under."""

    @property
    def under(self) -> Under | None: ...


def under_of(workload: Workload, metric: str) -> Under:
    """The workload by its content, and what is measured of it. What equals a default is left out of the mark, so that it stays
    the same when workloads learn to say more."""
    fields = type(workload).model_fields
    unused = {"name"} | ({"prompts"} if workload.dataset != "custom" else set())
    said = {f: v for f in fields if f not in unused and (v := getattr(workload, f)) != fields[f].default}
    content = json.dumps({"metric": metric, **said}, sort_keys=True)
    return Under(hashlib.sha256(content.encode()).hexdigest()[:12], workload.name, metric)


def same(one: Under | None, other: Under | None) -> bool:
    """Whether numbers of the two may be held against each other: they are not known to be of different workloads."""
    return one is None or other is None or one.mark == other.mark


def called(under: Under, known: Mapping[str, Under]) -> str:
    """What people call it among those that are `known`: the workload's name, with the metric where that alone does not tell."""
    namesakes = [u for u in known.values() if u.workload == under.workload and u.mark != under.mark]
    if not namesakes:
        return under.workload
    return f"{under.workload} ({under.metric if all(u.metric != under.metric for u in namesakes) else under.mark})"


def record_under(baseline: Baseline, now: Under | None) -> Baseline:
    """The baseline with its record, where that is one of what is measured now; without it otherwise."""
    measured = baseline.measurement
    if measured is None or same(measured.under, now):
        return baseline
    return replace(baseline, measurement=None)


def of_workload(experiments: Iterable[Experiment], now: Under | None) -> Iterator[Experiment]:
    """The experiments whose numbers count now."""
    return (e for e in experiments if same(e.under, now))


def telling(experiments: Iterable[Experiment], now: Under | None) -> list[Experiment]:
    """The experiments that say something now: those of this workload, and those of another that did not come to serve, without
    their numbers."""
    found: list[Experiment] = []
    for e in experiments:
        if same(e.under, now):
            found.append(e)
        elif e.verdict in (Verdict.FAILED, Verdict.INVALID) and e.failures and e.failures[-1].stage != "load":
            found.append(replace(e, runs=(), among=(), items=(), effect=None, low=None, high=None))
    return found


def adopted(held: Any, under: Under) -> Any:
    """A baseline or an experiment that does not say what it was measured under, with this."""
    if isinstance(held, Baseline):
        measured = held.measurement
        return replace(held, measurement=replace(measured, under=measured.under or under)) if measured else held
    return replace(held, under=held.under or under)
