"""Looking at what is really there: processes, port, GPUs, versions, checkout, environment files."""

from __future__ import annotations

from optagent.tools.calls.base import Request, Result


class KnownProcess(Request):
    """A process somebody remembers: a pid alone is not an identity, a pid with its start time is.

    With `command_sha256` (of a `Launched`) its command line must be the same as well.
    """

    pid: int
    start_time: float
    command_sha256: str = ""


class ProbeWorld(Request):
    """What to look at. `files` are paths inside the environment's folder. `launches` are launches that were begun but
    whose process is not known (their beginner was killed): processes that carry their marker are theirs."""

    environment: str
    known: list[KnownProcess] = []
    launches: list[str] = []
    files: list[str] = []


class ServerSeen(Result):
    """The process that listens on the deployment's port. `known` = pid and start time match one that was asked for."""

    pid: int | None = None
    start_time: float | None = None
    command: str = ""
    known: bool = False
    healthy: bool = False


class ProcessSeen(Result):
    """A process that was asked for. `launch` names the launch whose marker it carries, when it was found by that."""

    pid: int
    start_time: float
    alive: bool
    launch: str = ""
    command: str = ""


class Gpu(Result):
    index: int
    name: str
    memory_total_gb: float
    memory_used_gb: float
    compute_capability: str = ""
    holders: list[int] = []


class CheckoutSeen(Result):
    """The deployment's source checkout. `dirty_sha256` is the same for the same uncommitted content: it is taken over
    the sorted (path, content hash) of changed, deleted and untracked files, not over a diff's text."""

    revision: str
    branch: str | None = None
    dirty: list[str] = []
    dirty_sha256: str | None = None
    problem: str | None = None


class World(Result):
    """What the probe saw. None means not there or not looked at, never zero.

    `versions` names what the environment runs on, for example cuda, torch, sglang, nccl, flashinfer, python, driver.
    `host`, `user` and `folder` say where the campaign lies; a simulated machine has no name.
    """

    port_open: bool = False
    server: ServerSeen | None = None
    processes: list[ProcessSeen] = []
    gpus: list[Gpu] | None = None
    versions: dict[str, str] = {}
    environments: dict[str, bool] = {}
    checkout: CheckoutSeen | None = None
    files: dict[str, str | None] = {}
    disk_free_gb: float | None = None
    host: str = ""
    user: str = ""
    folder: str = ""
    simulated: bool = False
