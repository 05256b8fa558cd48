"""`optagent diagnose` on what is no log of an SGLang server, and on logs that have hardly begun."""

from __future__ import annotations

import gzip
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

CASES = Path(__file__).parent / "cases"
LOG = (CASES / "own" / "fraction-up-04" / "server.log").read_bytes()
PACKED = gzip.compress(LOG)
HOURS_AGO = 1_700_000_000


def run(log: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "optagent", "diagnose", str(log), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def written(folder: Path, data: bytes, name: str = "server.log") -> Path:
    log = folder / name
    log.write_bytes(data)
    os.utime(log, (HOURS_AGO, HOURS_AGO))
    return log


@pytest.mark.parametrize(
    "data",
    [
        Path(os.path.realpath(sys.executable)).read_bytes(),
        random.Random(1).randbytes(300_000),
        b"# A text\n\nabout something else, 100% of it, with an error in it.\n",
        b"127.0.0.1 localhost\n" * 50_000,
        b"\0" * 5000,
    ],
    ids=["program", "random", "prose", "long", "zeros"],
)
def test_what_no_server_writes_is_no_log(tmp_path: Path, data: bytes) -> None:
    log = written(tmp_path, data)
    for words in ((), ("--json",)):
        done = run(log, *words)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == (
            f"optagent: {log}: no SGLang server's log: none of its lines is one that a server writes\n"
        )


@pytest.mark.parametrize(
    "data", [PACKED[:-40], PACKED[:5], PACKED[:-6] + b"\0" + PACKED[-5:], PACKED[:60] + b"\xff" * 60 + PACKED[120:]]
)
def test_a_damaged_archive_is_told(tmp_path: Path, data: bytes) -> None:
    log = written(tmp_path, data, "server.log.gz")
    done = run(log)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"optagent: {log}: this compressed log is damaged or cut short: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("data", [b"", b"\n \n", gzip.compress(b"")])
def test_an_empty_file_has_nothing_yet(tmp_path: Path, data: bytes) -> None:
    log = written(tmp_path, data)
    done = run(log)
    assert done.returncode == 0
    assert "nothing written yet" in done.stdout
    assert "nothing is wrong" not in done.stdout
    assert json.loads(run(log, "--json").stdout)["status"] == "starting"


@pytest.mark.parametrize(
    "data",
    [
        LOG.split(b"\n")[0],
        b"+ exec python3 -m sglang.launch_server --model-path a\n",
        b"/usr/lib/python3/dist-packages/torch/cuda/__init__.py:61: FutureWarning: The pynvml package is deprecated\n",
        b"usage: launch_server.py [-h] --model-path MODEL_PATH\n",
        b'Traceback (most recent call last):\n  File "a.py", line 1, in <module>\nImportError: no such thing\n',
        b"Loading safetensors checkpoint shards:  10% Completed | 1/10 [00:01<00:09,  1.00s/it]\n",
        b"Segmentation fault (core dumped)\n",
        b"\0" * 5000 + b"\n" + LOG,
        b"some words of a script\n" * 20_000 + LOG,
    ],
    ids=["stamp", "shell", "warning", "usage", "traceback", "bar", "death", "truncated", "late"],
)
def test_a_log_that_has_hardly_begun_is_one(tmp_path: Path, data: bytes) -> None:
    assert run(written(tmp_path, data)).returncode == 0
