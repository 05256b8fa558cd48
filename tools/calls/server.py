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
    """How the launch ended. `pid` with `start_time` identify the process; both are None when none was started.

    `elapsed_s` is the time until it had proved that it serves. `command_sha256` is the hash of the command line of a
    server that is ready, as the system shows it: with pid and start time it tells that a server is still this one.
    """

    outcome: Literal["ready", "crashed", "hung", "port-taken", "not-started"]
    pid: int | None = None
    start_time: float | None = None
    url: str | None = None
    elapsed_s: float | None = None
    exit_code: int | None = None
    command_sha256: str = ""
    reading: LogReading | None = None
    problem: str | None = None
    simulated: bool = False


class Stop(EffectRequest):
    """Stop the server with all its processes and prove that it is gone."""

    pid: int
    start_time: float


class Stopped(Result):
    """`gone`: no process of it is left. `problem` says what is still there otherwise, or who has taken the port, or which
    GPU has not got its memory back."""

    gone: bool
    was_running: bool = True
    problem: str | None = None


class ListFlags(Request):
    """What the environment's own server says about the flags `names` (without dashes), read from its `--help`."""

    environment: str
    names: list[str]


class FlagTold(Result):
    """What a server's help says about one name.

    `known`: it is a flag of its own. Otherwise `begins` lists the flags that begin with it (argparse takes a single one of
    them silently, and refuses several), and `similar` the flags spelled most like it. `choices` are the values it takes,
    None when any; `switch`: it takes no value. `deprecated` is what the help says about that, "" when nothing.
    """

    known: bool
    begins: list[str] = []
    similar: list[str] = []
    switch: bool = False
    choices: list[str] | None = None
    deprecated: str = ""


class FlagsListed(Result):
    """By name; None when the server could not be asked, and `problem` says why. `version` is the server's own."""

    flags: dict[str, FlagTold] | None = None
    version: str | None = None
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
    "EnvironmentReady", "EnvironmentRequest", "FilesInstalled", "FlagTold", "FlagValue", "FlagsListed", "InstallFiles",
    "Launch", "Launched", "ListFlags", "Stop", "Stopped",
]  # fmt: skip
