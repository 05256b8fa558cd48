"""Configurations that failed before. What failed is not launched a second time as long as nothing differs. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from optagent.agent.canonical import canonical_configuration
from optagent.agent.dead_ends import says_nothing
from optagent.agent.experiments import Experiment, Failure
from optagent.agent.verdict import Verdict
from optagent.tools.calls.configuration import Configuration

_OF_THE_CONFIGURATION = frozenset({"launch", "gate", "load"})
"""Stages in which it is the candidate's whole configuration that failed, and not how its change was written."""


@dataclass(frozen=True)
class KnownFailure:
    """A failure that does not pass by itself, with the experiment and item that met it, and the versions it ran on as far
    as they were recorded."""

    experiment: str
    item: str | None
    failure: Failure
    versions: Mapping[str, str]


def known_failures(experiments: Iterable[Experiment]) -> dict[str, list[KnownFailure]]:
    """The failures that ended these experiments, by the fingerprint of the candidate's configuration in its one form."""
    found: dict[str, list[KnownFailure]] = {}
    for e in experiments:
        if e.verdict not in (Verdict.FAILED, Verdict.INVALID) or not e.failures or e.candidate is None:
            continue
        last = e.failures[-1]
        if last.stage in _OF_THE_CONFIGURATION and not says_nothing(last):
            mark = canonical_configuration(e.candidate).fingerprint()
            found.setdefault(mark, []).append(KnownFailure(e.id, e.item, last, e.versions))
    return found


def failed_identically(
    candidate: Configuration,
    experiments: Iterable[Experiment],
    versions: Mapping[str, str] | None = None,
    retried: Collection[str | None] = (),
) -> Failure | None:
    """The failure that a launch of exactly this configuration has met before, told anew with the earlier experiment as its
    evidence; None when it has met none.

    `versions` are those of the candidate's environment: where they differ from what failed, it was not the same.
    `retried` are items whose own earlier failures count for nothing, since somebody or something opened them again.
    """
    failures = known_failures(experiments).get(canonical_configuration(candidate).fingerprint(), [])
    for known in reversed(failures):
        if known.item in retried or _differ(known.versions, versions or {}):
            continue
        before = known.failure
        summary = f"{known.experiment} failed with exactly this configuration: {before.summary}"
        return Failure("candidate", before.stage, before.kind, summary, (known.experiment, *before.evidence))
    return None


def _differ(some: Mapping[str, str], others: Mapping[str, str]) -> bool:
    return any(others.get(name, version) != version for name, version in some.items())
