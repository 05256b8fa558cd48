"""What a failed launch of a survey is known by, for everything that is tried later. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from optagent.agent.dead_ends import blame_failure, says_nothing
from optagent.agent.experiments import Experiment
from optagent.agent.records import Part
from optagent.agent.splitting import parts_of
from optagent.agent.survey.factors import Value, set_in, settings
from optagent.agent.survey.feasible import WORDS_SAY_NOTHING
from optagent.agent.verdict import Verdict


def surely_to_blame(failed: Experiment, earlier: Iterable[Experiment]) -> Part | None:
    """The part of a combination that did not run which its failure names, or which was all that was changed. None where that
    is not sure: for want of memory all are to blame, a hang names nobody, and what ran before in the same environment
    does not fail by itself."""
    failure = failed.failures[-1] if failed.failures else None
    if failed.verdict != Verdict.FAILED or failure is None or says_nothing(failure) or failed.candidate is None:
        return None
    parts = parts_of(failed.change, failed.base)
    part = blame_failure(parts, failure).part
    if part is None or (len(parts) > 1 and failure.kind in WORDS_SAY_NOTHING):
        return None
    wanted, here = settings(part.change), failed.candidate.environment
    if any(value is None for value in wanted.values()) or any(
        e.candidate is not None and e.values("candidate") and e.candidate.environment == here and _has(e, wanted)
        for e in earlier
    ):
        return None
    return part


def _has(experiment: Experiment, wanted: dict[str, Value]) -> bool:
    assert experiment.candidate is not None
    there = set_in(experiment.candidate)
    return all(there.get(name) == value for name, value in wanted.items())
