"""What a request to end does not reach."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from optagent.tools.git_commands import open_checkout
from optagent.tools.undisturbed import undisturbed

SIGNALS = ["INT", "TERM", "HUP", "QUIT"]


@pytest.mark.parametrize("name", SIGNALS)
def test_what_was_started_undisturbed_finishes(name: str) -> None:
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, set())
    with undisturbed():
        done = subprocess.run(["sh", "-c", f"kill -{name} $$; echo done"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "done\n")
    assert signal.pthread_sigmask(signal.SIG_BLOCK, set()) == mask


@pytest.mark.parametrize("name", SIGNALS)
def test_git_finishes(tmp_path: Path, name: str) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", "-C", str(tmp_path), *who, "commit", "-q", "--allow-empty", "-m", "one"], check=True)
    done = open_checkout(tmp_path).attempt("-c", f"alias.asked=!kill -{name} $$; echo done", "asked")
    assert (done.status, done.stdout) == (0, b"done\n")
