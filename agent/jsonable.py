"""Frozen dataclasses to JSON objects and back, without the start-up cost of a validation library.

For what optagent itself wrote (the journal). What others may have written goes through pydantic at the edge.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")


def to_body(value: Any) -> Any:
    """The value as JSON types; fields that hold their default are left out."""
    if is_dataclass(value) and not isinstance(value, type):
        held = ((f, getattr(value, f.name)) for f in fields(value))
        return {f.name: to_body(v) for f, v in held if not _is_default(f, v)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(k): to_body(v) for k, v in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [to_body(v) for v in value]
    return value


def from_body(cls: type[T], body: Mapping[str, Any]) -> T:
    """The dataclass that `to_body` wrote. Unknown keys are ignored, so that an older reader copes with a newer writer."""
    of: Any = cls
    hints = _hints(of)
    known = {f.name for f in fields(of)}
    return cls(**{k: _value(hints[k], v) for k, v in body.items() if k in known})


def _value(hint: Any, value: Any) -> Any:
    if value is None:
        return None
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        inner = [a for a in args if a is not type(None)]
        return _value(inner[0], value) if len(inner) == 1 else value
    if origin is tuple:
        if len(args) == 2 and args[1] is Ellipsis:
            return tuple(_value(args[0], v) for v in value)
        return tuple(_value(a, v) for a, v in zip(args, value, strict=True))
    if origin is list:
        return [_value(args[0], v) for v in value]
    if origin is dict:
        return {k: _value(args[1], v) for k, v in value.items()}
    if isinstance(hint, type) and is_dataclass(hint):
        return from_body(hint, value)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return hint(value)
    return value


def _is_default(f: Any, value: Any) -> bool:
    default = _default(f)
    return bool(value == default) and repr(value) == repr(default)  # 0, 0.0 and -0.0 are equal, and are not the same


def _default(f: Any) -> Any:
    if f.default is not MISSING:
        return f.default
    if f.default_factory is not MISSING:
        return f.default_factory()
    return MISSING


@cache
def _hints(cls: Any) -> dict[str, Any]:
    return get_type_hints(cls)
