"""What a git that was killed leaves behind: locks that nobody holds, and a working tree between two commits."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

from optagent.tools.checkout import dirt, on_disk
from optagent.tools.git_commands import MARKER, Checkout, CheckoutProblem

_PATIENCE_S = 60.0
"""A git that outlived the process that started it ends by itself; a checkout of a large tree takes some seconds."""
_PAUSE_S = 0.05


def clear_locks(checkout: Checkout) -> bool:
    """Wait until no git of ours is at work here, then remove locks that nobody holds; whether there was one.

    Raises CheckoutProblem when somebody is still at work.
    """
    deadline = time.monotonic() + _PATIENCE_S
    while pid := next(_our_gits(checkout), None):
        if time.monotonic() > deadline:
            raise CheckoutProblem(f"a git of an earlier optagent (pid {pid}) is still at work in {checkout.top}")
        time.sleep(_PAUSE_S)
    locks = [lock for lock in _locks(checkout) if lock.exists()]
    for lock in locks:
        if (user := _user_of(lock, checkout)) is not None:
            raise CheckoutProblem(f"{lock} is held by a git at work (pid {user}): let it end first")
        lock.unlink(missing_ok=True)
    return bool(locks)


def undo_half_checkout(checkout: Checkout, target: str, *, interrupted: bool) -> None:
    """Go back to HEAD where a `git checkout` of `target` was killed half-way, if that explains all that is uncommitted.

    Git writes the files, then the index, then HEAD. So every path must be one of those that the two commits differ in,
    and hold what one of them has, a beginning of what `target` has, or nothing. Anything else is left as it is: it is
    somebody's work. `interrupted` says that there are signs of a kill; a written index is a sign of its own.
    """
    head = checkout.commit_of("HEAD")
    if head is None or head == target or not (interrupted or _index_is(checkout, target)):
        return
    changes = _changes(checkout, head, target)
    found = {entry.path for entry in dirt(checkout)}
    if not found <= changes.keys() or not all(_half_written(checkout, path, changes[path]) for path in found):
        return
    if found:
        checkout.run("reset", "--hard", "--quiet", head)
    for path, (old, _) in changes.items():
        if old is None and _half_written(checkout, path, changes[path]):  # may be ignored, so not in `found`
            on_disk(checkout, path).unlink(missing_ok=True)


def _index_is(checkout: Checkout, target: str) -> bool:
    output = checkout.attempt("diff-index", "--cached", "--quiet", "--ignore-submodules=all", target, "--")
    return output.status == 0


def _changes(checkout: Checkout, old: str, new: str) -> dict[bytes, tuple[str | None, str | None]]:
    """Blob ids before and after of every path the two commits differ in, None where it is absent."""
    fields = checkout.run("diff-tree", "-r", "-z", "--no-renames", "--ignore-submodules=all", old, new).split(b"\0")
    changes: dict[bytes, tuple[str | None, str | None]] = {}
    for about, path in zip(fields[0::2], fields[1::2], strict=False):
        _, _, before, after, _ = about.decode().split(" ")
        changes[path] = (before if before.strip("0") else None, after if after.strip("0") else None)
    return changes


def _half_written(checkout: Checkout, path: bytes, blobs: tuple[str | None, str | None]) -> bool:
    file = on_disk(checkout, path)
    try:
        content = os.fsencode(file.readlink()) if file.is_symlink() else file.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    old, new = (None if blob is None else _blob(checkout, blob) for blob in blobs)
    return content == old or (new is not None and new.startswith(content))


def _blob(checkout: Checkout, blob: str) -> bytes:
    return checkout.run("cat-file", "blob", blob)


def _locks(checkout: Checkout) -> Iterator[Path]:
    yield checkout.git_dir / "index.lock"
    yield checkout.git_dir / "HEAD.lock"
    yield checkout.common_dir / "packed-refs.lock"
    yield from (checkout.common_dir / "refs/heads/optagent").rglob("*.lock")


def _processes() -> Iterator[Path]:
    own = str(os.getpid())
    return (entry for entry in Path("/proc").iterdir() if entry.name.isdigit() and entry.name != own)


def _our_gits(checkout: Checkout) -> Iterator[int]:
    """Processes that were started by this module's caller or by one before it, in this checkout."""
    mark = f"{MARKER}={checkout.top}".encode()
    for process in _processes():
        try:
            if mark in (process / "environ").read_bytes().split(b"\0"):
                yield int(process.name)
        except OSError:
            continue  # ended meanwhile, or of another user and so none of ours


def _user_of(lock: Path, checkout: Checkout) -> int | None:
    """The process that may hold `lock`: it has the file open, or it is a git in this checkout (`git commit -a` closes
    its lock while the editor is open), or a git that cannot be looked at."""
    target = os.path.realpath(lock)
    for process in _processes():
        try:
            is_git = (process / "comm").read_text().startswith("git")
            try:
                opened = [str(entry.readlink()) for entry in (process / "fd").iterdir()]
                inside = (process / "cwd").readlink().is_relative_to(checkout.top)
            except PermissionError:
                opened, inside = [], True
        except OSError:
            continue
        if target in opened or (is_git and inside):
            return int(process.name)
    return None
