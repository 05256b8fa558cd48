"""Text that came from elsewhere, made harmless inside a markdown document: it can say everything and do nothing."""

from __future__ import annotations

import re

# Signs that mean something anywhere in a line. An underscore inside a word and a single tilde are left as they are.
_SIGNS = re.compile(r"([\\`*\[<]|(?<![^\W_])_|_(?![^\W_])|~~+)")
_AT_THE_START = re.compile(r"(#{1,6}(?=\s|\Z)|>|\||[-+=](?=\s|\Z|[-+=])|~{3,}|\d{1,9}(?=[.)](?:\s|\Z)))")


def line(text: str) -> str:
    """`text` on one line, with every sign that markdown or HTML would act on escaped."""
    escaped = _escaped(text)
    start = _AT_THE_START.match(escaped)
    if start is None:
        return escaped
    if start[0][0].isdigit():
        return f"{start[0]}\\{escaped[start.end() :]}"
    return f"\\{escaped}"


def cell(text: str, limit: int = 80) -> str:
    """`text` for a cell of a table, cut to `limit` characters; the whole of it stands in the front matter."""
    flat = _flat(text)
    return _escaped(flat if len(flat) <= limit else flat[: limit - 1].rstrip() + "…").replace("|", "\\|")


def code(text: str) -> str:
    """`text` for a span of code, which has no escapes: back-quotes become apostrophes."""
    return _flat(text).replace("`", "'")


def _flat(text: str) -> str:
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def _escaped(text: str) -> str:
    return _SIGNS.sub(lambda m: "".join(f"\\{c}" for c in m[0]), _flat(text)).replace("&", "&amp;")
