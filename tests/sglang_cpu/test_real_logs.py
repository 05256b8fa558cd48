"""What is read from logs that a real SGLang wrote; needs no SGLang."""

from __future__ import annotations

from pathlib import Path

import pytest

from optagent.tools.logs import read_log

LOGS = Path(__file__).parent / "logs"


@pytest.mark.parametrize(
    ("name", "phase", "kind", "line", "action"),
    [
        ("no-standins", "arguments", "package-mismatch", 32, "install-or-upgrade"),
        ("no-model", "arguments", "config-error", 16, "fix-argument"),
        ("unknown-flag", "arguments", "config-error", 19, "fix-argument"),
        ("torch-compile", "graph-capture", "graph-capture-incompatible", 79, "disable-feature"),
        ("port-taken", "warmup", "port-in-use", 57, "fix-argument"),
        ("scheduler-killed", "serving", "unknown", 63, "restart"),
    ],
)
@pytest.mark.parametrize("alive", [False, None])
def test_the_first_cause_is_found(name: str, phase: str, kind: str, line: int, action: str, alive: bool | None) -> None:
    reading = read_log(LOGS / f"{name}.log", alive)
    assert (reading.status, reading.phase) == ("crashed", phase)
    assert reading.cause is not None
    assert reading.action is not None
    assert (reading.cause.kind, reading.cause.evidence[0].line, reading.action.kind) == (kind, line, action)


def test_a_taken_port_is_seen_while_the_process_lives_on() -> None:
    reading = read_log(LOGS / "port-taken.log", alive=True)
    assert reading.cause is not None
    assert (reading.status, reading.cause.kind) == ("crashed", "port-in-use")


@pytest.mark.parametrize("alive", [True, None])
def test_ready(alive: bool | None) -> None:
    reading = read_log(LOGS / "ready.log", alive)
    assert (reading.status, reading.phase, reading.cause, reading.warnings) == ("ready", "serving", None, [])
    assert (reading.kv_tokens, reading.context_len) == (8192, 2048)


def test_an_orderly_stop_is_no_crash() -> None:
    reading = read_log(LOGS / "serving-then-sigterm.log", alive=False)
    assert (reading.status, reading.cause) == ("stopped", None)
