"""Reading, writing and installing text files, each write whole or not at all."""

from __future__ import annotations

import glob
import hashlib
import os
import secrets
from contextlib import suppress
from pathlib import Path

from optagent.tools.calls.files import FolderListed, ListFolder, ReadText, TextRead, TextWritten, WriteText
from optagent.tools.calls.server import FilesInstalled
from optagent.tools.errors import MachineExhausted
from optagent.tools.exhausted import stop_if_exhausted
from optagent.tools.paths import OutsideCampaign, inside
from optagent.tools.syncing import sync

LARGEST_TEXT_BYTES = 4 * 1024 * 1024
"""Plans, handoffs and configuration files are far smaller; what is larger is not one of them."""


def read_text(root: Path, request: ReadText) -> TextRead:
    """The file's text with the hash of its bytes; no text and no problem when there is no such file."""
    try:
        path = inside(root, request.path)
        with path.open("rb") as file:
            content = file.read(LARGEST_TEXT_BYTES + 1)
    except FileNotFoundError:
        return TextRead()
    except (OSError, OutsideCampaign) as error:
        stop_if_exhausted(error, request.path)
        return TextRead(problem=_reason(request.path, error))
    if len(content) > LARGEST_TEXT_BYTES:
        return TextRead(problem=f"{request.path} is larger than {LARGEST_TEXT_BYTES // 1024**2} MiB: not read")
    try:
        return TextRead(text=content.decode("utf-8"), sha256=sha256(content))
    except UnicodeDecodeError as error:
        return TextRead(sha256=sha256(content), problem=f"{request.path} is not UTF-8 at byte {error.start}")


def list_folder(root: Path, request: ListFolder) -> FolderListed:
    """Names of the plain files with the suffix; none when the folder cannot be read."""
    try:
        entries = list(inside(root, request.path).iterdir())
    except (OSError, OutsideCampaign) as error:
        stop_if_exhausted(error, request.path)
        return FolderListed()
    return FolderListed(names=sorted(e.name for e in entries if e.name.endswith(request.suffix) and e.is_file()))


def write_text(root: Path, request: WriteText) -> TextWritten:
    """Replace the file, unless it no longer holds what the caller had read."""
    try:
        content = request.text.encode("utf-8")
        path = inside(root, request.path)
        if request.expect_sha256 is not None:
            present = file_sha256(path)
            if present != request.expect_sha256:
                what = "is gone" if present is None else "was changed by somebody else"
                return TextWritten(written=False, sha256=present, problem=f"{request.path} {what} since it was read")
        replace_file(path, content)
    except (OSError, OutsideCampaign, UnicodeEncodeError) as error:
        return TextWritten(written=False, problem=_reason(request.path, error))
    return TextWritten(sha256=sha256(content))


def install_files(folder: Path, backups: Path, files: dict[str, str]) -> FilesInstalled:
    """Write `files` below `folder`; what they replace is kept in `backups`, once for each content.

    All names and texts are looked at before the first is written. Whatever is written already when the disk fails
    is put back.
    """
    before: dict[str, bytes | None] = {}
    try:
        contents = {name: text.encode("utf-8") for name, text in files.items()}
        for name in contents:
            before[name] = _content(inside(folder, name))
            _back_up(backups, before[name])
    except (OSError, OutsideCampaign, UnicodeEncodeError) as error:
        return FilesInstalled(problem=_reason(str(folder), error))
    written: list[str] = []
    try:
        for name, content in contents.items():
            if before[name] != content:
                written.append(name)
                replace_file(inside(folder, name), content)
    except (OSError, MachineExhausted) as error:
        for name in written:
            _put_back(inside(folder, name), before[name])
        if isinstance(error, MachineExhausted):
            raise
        return FilesInstalled(problem=_reason(str(folder), error))
    return FilesInstalled(
        before={name: None if old is None else sha256(old) for name, old in before.items()},
        after={name: sha256(content) for name, content in contents.items()},
    )


def replace_file(path: Path, content: bytes) -> None:
    """Put `content` at `path` so that a crash at any moment leaves the old file or the new one.

    Raises MachineExhausted where there is no room for it, and OSError.
    """
    try:
        _replace(path, content)
    except OSError as error:
        stop_if_exhausted(error, path)
        raise


def _replace(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    target = path.resolve()  # a link stays a link, its target is replaced
    temporary = target.with_name(f".{target.name[:100]}.{secrets.token_hex(4)}.part")
    remove_unfinished(target.parent, glob.escape(target.name[:100]))
    try:
        with temporary.open("xb") as file:
            if target.exists():
                os.fchmod(file.fileno(), target.stat().st_mode & 0o7777)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync(target.parent)


def remove_unfinished(folder: Path, name: str = "*") -> None:
    """Remove what writes of files with such names left that were killed. One process writes a campaign at a time."""
    for left in folder.glob(f".{name}.????????.part"):
        left.unlink(missing_ok=True)


def file_sha256(path: Path) -> str | None:
    """The hash of a file's content, None when there is no such file. Raises OSError when it cannot be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except (FileNotFoundError, NotADirectoryError):
        return None


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None


def _back_up(backups: Path, content: bytes | None) -> None:
    if content is None:
        return
    copy = backups / sha256(content)
    if not copy.exists():
        replace_file(copy, content)


def _put_back(path: Path, content: bytes | None) -> None:
    with suppress(OSError, MachineExhausted):
        if content is None:
            path.unlink(missing_ok=True)
        else:
            replace_file(path, content)


def _reason(path: str, error: Exception) -> str:
    if isinstance(error, OSError):
        return f"{path}: {error.strerror or error}"
    return str(error)
