"""Putting a change on a configuration: what it sets is there, what it removes is gone, and nothing else moves."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optagent.agent.change import Change, apply_change, change_body, change_from, describe
from optagent.tools.calls.configuration import Configuration, FlagValue, configuration_from, flag_arguments

laws = settings(deadline=None, max_examples=60)
names = st.sampled_from(["tp-size", "cuda-graph-max-bs", "enable-metrics", "model-path", "quantization"])
variables = st.sampled_from(["NCCL_ALGO", "NCCL_P2P_LEVEL", "HF_HOME"])
flag_values: st.SearchStrategy[FlagValue] = (
    st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8)
)
files = st.dictionaries(st.sampled_from(["sitecustomize.py", "a/b.py"]), st.text(max_size=20))
configurations = st.builds(
    Configuration,
    st.sampled_from(["cu128", "cu13"]),
    st.dictionaries(names, flag_values),
    st.dictionaries(variables, st.text(max_size=8)),
    files,
    st.sampled_from(["", "62028850ca70"]),
)
changes = st.builds(
    Change,
    st.dictionaries(names, flag_values | st.none()),
    st.dictionaries(variables, st.text(max_size=8) | st.none()),
    files,
    st.none() | st.just("changes/a.diff"),
    st.none() | st.just("cu13"),
)


@laws
@given(configurations)
def test_no_change_changes_nothing(base: Configuration) -> None:
    assert apply_change(base, Change()) == base


@laws
@given(configurations, changes)
def test_twice_is_once(base: Configuration, change: Change) -> None:
    once = apply_change(base, change)
    assert apply_change(once, change) == once
    assert apply_change(once, change).fingerprint() == once.fingerprint()


@laws
@given(configurations, changes)
def test_what_is_set_is_there_and_what_is_removed_is_gone(base: Configuration, change: Change) -> None:
    done = apply_change(base, change)
    for name, value in change.flags.items():
        assert (name not in done.flags) if value is None else (done.flags[name] == value)
    for name, text in change.env.items():
        assert (name not in done.env) if text is None else (done.env[name] == text)
    assert done.files.items() >= change.files.items()
    assert done.environment == (change.environment or base.environment)


@laws
@given(configurations, changes)
def test_what_is_not_named_stays(base: Configuration, change: Change) -> None:
    done = apply_change(base, change)
    assert {k: v for k, v in done.flags.items() if k not in change.flags} == {
        k: v for k, v in base.flags.items() if k not in change.flags
    }
    assert {k: v for k, v in done.files.items() if k not in change.files} == {
        k: v for k, v in base.files.items() if k not in change.files
    }
    assert done.revision == base.revision  # the checkout alone knows what a patch makes of it


@laws
@given(configurations, changes)
def test_the_base_itself_is_not_touched(base: Configuration, change: Change) -> None:
    before = json.dumps(asdict(base))
    apply_change(base, change)
    assert json.dumps(asdict(base)) == before


@laws
@given(configurations)
def test_a_fingerprint_survives_the_journal_and_any_order_of_keys(base: Configuration) -> None:
    read = configuration_from(json.loads(json.dumps(asdict(base))))
    turned = replace(
        base, flags=dict(reversed(base.flags.items())), env=dict(reversed(base.env.items())), files=dict(base.files)
    )
    assert read == base
    assert read.fingerprint() == turned.fingerprint() == base.fingerprint()


@pytest.mark.parametrize(
    "other",
    [
        Configuration("cu13", {"a": 1}, {"B": "2"}, {"f": "x"}, "r"),
        Configuration("cu128", {"a": 2}, {"B": "2"}, {"f": "x"}, "r"),
        Configuration("cu128", {"a": 1}, {"B": "3"}, {"f": "x"}, "r"),
        Configuration("cu128", {"a": 1}, {"B": "2"}, {"f": "y"}, "r"),
        Configuration("cu128", {"a": 1}, {"B": "2"}, {"f": "x"}, "s"),
        Configuration("cu128", {"a": True}, {"B": "2"}, {"f": "x"}, "r"),  # --a is another command line than --a 1
    ],
)
def test_a_fingerprint_tells_configurations_apart(other: Configuration) -> None:
    one = Configuration("cu128", {"a": 1}, {"B": "2"}, {"f": "x"}, "r")
    assert one.fingerprint() != other.fingerprint()


@laws
@given(changes)
def test_a_change_comes_back_from_the_journal(change: Change) -> None:
    assert change_from(json.loads(json.dumps(change_body(change)))) == change
    assert change.empty == (change_body(change) == {})


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (Change(), "(nothing)"),
        (Change(flags={"tp-size": 8, "enable-metrics": True}), "--tp-size 8 --enable-metrics"),
        (Change(flags={"quantization": None}), "(without --quantization)"),
        (Change(env={"NCCL_ALGO": "Tree", "HF_HOME": None}), "NCCL_ALGO=Tree (without HF_HOME)"),
        (Change(files={"sitecustomize.py": "..."}), "file sitecustomize.py"),
        (Change(patch="changes/a.diff", environment="cu13"), "patch changes/a.diff environment cu13"),
    ],
)
def test_a_change_in_one_line(change: Change, says: str) -> None:
    assert describe(change) == says


def test_a_command_line() -> None:
    flags: dict[str, FlagValue] = {"tp-size": 8, "enable-metrics": True, "trust-remote-code": False, "mem": 0.9}
    assert flag_arguments(flags) == ["--tp-size", "8", "--enable-metrics", "--mem", "0.9"]
