"""Which flags a server accepts, from its own help: a real one, trimmed, and whatever argparse can print."""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optagent.tools.calls.server import FlagTold
from optagent.tools.commands import Command
from optagent.tools.flags import NoHelp, ask_for_flags, flags_of, parse_help, tell
from optagent.tools.simulator.flags import parser as simulated_parser

HERE = Path(__file__).parent
STUB = HERE / "fakes" / "stub_server.py"
REAL = parse_help((HERE / "helps" / "sglang-0.5.23.txt").read_text())
HELP = """\
usage: launch_server.py [-h] --model-path MODEL_PATH
                        [--in-usage-only X]

positional arguments:
  words                 not a flag
                        --nor-this

options:
  -h, --help            show this help message and exit
  --model-path MODEL_PATH, --model MODEL_PATH
                        The path; see also
                        --not-an-option in this text.
  --tp TP, --tp-size TP  how many GPUs
  --enable-metrics, --no-enable-metrics
  --kv_cache_dtype {auto,fp8}
  --wrapped {one,two,
             three}     choices that go on in the next line
  --short, --newer VALUE
                        as Python 3.13 prints it
  --maybe [MAYBE]       with a value or without

memory:
  --paths [PATHS ...]   several
"""


def stub(word: str = "--help") -> Command:
    return Command((sys.executable, str(STUB), word), {}, STUB.parent)


def saying(text: str, *more: str) -> Command:
    return Command((sys.executable, "-c", f"{'; '.join(more)}\nprint({text!r})"), {}, HERE)


def test_options_and_their_other_names() -> None:
    flags = parse_help(HELP)
    assert sorted(flags) == [
        "enable-metrics", "help", "kv_cache_dtype", "maybe", "model", "model-path", "newer", "no-enable-metrics", "paths",
        "short", "tp", "tp-size", "wrapped",
    ]  # fmt: skip
    assert {name for name, told in flags.items() if told.switch} == {"help", "enable-metrics", "no-enable-metrics"}
    assert flags["kv_cache_dtype"].choices == ["auto", "fp8"]
    assert flags["wrapped"].choices == ["one", "two", "three"]
    assert all(told.known for told in flags.values())
    assert parse_help("no help at all") == {}
    assert parse_help("") == {}


@pytest.mark.parametrize(
    ("name", "switch", "choices"),
    [
        ("disable-overlap-schedule", True, None),
        ("enable-tf32-matmul", True, None),
        ("no-enable-tf32-matmul", True, None),
        ("enable-dp-attention", True, None),
        ("enable-hicache", True, None),
        ("max-running-requests", False, None),
        ("model", False, None),
        ("expert-parallel-size", False, None),
        ("ep", False, None),
        ("cuda-graph-bs-decode", False, None),
        ("model-checksum", False, None),
        ("kv-cache-dtype", False, "auto fp8_e5m2 fp8_e4m3 mxfp8 bf16 bfloat16 nvfp4 fp4_mx_block16"),
        ("monokernel-backend", False, "amd"),
        ("schedule-policy", False, "lpm random fcfs dfs-weight lof priority routing-key hrrn shortest-prefill-first"),
    ],
)
def test_what_a_real_server_says(name: str, switch: bool, choices: str | None) -> None:
    told = REAL[name]
    assert (told.known, told.switch, told.choices) == (True, switch, choices.split() if choices else None)


def test_the_attention_backends_of_a_real_server() -> None:
    assert {"triton", "flashinfer", "fa3", "torch_native", "trtllm_mla"} <= set(REAL["attention-backend"].choices or [])
    assert (REAL["lora-target-modules"].choices or [])[:2] == ["q_proj", "k_proj"]


def test_what_a_real_server_calls_deprecated() -> None:
    """Its text speaks of other deprecated things in two more places, which are not these flags themselves."""
    assert {name: told.deprecated for name, told in REAL.items() if told.deprecated} == {
        "disable-cuda-graph": "Deprecated. Use --cuda-graph-backend-{decode,prefill}=disabled instead.",
        "disable-fast-image-processor": "Deprecated. Use --image-processor-backend=pil instead.",
        "enable-dp-attention": (
            "Deprecated. Use --attn-dp-size <dp-size> instead of --dp-size <dp-size> --enable-dp-attention."
        ),
        "enable-flashinfer-allreduce-fusion": "(Deprecated: use --flashinfer-allreduce-fusion-backend=auto)",
        "grpc-mode": "(Deprecated, use --smg-grpc-mode)",
        "monokernel-backend": "Deprecated. Use --enable-amd-monokernel instead of --monokernel-backend amd.",
    }


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("NOTE: --old is deprecated. Please set `--new`. More.", "NOTE: --old is deprecated. Please set `--new`."),
        ("[Deprecated] Use --new instead.", "[Deprecated] Use --new instead."),
        ("Deprecated alias for --new.", "Deprecated alias for --new."),
        ("How many. This option is deprecated.", "This option is deprecated."),
        ("Removed. Use --new with one of: off, on.", "Removed. Use --new with one of: off, on."),
        ("Replaces the deprecated --older.", ""),
        ("The fallback to --other is deprecated; ordinary use is not.", ""),
        ("Choices: 'a' (deprecated), 'b'.", ""),
        ("How many rows are removed.", ""),
        ("DEPRECATED " + "x" * 1000, "DEPRECATED " + "x" * 289),
    ],
)  # fmt: skip
def test_wordings_of_deprecation(text: str, says: str) -> None:
    assert parse_help(f"  --old OLD  {text}")["old"].deprecated == says


@pytest.mark.parametrize(
    ("name", "begins", "similar"),
    [
        ("cuda-graph-max-bs", ["cuda-graph-max-bs-decode", "cuda-graph-max-bs-prefill"], "cuda-graph-max-bs-decode"),
        ("speculative-algo", ["speculative-algorithm"], "speculative-algorithm"),
        ("tp", ["tp-size"], None),
        ("max-runing-requests", [], "max-running-requests"),
        ("kv_cache_dtype", [], "kv-cache-dtype"),
        ("zzz", [], None),
        ("", [], None),
        ("x" * 10_000, [], None),
    ],
)
def test_names_that_are_no_flags(name: str, begins: list[str], similar: str | None) -> None:
    told = tell(REAL, name)
    assert not told.known
    assert told.begins == begins
    assert told.similar[:1] == ([similar] if similar else [])


def test_a_single_flag_that_begins_so_is_told_like_it() -> None:
    assert tell(REAL, "disable-overlap").switch
    assert tell(REAL, "schedule-pol").choices == REAL["schedule-policy"].choices
    assert tell(REAL, "enable-dp-att").deprecated
    assert tell(REAL, "page-size") == REAL["page-size"]


NAMES = st.from_regex(r"(?:ab|abc|no)(?:-[a-c]{1,3}){0,2}", fullmatch=True)


@st.composite
def parsers(draw: st.DrawFn) -> argparse.ArgumentParser:
    """Some parser of argparse's own, with flags that begin like others."""
    parser = argparse.ArgumentParser(prog="stub", conflict_handler="resolve")
    group = parser.add_argument_group("more") if draw(st.booleans()) else parser
    for name in draw(st.lists(NAMES, min_size=1, max_size=8, unique=True)):
        words = [f"--{name}", *(f"--{name}-{n}" for n in draw(st.lists(NAMES, max_size=1)))]
        text = draw(st.sampled_from(["", "how many", "a long text " * 12, "see --abc-abc"]))
        settings: dict[str, Any] = draw(
            st.sampled_from(
                [
                    {"action": "store_true"},
                    {"action": argparse.BooleanOptionalAction},
                    {"type": int},
                    {"choices": ["one", "two-three", "4"]},
                    {"nargs": "+", "choices": ["x", "y"]},
                    {"nargs": "?"},
                    {"metavar": "SOME-THING"},
                ]
            )
        )
        group.add_argument(*words, help=text, **settings)
    return parser


def options(parser: argparse.ArgumentParser) -> dict[str, argparse.Action]:
    return {word[2:]: action for word, action in parser._option_string_actions.items() if word.startswith("--")}


@given(parsers(), st.integers(30, 400))
def test_every_help_that_argparse_prints_is_read(parser: argparse.ArgumentParser, width: int) -> None:
    parser.formatter_class = partial(argparse.HelpFormatter, width=width)
    flags, actions = parse_help(parser.format_help()), options(parser)
    assert set(flags) == set(actions)
    for name, action in actions.items():
        told = flags[name]
        assert told.switch == (action.nargs == 0)
        assert told.choices == (list(action.choices) if action.choices else None)


def exit_of(parser: argparse.ArgumentParser, words: list[str]) -> tuple[int, str]:
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
            parser.parse_args(words)
    except SystemExit as end:
        return int(end.code or 0), said.getvalue()
    return 0, said.getvalue()


@given(parsers(), NAMES, st.integers(1, 8))
def test_what_begins_so_is_what_argparse_takes_it_for(parser: argparse.ArgumentParser, name: str, length: int) -> None:
    word = name[:length]
    told = tell(parse_help(parser.format_help()), word)
    code, said = exit_of(parser, [f"--{word}=4"])
    assert ("ambiguous option" in said) == (not told.known and len(told.begins) > 1)
    assert ("unrecognized arguments" in said) == (not told.known and not told.begins)
    if told.switch:
        assert (code, "explicit argument" in said) == (2, True)


@pytest.mark.parametrize("version", ["0.5.8", "0.5.23"])
def test_the_simulator_s_help(version: str) -> None:
    parser = simulated_parser(version)
    flags, actions = parse_help(parser.format_help()), options(parser)
    assert set(flags) == set(actions)
    assert flags["disable-overlap-schedule"].switch
    assert "fa3" in (flags["attention-backend"].choices or [])
    assert tell(flags, "cuda-graph-max-bs").known == (version == "0.5.8")


def test_a_program_s_own_flags() -> None:
    assert sorted(ask_for_flags(stub())) == ["behaviour", "help", "host", "port"]


def test_a_help_is_asked_for_in_long_lines() -> None:
    script = "import os; print('  --wide-' + os.environ['COLUMNS'])"
    assert list(ask_for_flags(Command((sys.executable, "-c", script), {"COLUMNS": "20"}, HERE))) == ["wide-400"]


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (stub("--nope"), "exit 2"),
        (Command(("/nowhere",), {}, HERE), "/nowhere"),
        (saying("", "raise SystemExit('no module named sglang')"), "no module named sglang"),
        (saying("no flags here"), "exit 0"),
    ],
)
def test_why_a_server_could_not_be_asked(command: Command, why: str, tmp_path: Path) -> None:
    with pytest.raises(NoHelp, match=why):
        ask_for_flags(command)
    listed = flags_of(command, ["port"], "1.0", tmp_path, "")
    assert listed.flags is None
    assert why in (listed.problem or "")
    assert listed.version == "1.0"
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_does_not_answer() -> None:
    slow = Command((sys.executable, "-c", "import time; time.sleep(60)"), {}, HERE)
    with pytest.raises(NoHelp, match="no help within"):
        ask_for_flags(slow, timeout_s=0.2)


def counting(asked: Path) -> Command:
    return saying("  --port PORT  which", f"open({str(asked)!r}, 'a').write('x')")


def test_a_help_is_remembered_for_a_version_and_a_state_of_the_source(tmp_path: Path) -> None:
    asked, cache = tmp_path / "asked", tmp_path / "cache"
    command = counting(asked)
    for version, source in (("1.0", ""), ("1.0", ""), ("1.1", ""), ("1.1", "patched"), ("1.1", "patched")):
        listed = flags_of(command, ["port", "prot"], version, cache, source)
        assert listed.version == version
        assert listed.flags == {"port": FlagTold(known=True), "prot": FlagTold(known=False, similar=["port"])}
    assert asked.read_text() == "xxx"
    flags_of(command, [], None, cache, "")
    flags_of(command, [], "1.0", None, "")
    assert asked.read_text() == "xxxxx"


@pytest.mark.parametrize("damage", [b"{", b"", b'["help", "port"]', b'{"port": 1}', b"\xff"])
def test_a_damaged_memory_is_asked_anew(damage: bytes, tmp_path: Path) -> None:
    flags_of(stub(), ["port"], "1.0", tmp_path, "")
    (kept,) = tmp_path.iterdir()
    kept.write_bytes(damage)
    listed = flags_of(stub(), ["port"], "1.0", tmp_path, "")
    assert listed.flags is not None
    assert listed.flags["port"].known
    assert set(json.loads(kept.read_bytes())) == {"behaviour", "help", "host", "port"}


def test_a_memory_of_the_format_before_does_no_harm(tmp_path: Path) -> None:
    for name in ("flags-0123456789abcdef.json", "help-0123456789abcdef.json"):
        (tmp_path / name).write_text('["port"]')
    listed = flags_of(stub(), ["port", "behaviour"], "1.0", tmp_path, "")
    assert listed.flags is not None
    assert [told.known for told in listed.flags.values()] == [True, True]


def test_a_memory_that_cannot_be_written_costs_no_answer(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert flags_of(stub(), ["port"], "1.0", tmp_path / "file" / "cache", "").flags is not None
