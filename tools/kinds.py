"""The two kinds of deployment, a real SGLang and the simulator, and all in which they differ for the hands."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from optagent.tools.bench import LoadFailed
from optagent.tools.bench_progress import Progress
from optagent.tools.calls.bench import Bench
from optagent.tools.calls.world import Gpu
from optagent.tools.commands import CACHE_REPORT, NoInterpreter, bench_command, interpreter, python_command
from optagent.tools.deployment import Deployment
from optagent.tools.errors import ToolFailure
from optagent.tools.exhausted import stop_if_exhausted
from optagent.tools.paths import OutsideCampaign, from_root, inside, simulation_folder
from optagent.tools.versions import SCRIPT, VersionReader


class Kind(Protocol):
    """Where servers, versions, GPUs and load come from."""

    simulated: bool

    def make_ready(self) -> None:
        """Do what must have been done before anything of the deployment is looked at or started."""

    def gpus(self) -> list[Gpu] | None: ...
    def versions(self, environment: str) -> dict[str, str]: ...
    def environment_exists(self, environment: str) -> bool: ...

    def create_environment(self, environment: str) -> str | None:
        """Create it beside the others; why that is not possible, None when it was done."""

    def load(self, request: Bench, result_file: Path, progress: Progress) -> Mapping[str, Any]:
        """Put the load on the server, and tell how far it is. Raises LoadFailed."""


class Real:
    """A real SGLang in interpreters of its own. The agent never builds those: what they hold is the owner's choice."""

    simulated = False

    def __init__(self, root: Path, deployment: Deployment, parent: Mapping[str, str]) -> None:
        self._root, self._deployment, self._parent = root, deployment, parent
        self._reader = VersionReader()
        self._cache_report = True  # until a client turns out to be too old for it

    def make_ready(self) -> None:
        """Nothing: it is there or it is not."""

    def gpus(self) -> list[Gpu] | None:
        from optagent.tools.gpus import look_at_gpus

        return look_at_gpus()

    def versions(self, environment: str) -> dict[str, str]:
        """Of the packages and of the driver; empty when the environment cannot be asked."""
        from optagent.tools.gpus import driver_version

        try:
            command = python_command(self._root, self._deployment, environment, SCRIPT, self._parent)
        except NoInterpreter:
            return {}
        versions = self._reader.ask(command)
        driver = driver_version() if versions else None
        return versions | ({"driver": driver} if driver else {})

    def environment_exists(self, environment: str) -> bool:
        try:
            return interpreter(self._root, self._deployment, environment).is_file()
        except NoInterpreter:
            return False

    def create_environment(self, environment: str) -> str | None:
        try:
            python = interpreter(self._root, self._deployment, environment)
        except NoInterpreter as error:
            return str(error)
        return f"environment {environment!r} is not there: install SGLang so that {python} exists"

    def load(self, request: Bench, result_file: Path, progress: Progress) -> Mapping[str, Any]:
        """SGLang's own benchmark client, which leaves its output beside the result; ours where no interpreter is named."""
        settings = self._deployment.environments.get(self._deployment.environment)
        if settings is not None and settings.python is None:
            return _own_load(self._root, self._deployment, request, progress)
        from optagent.tools.bench_client import OptionRefused, client_prompts

        prompts = None
        try:
            if request.workload.dataset == "custom":
                given = inside(self._root, request.workload.prompts or "")
                prompts = client_prompts(given, result_file.with_suffix(".prompts"), request.workload.num_prompts)
            try:
                return self._client_load(request, result_file, progress, prompts)
            except OptionRefused as refused:
                if not self._cache_report or CACHE_REPORT not in str(refused):
                    raise
            self._cache_report = False
            return self._client_load(request, result_file, progress, prompts)
        except (NoInterpreter, OutsideCampaign) as error:
            raise LoadFailed(str(error)) from None
        finally:
            if prompts is not None:
                prompts.unlink(missing_ok=True)

    def _client_load(
        self, request: Bench, result_file: Path, progress: Progress, prompts: Path | None
    ) -> Mapping[str, Any]:
        from optagent.tools.bench_client import client_load

        output, log = result_file.with_suffix(".part"), result_file.with_suffix(".log")
        command = bench_command(
            self._root, self._deployment, request.url, request.workload, request.seed, output, self._parent, prompts,
            cache_report=self._cache_report,
        )  # fmt: skip
        try:
            return client_load(command, output, log, self._deployment.timeouts.bench_s, progress)
        finally:
            output.unlink(missing_ok=True)


class Simulated:
    """The simulator: its GPUs and environments are files of a world that is laid out when it is first needed."""

    simulated = True

    def __init__(self, root: Path, deployment: Deployment) -> None:
        self._root, self._deployment = root, deployment
        self._folder = simulation_folder(root)
        self._laid_out = False

    def make_ready(self) -> None:
        """Lay the world out, once; it is left alone when it is there."""
        from optagent.tools.simulator import world

        if not self._laid_out:
            try:
                world.lay_out(self._scenario(), self._folder)
            except (ValueError, OSError) as error:
                stop_if_exhausted(error, self._folder)
                raise ToolFailure(f"the simulated world cannot be laid out: {error}") from error
            self._laid_out = True

    def gpus(self) -> list[Gpu] | None:
        from optagent.tools.simulator import world

        return world.gpus(self._folder)

    def versions(self, environment: str) -> dict[str, str]:
        from optagent.tools.simulator import world

        return world.versions(self._folder, environment)

    def environment_exists(self, environment: str) -> bool:
        return (self._folder / "environments" / environment).is_dir()

    def create_environment(self, environment: str) -> str | None:
        from optagent.tools.simulator import world

        try:
            world.create_environment(self._folder, environment)
        except (ValueError, OSError) as error:
            stop_if_exhausted(error, self._folder)
            return str(error)
        return None

    def load(self, request: Bench, result_file: Path, progress: Progress) -> Mapping[str, Any]:
        """Our own client, which knows the simulator's virtual clock."""
        return _own_load(self._root, self._deployment, request, progress)

    def _scenario(self) -> str | Path | None:
        """A folder of the campaign when there is one, else the name of a packaged one."""
        name = self._deployment.scenario
        folder = None if name is None else from_root(self._root, name)
        return folder if folder is not None and folder.is_dir() else name


def _own_load(root: Path, deployment: Deployment, request: Bench, progress: Progress) -> Mapping[str, Any]:
    from optagent.tools.load_http import LoadError
    from optagent.tools.loadgen import generate_load

    try:
        return generate_load(
            request.url, request.workload, request.seed, root=root, run=request.run,
            timeout_s=deployment.timeouts.bench_s, progress=progress,
        )  # fmt: skip
    except LoadError as error:
        raise LoadFailed(str(error)) from error
