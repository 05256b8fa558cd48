"""Preparing an experiment: its change becomes a configuration that can be launched, or is known not to work already."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import PurePosixPath

from optagent.agent.change import Change, apply_change
from optagent.agent.experiments import BASELINE, Experiment, Failure
from optagent.agent.flag_lint import lint, names_to_ask
from optagent.agent.known_failures import failed_identically
from optagent.agent.reconcile import sha256
from optagent.agent.session import Session
from optagent.agent.workloads import telling
from optagent.tools.calls.configuration import Configuration
from optagent.tools.calls.files import ReadText
from optagent.tools.calls.patch import ApplyPatch
from optagent.tools.calls.server import EnvironmentRequest, ListFlags


def prepare(session: Session, experiment: Experiment, facts: Mapping[str, str] | None = None) -> Failure | None:
    """Turn the change into a configuration that can be launched; a failure means that no launch is needed to know.

    `facts` are those about the machine that conditions speak of.
    """
    if experiment.kind == BASELINE or experiment.candidate is not None:
        return None
    change = experiment.change
    candidate = apply_change(experiment.base, change)
    if change.environment and (failure := _environment(session, experiment, change.environment)):
        return failure
    if _concerns_flags(change) and (failure := _lint(session, experiment, candidate, facts or {})):
        return failure
    if change.patch:
        patched = _patch(session, experiment, change.patch)
        if isinstance(patched, Failure):
            return patched
        candidate = replace(candidate, revision=patched)
    versions = {} if change.environment else {k: v for k, v in (facts or {}).items() if k not in NO_VERSIONS}
    searched = experiment.item in session.ledger.trials
    mine = [experiment.item] if experiment.item and not searched else []
    earlier = telling(session.ledger.experiments.values(), session.ledger.under)
    if known := failed_identically(candidate, earlier, versions, mine):
        return known
    body = {"experiment": experiment.id, "configuration": candidate, "versions": versions}
    session.note("candidate", body, experiment.id)
    return None


NO_VERSIONS = ("environment", "workload")
"""Facts that say nothing about what a launch runs on."""


def _environment(session: Session, experiment: Experiment, name: str) -> Failure | None:
    session.narrator.now(f"building environment {name} beside the present one")
    ready = session.toolbox.prepare_environment(
        EnvironmentRequest(key=f"{experiment.id}:environment:{name}", name=name)
    )
    if not ready.ready:
        return Failure("candidate", "prepare", "environment", ready.problem or f"environment {name} could not be built")
    versions = ", ".join(f"{k} {v}" for k, v in sorted(ready.versions.items()))
    session.narrator.tell(
        "plain", f"environment {name} is there, beside the present one" + (f": {versions}" if versions else "")
    )
    return None


def _concerns_flags(change: Change) -> bool:
    """Whether the installed server has to be asked at all: with other flags, or another server to take the old ones."""
    return bool(change.flags or change.env or change.environment)


def _lint(
    session: Session, experiment: Experiment, candidate: Configuration, facts: Mapping[str, str]
) -> Failure | None:
    """Hold the flags against the installed server's help and what is known; a refusal costs no launch."""
    base, change = experiment.base, experiment.change
    session.narrator.now("holding the flags against the installed server's help")
    names = names_to_ask(base, candidate)
    listed = session.toolbox.list_flags(ListFlags(environment=candidate.environment, names=names))
    if listed.flags is None:
        session.narrator.tell("note", f"flags could not be checked before the launch: {listed.problem or 'no help'}")
    findings = lint(base, change, listed, facts, session.config.principles)
    refused = [f.text for f in findings if f.severity == "refuse"]
    for finding in findings:
        if finding.severity == "warn":
            session.narrator.tell("note", finding.text)
    return Failure("candidate", "lint", "config-error", "; ".join(refused)) if refused else None


def _patch(session: Session, experiment: Experiment, name: str) -> str | Failure:
    path = str(PurePosixPath(session.config.plan).parent / name)
    read = session.toolbox.read_text(ReadText(path=path))
    if read.text is None:
        return Failure("candidate", "prepare", "patch", f"{path} cannot be read: {read.problem or 'it is not there'}")
    mark = sha256(session.ledger.founded + read.text)[:8]
    applied = session.toolbox.apply_patch(ApplyPatch(
        key=f"{experiment.id}:patch:{mark}", experiment=experiment.id, base=experiment.base.revision, diff=read.text,
        message=f"{experiment.id}: {experiment.title}",
    ))  # fmt: skip
    if applied.revision is None:
        return Failure("candidate", "prepare", "patch", f"{path} does not apply: {applied.problem}")
    session.narrator.tell("plain", f"patched {', '.join(applied.files)} on branch {applied.branch}")
    return applied.revision
