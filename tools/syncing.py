"""Having on disk what was written: a file's content, or the names in a folder."""

from __future__ import annotations

import os
from pathlib import Path


def sync(path: Path) -> None:
    """Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
