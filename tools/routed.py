"""The toolbox's typed methods over one function, for toolboxes that treat every call alike (recording, replaying)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TypeVar

from optagent.tools.calls.base import Request, Result
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
from optagent.tools.calls.world import ProbeWorld, World

R = TypeVar("R", bound=Result)


class RoutedToolbox(ABC):
    """A `Toolbox` whose every method goes through `call`."""

    @abstractmethod
    def call(self, tool: str, request: Request, answers_with: type[R]) -> R:
        """The result of `tool` for `request`, of the type that the tool answers with."""

    def clock(self, request: AskTime) -> TimeTold:
        return self.call("clock", request, TimeTold)

    def read_text(self, request: ReadText) -> TextRead:
        return self.call("read_text", request, TextRead)

    def list_folder(self, request: ListFolder) -> FolderListed:
        return self.call("list_folder", request, FolderListed)

    def write_text(self, request: WriteText) -> TextWritten:
        return self.call("write_text", request, TextWritten)

    def probe(self, request: ProbeWorld) -> World:
        return self.call("probe", request, World)

    def look_up(self, request: LookUp) -> LookedUp:
        return self.call("look_up", request, LookedUp)

    def read_log(self, request: ReadLog) -> LogReading:
        return self.call("read_log", request, LogReading)

    def list_flags(self, request: ListFlags) -> FlagsListed:
        return self.call("list_flags", request, FlagsListed)

    def prepare_environment(self, request: EnvironmentRequest) -> EnvironmentReady:
        return self.call("prepare_environment", request, EnvironmentReady)

    def install_files(self, request: InstallFiles) -> FilesInstalled:
        return self.call("install_files", request, FilesInstalled)

    def apply_patch(self, request: ApplyPatch) -> PatchApplied:
        return self.call("apply_patch", request, PatchApplied)

    def keep_patch(self, request: KeepPatch) -> CheckoutSettled:
        return self.call("keep_patch", request, CheckoutSettled)

    def drop_patch(self, request: DropPatch) -> CheckoutSettled:
        return self.call("drop_patch", request, CheckoutSettled)

    def restore_checkout(self, request: RestoreCheckout) -> CheckoutRestored:
        return self.call("restore_checkout", request, CheckoutRestored)

    def launch(self, request: Launch) -> Launched:
        return self.call("launch", request, Launched)

    def stop(self, request: Stop) -> Stopped:
        return self.call("stop", request, Stopped)

    def bench(self, request: Bench) -> BenchRun:
        return self.call("bench", request, BenchRun)

    def examine(self, request: Examine) -> Examined:
        return self.call("examine", request, Examined)

    def evaluate(self, request: Evaluate) -> Evaluated:
        return self.call("evaluate", request, Evaluated)
