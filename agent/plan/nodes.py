"""YAML nodes as plain values. Strings stay as written: a date stays text, and so does the `on` of a variable."""

from __future__ import annotations

from typing import TYPE_CHECKING

from optagent.tools.calls.configuration import FlagValue

if TYPE_CHECKING:
    from yaml.nodes import MappingNode, ScalarNode, SequenceNode

    Node = MappingNode | ScalarNode | SequenceNode

_TAG = "tag:yaml.org,2002:"
_TRUE = frozenset({"true", "yes", "on"})
_KNOWN_TAGS = frozenset(_TAG + name for name in ("str", "bool", "int", "float", "null", "timestamp", "value", "merge"))


def kind_of(node: Node) -> str:
    """What the node is, for a message: 'a mapping', 'a list', 'nothing', 'true or false', 'a number' or 'text'."""
    if node.id != "scalar":
        return "a mapping" if node.id == "mapping" else "a list"
    names = {"null": "nothing", "bool": "true or false", "int": "a number", "float": "a number"}
    return names.get(node.tag.removeprefix(_TAG), "text")


def text_of(node: Node) -> str | None:
    """The text of a scalar as written, "" for nothing; None for a mapping, a list or a value with a tag of its own."""
    if node.id != "scalar" or node.tag not in _KNOWN_TAGS:
        return None
    return "" if node.tag == _TAG + "null" else str(node.value)


def bool_of(node: Node) -> bool | None:
    """The boolean, or None when the node is none."""
    if node.id != "scalar" or node.tag != _TAG + "bool":
        return None
    return str(node.value).lower() in _TRUE


def number_of(node: Node) -> float | None:
    """The number, or None when the node is none."""
    if node.id != "scalar" or node.tag not in (_TAG + "int", _TAG + "float"):
        return None
    try:
        return float(str(node.value).replace("_", ""))
    except ValueError:
        return None


def flag_value_of(node: Node) -> FlagValue | None:
    """The value of a flag; None for nothing. Raises ValueError when the node is no single value."""
    text = text_of(node)
    if text is None:
        raise ValueError(kind_of(node))
    name = node.tag.removeprefix(_TAG)
    if name == "null":
        return None
    if name == "bool":
        return bool_of(node)
    if name in ("int", "float") and len(text) <= 40:
        try:
            number = int(text) if name == "int" else float(text)
        except ValueError:
            return text
        return number if number == number and abs(number) != float("inf") else text
    return text


def is_plain(node: Node) -> bool:
    """Whether the node is a scalar without quotes, and no block of text."""
    return node.id == "scalar" and not getattr(node, "style", None)
