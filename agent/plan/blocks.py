"""The YAML block of an item: which fenced blocks are meant as one, and its keys with the lines they stand in."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from optagent.agent.markdown import Document, Fence

if TYPE_CHECKING:
    from yaml.nodes import MappingNode

    from optagent.agent.plan.nodes import Node

KEYS = (
    "id",
    "status",
    "change",
    "needs",
    "expected_gain",
    "cost",
    "risk",
    "approval",
    "may_break",
    "undo",
    "retry_when",
    "result",
)
MAKES_ITEM = frozenset({"id", "status", "change"})
LARGEST_BLOCK = 100_000

_KEY_LINE = re.compile(rf"\s*(?:{'|'.join(KEYS)})\s*:")


class Entry(NamedTuple):
    """A key of a mapping with its value, and the 1-based line of the document where the key stands."""

    key: str
    line: int
    key_node: Node
    value: Node


class Block(NamedTuple):
    """A block that could be read. `offset` is the 0-based line of the document where its first line stands."""

    fence: Fence
    offset: int
    root: MappingNode
    entries: tuple[Entry, ...]

    def entry(self, key: str) -> Entry | None:
        return next((e for e in self.entries if e.key == key), None)


class Unreadable(NamedTuple):
    """A block that is meant as an item's but is no YAML mapping."""

    fence: Fence
    line: int
    message: str


def item_block(document: Document, fence: Fence, ranked: bool) -> Block | Unreadable | None:
    """The block in `fence`, or None when it is an example: no YAML, or without a key that makes an item of it.

    Under a `ranked` heading any known key is enough, and so is a misspelt one.
    """
    if fence.language not in ("yaml", "yml") or not fence.closed:
        return None
    lines = document.lines[fence.first + 1 : fence.last]
    parsed = _parse(fence, lines)
    if isinstance(parsed, Unreadable):
        return parsed if any(_KEY_LINE.match(line) for line in lines) else None
    if parsed is None:
        return None
    names = {entry.key for entry in parsed.entries}
    if names & MAKES_ITEM or (ranked and (names & set(KEYS) or any(nearest(name, KEYS) for name in names))):
        return parsed
    return None


def entries_of(node: MappingNode, offset: int) -> tuple[Entry, ...]:
    """The entries of a mapping whose text starts at the 0-based line `offset` of the document."""
    return tuple(
        Entry(str(key.value) if isinstance(key.value, str) else "", offset + key.start_mark.line + 1, key, value)
        for key, value in node.value
    )


def nearest(name: str, known: tuple[str, ...]) -> str | None:
    """The known name that `name` is probably a misspelling of."""
    from difflib import get_close_matches

    found = get_close_matches(name.lower().replace("-", "_"), known, n=1, cutoff=0.7)
    return found[0] if found else None


def _parse(fence: Fence, lines: tuple[str, ...]) -> Block | Unreadable | None:
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    offset, text = fence.first + 1, "\n".join(lines)
    if len(text) > LARGEST_BLOCK:
        return Unreadable(fence, offset, f"this block is longer than {LARGEST_BLOCK} characters")
    try:
        root = loader(text).get_single_node()
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = offset + 1 + (min(mark.line, max(len(lines) - 1, 0)) if mark else 0)
        return Unreadable(fence, line, f"this is not valid YAML: {_reason(error)}")
    except (ValueError, RecursionError) as error:
        return Unreadable(fence, offset + 1, f"this is not valid YAML: {error}")
    if not isinstance(root, yaml.MappingNode):
        return None
    return Block(fence, offset, root, entries_of(root, offset))


def _reason(error: Exception) -> str:
    return str(getattr(error, "problem", None) or getattr(error, "reason", None) or error).splitlines()[0][:200]
