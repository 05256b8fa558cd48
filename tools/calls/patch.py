"""Changing the deployment's source checkout: one branch an experiment, nothing unrecorded ever lost."""

from __future__ import annotations

from optagent.tools.calls.base import EffectRequest, Result


class ApplyPatch(EffectRequest):
    """Put `diff` on a new branch of the experiment that starts at `base`, commit it and check it out."""

    experiment: str
    base: str
    diff: str
    message: str


class PatchApplied(Result):
    """`revision` is the commit that holds the change; with `problem` nothing has changed in the checkout."""

    revision: str | None = None
    branch: str | None = None
    files: list[str] = []
    problem: str | None = None


class KeepPatch(EffectRequest):
    """Merge the experiment's branch into the branch of kept changes and check that out."""

    experiment: str


class DropPatch(EffectRequest):
    """Remove the experiment's branch without trace and check out `base`."""

    experiment: str
    base: str


class CheckoutSettled(Result):
    revision: str | None = None
    problem: str | None = None


class RestoreCheckout(EffectRequest):
    """Bring the checkout to `revision`. Uncommitted work is saved on a branch of its own first, never lost."""

    revision: str
    reason: str


class CheckoutRestored(Result):
    """`saved_branch` holds what was uncommitted (None when nothing was)."""

    revision: str | None = None
    saved_branch: str | None = None
    saved_files: list[str] = []
    problem: str | None = None
