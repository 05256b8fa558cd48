"""The toolbox that really does it: processes, sockets, files and git of this machine, for one deployment.

Whatever imports slowly is imported where it is used, so that commands that only read stay quick.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from optagent.tools import files
from optagent.tools.calls.bench import Bench, BenchRun
from optagent.tools.calls.clock import AskTime, TimeTold
from optagent.tools.calls.facts import LookedUp, LookUp
from optagent.tools.calls.files import FolderListed, ListFolder, ReadText, TextRead, TextWritten, WriteText
from optagent.tools.calls.gate import Evaluate, Evaluated, Examine, Examined
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
from optagent.tools.calls.world import CheckoutSeen, ProbeWorld, World
from optagent.tools.deployment import Deployment
from optagent.tools.paths import STATE, OutsideCampaign, environment_folder, inside, source_folder

if TYPE_CHECKING:
    from optagent.tools.calls.configuration import Configuration
    from optagent.tools.commands import Command
    from optagent.tools.kinds import Kind
    from optagent.tools.network import Address


class LiveToolbox:
    """Implements `Toolbox`. `report` is told how a launch is getting on, a few times a second at most.

    `parent` is the environment that servers inherit the allowed part of.
    """

    def __init__(
        self,
        root: Path,
        deployment: Deployment,
        report: Callable[[str], None],
        parent: Mapping[str, str] | None = None,
    ) -> None:
        self._root = root.resolve()  # one campaign has one name, by whatever path it is reached
        self._deployment = deployment
        self._report = report
        self._parent = os.environ if parent is None else parent
        self._taken_from: dict[str, list[str]] = {}

    def clock(self, request: AskTime) -> TimeTold:
        return TimeTold(now=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"))

    def read_text(self, request: ReadText) -> TextRead:
        return files.read_text(self._root, request)

    def list_folder(self, request: ListFolder) -> FolderListed:
        return files.list_folder(self._root, request)

    def write_text(self, request: WriteText) -> TextWritten:
        return files.write_text(self._root, request)

    def probe(self, request: ProbeWorld) -> World:
        from optagent.tools.probe import Surroundings, probe

        kind = self._kind
        around = Surroundings(
            gpus=kind.gpus,
            versions=lambda: kind.versions(request.environment),
            environments=lambda: {name: self._works(name) for name in self._deployment.environments},
            checkout=self._checkout,
            simulated=kind.simulated,
        )
        return probe(request, self._root, self._address, self._environment_folder(request.environment), around)

    def look_up(self, request: LookUp) -> LookedUp:
        from optagent.tools.looking_up import look_up

        self._kind.make_ready()
        return look_up(request, self._root, source_folder(self._root, self._deployment), self._address)

    def read_log(self, request: ReadLog) -> LogReading:
        from optagent.tools.logs import read_log

        try:
            return read_log(inside(self._root, request.path), request.alive)
        except OutsideCampaign:
            return LogReading(exists=False)

    def list_flags(self, request: ListFlags) -> FlagsListed:
        from optagent.tools.commands import NoInterpreter, help_command
        from optagent.tools.flags import flags_of

        kind = self._kind
        try:
            command = help_command(self._root, self._deployment, request.environment, self._parent)
        except NoInterpreter as error:
            return FlagsListed(problem=str(error))
        version = kind.versions(request.environment).get("sglang")
        checkout = self._checkout()
        source = f"{checkout.revision} {checkout.dirty_sha256}" if checkout else ""
        # The simulator is a part of this program, and may change while its version stays. A look leaves nothing behind.
        kept = not kind.simulated and (self._root / STATE).is_dir()
        cache = self._root / STATE / "cache" if kept else None
        return flags_of(command, request.names, version, cache, source)

    def prepare_environment(self, request: EnvironmentRequest) -> EnvironmentReady:
        kind = self._kind
        existed = kind.environment_exists(request.name)
        if not existed:
            problem = kind.create_environment(request.name)
            if problem is not None:
                return EnvironmentReady(ready=False, problem=problem)
        return EnvironmentReady(ready=True, created=not existed, versions=kind.versions(request.name))

    def install_files(self, request: InstallFiles) -> FilesInstalled:
        if not self._kind.environment_exists(request.environment):
            return FilesInstalled(problem=f"there is no environment {request.environment!r}: prepare it first")
        folder = self._environment_folder(request.environment)
        return files.install_files(folder, self._root / STATE / "backups", request.files)

    def apply_patch(self, request: ApplyPatch) -> PatchApplied:
        from optagent.tools.patch import apply_patch

        self._kind.make_ready()
        return apply_patch(self._root, self._deployment, request)

    def keep_patch(self, request: KeepPatch) -> CheckoutSettled:
        from optagent.tools.patch import keep_patch

        self._kind.make_ready()
        return keep_patch(self._root, self._deployment, request)

    def drop_patch(self, request: DropPatch) -> CheckoutSettled:
        from optagent.tools.patch import drop_patch

        self._kind.make_ready()
        return drop_patch(self._root, self._deployment, request)

    def restore_checkout(self, request: RestoreCheckout) -> CheckoutRestored:
        from optagent.tools.patch import restore_checkout

        self._kind.make_ready()
        return restore_checkout(self._root, self._deployment, request)

    def launch(self, request: Launch) -> Launched:
        from optagent.tools.commands import NoInterpreter, launch_command, mark_of
        from optagent.tools.launch_watch import Start
        from optagent.tools.process_notes import notes_of
        from optagent.tools.server import launch

        kind = self._kind
        try:
            if not self._address.local:
                return Launched(outcome="not-started", problem=f"{self._address.host} is not this machine")
            start = Start(
                command=launch_command(
                    self._root, self._deployment, request.configuration, request.launch, self._parent
                ),
                mark=mark_of(self._root, request.launch),
                address=self._address,
                log=inside(self._root, request.log),
                records=notes_of(self._root),
                timeouts=self._deployment.timeouts,
                gpus=kind.gpus,
                burst=self._deployment.burst,
                simulated=kind.simulated,
            )
        except (NoInterpreter, OutsideCampaign) as error:
            return Launched(outcome="not-started", problem=str(error), simulated=kind.simulated)
        if problem := self._not_from_the_checkout(request.configuration, start.command):
            return Launched(outcome="not-started", problem=problem)
        launched = launch(start, self._report)
        if launched.outcome == "crashed" and (broken := self._broken(request.configuration.environment)):
            return Launched(outcome="not-started", problem=broken)
        return launched

    def stop(self, request: Stop) -> Stopped:
        from optagent.tools.process_notes import notes_of
        from optagent.tools.processes import ProcessId
        from optagent.tools.server import stop

        process = ProcessId(request.pid, request.start_time)
        return stop(process, self._address, notes_of(self._root), self._deployment.timeouts, self._kind.gpus)

    def bench(self, request: Bench) -> BenchRun:
        from optagent.tools.bench import run_bench
        from optagent.tools.loadgen import serves

        kind = self._kind
        try:
            result_file = inside(self._root, request.result_file)
        except OutsideCampaign as error:
            return BenchRun(valid=False, invalid_because=[str(error)], simulated=kind.simulated)
        return run_bench(request, result_file, kind.load, kind.simulated, self._report, lambda: serves(request.url))

    def examine(self, request: Examine) -> Examined:
        from optagent.tools.examining import examine

        return examine(request, self._root, self._deployment.timeouts.request_s, self._kind.simulated, self._report)

    def evaluate(self, request: Evaluate) -> Evaluated:
        from optagent.tools.evaluating import evaluate

        return evaluate(request, self._root, self._deployment, self._parent, self._kind.simulated, self._report)

    @cached_property
    def _kind(self) -> Kind:
        """How this kind of deployment does things, ready to be used."""
        from optagent.tools.kinds import Real, Simulated

        kind: Kind
        if self._deployment.kind == "simulator":
            kind = Simulated(self._root, self._deployment)
        else:
            kind = Real(self._root, self._deployment, self._parent)
        kind.make_ready()
        return kind

    @cached_property
    def _address(self) -> Address:
        from optagent.tools.network import address_of

        return address_of(self._deployment)

    def _works(self, environment: str) -> bool:
        return self._kind.environment_exists(environment) and self._broken(environment) is None

    def _broken(self, environment: str) -> str | None:
        """Why the environment cannot run any server."""
        from optagent.tools.commands import NoInterpreter, python_command
        from optagent.tools.environment_check import SCRIPT, broken

        if self._kind.simulated:
            return None
        try:
            return broken(python_command(self._root, self._deployment, environment, SCRIPT, self._parent))
        except NoInterpreter as error:
            return str(error)

    def _not_from_the_checkout(self, configuration: Configuration, command: Command) -> str | None:
        """Why the launch would not run the code of the checkout that its configuration names."""
        from optagent.tools.import_check import elsewhere, taken_from

        source = source_folder(self._root, self._deployment)
        if self._kind.simulated or source is None or not configuration.revision:
            return None
        asked = replace(configuration, flags={}).fingerprint()
        if asked not in self._taken_from and (places := taken_from(command)) is not None:
            self._taken_from[asked] = places
        places = self._taken_from.get(asked)
        return None if places is None else elsewhere(places, source / self._deployment.source_path)

    def _environment_folder(self, name: str) -> Path:
        return environment_folder(self._root, self._deployment, name)

    def _checkout(self) -> CheckoutSeen | None:
        from optagent.tools.patch import look_at_checkout

        source = source_folder(self._root, self._deployment)
        return None if source is None else look_at_checkout(source)
