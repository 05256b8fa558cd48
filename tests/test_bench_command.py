"""`optagent bench` as its users meet it: real processes, and a stub of an OpenAI-compatible server on a real socket."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

CONFIG = """\
name = "away"

[workload]
name = "house"
input_len = 16
output_len = 24
num_prompts = 4
max_concurrency = 2
warmup_requests = 0

[deployment]
kind = "sglang"
host = "192.0.2.7"
"""
LONGEST_S = 120


class StubServer(ThreadingHTTPServer):
    """A stub of an inference server: it answers every prompt with words, as many as it says are tokens."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), StubHandler)
        self.asked = 0
        self.shorter_by = 0
        self.going_on = threading.Event()
        self.going_on.set()
        self.busy = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class StubHandler(BaseHTTPRequestHandler):
    server: StubServer

    def handle(self) -> None:
        with suppress(ConnectionError):
            super().handle()

    def do_GET(self) -> None:
        self._reply(200 if self.path == "/v1/models" else 404, b'{"data": [{"id": "stub"}]}')

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])) or b"{}")
        if self.path != "/v1/completions":
            self._reply(200 if self.path == "/reset_prefix_cache" else 404, b"{}")
            return
        self.server.asked += 1
        self.server.busy.set()
        self.server.going_on.wait(LONGEST_S)
        tokens = body["max_tokens"] - self.server.shorter_by
        usage = {"prompt_tokens": len(body["prompt"]), "completion_tokens": tokens}
        events: list[dict[str, Any]] = [{"choices": [{"text": f"word{n} "}]} for n in range(tokens)]
        stream = "".join(f"data: {json.dumps(event)}\n\n" for event in [*events, {"choices": [], "usage": usage}])
        self._reply(200, stream.encode())

    def _reply(self, status: int, data: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def stub() -> Iterator[StubServer]:
    with StubServer() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.going_on.set()
        server.shutdown()


@pytest.fixture
def campaign(tmp_path: Path) -> Path:
    (tmp_path / "optagent.toml").write_text(CONFIG)
    return tmp_path


def command(folder: Path, *words: str) -> list[str]:
    return [sys.executable, "-m", "optagent", "-C", str(folder), *words]


def environment(**variables: str) -> dict[str, str]:
    return {k: v for k, v in os.environ.items() if not k.startswith("OPTAGENT_")} | variables


def run(folder: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(folder, *words), env=environment(**variables), capture_output=True, text=True, timeout=LONGEST_S, check=False
    )  # fmt: skip


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_a_server_elsewhere_is_measured(campaign: Path, stub: StubServer) -> None:
    done = run(campaign, "bench", "--url", stub.url, "--runs", "2", "--json")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert (said["url"], said["valid"], said["simulated"]) == (stub.url, True, False)
    assert said["workload"]["name"] == "house"
    assert [(r["seed"], r["valid"], r["cache"]) for r in said["runs"]] == [(43, True, "flushed"), (44, True, "flushed")]
    throughputs = [r["metrics"]["output_throughput"] for r in said["runs"]]
    spread = said["spread"]["output_throughput"]
    assert (spread["runs"], spread["min"], spread["max"]) == (2, min(throughputs), max(throughputs))
    assert min(throughputs) <= spread["mean"] <= max(throughputs)
    assert spread["sd_percent"] >= 0
    assert stub.asked == 4 + 2 * 4, "the first load is put on once, and discarded"
    results = [r["result_file"] for r in said["runs"]]
    first = results[0].replace(".jsonl", ".first.jsonl")
    assert files(campaign) == sorted([*results, first, "optagent.toml"]), "the journal is left alone"
    assert json.loads((campaign / results[1]).read_text())["seed"] == 44


def test_what_a_person_sees(campaign: Path, stub: StubServer) -> None:
    done = run(campaign, "bench", "--url", stub.url, "--runs", "2", "--seed", "7", COLUMNS="80")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "house: 4 requests, 2 at a time, 16 tokens in, 24 tokens out, prefix cache flushed" in lines
    table = [line.split() for line in lines if line.split()[:1] in (["1"], ["2"], ["mean"], ["sd"])]
    assert [row[0] for row in table] == ["1", "2", "mean", "sd"]
    assert [row[-1] for row in table[:2]] == ["valid", "valid"]
    assert max(map(len, lines)) <= 90
    assert "simulated" not in done.stdout


def test_a_named_workload_instead_of_the_campaign_s(campaign: Path, stub: StubServer) -> None:
    done = run(campaign, "bench", "--url", stub.url, "--runs", "1", "--workload", "throughput-2", "--json")
    workload = json.loads(done.stdout)["workload"]
    assert (workload["num_prompts"], workload["max_concurrency"], workload["output_len"]) == (40, 2, 1024)
    assert stub.asked == 2 * (40 + 2)


@pytest.mark.parametrize("words", [(), ("--json",)], ids=["screen", "json"])
def test_runs_that_do_not_count(campaign: Path, stub: StubServer, words: tuple[str, ...]) -> None:
    stub.shorter_by = 10
    done = run(campaign, "bench", "--url", stub.url, "--runs", "1", *words)
    assert done.returncode == 1
    reason = "4 answers are shorter than the 24 tokens asked for, the shortest has 14"
    if words:
        [only] = json.loads(done.stdout)["runs"]
        assert (only["valid"], only["invalid_because"]) == (False, [reason])
    else:
        assert f"run 1 is invalid: {reason}" in done.stdout
        assert "INVALID" in done.stdout


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--workload", "throughput-x"), "--workload: expected one of house, single-stream, single-stream-long, "),
        (("--workload", "singel-stream"), "not 'singel-stream'; did you mean single-stream?"),
        (("--workload", "speculative"), 'optagent.toml:3: workload.prompts: "speculative" needs a file of real prompts'),
        (("--url", "127.0.0.1:30000"), "--url: expected an address like http://10.0.0.5:30000"),
        (("--url", "http://127.0.0.1:30000/v1"), "--url: expected an address like"),
        (("--url", "http://127.0.0.1:99999"), "--url: expected an address like"),
        (("--url", "file:///etc/passwd"), "--url: expected an address like"),
        (("--url", "http://me:secret@10.0.0.5"), "--url: expected an address like"),
        (("--url", "FREE"), "nobody answers at FREE: start the server, or name another with --url"),
    ],
    ids=lambda v: " ".join(v) if isinstance(v, tuple) else "",
)  # fmt: skip
def test_bad_input_changes_nothing(campaign: Path, words: tuple[str, ...], says: str) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        free = f"http://127.0.0.1:{unused.getsockname()[1]}"
        done = run(campaign, "bench", *(word.replace("FREE", free) for word in words))
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
    assert says.replace("FREE", free) in done.stderr
    assert "secret" not in done.stderr
    assert files(campaign) == ["optagent.toml"]


def test_prompts_that_are_not_there(campaign: Path) -> None:
    (campaign / "optagent.toml").write_text(CONFIG.replace('"house"', '"speculative"\nprompts = "none.jsonl"'))
    done = run(campaign, "bench")
    assert done.returncode == 2
    assert done.stderr.startswith("optagent: optagent.toml:5: workload.prompts: ")
    assert "none.jsonl holds no prompts" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_it_and_its_load(campaign: Path, stub: StubServer, number: signal.Signals) -> None:
    stub.going_on.clear()
    words = command(campaign, "bench", "--url", stub.url)
    with subprocess.Popen(words, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as bench:
        assert stub.busy.wait(LONGEST_S)
        bench.send_signal(number)
        _, said = bench.communicate(timeout=LONGEST_S)
    assert bench.returncode == 130
    assert said == "optagent: interrupted: 0 of 3 runs were measured\n"
    assert stub.asked <= 2, "two clients, and no further request"


# What a deployment elsewhere cannot do


def test_continue_refuses_a_deployment_elsewhere(campaign: Path) -> None:
    (campaign / "plans").mkdir()
    (campaign / "plans" / "plan.md").write_text("# A plan\n\n## 1. Nothing yet\n")
    before = files(campaign)
    away = "192.0.2.7 is not this machine; its server cannot be launched from here (`optagent bench` measures it)"
    for words in (("continue",), ("continue", "--json"), ("continue", "--record", str(campaign / "r.jsonl"))):
        done = run(campaign, *words)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == f"optagent: optagent.toml:13: deployment.host: {away}\n"
    assert files(campaign) == before


def test_continue_names_the_variable_that_says_elsewhere(campaign: Path) -> None:
    done = run(campaign, "continue", OPTAGENT_DEPLOYMENT__HOST="192.0.2.8")
    assert done.returncode == 2
    assert done.stderr.startswith("optagent: OPTAGENT_DEPLOYMENT__HOST: deployment.host: 192.0.2.8 is not this machine")
