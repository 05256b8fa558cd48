"""JSON lines in and lines out, at the rim: each error names the file and line, or the output, that it is about."""

from __future__ import annotations

import json
import sys
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from optagent.agent.commands.printable import clean
from optagent.agent.errors import BadInput, OptagentError

STANDARD_INPUT = "standard input"


def name_of(file: str) -> str:
    """What messages call the file; "-" is the standard input."""
    return STANDARD_INPUT if file == "-" else clean(file)


def lines_of(file: str) -> Iterator[bytes]:
    """The lines of a file, which end where bytes say so and not where Unicode might. Raises BadInput."""
    try:
        if file != "-":
            with Path(file).open("rb") as lines:
                yield from lines
        elif sys.stdin is None:  # the process was started with it closed
            raise BadInput(STANDARD_INPUT, "is closed")
        else:
            yield from sys.stdin.buffer
    except (OSError, ValueError) as error:
        raise BadInput(name_of(file), f"cannot be read: {getattr(error, 'strerror', None) or error}") from None


def read(lines: Iterable[bytes], name: str, expected: str) -> Iterator[tuple[int, Any]]:
    """(line number, what it holds); empty lines are passed over, and so is a byte order mark. Raises BadInput."""
    for number, line in enumerate(lines, 1):
        text = line.removeprefix(BOM_UTF8)
        if not text.strip():
            continue
        try:
            held = json.loads(text)
        except (json.JSONDecodeError, UnicodeDecodeError):
            raise BadInput(name, expected, number) from None
        except (ValueError, RecursionError):
            raise BadInput(name, "cannot be read: a number is too long, or lists lie too deep", number) from None
        yield number, held


def write(lines: Iterable[str]) -> None:
    """Print the lines. Raises OptagentError where the output takes no more, and BrokenPipeError, on which click ends
    without a word, where nobody reads it any longer."""
    if sys.stdout is None:
        raise OptagentError("standard output: is closed")
    try:
        try:
            for line in lines:
                sys.stdout.write(line + "\n")
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OptagentError(f"standard output: cannot be written: {error.strerror or error}") from None
