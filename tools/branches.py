"""The branches optagent works on in a source checkout, and moving between them. The owner's are never moved."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

from optagent.tools.checkout import on_disk
from optagent.tools.git_commands import Checkout, CheckoutProblem

_PREFIX = "refs/heads/optagent/"
KEPT = _PREFIX + "kept"
SAVED = _PREFIX + "saved/"
KEY = "Optagent-Key"
EXPERIMENT = "Optagent-Experiment"
"""Trailers of the commits made here: which effect made a commit, and of which experiment it is."""


def experiment_branch(checkout: Checkout, experiment: str) -> str:
    """The full name of the experiment's branch. Raises CheckoutProblem when git would not take it, or it is taken."""
    ref = _PREFIX + experiment
    if f"{ref}/".startswith((f"{KEPT}/", SAVED)) or checkout.attempt("check-ref-format", ref).status != 0:
        raise CheckoutProblem(f"{experiment!r} cannot be the name of an experiment's branch")
    return ref


def experiment_branches(checkout: Checkout) -> list[str]:
    """The full names of all branches of experiments that are there."""
    listed = checkout.text("for-each-ref", "--format=%(refname)", _PREFIX).split()
    return [ref for ref in listed if ref != KEPT and not ref.startswith(SAVED)]


def set_branch_aside(checkout: Checkout, ref: str) -> str | None:
    """Give the branch, which must not be checked out, a name among the saved ones; None when it is gone."""
    if (tip := checkout.commit_of(ref)) is None:
        return None
    saved = save_commit(checkout, tip)
    delete_branch(checkout, ref, tip)
    return saved


def short(ref: str) -> str:
    """The name of a branch as git prints it."""
    return ref.removeprefix("refs/heads/")


def message(text: str, trailers: dict[str, str]) -> bytes:
    """A commit message whose last paragraph is `trailers`, whatever `text` ends with."""
    lines = [f"{name}: {' '.join(value.split())}" for name, value in trailers.items()]
    return f"{text.strip()}\n\n{chr(10).join(lines)}\n".encode("utf-8", "backslashreplace")


def trailer(checkout: Checkout, commit: str, name: str) -> str:
    """The value of the commit's trailer, "" when it has none."""
    return checkout.text("log", "-1", f"--format=%(trailers:key={name},valueonly)", commit, "--")


def find_commit(checkout: Checkout, ref: str, name: str, value: str) -> str | None:
    """The newest commit on `ref` that has the trailer, None when there is none or no such ref."""
    if checkout.commit_of(ref) is None:
        return None
    wanted = " ".join(value.split())
    listed = checkout.text("log", "--format=%H", "--fixed-strings", f"--grep={name}: {wanted}", ref, "--")
    return next((commit for commit in listed.split() if trailer(checkout, commit, name) == wanted), None)


def set_branch(checkout: Checkout, ref: str, commit: str, *, before: str | None) -> None:
    """Point `ref` at `commit`, from `before` (None when it is new). Raises CheckoutProblem when it stands elsewhere."""
    checkout.run("update-ref", "-m", "optagent", ref, commit, before or "")


def delete_branch(checkout: Checkout, ref: str, commit: str) -> None:
    """Delete `ref`, which must not be checked out and must still point at `commit`."""
    checkout.run("update-ref", "-d", ref, commit)


def move_to(checkout: Checkout, target: str, *, leaving: str | None = None) -> str | None:
    """Check out the commit `target`: on the branch of kept changes if that is there, else on an experiment's, else on
    the branch that is checked out already, else detached; never on `leaving`.

    The working tree must be clean. Returns the branch on which commits were saved that no branch had. Raises
    CheckoutProblem, with nothing changed, when an ignored file is in the way.
    """
    head, current = checkout.commit_of("HEAD"), checkout.head_ref()
    saved = None if head is None or current is not None else _save_detached(checkout, head)
    if head is not None and head != target:
        gone = _folders(checkout, head) - _folders(checkout, target)
        checkout.run("checkout", "--quiet", "--detach", "--no-overwrite-ignore", target)
        _remove_bytecode(checkout, gone)
        current = None
    branch = _branch_at(checkout, target, leaving)
    if branch is not None and branch != current:
        checkout.run("symbolic-ref", "-m", "optagent", "HEAD", branch)
    elif branch is None and current is not None and current == leaving:
        checkout.run("update-ref", "--no-deref", "-m", "optagent", "HEAD", target)
    return saved


def save_commit(checkout: Checkout, commit: str) -> str:
    """A branch among the saved ones that holds `commit`; the one that is there, when it is."""
    ref = SAVED + commit[:12]
    if checkout.commit_of(ref) != commit:
        set_branch(checkout, ref, commit, before=None)
    return ref


def tidy_kept(checkout: Checkout, target: str) -> str | None:
    """Take from the branch of kept changes what was not made here: commits on top of ours, or another history in their
    place. They are saved, and the branch that holds them is returned; None when there was nothing to take.

    Otherwise the next change that is kept would be merged with them, and nobody would have measured that.
    """
    tip = checkout.commit_of(KEPT)
    if tip is None or tip == target or is_ancestor(checkout, tip, target):
        return None
    ours = _last_of_ours(checkout, tip, target) if is_ancestor(checkout, target, tip) else target
    if ours == tip:
        return None
    saved = save_commit(checkout, tip)
    if checkout.head_ref() == KEPT:
        checkout.run("checkout", "--quiet", "--detach")
    set_branch(checkout, KEPT, ours, before=tip)
    return saved


def is_ancestor(checkout: Checkout, older: str, newer: str) -> bool:
    return checkout.attempt("merge-base", "--is-ancestor", older, newer).status == 0


def _last_of_ours(checkout: Checkout, tip: str, target: str) -> str:
    listed = checkout.text("rev-list", "--first-parent", f"{target}..{tip}").split()
    return next((commit for commit in listed if trailer(checkout, commit, KEY)), target)


def _save_detached(checkout: Checkout, head: str) -> str | None:
    held = checkout.text("for-each-ref", "--count=1", f"--contains={head}", "--format=%(refname)")
    return None if held else save_commit(checkout, head)


def _branch_at(checkout: Checkout, commit: str, leaving: str | None) -> str | None:
    listed = checkout.text("for-each-ref", f"--points-at={commit}", "--format=%(refname)", _PREFIX).split()
    branches = [ref for ref in listed if ref != leaving and not ref.startswith(SAVED)]
    return KEPT if KEPT in branches else next(iter(branches), None)


def _folders(checkout: Checkout, commit: str) -> set[bytes]:
    return set(checkout.run("ls-tree", "-r", "-d", "-z", "--name-only", commit).split(b"\0")) - {b""}


def _remove_bytecode(checkout: Checkout, folders: Iterable[bytes]) -> None:
    """Remove what Python left in folders that are gone: a folder with nothing else in it could still be imported."""
    for folder in sorted((on_disk(checkout, name) for name in folders), reverse=True):
        if folder.is_symlink() or not folder.is_dir():
            continue
        cache = folder / "__pycache__"
        if list(folder.iterdir()) == [cache] and _only_bytecode(cache):
            shutil.rmtree(cache)
        if not any(folder.iterdir()):
            folder.rmdir()


def _only_bytecode(cache: Path) -> bool:
    return cache.is_dir() and not cache.is_symlink() and all(file.suffix == ".pyc" for file in cache.iterdir())
