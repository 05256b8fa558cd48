"""Which flags a server accepts, from its own help."""

from __future__ import annotations

import sys
from pathlib import Path

from optagent.tools.commands import Command
from optagent.tools.flags import ask_for_flags, flags_of, parse_help

STUB = Path(__file__).parent / "fakes" / "stub_server.py"
HELP = """\
usage: launch_server.py [-h] --model-path MODEL_PATH
                        [--in-usage-only X]

options:
  -h, --help            show this help message and exit
  --model-path MODEL_PATH, --model MODEL_PATH
                        The path; see also
                        --not-an-option in this text.
  --tp TP, --tp-size TP  how many GPUs
  --enable-metrics, --no-enable-metrics
  --kv_cache_dtype {auto,fp8}
"""


def stub(word: str = "--help") -> Command:
    return Command((sys.executable, str(STUB), word), {}, STUB.parent)


def test_options_and_their_other_names() -> None:
    assert parse_help(HELP) == [
        "enable-metrics", "help", "kv_cache_dtype", "model", "model-path", "no-enable-metrics", "tp", "tp-size",
    ]  # fmt: skip
    assert parse_help("no help at all") == []


def test_a_program_s_own_flags() -> None:
    assert ask_for_flags(stub()).flags == ["behaviour", "help", "host", "port"]


def test_why_a_server_could_not_be_asked(tmp_path: Path) -> None:
    assert "unrecognized arguments" in (ask_for_flags(stub("--nope")).problem or "") or "required" in (
        ask_for_flags(stub("--nope")).problem or ""
    )
    assert "/nowhere" in (ask_for_flags(Command(("/nowhere",), {}, tmp_path)).problem or "")
    slow = Command((sys.executable, "-c", "import time; time.sleep(60)"), {}, tmp_path)
    assert "no help within" in (ask_for_flags(slow, timeout_s=0.2).problem or "")


def test_flags_are_remembered_for_a_version(tmp_path: Path) -> None:
    flag = tmp_path / "asked"
    script = f"open({str(flag)!r}, 'a').write('x'); print('  --port PORT')"
    command = Command((sys.executable, "-c", script), {}, tmp_path)
    for version in ("1.0", "1.0", "1.1"):
        assert flags_of(command, version, tmp_path / "cache").flags == ["port"]
    assert flag.read_text() == "xx"
    flags_of(command, None, tmp_path / "cache")
    assert flag.read_text() == "xxx"


def test_a_damaged_memory_is_asked_anew(tmp_path: Path) -> None:
    flags_of(stub(), "1.0", tmp_path)
    (kept,) = tmp_path.iterdir()
    kept.write_text("{")
    assert flags_of(stub(), "1.0", tmp_path).flags
