"""The tools of a campaign on a virtual machine: a `Toolbox` for optagent without processes, sockets and git.

Launches, runs and gates cost virtual time (`machine.py`); files are real ones in the campaign's folder. What a server says
is not asked word by word: how far two launches' answers lie apart follows from what the simulator says that their
arithmetic differs in, with its own widths.
"""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, TypeVar

from campaigns.answers import Kept, accept_length, compared
from campaigns.machine import Machine, Server
from optagent.tools import files
from optagent.tools.calls.base import Request, Result
from optagent.tools.calls.bench import Bench, BenchRun
from optagent.tools.calls.clock import AskTime, TimeTold
from optagent.tools.calls.files import FolderListed, ListFolder, ReadText, TextRead, TextWritten, WriteText
from optagent.tools.calls.gate import Evaluate, Evaluated, Examine, Examined, Pass
from optagent.tools.calls.logs import LogReading, ReadLog
from optagent.tools.calls.patch import (
    ApplyPatch,
    CheckoutRestored,
    CheckoutSettled,
    DropPatch,
    KeepPatch,
    PatchApplied,
    RestoreCheckout,
)
from optagent.tools.calls.server import (
    EnvironmentReady,
    EnvironmentRequest,
    FilesInstalled,
    FlagsListed,
    InstallFiles,
    Launch,
    Launched,
    ListFlags,
    Stop,
    Stopped,
)
from optagent.tools.calls.world import Gpu, ProbeWorld, ProcessSeen, World
from optagent.tools.flags import Flags, listed, parse_help
from optagent.tools.logs import read_log
from optagent.tools.paths import inside
from optagent.tools.routed import RoutedToolbox
from optagent.tools.simulator.arithmetic import choices_of
from optagent.tools.simulator.flags import parser

R = TypeVar("R", bound=Result)

BEGAN = datetime(2026, 1, 5, 8, 0, 0, tzinfo=UTC)
URL = "http://127.0.0.1:30000"
IDLE_GB = 0.5


@dataclass
class VirtualToolbox(RoutedToolbox):
    """Everything for one campaign in the folder `root`. `before` is called before each tool is used."""

    machine: Machine
    root: Path
    before: Callable[[], None] = lambda: None
    _server: Server | None = None
    _pid: int = 1000
    _started: float = 0.0
    _logs: dict[str, str] = field(default_factory=dict)
    _examined: dict[str, Kept] = field(default_factory=dict)

    def call(self, tool: str, request: Request, answers_with: type[R]) -> R:
        self.before()
        result = getattr(self, f"_{tool}")(request)
        assert isinstance(result, answers_with)
        return result

    def _clock(self, request: AskTime) -> TimeTold:
        now = BEGAN + timedelta(seconds=self.machine.now_s)
        return TimeTold(now=now.strftime("%Y-%m-%dT%H:%M:%SZ"))

    def _read_text(self, request: ReadText) -> TextRead:
        return files.read_text(self.root, request)

    def _list_folder(self, request: ListFolder) -> FolderListed:
        return files.list_folder(self.root, request)

    def _write_text(self, request: WriteText) -> TextWritten:
        return files.write_text(self.root, request)

    def _read_log(self, request: ReadLog) -> LogReading:
        return read_log(inside(self.root, request.path), request.alive)

    def _probe(self, request: ProbeWorld) -> World:
        deployment = self.machine.model.deployment
        hardware = deployment.scenario.hardware
        alive = self._server is not None and not self._server.dead
        running = (self._pid, self._started)
        held = [self._pid] if alive else []
        return World(
            port_open=alive,
            processes=[
                ProcessSeen(
                    pid=one.pid, start_time=one.start_time, alive=alive and (one.pid, one.start_time) == running
                )
                for one in request.known
            ],
            gpus=[
                Gpu(
                    index=index,
                    name=hardware.gpu,
                    memory_total_gb=hardware.memory_gb,
                    memory_used_gb=hardware.memory_gb if alive else IDLE_GB,
                    compute_capability=hardware.compute_capability,
                    holders=held,
                )
                for index in range(hardware.count)
            ],
            versions=dict(deployment.scenario.environments.get(request.environment, {})),
            environments=dict.fromkeys(deployment.scenario.environments, True),
            files=dict.fromkeys(request.files),
            simulated=True,
        )

    def _list_flags(self, request: ListFlags) -> FlagsListed:
        version = self.machine.model.deployment.scenario.environments[request.environment]["sglang"]
        return listed(_help_of(version), request.names, version)

    def _prepare_environment(self, request: EnvironmentRequest) -> EnvironmentReady:
        known = self.machine.model.deployment.scenario.environments
        if request.name not in known:
            return EnvironmentReady(ready=False, problem=f"the scenario has no environment {request.name!r}")
        return EnvironmentReady(ready=True, versions=dict(known[request.name]))

    def _install_files(self, request: InstallFiles) -> FilesInstalled:
        return FilesInstalled(problem="environment files are not modelled here")

    def _apply_patch(self, request: ApplyPatch) -> PatchApplied:
        return PatchApplied(problem="there is no source checkout here")

    def _keep_patch(self, request: KeepPatch) -> CheckoutSettled:
        return CheckoutSettled(problem="there is no source checkout here")

    def _drop_patch(self, request: DropPatch) -> CheckoutSettled:
        return CheckoutSettled(problem="there is no source checkout here")

    def _restore_checkout(self, request: RestoreCheckout) -> CheckoutRestored:
        return CheckoutRestored(problem="there is no source checkout here")

    def _launch(self, request: Launch) -> Launched:
        assert self._server is None, "a server runs already"
        before_s = self.machine.now_s
        started = self.machine.launch(request.configuration, request.launch)
        elapsed_s = self.machine.now_s - before_s
        if started.server is None:
            self._write_log(request)
            reading = self.machine.model.reading(started.ending, ready=False)
            outcome: Any = "hung" if started.ending.hangs else "crashed"
            exit_code = None if started.ending.hangs else 2 if started.failure == "arguments-refused" else -9
            return Launched(
                outcome=outcome,
                elapsed_s=elapsed_s,
                exit_code=exit_code,
                reading=reading,
                simulated=True,
            )
        self._server, self._started = started.server, before_s
        self._pid += 1
        self._logs[request.launch] = request.log
        return Launched(
            outcome="ready",
            pid=self._pid,
            start_time=self._started,
            url=URL,
            elapsed_s=elapsed_s,
            command_sha256=hashlib.sha256(request.configuration.fingerprint().encode()).hexdigest(),
            reading=self.machine.model.reading(started.ending, ready=True),
            simulated=True,
        )

    def _write_log(self, request: Launch, more: str = "") -> None:
        path = inside(self.root, request.log)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.machine.model.log(request.configuration, request.launch) + more, encoding="utf-8")

    def _stop(self, request: Stop) -> Stopped:
        server = self._server
        was_running = server is not None and not server.dead
        self._server = None
        return Stopped(gone=True, was_running=was_running)

    def _bench(self, request: Bench) -> BenchRun:
        server = self._server
        if server is None or server.dead:
            return BenchRun(valid=False, invalid_because=["the server cannot be reached"], simulated=True)
        ran = self.machine.run(server, request.workload, request.run, request.seed, discard_first=request.discard_first)
        if ran.metrics is None:
            count = request.workload.num_prompts
            because = f"{count} requests failed, the first with: HTTP 400: the input is longer than the model's context length"
            if ran.died_of:
                self._write_death(server, ran.died_of)
                because = f"{URL}/server_info cannot be reached: [Errno 111] Connection refused"
            return BenchRun(valid=False, invalid_because=[because], elapsed_s=ran.seconds, simulated=True)
        return BenchRun(
            valid=True,
            metrics=ran.metrics,
            result_file=request.result_file,
            elapsed_s=ran.seconds,
            cache="flushed" if request.workload.flush_cache else "kept",
            cached_share=ran.cached_share,
            simulated=True,
        )

    def _write_death(self, server: Server, tokens: int) -> None:
        """The log of a server that ran out of memory, so that whoever reads it sees why."""
        log = self._logs[server.name]
        asked = Launch(key="", launch=server.name, configuration=server.configuration, log=log)
        self._write_log(asked, self.machine.model.last_words(server.launch, tokens))

    def _examine(self, request: Examine) -> Examined:
        server = self._server
        if server is None or server.dead:
            return Examined(problem="nothing was answered: nobody is there", simulated=True)
        model, plan = self.machine.model, server.launch.plan
        assert plan is not None
        count = len(request.prompts)
        self.machine.spend(
            server.slow
            * model.gate_s(server.launch, count, request.max_tokens, request.concurrency, len(request.texts))
        )
        kept = Kept(
            server.name, tuple(choices_of(plan.setup, plan.fields, plan.around)), count, request.max_tokens,
            request.concurrency,
        )  # fmt: skip
        self._examined[request.file] = kept
        return Examined(
            passes=[
                Pass(
                    concurrency=concurrency,
                    tokens=count * request.max_tokens,
                    latency_s=request.max_tokens * model.step_s(server.launch, concurrency) * server.slow,
                )
                for concurrency in dict.fromkeys((1, request.concurrency))
            ],
            comparisons=[
                compared(kept, self._examined.get(name), name, len(request.texts)) for name in request.references
            ],
            accept_length=accept_length(plan),
            variety=1.0,
            file=request.file,
            simulated=True,
        )

    def _evaluate(self, request: Evaluate) -> Evaluated:
        return Evaluated(problem="the simulator solves no tasks", simulated=True)


@lru_cache(maxsize=8)
def _help_of(version: str) -> Flags:
    """Every flag of the simulated server of this release, read from its own help."""
    words = parser.__wrapped__(version)  # one of its own, as its width is set
    words.formatter_class = partial(argparse.HelpFormatter, width=400)
    return parse_help(words.format_help())
