"""Changes the deployment's source checkout: one branch an experiment, nothing unrecorded ever lost.

Commits are built beside the working tree, so a diff that does not apply has changed nothing. Then the branch is set,
then the tree is checked out. Each step can be repeated: after a crash at any moment the same request ends in the same
state. Branches: `optagent/<experiment>` while it is tried, `optagent/kept` for what is kept, `optagent/saved/<hash>`
for work that lay uncommitted. The owner's own branches are never moved.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from optagent.tools.branches import (
    EXPERIMENT,
    KEPT,
    KEY,
    delete_branch,
    experiment_branch,
    find_commit,
    is_ancestor,
    message,
    move_to,
    save_commit,
    set_branch,
    short,
    tidy_kept,
    trailer,
)
from optagent.tools.calls.patch import (
    ApplyPatch,
    CheckoutRestored,
    CheckoutSettled,
    DropPatch,
    KeepPatch,
    PatchApplied,
    RestoreCheckout,
)
from optagent.tools.checkout import dirt, look_at_checkout, need_clean, operation_in_progress
from optagent.tools.deployment import Deployment
from optagent.tools.exhausted import stop_if_exhausted
from optagent.tools.git_commands import Checkout, CheckoutProblem, open_checkout
from optagent.tools.git_leftovers import clear_locks, undo_half_checkout
from optagent.tools.paths import source_folder
from optagent.tools.unrecorded import is_saved, remove_work, save_work, saved_by, saved_files

__all__ = ["apply_patch", "drop_patch", "keep_patch", "look_at_checkout", "restore_checkout"]

_LINK_MODES = ("120000", "160000")


def apply_patch(root: Path, deployment: Deployment, request: ApplyPatch) -> PatchApplied:
    """Put the diff on the experiment's branch and check that out; with a problem nothing has changed."""
    try:
        checkout, _ = _begin(root, deployment)
        return _apply(checkout, request)
    except (CheckoutProblem, OSError) as problem:
        stop_if_exhausted(problem)
        return PatchApplied(problem=str(problem))


def keep_patch(root: Path, deployment: Deployment, request: KeepPatch) -> CheckoutSettled:
    """Merge the experiment's branch into the kept changes, check these out and delete the branch.

    The merge is a fast-forward when the experiment started at the kept changes; otherwise its result is a combination
    that was never measured, and `revision` is not the experiment's.
    """
    try:
        checkout, killed = _begin(root, deployment)
        return CheckoutSettled(revision=_keep(checkout, request, killed))
    except (CheckoutProblem, OSError) as problem:
        stop_if_exhausted(problem)
        return CheckoutSettled(problem=str(problem))


def drop_patch(root: Path, deployment: Deployment, request: DropPatch) -> CheckoutSettled:
    """Check out `base` and delete the experiment's branch; commits on it that are not ours are saved."""
    try:
        checkout, killed = _begin(root, deployment)
        return CheckoutSettled(revision=_drop(checkout, request, killed))
    except (CheckoutProblem, OSError) as problem:
        stop_if_exhausted(problem)
        return CheckoutSettled(problem=str(problem))


def restore_checkout(root: Path, deployment: Deployment, request: RestoreCheckout) -> CheckoutRestored:
    """Save what is uncommitted, then check out `revision`."""
    try:
        checkout, killed = _begin(root, deployment)
        return _restore(checkout, request, killed)
    except (CheckoutProblem, OSError) as problem:
        stop_if_exhausted(problem)
        return CheckoutRestored(problem=str(problem))


def _begin(root: Path, deployment: Deployment) -> tuple[Checkout, bool]:
    """The checkout, fit to be worked in, and whether an earlier git was killed in it."""
    path = source_folder(root, deployment)
    if path is None:
        raise CheckoutProblem("the deployment names no source checkout: set `source` in optagent.toml")
    checkout = open_checkout(path)
    if problem := operation_in_progress(checkout):
        raise CheckoutProblem(problem)
    return checkout, clear_locks(checkout)


def _apply(checkout: Checkout, request: ApplyPatch) -> PatchApplied:
    ref = experiment_branch(checkout, request.experiment)
    existing = checkout.commit_of(ref)
    if existing is None:
        if kept := find_commit(checkout, KEPT, KEY, request.key):
            return _applied(checkout, kept, KEPT)
        need_clean(checkout)
        commit = _commit_diff(checkout, request)
        set_branch(checkout, ref, commit, before=None)
        try:
            move_to(checkout, commit)
        except CheckoutProblem:
            undo_half_checkout(checkout, commit, interrupted=True)
            delete_branch(checkout, ref, commit)
            raise
        return _applied(checkout, commit, ref)
    if trailer(checkout, existing, KEY) != " ".join(request.key.split()):
        raise CheckoutProblem(f"{short(ref)} exists and holds something else: keep or drop that experiment first")
    if checkout.head_ref() != ref:
        undo_half_checkout(checkout, existing, interrupted=True)
        need_clean(checkout)
        move_to(checkout, existing)
    return _applied(checkout, existing, ref)


def _applied(checkout: Checkout, commit: str, ref: str) -> PatchApplied:
    listed = checkout.run("diff-tree", "-r", "-z", "--name-only", "--no-renames", f"{commit}^", commit).split(b"\0")
    files = [path.decode("utf-8", "backslashreplace") for path in listed if path]
    return PatchApplied(revision=commit, branch=short(ref), files=files)


def _commit_diff(checkout: Checkout, request: ApplyPatch) -> str:
    """A commit of `base` with the diff on it, made in an index of its own. No fuzz: context must match exactly."""
    base = _commit(checkout, request.base)
    if not request.diff.strip():
        raise CheckoutProblem("the diff is empty")
    with tempfile.TemporaryDirectory(prefix="optagent-") as folder:
        index, diff = Path(folder) / "index", Path(folder) / "diff"
        diff.write_bytes(request.diff.encode("utf-8", "surrogateescape"))
        if not request.diff.endswith("\n"):
            diff.write_bytes(diff.read_bytes() + b"\n")
        checkout.run("read-tree", base, index=index)
        checked = checkout.attempt(
            "apply", "--cached", "--whitespace=nowarn", "--no-ignore-whitespace", str(diff), index=index
        )
        if checked.status != 0:
            raise CheckoutProblem(f"the diff does not apply to {base[:12]}: {checked.reason()}")
        tree = checkout.text("write-tree", index=index)
    _check_change(checkout, base, tree)
    text = message(request.message or request.experiment, {EXPERIMENT: request.experiment, KEY: request.key})
    return checkout.text("commit-tree", tree, "-p", base, "-F", "-", stdin=text)


def _check_change(checkout: Checkout, base: str, tree: str) -> None:
    fields = checkout.run("diff-tree", "-r", "-z", "--no-renames", base, tree).split(b"\0")
    if fields == [b""]:
        raise CheckoutProblem("the diff changes nothing")
    for about, path in zip(fields[0::2], fields[1::2], strict=False):
        before, after, *_ = about.decode().lstrip(":").split(" ")
        if before in _LINK_MODES or after in _LINK_MODES:
            name = path.decode("utf-8", "backslashreplace")
            raise CheckoutProblem(f"the diff changes {name}, a symbolic link or a submodule: only files can be patched")


def _keep(checkout: Checkout, request: KeepPatch, killed: bool) -> str:
    ref = experiment_branch(checkout, request.experiment)
    tip, kept = checkout.commit_of(ref), checkout.commit_of(KEPT)
    if tip is None:
        if kept is None or find_commit(checkout, KEPT, EXPERIMENT, request.experiment) is None:
            raise CheckoutProblem(f"there is no branch {short(ref)} to keep")
        new = kept
    else:
        new = _merged(checkout, kept, tip, request)
    undo_half_checkout(checkout, new, interrupted=killed)
    need_clean(checkout)
    if checkout.commit_of("HEAD") != new:
        move_to(checkout, new)
    if kept != new:
        set_branch(checkout, KEPT, new, before=kept)
    move_to(checkout, new, leaving=ref)
    if tip is not None:
        delete_branch(checkout, ref, tip)
    return new


def _merged(checkout: Checkout, kept: str | None, tip: str, request: KeepPatch) -> str:
    """The commit that has both; the same one each time it is asked for."""
    if kept is None or is_ancestor(checkout, kept, tip):
        return tip
    if is_ancestor(checkout, tip, kept):
        return kept
    output = checkout.attempt("merge-tree", "--write-tree", "--name-only", "--no-messages", "-z", kept, tip)
    fields = output.stdout.split(b"\0")
    if output.status == 1:
        files = ", ".join(sorted({field.decode("utf-8", "backslashreplace") for field in fields[1:] if field}))
        raise CheckoutProblem(f"optagent/{request.experiment} conflicts with the kept changes in {files}")
    if output.status != 0:
        raise CheckoutProblem(f"the merge needs git 2.38 or newer: {output.reason()}")
    date = checkout.text("log", "-1", "--format=%cd", "--date=raw", tip)
    text = message(f"Keep {request.experiment}", {EXPERIMENT: request.experiment, KEY: request.key})
    tree = fields[0].decode()
    return checkout.text("commit-tree", tree, "-p", kept, "-p", tip, "-F", "-", stdin=text, date=date)


def _drop(checkout: Checkout, request: DropPatch, killed: bool) -> str:
    ref, base = experiment_branch(checkout, request.experiment), _commit(checkout, request.base)
    tip = checkout.commit_of(ref)
    undo_half_checkout(checkout, base, interrupted=killed)
    need_clean(checkout)
    move_to(checkout, base, leaving=ref)
    if tip is not None:
        if not trailer(checkout, tip, KEY):
            save_commit(checkout, tip)
        delete_branch(checkout, ref, tip)
    return base


def _restore(checkout: Checkout, request: RestoreCheckout, killed: bool) -> CheckoutRestored:
    target = _commit(checkout, request.revision)
    undo_half_checkout(checkout, target, interrupted=killed)
    if found := dirt(checkout):
        before = saved_by(checkout, request.key)
        if before is None or not is_saved(checkout, found, before):
            save_work(checkout, found, request.key, request.reason)
        remove_work(checkout, found)
    taken = tidy_kept(checkout, target)
    detached = move_to(checkout, target) or taken
    saved = saved_by(checkout, request.key)
    if saved is None:
        return CheckoutRestored(revision=target, saved_branch=short(detached) if detached else None)
    files = saved_files(checkout, request.key, saved)
    return CheckoutRestored(revision=target, saved_branch=short(save_commit(checkout, saved)), saved_files=files)


def _commit(checkout: Checkout, name: str) -> str:
    commit = checkout.commit_of(name)
    if commit is None:
        raise CheckoutProblem(
            f"{checkout.top} has no commit {name!r}: fetch it, or put the repository back from a copy"
        )
    return commit
