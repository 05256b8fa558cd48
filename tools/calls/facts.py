"""Looking single facts up that a handoff speaks of and that `probe` does not look at."""

from __future__ import annotations

from typing import Literal

from optagent.tools.calls.base import Request, Result
from optagent.tools.calls.configuration import FlagValue
from optagent.tools.calls.logs import LogReading

PatchState = Literal["applied", "fits", "does-not-fit", "missing"]


class LookUp(Request):
    """What to look up. Paths are the campaign's, or absolute, or of the home folder (`~/run.log`); `revisions`, `branches`
    and `patches` are those of the deployment's checkout; `logs` are diagnosed, of `benchmarks` the metrics are read."""

    paths: list[str] = []
    logs: list[str] = []
    benchmarks: list[str] = []
    revisions: list[str] = []
    branches: list[str] = []
    patches: list[str] = []
    ports: list[int] = []
    pids: list[int] = []
    server_flags: bool = False


class PathSeen(Result):
    """What lies at a path. `size_bytes` is a file's."""

    what: Literal["file", "folder", "nothing", "not to be seen"]
    size_bytes: int | None = None


class RevisionSeen(Result):
    """A commit: its full id ("" when the checkout has none of that name), its subject, whether HEAD contains it."""

    commit: str = ""
    subject: str = ""
    contained: bool = False


class LookedUp(Result):
    """What was found, by what was asked. None means not there; of a port or pid it is the process in words.

    `running_flags` are those of the server that answers on the deployment's port, keyed as the server names them.
    """

    paths: dict[str, PathSeen] = {}
    logs: dict[str, LogReading] = {}
    benchmarks: dict[str, dict[str, float] | None] = {}
    revisions: dict[str, RevisionSeen] = {}
    branches: dict[str, str | None] = {}
    patches: dict[str, PatchState] = {}
    ports: dict[str, str | None] = {}
    pids: dict[str, str | None] = {}
    running_flags: dict[str, FlagValue | None] | None = None
    checkout_problem: str | None = None
