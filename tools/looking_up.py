"""Looking single facts up: files, logs, benchmark results, commits, branches, patches, ports, processes. A read."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

from optagent.tools.calls.configuration import FlagValue
from optagent.tools.calls.facts import LookedUp, LookUp, PatchState, PathSeen, RevisionSeen
from optagent.tools.calls.logs import LogReading
from optagent.tools.git_commands import Checkout, CheckoutProblem, open_checkout
from optagent.tools.logs import read_log
from optagent.tools.network import Address, client, listeners
from optagent.tools.paths import from_root
from optagent.tools.processes import command_line, look_at

LARGEST_BENCHMARK = 64 * 1024 * 1024
LARGEST_PATCH = 4 * 1024 * 1024
SERVER_TIMEOUT_S = 5.0
COMMAND_LENGTH = 200


def look_up(request: LookUp, root: Path, source: Path | None, address: Address) -> LookedUp:
    """Everything the request asks about. `source` is the deployment's checkout, None when it has none."""
    checkout, problem = _open(source) if request.revisions or request.branches or request.patches else (None, None)
    return LookedUp(
        paths={path: _path(root, path) for path in request.paths},
        logs={path: _log(root, path) for path in request.logs},
        benchmarks={path: _metrics(root, path) for path in request.benchmarks},
        revisions={name: _revision(checkout, name) for name in request.revisions} if checkout else {},
        branches={name: checkout.commit_of(f"refs/heads/{name}") for name in request.branches} if checkout else {},
        patches={path: _patch(checkout, root, path) for path in request.patches} if checkout else {},
        ports={str(port): _listener(port) for port in request.ports},
        pids={str(pid): _process(pid) for pid in request.pids},
        running_flags=_running_flags(address) if request.server_flags else None,
        checkout_problem=problem,
    )


def _open(source: Path | None) -> tuple[Checkout | None, str | None]:
    if source is None:
        return None, "the deployment names no source checkout"
    try:
        return open_checkout(source), None
    except CheckoutProblem as problem:
        return None, str(problem)


def _path(root: Path, path: str) -> PathSeen:
    try:
        seen = from_root(root, path).stat()
    except (FileNotFoundError, NotADirectoryError):
        return PathSeen(what="nothing")
    except (OSError, ValueError, RuntimeError):  # also a name with a zero byte, or the home of a user who is not there
        return PathSeen(what="not to be seen")
    if stat.S_ISDIR(seen.st_mode):
        return PathSeen(what="folder")
    return PathSeen(what="file", size_bytes=seen.st_size)


def _log(root: Path, path: str) -> LogReading:
    if _path(root, path).what != "file":
        return LogReading(exists=False)
    try:
        return read_log(from_root(root, path), False)
    except OSError:
        return LogReading(exists=False)


def _metrics(root: Path, path: str) -> dict[str, float] | None:
    """The numbers of a benchmark's result: the last line of a JSON lines file. None when there is none."""
    seen = _path(root, path)
    if seen.what != "file" or (seen.size_bytes or 0) > LARGEST_BENCHMARK:
        return None
    try:
        lines = from_root(root, path).read_bytes().strip().splitlines()
        result = json.loads(lines[-1]) if lines else None
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(result, dict):
        return None
    return {k: float(v) for k, v in result.items() if isinstance(v, int | float) and not isinstance(v, bool)}


def _revision(checkout: Checkout, name: str) -> RevisionSeen:
    commit = checkout.commit_of(name)
    if commit is None:
        return RevisionSeen()
    told = checkout.attempt("log", "-1", "--format=%s", commit).stdout.decode("utf-8", "backslashreplace").strip()
    contained = checkout.attempt("merge-base", "--is-ancestor", commit, "HEAD").status == 0
    return RevisionSeen(commit=commit, subject=told[:200], contained=contained)


def _patch(checkout: Checkout, root: Path, path: str) -> PatchState:
    """Whether the diff is in the files of the checkout, could be put on them, or neither."""
    try:
        with from_root(root, path).open("rb") as file:
            diff = file.read(LARGEST_PATCH)
    except (OSError, ValueError, RuntimeError):
        return "missing"
    if checkout.attempt("apply", "--check", "--reverse", "-", stdin=diff).status == 0:
        return "applied"
    return "fits" if checkout.attempt("apply", "--check", "-", stdin=diff).status == 0 else "does-not-fit"


def _listener(port: int) -> str | None:
    if not 0 < port < 65536 or not (found := listeners(Address("0.0.0.0", port))):
        return None
    pid = next((one.pid for one in found if one.pid is not None), None)
    return f"pid {pid} ({command_line(pid)[:COMMAND_LENGTH]})" if pid else "a process of another user"


def _process(pid: int) -> str | None:
    return command_line(pid)[:COMMAND_LENGTH] or "a process" if pid > 0 and look_at(pid) is not None else None


def _running_flags(address: Address) -> dict[str, FlagValue | None] | None:
    """What the server on the deployment's port says it was started with; None when nobody tells."""
    import httpx

    with client(address, SERVER_TIMEOUT_S) as http:
        for path in ("/server_info", "/get_server_info"):
            try:
                answer = http.get(path)
                told: Any = answer.json() if answer.status_code == 200 else None
            except (httpx.HTTPError, ValueError):
                continue
            if isinstance(told, dict):
                return {k: v for k, v in told.items() if v is None or isinstance(v, bool | int | float | str)}
    return None
