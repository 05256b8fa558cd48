"""The built environment, copies of the small campaign that are ready to be used, and its server."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from optagent.agent.config import CampaignConfig, load_config
from optagent.tools.calls.configuration import Configuration, FlagValue
from optagent.tools.calls.server import Launch, Launched, Stop
from optagent.tools.deployment import Deployment
from optagent.tools.live import LiveToolbox

HERE = Path(__file__).parent
ONE_THREAD = {"OMP_NUM_THREADS": "1"}
"""That the baseline has too many threads is for the whole campaign to find; elsewhere they would only take time."""

Prepare = Callable[..., Path]


class Server:
    """A campaign's deployment on the tools, one launch at a time; whatever runs in the end is stopped."""

    def __init__(self, root: Path, deployment: Deployment) -> None:
        self.deployment = deployment
        self.baseline = Configuration(deployment.environment, deployment.flags, deployment.env | ONE_THREAD)
        self.toolbox = LiveToolbox(root, deployment, report=lambda line: None)
        self._numbers = count(1)
        self._running: Launched | None = None

    def launch(self, configuration: Configuration) -> Launched:
        number = next(self._numbers)
        launch = f"launch-{number}"
        log = f"logs/{launch}.log"
        launched = self.toolbox.launch(Launch(key=launch, launch=launch, configuration=configuration, log=log))
        self._running = launched if launched.outcome == "ready" else None
        return launched

    def with_flags(self, **flags: FlagValue) -> Configuration:
        """The baseline with `flags` on top; underscores in their names stand for dashes."""
        added = {name.replace("_", "-"): value for name, value in flags.items()}
        return replace(self.baseline, flags={**self.baseline.flags, **added})

    def stop(self) -> None:
        if self._running is not None and self._running.pid is not None and self._running.start_time is not None:
            key = f"clean-up-{next(self._numbers)}"
            self.toolbox.stop(Stop(key=key, pid=self._running.pid, start_time=self._running.start_time))
        self._running = None


ServerOf = Callable[[Path, Deployment], Server]


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


@pytest.fixture(scope="session")
def prepare(sglang_cpu: Path) -> Prepare:
    """Makes the campaign in a new folder, on a port that was free just now, with the named items or all of them."""

    def made(folder: Path, *items: str) -> Path:
        subprocess.run([sys.executable, HERE / "prepare_campaign.py", folder, *items], check=True)
        return folder

    return made


@pytest.fixture
def campaign(tmp_path: Path, prepare: Prepare) -> Path:
    return prepare(tmp_path / "campaign")


@pytest.fixture
def config(campaign: Path) -> CampaignConfig:
    return load_config(campaign)


@pytest.fixture(scope="module")
def server_of() -> Iterator[ServerOf]:
    """Makes a campaign's server. What a test does not stop runs until the last test of its file."""
    made: list[Server] = []

    def make(root: Path, deployment: Deployment) -> Server:
        made.append(Server(root, deployment))
        return made[-1]

    yield make
    for server in made:
        server.stop()


@pytest.fixture
def server(campaign: Path, config: CampaignConfig, server_of: ServerOf) -> Iterator[Server]:
    server = server_of(campaign, config.deployment)
    yield server
    server.stop()
