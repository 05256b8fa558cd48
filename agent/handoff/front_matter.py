"""The front matter of a handoff: the data itself, of which the document below is a rendering."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from optagent.agent.errors import BadInput
from optagent.agent.handoff.model import FORMAT, Handoff

if TYPE_CHECKING:
    from pydantic import TypeAdapter

LARGEST = 4_000_000
"""Characters of a front matter that are read at most; a campaign of thousands of attempts needs a fraction of it."""

_FAMILY, _VERSION = FORMAT.split("/")
_FORMAT_LINE = re.compile(rf"format\s*:\s*['\"]?{_FAMILY}/?([^\s'\"#]*)")

Path = tuple[str | int, ...]


class FrontMatter(NamedTuple):
    """The text between the two `---` lines. Its first line is line 2 of the document."""

    text: str
    version: str
    version_line: int


def find_front_matter(text: str, name: str) -> FrontMatter | None:
    """The front matter that claims optagent's format; None when there is none, or it is somebody else's.

    Raises BadInput when it is never closed.
    """
    lines = text.removeprefix("\ufeff").split("\n")
    if lines[0].rstrip() != "---":
        return None
    end = next((n for n, line in enumerate(lines[1:], start=1) if line.rstrip() == "---"), None)
    inside = lines[1:end]
    claim = next(((n, m) for n, line in enumerate(inside) if (m := _FORMAT_LINE.match(line))), None)
    begun = end is None and f"format: {FORMAT}".startswith("\n".join(inside).strip())
    if claim is None and not begun:
        return None
    if end is None or claim is None:
        raise BadInput(name, "the front matter is cut off: no line of --- closes it. Restore the file", len(lines))
    return FrontMatter("\n".join(line.rstrip("\r") for line in inside), claim[1][1], claim[0] + 2)


def read_front_matter(front: FrontMatter, name: str) -> Handoff:
    """The handoff that the front matter holds. Raises BadInput with the line of what is wrong."""
    _check_version(front, name)
    if len(front.text) > LARGEST:
        raise BadInput(name, f"the front matter is longer than {LARGEST} characters", 2)
    raw, lines = _load(front, name)
    del raw["format"]
    if "structured" in raw:
        raise BadInput(name, "unknown key 'structured'", lines.line(("structured",)))
    from pydantic import ValidationError

    try:
        handoff = _adapter().validate_python(raw)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        path = tuple(first["loc"])
        where = ".".join(str(part) for part in path)
        raise BadInput(name, f"{where}: {first['msg'][0].lower()}{first['msg'][1:]}", lines.line(path)) from None
    unknown = _unknown(raw, _adapter().dump_python(handoff), ())
    if unknown is not None:
        raise BadInput(name, f"unknown key {'.'.join(map(str, unknown))!r}", lines.line(unknown))
    return handoff


def _check_version(front: FrontMatter, name: str) -> None:
    if front.version == _VERSION:
        return
    if front.version.isdigit() and int(front.version) > int(_VERSION):
        said = f"this handoff is of format {_FAMILY}/{front.version}, this optagent reads {FORMAT}. Update optagent"
    else:
        said = f"expected format: {FORMAT}, found {_FAMILY}/{front.version}"
    raise BadInput(name, said, front.version_line)


class _Lines:
    """Finds the line of the document in which a value stands, from its path in the data."""

    def __init__(self, root: Any) -> None:
        self.root = root

    def line(self, path: Path) -> int:
        """The 1-based line of the deepest part of `path` that is there."""
        node, line = self.root, 2
        for part in path:
            if node.id == "mapping":
                found = next(((k, v) for k, v in node.value if k.value == str(part)), None)
                if found is None:
                    break
                line, node = found[0].start_mark.line + 2, found[1]
            elif node.id == "sequence" and isinstance(part, int) and part < len(node.value):
                node = node.value[part]
                line = node.start_mark.line + 2
            else:
                break
        return int(line)


def _load(front: FrontMatter, name: str) -> tuple[dict[str, Any], _Lines]:
    import yaml

    loader = _loader()(front.text)
    try:
        root = loader.get_single_node()
        raw = loader.construct_document(root) if root is not None else None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        reason = str(getattr(error, "problem", None) or error).splitlines()[0][:200]
        raise BadInput(name, f"the front matter is not valid YAML: {reason}", mark.line + 2 if mark else 2) from None
    except (ValueError, TypeError, RecursionError) as error:
        raise BadInput(name, f"the front matter is not valid YAML: {str(error)[:200]}", 2) from None
    if not isinstance(raw, dict) or "format" not in raw:
        raise BadInput(name, f"expected keys and values, starting with format: {FORMAT}", 2)
    return raw, _Lines(root)


@cache
def _loader() -> Any:
    """A safe loader that leaves dates as text and refuses a key given twice."""
    import yaml

    class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            seen: set[str] = set()
            for key, _ in node.value:
                if key.value in seen if isinstance(key.value, str) else False:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"the key {key.value!r} is given twice", key.start_mark
                    )
                seen.add(str(key.value))
            mapping: dict[Any, Any] = super().construct_mapping(node, deep)
            return mapping

    Loader.yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in pairs if tag != "tag:yaml.org,2002:timestamp"]
        for first, pairs in Loader.yaml_implicit_resolvers.items()
    }
    return Loader


@cache
def _adapter() -> TypeAdapter[Handoff]:
    from pydantic import TypeAdapter

    return TypeAdapter(Handoff)


def _unknown(raw: Any, known: Any, path: Path) -> Path | None:
    """The path of the first key in `raw` that the data does not have."""
    if isinstance(raw, Mapping) and isinstance(known, Mapping):
        for key, value in raw.items():
            if key not in known:
                return (*path, key)
            if (found := _unknown(value, known[key], (*path, key))) is not None:
                return found
    elif isinstance(raw, Sequence) and isinstance(known, Sequence) and not isinstance(raw, str):
        for index, (value, other) in enumerate(zip(raw, known, strict=False)):
            if (found := _unknown(value, other, (*path, index))) is not None:
                return found
    return None
