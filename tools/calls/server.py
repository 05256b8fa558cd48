"""Starting and stopping a server."""

from __future__ import annotations

from typing import Literal

from optagent.tools.calls.base import EffectRequest, Request, Result
from optagent.tools.calls.configuration import Configuration, FlagValue
from optagent.tools.calls.logs import LogReading


class Launch(EffectRequest):
    """Start `configuration` and wait until it is ready, dead or hung. `log` is where its output goes."""

    launch: str
    configuration: Configuration
    log: str


class Launched(Result):
    """How the launch ended. `pid` with `start_time` identify the process; both are None when none was started."""

    outcome: Literal["ready", "crashed", "hung", "port-taken", "not-started"]
    pid: int | None = None
    start_time: float | None = None
    url: str | None = None
    elapsed_s: float | None = None
    exit_code: int | None = None
    reading: LogReading | None = None
    problem: str | None = None
    simulated: bool = False


class Stop(EffectRequest):
    """Stop the server's whole process group and prove that it is gone."""

    pid: int
    start_time: float


class Stopped(Result):
    """`gone`: no process of it is left. `problem` says what is still there otherwise, or who has taken the port."""

    gone: bool
    was_running: bool = True
    problem: str | None = None


class ListFlags(Request):
    """Which flags the environment's own server accepts, read from its `--help`."""

    environment: str


class FlagsListed(Result):
    """Names without dashes; None when the server could not be asked. `problem` says why."""

    flags: list[str] | None = None
    problem: str | None = None


class EnvironmentRequest(EffectRequest):
    """Make sure that a serving environment exists, beside the others and without touching them."""

    name: str


class EnvironmentReady(Result):
    ready: bool
    created: bool = False
    versions: dict[str, str] = {}
    problem: str | None = None


class InstallFiles(EffectRequest):
    """Write environment files (path inside the environment's folder to whole text), atomically each."""

    environment: str
    files: dict[str, str]


class FilesInstalled(Result):
    """Hashes before and after; a None before means that the file is new. `problem` means that nothing was written."""

    before: dict[str, str | None] = {}
    after: dict[str, str] = {}
    problem: str | None = None


__all__ = [
    "EnvironmentReady", "EnvironmentRequest", "FilesInstalled", "FlagValue", "FlagsListed", "InstallFiles",
    "Launch", "Launched", "ListFlags", "Stop", "Stopped",
]  # fmt: skip
