"""The benchmark client as a process: its one result, its progress, its failures, and its children."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from optagent.tools import processes
from optagent.tools.bench import LoadFailed
from optagent.tools.bench_client import OptionRefused, client_load, client_prompts, requests_done
from optagent.tools.bench_progress import Progress
from optagent.tools.calls.bench import Bench, Workload
from optagent.tools.commands import Command
from optagent.tools.deployment import Deployment, ServingEnvironment
from optagent.tools.live import LiveToolbox

BAR = b"\r  0%|          | 0/32 [00:00<?, ?it/s]\r 38%|###7      | 12/32 [00:03<00:05,  3.71it/s]"


def client(folder: Path, script: str) -> tuple[Command, Path, Path]:
    output = folder / "out.part"
    command = Command((sys.executable, "-c", script, str(output)), {}, folder)
    return command, output, folder / "client.log"


def load(folder: Path, script: str, timeout_s: float = 60.0, said: list[str] | None = None) -> dict[str, Any]:
    words = said if said is not None else []
    return client_load(*client(folder, script), timeout_s, Progress(words.append, 32))


def test_the_client_s_only_line_is_the_result(tmp_path: Path) -> None:
    (tmp_path / "out.part").write_text('{"completed": 999}\n')  # of an attempt that was interrupted
    assert load(tmp_path, "import sys; open(sys.argv[1], 'a').write('{\"completed\": 1}\\n')") == {"completed": 1}


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("", "wrote no result"),
        ("import sys; print('boom'); sys.exit(2)", "exit status 2: boom"),
        ("import sys; open(sys.argv[1], 'a').write('{}\\n{}\\n')", "2 results"),
        ("import sys; open(sys.argv[1], 'a').write('nonsense')", "not JSON"),
        ("import sys; open(sys.argv[1], 'a').write('[]')", "not a JSON object"),
    ],
)
def test_a_client_that_fails(tmp_path: Path, script: str, reason: str) -> None:
    with pytest.raises(LoadFailed, match=reason):
        load(tmp_path, script)


def test_what_an_earlier_attempt_said_is_not_this_one_s(tmp_path: Path) -> None:
    (tmp_path / "client.log").write_bytes(b"unrecognized arguments: --old\n" + BAR)
    with pytest.raises(LoadFailed, match="exit status 2: it said nothing"):
        load(tmp_path, "import sys; sys.exit(2)")


def test_a_client_that_takes_too_long_is_stopped_with_its_children(tmp_path: Path) -> None:
    child = "import time; time.sleep(60)"
    script = (
        f"import subprocess, sys; c = subprocess.Popen([sys.executable, '-c', {child!r}]);"
        "open('child', 'w').write(str(c.pid)); c.wait()"
    )
    with pytest.raises(LoadFailed, match="longer than"):
        load(tmp_path, script, timeout_s=1.5)
    pid = int((tmp_path / "child").read_text())
    seen = processes.look_at(pid)
    assert seen is None or seen.zombie


def test_a_missing_client(tmp_path: Path) -> None:
    with pytest.raises(LoadFailed, match="/nowhere"):
        client_load(
            Command(("/nowhere",), {}, tmp_path), tmp_path / "o", tmp_path / "l", 1.0, Progress(lambda text: None, 1)
        )


def test_the_last_bar_tells_how_far_it_is(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert requests_done(log, 0, 32) is None
    log.write_bytes(b"Fetching 5 files: 100%|####| 5/5 [00:01<00:00]\nStarting\n")
    assert requests_done(log, 0, 32) is None
    with log.open("ab") as file:
        file.write(BAR)
    assert requests_done(log, 0, 32) == 12
    assert requests_done(log, log.stat().st_size, 32) is None
    with log.open("ab") as file:
        file.write(b"x" * 200_000)
    assert requests_done(log, 0, 32) is None  # only the end is read


def test_progress_comes_from_the_client_s_own_bar(tmp_path: Path) -> None:
    """The client waits until it was seen, so that nothing depends on how fast anybody is."""
    script = (
        "import sys, pathlib, time\n"
        f"sys.stderr.buffer.write({BAR!r}); sys.stderr.flush()\n"
        "while not pathlib.Path('seen').exists(): time.sleep(0.01)\n"
        "open(sys.argv[1], 'a').write('{}')"
    )
    said: list[str] = []

    def report(text: str) -> None:
        said.append(text)
        if "12 of 32" in text:
            (tmp_path / "seen").touch()

    assert client_load(*client(tmp_path, script), 60.0, Progress(report, 32)) == {}
    assert said[-1] == "benchmark: 12 of 32 requests"


def test_prompts_in_the_client_s_form(tmp_path: Path) -> None:
    given, out = tmp_path / "p.jsonl", tmp_path / "out.jsonl"
    given.write_text('{"prompt": "Grüße"}\n\n{"prompt": "b"}\n')

    def written(count: int) -> list[str]:
        lines = client_prompts(given, out, count).read_text().splitlines()
        return [json.loads(line)["conversations"][0]["content"] for line in lines]

    assert written(1) == written(2) == ["Grüße", "b"]
    assert written(5) == ["Grüße", "b", "Grüße", "b", "Grüße"]  # the client itself would send two
    for text, reason in (('["no"]\n', "every line"), ("\n", "holds no prompts")):
        given.write_text(text)
        with pytest.raises(LoadFailed, match=reason):
            client_prompts(given, out, 2)


STUB_CLIENT = '''
"""A stub: takes SGLang's benchmark options, or an older release's, and writes a result without asking any server."""
import argparse, json, os, sys
parser = argparse.ArgumentParser()
names = ["--backend", "--base-url", "--dataset-name", "--dataset-path", "--random-input-len", "--random-output-len",
         "--random-range-ratio", "--num-prompts", "--max-concurrency", "--request-rate", "--warmup-requests", "--seed",
         "--output-file", "--sharegpt-output-len"]
for name in names:
    parser.add_argument(name)
for name in ["--tokenize-prompt", "--flush-cache", "--output-details", "--apply-chat-template"]:
    parser.add_argument(name, action="store_true")
if NEW:
    parser.add_argument("--cache-report", action="store_true")
with open("calls", "a") as calls:
    calls.write(" ".join(sys.argv[1:]) + "\\n")
args = parser.parse_args()
n, length = int(args.num_prompts), int(args.random_output_len)
result = {"duration": 1.0, "completed": n, "total_output_tokens": n * length, "output_throughput": 1.0,
          "median_ttft_ms": 1.0, "median_tpot_ms": 1.0, "errors": [""] * n, "input_lens": [100] * n}
if NEW:
    result["cached_tokens"] = [5] * n
with open(args.output_file, "a") as file:
    file.write(json.dumps(result) + "\\n")
'''


@pytest.mark.parametrize(("new", "calls", "share"), [(True, 2, 0.05), (False, 3, None)], ids=["new", "old"])
def test_an_older_client_is_asked_without_the_cache_report(
    tmp_path: Path, new: bool, calls: int, share: float | None
) -> None:
    """It is told once what it does not know, and not again."""
    package = tmp_path / "modules" / "sglang"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "bench_serving.py").write_text(f"NEW = {new}\n{STUB_CLIENT}")
    environment = ServingEnvironment(python=sys.executable, pythonpath=[str(tmp_path / "modules")])
    deployment = Deployment(kind="sglang", environments={"default": environment})
    toolbox = LiveToolbox(tmp_path, deployment, lambda text: None)
    workload = Workload(input_len=100, output_len=8, num_prompts=4)
    for number in (1, 2):
        run = toolbox.bench(
            Bench(key=f"k{number}", run="r", url="http://x", workload=workload, seed=1, result_file=f"r{number}.jsonl")
        )
        assert run.valid, run.invalid_because
        assert run.cached_share == share
        assert not run.simulated
    asked = (tmp_path / "calls").read_text().splitlines()
    assert len(asked) == calls
    assert [("--cache-report" in line) for line in asked] == ([True, True] if new else [True, False, False])


def test_an_option_that_is_not_known_is_told_from_other_failures(tmp_path: Path) -> None:
    refuse = "import argparse; argparse.ArgumentParser().parse_args(['--cache-report'])"
    with pytest.raises(OptionRefused, match="--cache-report"):
        load(tmp_path, refuse)
