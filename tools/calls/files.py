"""Reading and writing the campaign's own text files."""

from __future__ import annotations

from optagent.tools.calls.base import EffectRequest, Request, Result


class ReadText(Request):
    path: str


class TextRead(Result):
    """`text` is None when the file does not exist; `problem` says why an existing file could not be read."""

    text: str | None = None
    sha256: str | None = None
    problem: str | None = None


class ListFolder(Request):
    path: str
    suffix: str = ".md"


class FolderListed(Result):
    """File names (not paths) in the folder, sorted; empty when the folder does not exist."""

    names: list[str] = []


class WriteText(EffectRequest):
    """Replace the file whole and atomically. With `expect_sha256`, only when it still holds what was read."""

    path: str
    text: str
    expect_sha256: str | None = None


class TextWritten(Result):
    written: bool = True
    sha256: str | None = None
    problem: str | None = None
