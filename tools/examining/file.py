"""The file of an examination: gzip, JSON, whole or not there."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

from pydantic import ValidationError

from optagent.tools.examining.examination import Examination
from optagent.tools.files import replace_file

LARGEST_BYTES = 128 * 1024 * 1024
"""Unpacked. A hundred prompts of a thousand tokens are 10 MB."""


class Unreadable(ValueError):
    """There is no examination in the file. The message says why, as the rest of a sentence."""


def save(file: Path, examination: Examination) -> None:
    """The same examination gives the same bytes. Raises OSError."""
    replace_file(file, gzip.compress(examination.model_dump_json(exclude_defaults=True).encode(), mtime=0))


def load(file: Path) -> Examination:
    """Raises Unreadable, whatever may be at `file`."""
    try:
        with gzip.open(file) as unpacked:
            content = unpacked.read(LARGEST_BYTES + 1)
    except FileNotFoundError:
        raise Unreadable("is not there") from None
    except (OSError, EOFError, zlib.error) as error:
        raise Unreadable(f"cannot be read: {error}") from None
    if len(content) > LARGEST_BYTES:
        raise Unreadable(f"is larger than {LARGEST_BYTES // 1024**2} MiB")
    try:
        return Examination.model_validate_json(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise Unreadable(f"holds no examination: {where} {first['msg']}"[:300]) from None
