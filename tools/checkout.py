"""What lies uncommitted in a source checkout, and whether it can be worked in at all."""

from __future__ import annotations

import hashlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from optagent.tools.calls.world import CheckoutSeen
from optagent.tools.git_commands import Checkout, CheckoutProblem, open_checkout

_IN_PROGRESS = {
    "MERGE_HEAD": "a merge",
    "CHERRY_PICK_HEAD": "a cherry-pick",
    "REVERT_HEAD": "a revert",
    "rebase-merge": "a rebase",
    "rebase-apply": "a rebase or `git am`",
    "BISECT_LOG": "a bisection",
}
_NAMED_AT_MOST = 5


@dataclass(frozen=True)
class Dirt:
    """A path that differs from HEAD in the index or on disk, or is untracked; `code` is git's two-letter status."""

    path: bytes
    code: str

    @property
    def untracked(self) -> bool:
        return self.code == "??"

    @property
    def unmerged(self) -> bool:
        return "U" in self.code or self.code in ("AA", "DD")

    @property
    def name(self) -> str:
        return self.path.decode("utf-8", "backslashreplace")


def look_at_checkout(path: Path | None) -> CheckoutSeen | None:
    """The state of the checkout at `path`, None when the deployment has none. Nothing is changed, nothing is locked."""
    if path is None:
        return None
    try:
        checkout = open_checkout(path)
        head, branch, found = checkout.commit_of("HEAD"), checkout.head_ref(), dirt(checkout)
    except CheckoutProblem as problem:
        return CheckoutSeen(revision="", problem=str(problem))
    return CheckoutSeen(
        revision=head or "",
        branch=branch.removeprefix("refs/heads/") if branch else None,
        dirty=names(found),
        dirty_sha256=content_sha256(checkout, found) if found else None,
        problem=operation_in_progress(checkout),
    )


def dirt(checkout: Checkout) -> list[Dirt]:
    """Everything uncommitted, sorted by path. Ignored files, submodules and repositories inside are left alone."""
    listing = checkout.run(
        "status", "--porcelain=v1", "-z", "--untracked-files=all", "--ignore-submodules=all", "--no-renames"
    )
    entries = [Dirt(entry[3:], entry[:2].decode()) for entry in listing.split(b"\0") if entry]
    return sorted((e for e in entries if not e.path.endswith(b"/")), key=lambda e: (e.path, e.code))


def names(found: list[Dirt]) -> list[str]:
    return list(dict.fromkeys(entry.name for entry in found))


def content_sha256(checkout: Checkout, found: list[Dirt]) -> str:
    """A hash over the sorted (path, content hash) of `found`, the same for the same content on disk."""
    total = hashlib.sha256()
    for path in sorted({entry.path for entry in found}):
        total.update(path + b"\0" + _file_hash(on_disk(checkout, path)).encode() + b"\0")
    return total.hexdigest()


def on_disk(checkout: Checkout, path: bytes) -> Path:
    return checkout.top / os.fsdecode(path)


def operation_in_progress(checkout: Checkout) -> str | None:
    """What the owner has begun with git and not ended, as a problem; None when nothing."""
    for name, what in _IN_PROGRESS.items():
        if (checkout.git_dir / name).exists():
            return f"{what} is in progress in {checkout.top}: finish or abort it first"
    return None


def need_clean(checkout: Checkout) -> None:
    """Raises CheckoutProblem when anything is uncommitted."""
    if found := names(dirt(checkout)):
        more = f" and {len(found) - _NAMED_AT_MOST} more" if len(found) > _NAMED_AT_MOST else ""
        listed = ", ".join(found[:_NAMED_AT_MOST])
        raise CheckoutProblem(f"{checkout.top} has uncommitted changes: {listed}{more}; save or remove them first")


def _file_hash(path: Path) -> str:
    try:
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode):
            return "link:" + hashlib.sha256(os.fsencode(path.readlink())).hexdigest()
        if not stat.S_ISREG(mode):
            return "no file"
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except (FileNotFoundError, NotADirectoryError):
        return "deleted"
    except OSError as error:
        raise CheckoutProblem(f"{path} cannot be read: {error.strerror}") from error
