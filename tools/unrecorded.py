"""Saves work that nobody recorded on a branch of its own, and only then takes it out of the working tree."""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

from optagent.tools.branches import KEY, SAVED, message, save_commit, trailer
from optagent.tools.checkout import Dirt, content_sha256, dirt, on_disk
from optagent.tools.git_commands import Checkout, CheckoutProblem

_AT_ONCE = 200
"""Paths given to one git: Linux takes 2 MiB of arguments, and no path is longer than 4 KiB."""


def save_work(checkout: Checkout, found: list[Dirt], key: str, reason: str) -> str:
    """Commit everything in `found` to a branch among the saved ones and return it; the checkout stays as it is.

    What is staged and then changed again is a commit of its own below. The commit is read back before this returns.
    Raises CheckoutProblem when not everything could be saved.
    """
    if unmerged := [entry.name for entry in found if entry.unmerged]:
        raise CheckoutProblem(f"{checkout.top} has unmerged files ({', '.join(unmerged[:3])}): resolve them first")
    head = saved_by(checkout, key) or checkout.commit_of("HEAD") or ""
    seen = content_sha256(checkout, found)
    with tempfile.TemporaryDirectory(prefix="optagent-") as folder:
        index = Path(folder) / "index"
        if checkout.index.exists():
            shutil.copy2(checkout.index, index)  # by its time git knows which files it must not trust the stat of
        parent, tree = head, checkout.text("write-tree", index=index)
        if tree != checkout.tree_of("HEAD"):
            parent = _commit(checkout, tree, head, "What was staged", key)
        paths = {entry.path: None for entry in found}
        listed = b"".join(path + b"\0" for path in paths)
        checkout.run("update-index", "--add", "--remove", "--replace", "-z", "--stdin", index=index, stdin=listed)
        tree = checkout.text("write-tree", index=index)
        commit = _commit(checkout, tree, parent, f"Uncommitted work, saved: {reason}", key)
    if missing := _differing(checkout, commit, list(paths)):
        raise CheckoutProblem(f"{on_disk(checkout, missing[0])} could not be saved: nothing was changed")
    if content_sha256(checkout, found) != seen or dirt(checkout) != found:
        raise CheckoutProblem(f"files in {checkout.top} changed while they were saved: try again when it is quiet")
    return save_commit(checkout, commit)


def remove_work(checkout: Checkout, found: list[Dirt]) -> None:
    """Take `found`, which must be saved, out of the working tree and the index."""
    for path in sorted({entry.path for entry in found if entry.untracked}):
        file = on_disk(checkout, path)
        file.unlink(missing_ok=True)
        with suppress(OSError):  # the first folder that is not empty ends it
            for folder in file.parents:
                if folder == checkout.top:
                    break
                folder.rmdir()
    checkout.run("reset", "--hard", "--quiet", "HEAD")


def saved_by(checkout: Checkout, key: str) -> str | None:
    """The newest commit that the effect `key` saved work in, None when it saved none."""
    wanted = " ".join(key.split())
    listed = checkout.text("for-each-ref", "--sort=-committerdate", "--format=%(objectname)", SAVED).split()
    saved = [commit for commit in listed if trailer(checkout, commit, KEY) == wanted]
    return next((one for one in saved if not any(_holds(checkout, other, one) for other in saved)), None)


def saved_files(checkout: Checkout, key: str, commit: str) -> list[str]:
    """The files whose uncommitted content the effect `key` saved, up to `commit`."""
    base, wanted = commit, " ".join(key.split())
    while trailer(checkout, base, KEY) == wanted:
        base = checkout.commit_of(f"{base}^") or ""
    listed = checkout.run("diff-tree", "-r", "-z", "--name-only", "--no-renames", base, commit).split(b"\0")
    return [path.decode("utf-8", "backslashreplace") for path in listed if path]


def is_saved(checkout: Checkout, found: list[Dirt], commit: str) -> bool:
    """Whether all of `found` is what `commit` has: what is left of a removal that was interrupted."""
    return not _differing(checkout, commit, [entry.path for entry in found])


def _commit(checkout: Checkout, tree: str, parent: str, text: str, key: str) -> str:
    return checkout.text("commit-tree", tree, "-p", parent, "-F", "-", stdin=message(text, {KEY: key}))


def _differing(checkout: Checkout, commit: str, paths: list[bytes]) -> list[bytes]:
    """Those of `paths` that are not on disk as `commit` has them; every one is read and hashed for this."""
    held: dict[bytes, str] = {}
    for entry in checkout.run("ls-tree", "-r", "-z", commit).split(b"\0")[:-1]:
        about, _, path = entry.partition(b"\t")
        held[path] = about.decode().split(" ")[2]
    there = [path for path in paths if _is_there(checkout, path)]
    hashes = dict(zip(there, _hashes(checkout, there), strict=True))
    return [path for path in paths if held.get(path) != hashes.get(path)]


def _hashes(checkout: Checkout, paths: list[bytes]) -> list[str]:
    """Git's ids of the files' content, of the target for a link."""
    ids: dict[bytes, str] = {}
    files = [path for path in paths if not on_disk(checkout, path).is_symlink()]
    for start in range(0, len(files), _AT_ONCE):
        some = files[start : start + _AT_ONCE]
        ids |= zip(some, checkout.text("hash-object", "--", *map(os.fsdecode, some)).split(), strict=True)
    for path in set(paths) - set(files):
        target = os.fsencode(on_disk(checkout, path).readlink())
        ids[path] = checkout.text("hash-object", "--stdin", stdin=target)
    return [ids[path] for path in paths]


def _is_there(checkout: Checkout, path: bytes) -> bool:
    file = on_disk(checkout, path)
    return file.is_symlink() or file.is_file()


def _holds(checkout: Checkout, descendant: str, commit: str) -> bool:
    return descendant != commit and checkout.attempt("merge-base", "--is-ancestor", commit, descendant).status == 0
