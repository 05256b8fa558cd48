"""The built environment, and a copy of the small campaign that is ready to be used."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def sglang_cpu() -> Path:
    """The folder of the built environment. Without one the test is skipped; where CI runs, that is a failure."""
    checked = subprocess.run([sys.executable, HERE / "build.py", "--check"], capture_output=True, text=True)
    if checked.returncode == 0:
        return Path(checked.stdout.strip())
    reason = f"there is no real SGLang in {checked.stdout.strip()}: make sglang-cpu builds it"
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture
def campaign(request: pytest.FixtureRequest, tmp_path: Path, sglang_cpu: Path) -> Path:
    """The folder of a campaign on the real server, on a port that was free just now; `indirect` parameters name the items
    of its plan, which otherwise has all of them."""
    folder = tmp_path / "campaign"
    items = getattr(request, "param", ())
    subprocess.run([sys.executable, HERE / "prepare_campaign.py", folder, *items], check=True)
    return folder
