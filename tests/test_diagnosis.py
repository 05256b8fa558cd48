"""What `optagent diagnose` says about whole logs: cases with expected values under tests/cases (see the README there).

A case is right when status, kind, evidence and action are; phase, rank and retryable are held to where a case names them.
"""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import threading
import time
from datetime import datetime
from pathlib import Path

import pytest
import yaml
from pydantic import BaseModel

from optagent.agent.commands.diagnosing import WIDTH, screen
from optagent.tools.calls.logs import Cause, LogReading
from optagent.tools.logs import LogReader, diagnose_file

CASES = Path(__file__).parent / "cases"
FALSE_ALARMS = {"kv-pool-too-small", "speculative-config", "wrong-output", "hang"}


class Case(BaseModel):
    """A case.yaml. `also_ok*` are defensible alternatives to the value of the same name."""

    id: str
    log: str
    now: datetime
    status: str
    also_ok_status: list[str]
    phase: str
    also_ok_phase: list[str]
    kind: str | None
    also_ok: list[str]
    warning: str | None
    also_ok_warning: list[str]
    action: str
    also_ok_action: list[str]
    rank: int | None
    decisive: list[int]
    must_not_cite: list[int]

    def finding(self, reading: LogReading) -> Cause | None:
        """What the case is about: the cause, or the warning that it expects."""
        kinds = {self.warning, *self.also_ok_warning}
        return reading.cause or next((w for w in reading.warnings if w.kind in kinds), None)


def cases(room: str) -> list[Path]:
    return sorted(p.parent for p in (CASES / room).glob("*/case.yaml"))


def load(folder: Path) -> Case:
    return Case.model_validate(yaml.safe_load((folder / "case.yaml").read_text(encoding="utf-8")))


@pytest.mark.parametrize(
    "folder", [*cases("handed"), *cases("own"), *cases("real")], ids=lambda f: f"{f.parent.name}-{f.name}"
)
def test_case(folder: Path) -> None:
    case = load(folder)
    reading = diagnose_file(folder / case.log, case.now)
    assert reading.status in {case.status, *case.also_ok_status}
    assert reading.phase in {case.phase, *case.also_ok_phase}
    finding = case.finding(reading)
    if case.kind is None and case.warning is None:
        assert reading.cause is None
        assert not FALSE_ALARMS & {w.kind for w in reading.warnings}
    else:
        assert finding is not None
        assert finding.kind in {case.kind, *case.also_ok, case.warning, *case.also_ok_warning}
        lines = [e.line for e in finding.evidence]
        assert lines
        assert lines[0] not in case.must_not_cite
        assert set(lines) & set(case.decisive)
    assert (reading.action.kind if reading.action else "none") in {case.action, *case.also_ok_action}
    if case.rank is not None and reading.cause is not None:
        assert reading.cause.rank == case.rank
    assert all(len(line) <= WIDTH for line in screen(reading))


def test_there_are_cases() -> None:
    assert (len(cases("handed")), len(cases("own")) >= 20, len(cases("real")) >= 8) == (62, True, True)


@pytest.mark.parametrize("folder", cases("own")[::9], ids=lambda f: f.name)
def test_evidence_quotes_the_line(folder: Path) -> None:
    case = load(folder)
    reading = diagnose_file(folder / case.log, case.now)
    lines = (folder / case.log).read_bytes().split(b"\n")
    finding = case.finding(reading)
    for shown in finding.evidence if finding else []:
        words = shown.text.split("\r")[-1].strip()[-30:]
        assert words in lines[shown.line - 1].decode()


def run(*arguments: str, given: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "optagent", "diagnose", *arguments]
    return subprocess.run(command, input=given, capture_output=True, timeout=60)


def test_json_is_the_contract_and_nothing_else(tmp_path: Path) -> None:
    folder = CASES / "own" / "fraction-up-04"
    done = run(str(folder / "server.log"), "--now", "2025-03-12T08:12:00", "--json")
    assert done.returncode == 0
    told = json.loads(done.stdout)
    assert list(told) == ["status", "phase", "cause", "warnings", "action", "retryable", "confidence"]
    assert set(told["cause"]) == {"kind", "summary", "rank", "evidence"}
    assert set(told["cause"]["evidence"][0]) == {"line", "text"}
    packed = tmp_path / "server.log.gz"
    packed.write_bytes(gzip.compress((folder / "server.log").read_bytes()))
    assert run(str(packed), "--json").stdout == done.stdout
    assert run("-", "--json", given=(folder / "server.log").read_bytes()).stdout == done.stdout


@pytest.mark.parametrize("log", ["none.log", "."])
def test_what_is_no_log_is_bad_input(log: str, tmp_path: Path) -> None:
    done = run(str(tmp_path / log))
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1


def test_a_time_that_is_none_is_bad_input(tmp_path: Path) -> None:
    (tmp_path / "log").touch()
    assert run(str(tmp_path / "log"), "--now", "yesterday").returncode == 2


@pytest.mark.parametrize("data", [b"", b"\x00\xff\xfe" * 999, gzip.compress(b"x" * 9999)[:40]])
def test_rubbish_is_an_unknown_start(data: bytes, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(data)
    reading = diagnose_file(log)
    assert (reading.status, reading.cause) == ("starting", None)


def test_a_growing_log_is_followed_to_its_end(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    lines = (CASES / "real" / "scheduler-killed" / load(CASES / "real" / "scheduler-killed").log).read_bytes()
    early, late = lines[:4000], lines[4000:]
    log.write_bytes(early)

    def grow() -> None:
        time.sleep(1.0)
        with log.open("ab") as file:
            file.write(late)

    writer = threading.Thread(target=grow)
    writer.start()
    done = run(str(log), "--follow")
    writer.join()
    assert done.returncode == 0
    assert b"starting" in done.stdout
    assert b"a process died without saying why" in done.stdout


def test_a_crash_on_screen_says_what_to_do_and_what_not_to_believe() -> None:
    folder = CASES / "handed" / "oom-capture-dsv4-fp8-2node-h200"
    text = "\n".join(screen(diagnose_file(folder / "server.log", load(folder).now)))
    assert text.startswith("CRASHED in graph-capture, rank 5: gpu-oom-graph-capture")
    for part in ("What happened", "What proves it", "What to do", "Do not believe"):
        assert part in text


def test_the_advice_follows_the_launch() -> None:
    small, large = (
        diagnose_file(CASES / "own" / f"capture-oom-batch-is-{size}" / "server.log") for size in ("small", "large")
    )
    assert small.action is not None
    assert large.action is not None
    assert (small.action.kind, large.action.kind) == ("lower-memory", "lower-graph-batch")
    assert "512" in large.action.summary


def test_near_identical_text_has_the_opposite_remedy() -> None:
    up, down = (diagnose_file(CASES / "own" / name / "server.log") for name in ("fraction-up-04", "pool-out-of-memory"))
    assert up.action is not None
    assert down.action is not None
    assert (up.action.kind, down.action.kind) == ("raise-memory-fraction", "lower-memory")


@pytest.mark.parametrize(("after", "status"), [(60, "starting"), (1200, "starting"), (4000, "hung")])
def test_silence_is_measured_against_the_phase(after: int, status: str) -> None:
    reader = LogReader()
    reader.feed(
        b"[2026-01-01 10:00:00] server_args={'tp_size': 1}\n[2026-01-01 10:00:09] Load weight begin. avail mem=9 GB\n"
    )
    assert reader.reading(alive=True, silent_s=after).status == status


@pytest.mark.parametrize(("bar", "after", "status"), [
    ("10% Completed | 1/10 [00:01<00:09,  1.00s/it]", 500, "starting"),
    ("10% Completed | 1/10 [00:01<00:09,  1.00s/it]", 700, "hung"),
    ("10% Completed | 1/10 [01:30<13:30, 90.00s/it]", 1700, "starting"),
    ("100% Completed | 10/10 [00:10<00:00,  1.00s/it]", 1700, "starting"),
])  # fmt: skip
def test_a_bar_has_a_patience_of_its_own(bar: str, after: int, status: str) -> None:
    reader = LogReader()
    begin = "[2026-01-01 10:00:00] Load weight begin. avail mem=9 GB"
    reader.feed(f"{begin}\n\rLoading safetensors checkpoint shards:  {bar}\n".encode())
    assert reader.reading(alive=True, silent_s=after).status == status


def test_constant_memory_needs_no_whole_file(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom pathlib import Path\nfrom optagent.tools.logs import diagnose_file\n"
        "diagnose_file(Path(sys.argv[1]))\n"
        "print(*(row.split()[1] for row in open('/proc/self/status') if row.startswith('VmHWM')))"
    )
    log = tmp_path / "server.log"
    row = b"[2026-01-01 10:00:00 TP0] Decode batch, #running-req: 1, #token: 9, token usage: 0.1, #queue-req: 0\n"
    log.write_bytes(row * (64 * 1024 * 1024 // len(row)))
    done = subprocess.run([sys.executable, "-c", code, str(log)], capture_output=True, check=True)
    assert int(done.stdout) < 100 * 1024
