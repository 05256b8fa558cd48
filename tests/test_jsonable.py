"""What is recorded comes back the same, for every record there is."""

from __future__ import annotations

import json
import types
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optagent.agent import records
from optagent.agent.change import Change
from optagent.agent.experiments import Failure, Outlook, Run
from optagent.agent.handoff.model import Handoff
from optagent.agent.jsonable import from_body, to_body
from optagent.agent.plan.model import Item, Plan, Problem, Status
from optagent.agent.records import Attempt, DeadEnd, Lesson
from optagent.tools.calls.configuration import Configuration

RECORDS: list[type] = [
    *(c for c in vars(records).values() if isinstance(c, type) and is_dataclass(c) and c.__module__ == records.__name__),
    Change, Configuration, Run, Failure, Outlook, Item, Problem, Plan, Handoff,
]  # fmt: skip

SIMPLE: dict[Any, st.SearchStrategy[Any]] = {
    str: st.text(max_size=6),
    int: st.integers(-3, 10**6),
    bool: st.booleans(),
    float: st.floats(allow_nan=False, allow_infinity=False),
    type(None): st.none(),
}


def of(hint: Any) -> st.SearchStrategy[Any]:
    """Values of a type hint as the records use them."""
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return st.one_of([of(a) for a in args])
    if origin is Literal:
        return st.sampled_from(args)
    if origin is tuple and args[-1] is Ellipsis:
        return st.lists(of(args[0]), max_size=2).map(tuple)
    if origin is tuple:
        return st.tuples(*(of(a) for a in args))
    if origin is dict:
        return st.dictionaries(of(args[0]), of(args[1]), max_size=2)
    if issubclass(hint, Enum):
        return st.sampled_from(hint)
    if is_dataclass(hint):
        make: Any = hint
        return st.builds(make, **{name: of(each) for name, each in get_type_hints(hint).items()})
    return SIMPLE[hint]


@pytest.mark.parametrize("record", RECORDS, ids=lambda c: c.__name__)
@settings(deadline=None, max_examples=15)
@given(data=st.data())
def test_every_record_comes_back_the_same(record: type[Any], data: st.DataObject) -> None:
    one = data.draw(of(record))
    back = from_body(record, json.loads(json.dumps(to_body(one), allow_nan=False)))
    assert back == one
    assert repr(back) == repr(one)  # 1, 1.0 and True are equal, and are not the same


def test_defaults_are_left_out() -> None:
    assert to_body(Lesson("graphs cost memory")) == {"text": "graphs cost memory"}
    assert to_body(Attempt("X1", "a", "keep", effect=0.0)) == {
        "experiment": "X1",
        "title": "a",
        "verdict": "keep",
        "effect": 0.0,
    }


def test_every_field_of_every_record_has_a_place() -> None:
    for record in RECORDS:
        assert {f.name for f in fields(record)} == set(get_type_hints(record))


def test_what_a_newer_optagent_added_is_passed_over() -> None:
    dead_end = DeadEnd("nccl-tree", "NCCL_ALGO=Tree", "cannot be captured")
    assert from_body(DeadEnd, to_body(dead_end) | {"colour": "red"}) == dead_end


def test_a_status_that_nobody_knows_is_refused() -> None:
    assert from_body(Item, {"id": "a", "title": "A", "line": 1, "status": "kept"}).status is Status.KEPT
    with pytest.raises(ValueError, match="abandoned"):
        from_body(Item, {"id": "a", "title": "A", "line": 1, "status": "abandoned"})
