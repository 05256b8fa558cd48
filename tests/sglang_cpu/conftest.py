"""The built environment, and a copy of the small campaign that is ready to be used."""

from __future__ import annotations

import os
import random
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
BUILD = HERE / "build.py"


@pytest.fixture(scope="session")
def sglang_cpu() -> Path:
    """The folder of the built environment. Without one the test is skipped; where CI runs, that is a failure."""
    checked = subprocess.run([sys.executable, BUILD, "--check"], capture_output=True, text=True)
    if checked.returncode == 0:
        return Path(checked.stdout.strip())
    reason = f"there is no real SGLang in {checked.stdout.strip()}: python tests/sglang_cpu/build.py builds it"
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture
def campaign(tmp_path: Path, sglang_cpu: Path) -> Path:
    """The folder of a campaign on the real server, on a port that was free just now."""
    folder = tmp_path / "campaign"
    shutil.copytree(HERE / "campaign", folder)
    config = folder / "optagent.toml"
    text = config.read_text(encoding="utf-8")
    config.write_text(text.replace("@CACHE@", str(sglang_cpu)).replace("@PORT@", str(free_port())), encoding="utf-8")
    return folder


def free_port() -> int:
    """A port below those of outgoing connections, which could take it while a server loads; by chance, so that test
    runs beside each other rarely meet."""
    first_ephemeral = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    for port in random.sample(range(10_000, first_ephemeral), 50):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise RuntimeError("no port is free")
