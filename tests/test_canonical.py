"""One form for a change: what is equal looks equal, what differs stays different, and what was accepted stays accepted."""

from __future__ import annotations

import argparse

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optagent.agent import canonical as module
from optagent.agent.canonical import canonical, canonical_configuration, equal, mark, present_flag
from optagent.agent.change import Change, apply_change
from optagent.agent.flag_facts import ALIASES
from optagent.tools.calls.configuration import Configuration, FlagValue, flag_arguments


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Change(flags={"tp": 8}), Change(flags={"tp-size": 8})),
        (Change(flags={"tensor-parallel-size": "8"}), Change(flags={"--tp_size": 8.0})),
        (Change(flags={"model": "m"}), Change(flags={"model-path": " m "})),
        (Change(flags={"enable-hicache": True}), Change(flags={"enable-hierarchical-cache": "true"})),
        (Change(flags={"nccl-init-addr": "h:1"}), Change(flags={"dist-init-addr": "h:1"})),
        (Change(flags={"mem-fraction-static": "0.90"}), Change(flags={"mem-fraction-static": 0.9})),
        (Change(flags={"trust-remote-code": "TRUE"}), Change(flags={"trust-remote-code": True})),
        (Change(flags={"enable-metrics": False}), Change(flags={"enable-metrics": None})),
        (Change(flags={"enable-metrics": "false"}), Change(flags={"enable-metrics": False})),
        (Change(flags={"a": 1, "b": 2}), Change(flags={"b": 2, "a": 1})),
        (Change(flags={"tp": 4, "tp-size": 8}), Change(flags={"tp-size": 8})),
        (Change(env={"NCCL_ALGO": " Tree "}), Change(env={"NCCL_ALGO": "Tree"})),
        (Change(files={"a.py": "x = 1"}), Change(files={"./a.py": "x = 1\n\n"})),
        (Change(patch="./changes//a.diff"), Change(patch="changes/a.diff")),
        (Change(environment=" cu13 "), Change(environment="cu13")),
    ],
)
def test_what_does_the_same_is_equal(one: Change, other: Change) -> None:
    assert equal(one, other)
    assert mark(one) == mark(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Change(flags={"tp-size": 8}), Change(flags={"dp-size": 8})),
        (Change(flags={"tp-size": 8}), Change(flags={"tp-size": 4})),
        (Change(flags={"revision": "1.10"}), Change(flags={"revision": "1.1"})),
        (Change(flags={"served-model-name": "007"}), Change(flags={"served-model-name": "7"})),
        (Change(flags={"speculative-algorithm": "EAGLE"}), Change(flags={"speculative-algorithm": "EAGLE3"})),
        (Change(flags={"quantization": None}), Change()),
        (Change(env={"NCCL_ALGO": None}), Change(env={"NCCL_ALGO": ""})),
        (Change(env={"A": "0.90"}), Change(env={"A": "0.9"})),  # a variable is text: its reader may tell the two apart
        (Change(files={"a.py": "x = 1"}), Change(files={"a.py": "  x = 1"})),
        (Change(flags={"cuda-graph-max-bs": 32}), Change(flags={"cuda-graph-max-bs-decode": 32})),
    ],
)
def test_what_differs_stays_different(one: Change, other: Change) -> None:
    assert not equal(one, other)
    assert mark(one) != mark(other)


@pytest.mark.parametrize(
    ("name", "value", "release", "written"),
    [
        ("cuda-graph-max-bs", 32, "0.5.23", ("cuda-graph-max-bs-decode", 32)),
        ("cuda-graph-max-bs", 32, "0.5.24.post1", ("cuda-graph-max-bs-decode", 32)),
        ("cuda-graph-max-bs", 32, "0.5.8", ("cuda-graph-max-bs", 32)),
        ("cuda-graph-max-bs", 32, None, ("cuda-graph-max-bs", 32)),
        ("cuda-graph-max-bs", 32, "a build of ours", ("cuda-graph-max-bs", 32)),
        ("enable-deepep-moe", "true", "0.5.23", ("moe-a2a-backend", "deepep")),
        ("enable-deepep-moe", False, "0.5.23", ("enable-deepep-moe", None)),
        ("enable-dp-attention", True, "0.5.23", ("enable-dp-attention", True)),  # its new name takes another value
        ("prefill-cp-mode", "x", "0.5.23", ("prefill-cp-mode", "x")),
        ("tp", "8", "0.5.23", ("tp-size", 8)),
    ],
)
def test_a_retired_name_is_the_new_one_only_where_that_is_there(
    name: str, value: FlagValue, release: str | None, written: tuple[str, FlagValue | None]
) -> None:
    assert present_flag(name, value, release) == written


def test_the_second_names_do_not_contradict_those_that_rules_ask_about() -> None:
    assert not set(module.ALIASES) & set(ALIASES)
    assert not set(module.ALIASES.values()) & {*ALIASES, *module.ALIASES}


# Laws

names = st.sampled_from(
    ["tp", "tp-size", "--tp_size", "mem-fraction-static", "model", "revision", "enable-x", "nccl-init-addr"]
)
texts = st.sampled_from(["true", "False", " 8 ", "8.0", "0.90", "-1", "1e3", "007", "", "nan", "a b", "1.10"])
values = st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.floats() | texts | st.text(max_size=5)
changes = st.builds(
    Change,
    st.dictionaries(names, values, max_size=4),
    st.dictionaries(st.sampled_from(["NCCL_ALGO", "A"]), st.none() | st.text(max_size=5), max_size=2),
    st.dictionaries(st.sampled_from(["a.py", "./a.py", "b/c.py"]), st.text(max_size=8), max_size=2),
    st.sampled_from([None, "changes/a.diff", "./a.diff"]),
    st.sampled_from([None, "cu13", " cu13"]),
)
configurations = st.builds(
    Configuration, st.just("cu128"), st.dictionaries(names, values.filter(lambda v: v is not None), max_size=4),
    st.dictionaries(st.just("A"), st.text(max_size=5)), st.just({}), st.just(""),
)  # fmt: skip


@given(changes)
@settings(deadline=None)
def test_twice_is_once(change: Change) -> None:
    once = canonical(change)
    assert canonical(once) == once
    assert mark(once) == mark(change)
    assert equal(once, change)


@given(configurations)
@settings(deadline=None)
def test_of_a_configuration_too(configuration: Configuration) -> None:
    once = canonical_configuration(configuration)
    assert canonical_configuration(once) == once


plain = st.sampled_from(["page-size", "mem-fraction-static", "enable-x", "revision"])


@given(
    st.dictionaries(plain, values.filter(lambda v: v is not None), max_size=4),
    st.dictionaries(plain, values, max_size=4),
)
@settings(deadline=None)
def test_before_or_after_it_is_put_on_makes_no_difference(
    base: dict[str, FlagValue], flags: dict[str, FlagValue | None]
) -> None:
    """Of flags that have one name: what is launched is the same, whenever the one form is taken."""
    raw, change = Configuration("cu128", base), Change(flags=flags)
    put_on = canonical_configuration(apply_change(raw, change))
    assert put_on == canonical_configuration(apply_change(canonical_configuration(raw), canonical(change)))


def server() -> argparse.ArgumentParser:
    """A parser that takes flags the way SGLang declares them: two names, a switch, a whole number, a number, a text."""
    parser = argparse.ArgumentParser(exit_on_error=False, allow_abbrev=False)
    parser.add_argument("--tp-size", "--tensor-parallel-size", "--tp", type=int)
    parser.add_argument("--mem-fraction-static", type=float)
    parser.add_argument("--trust-remote-code", action="store_true")
    parser.add_argument("--model-path", "--model", type=str)
    parser.add_argument("--revision", type=str)
    return parser


accepted = st.fixed_dictionaries(
    {},
    optional={
        "tp": st.integers(1, 64) | st.integers(1, 64).map(str),
        "tensor-parallel-size": st.integers(1, 64),
        "mem-fraction-static": st.floats(0, 1) | st.sampled_from(["0.90", ".5", "1", "0.1250"]),
        "trust-remote-code": st.booleans(),
        "model": st.sampled_from(["a/b", "true", "8", "./m"]),
        "revision": st.sampled_from(["1.10", "007", "main"]),
    },
)


@given(accepted)
@settings(deadline=None)
def test_what_the_server_took_it_takes_still_and_reads_the_same(flags: dict[str, FlagValue]) -> None:
    given_, one_form = Change(flags=dict(flags)), canonical(Change(flags=dict(flags)))
    base = Configuration("default")
    read = [server().parse_args(flag_arguments(apply_change(base, c).flags)) for c in (given_, one_form)]
    assert read[0] == read[1]
