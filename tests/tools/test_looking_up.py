"""Looking facts up on this very machine: files, logs, results, a real repository, a real socket, a real process."""

from __future__ import annotations

import os
import socket
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from optagent.tools.calls.facts import LookUp, PathSeen, RevisionSeen
from optagent.tools.looking_up import look_up
from optagent.tools.network import Address

NOBODY = Address("127.0.0.1", 1)


def git(folder: Path, *words: str) -> str:
    who = ["-c", "user.name=t", "-c", "user.email=t@example.invalid", "-c", "commit.gpgSign=false"]
    return subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Two commits on main, one beside them on a branch, and three diffs beside the checkout."""
    source = tmp_path / "source"
    source.mkdir()
    git(source, "init", "-q", "-b", "main")
    for text in ("one\n", "two\n"):
        (source / "a.txt").write_text(text)
        git(source, "add", ".")
        git(source, "commit", "-q", "-m", f"Say {text.strip()}")
    git(source, "branch", "side", "HEAD~1")
    diff = "--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-{}\n+{}\n"
    for name, old, new in (("applied", "one", "two"), ("fits", "two", "three"), ("not", "four", "five")):
        (tmp_path / f"{name}.diff").write_text(diff.format(old, new))
    return source


def test_paths(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("abc")
    absolute = str(tmp_path / "file")
    seen = look_up(
        LookUp(paths=["file", absolute, ".", "none", "a\0b", "file/below", "~nobody-of-this-name/x"]),
        tmp_path,
        None,
        NOBODY,
    )
    assert seen.paths == {
        "file": PathSeen(what="file", size_bytes=3), absolute: PathSeen(what="file", size_bytes=3),
        ".": PathSeen(what="folder"), "none": PathSeen(what="nothing"), "a\0b": PathSeen(what="not to be seen"),
        "file/below": PathSeen(what="nothing"), "~nobody-of-this-name/x": PathSeen(what="not to be seen"),
    }  # fmt: skip


def test_logs_are_diagnosed_wherever_they_lie(tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "a.log").write_text("[2026-01-01 10:00:00] server_args=ServerArgs(model_path='m')\n")
    campaign = tmp_path / "campaign"
    campaign.mkdir()
    seen = look_up(LookUp(logs=[str(folder / "a.log"), "none.log", "."]), campaign, None, NOBODY)
    assert [seen.logs[path].exists for path in (str(folder / "a.log"), "none.log", ".")] == [True, False, False]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('{"output_throughput": 90, "name": "x", "ok": true}\n', {"output_throughput": 90.0}),
        ('{"duration": 1.0}\n{"duration": 2.5}\n', {"duration": 2.5}),
        ("[1]\n", None),
        ("not json\n", None),
        ("", None),
    ],
)
def test_benchmark_results(tmp_path: Path, text: str, found: dict[str, float] | None) -> None:
    (tmp_path / "r.jsonl").write_text(text)
    seen = look_up(LookUp(benchmarks=["r.jsonl", "none.jsonl"]), tmp_path, None, NOBODY)
    assert seen.benchmarks == {"r.jsonl": found, "none.jsonl": None}


def test_commits_branches_and_patches(tmp_path: Path, checkout: Path) -> None:
    head, before = git(checkout, "rev-parse", "HEAD"), git(checkout, "rev-parse", "HEAD~1")
    (checkout / ".git" / "marker").write_text("x")
    git(checkout, "checkout", "-q", "side")
    git(checkout, "commit", "-q", "--allow-empty", "-m", "Beside")
    beside = git(checkout, "rev-parse", "HEAD")
    git(checkout, "checkout", "-q", "main")
    untouched = git(checkout, "status", "--porcelain", "--branch")
    request = LookUp(
        revisions=[head[:9], before, beside, "deadbee1", "--help"], branches=["main", "side", "none"],
        patches=["applied.diff", "fits.diff", "not.diff", "none.diff"],
    )  # fmt: skip
    seen = look_up(request, tmp_path, checkout, NOBODY)
    assert seen.revisions == {
        head[:9]: RevisionSeen(commit=head, subject="Say two", contained=True),
        before: RevisionSeen(commit=before, subject="Say one", contained=True),
        beside: RevisionSeen(commit=beside, subject="Beside"), "deadbee1": RevisionSeen(), "--help": RevisionSeen(),
    }  # fmt: skip
    assert seen.branches == {"main": head, "side": beside, "none": None}
    assert seen.patches == {
        "applied.diff": "applied", "fits.diff": "fits", "not.diff": "does-not-fit", "none.diff": "missing"
    }  # fmt: skip
    assert seen.checkout_problem is None
    assert git(checkout, "status", "--porcelain", "--branch") == untouched
    assert (checkout / "a.txt").read_text() == "two\n"


def test_without_a_checkout_nothing_is_said_of_it(tmp_path: Path) -> None:
    for source, said in ((None, "names no source checkout"), (tmp_path / "none", "does not exist")):
        seen = look_up(LookUp(revisions=["a"], branches=["b"], patches=["c"]), tmp_path, source, NOBODY)
        assert (seen.revisions, seen.branches, seen.patches) == ({}, {}, {})
        assert said in (seen.checkout_problem or "")


def test_ports_and_processes(tmp_path: Path) -> None:
    with socket.socket() as mine:
        mine.bind(("127.0.0.1", 0))
        mine.listen()
        port = mine.getsockname()[1]
        seen = look_up(LookUp(ports=[port, 70000], pids=[os.getpid(), 2**22 + 1]), tmp_path, None, NOBODY)
    assert (seen.ports[str(port)] or "").startswith(f"pid {os.getpid()} (")
    assert seen.ports["70000"] is None
    assert "pytest" in (seen.pids[str(os.getpid())] or "")
    assert seen.pids[str(2**22 + 1)] is None
    assert look_up(LookUp(ports=[port]), tmp_path, None, NOBODY).ports == {str(port): None}


@pytest.fixture
def server() -> Iterator[int]:
    class Old(BaseHTTPRequestHandler):
        """Knows the older of the two names only."""

        def do_GET(self) -> None:
            told = self.path == "/get_server_info"
            self.send_response(200 if told else 404)
            self.end_headers()
            self.wfile.write(b'{"tp_size": 8, "model_path": "/m", "nested": {"a": 1}}' if told else b"")

        def log_message(self, *words: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Old) as listening:
        thread = threading.Thread(target=listening.serve_forever)
        thread.start()
        yield listening.server_address[1]
        listening.shutdown()
        thread.join()


def test_the_flags_of_the_server_that_runs(tmp_path: Path, server: int) -> None:
    seen = look_up(LookUp(server_flags=True), tmp_path, None, Address("127.0.0.1", server))
    assert seen.running_flags == {"tp_size": 8, "model_path": "/m"}
    assert look_up(LookUp(), tmp_path, None, Address("127.0.0.1", server)).running_flags is None
    assert look_up(LookUp(server_flags=True), tmp_path, None, NOBODY).running_flags is None
