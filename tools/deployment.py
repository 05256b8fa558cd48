"""The deployment that is tuned: where it listens, what it runs on, where its source lies. Filled from optagent.toml."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from optagent.tools.calls.configuration import FlagValue


class Settings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ServingEnvironment(Settings):
    """One serving environment. Relative paths are relative to the campaign folder."""

    python: str | None = Field(None, description="interpreter that has sglang installed; the simulator needs none")
    folder: str | None = Field(
        None, description="holds environment files such as sitecustomize.py; first on the server's PYTHONPATH"
    )
    pythonpath: list[str] = Field([], description="further folders on the server's PYTHONPATH")
    env: dict[str, str] = Field({}, description="environment variables that belong to this environment")


class Timeouts(Settings):
    """In seconds of real time. A launch is not given a total: it may take as long as it makes progress."""

    launch_silence_s: float = Field(
        900.0, gt=0, description="patience with a silent log; scales what each phase is given"
    )
    bench_s: float = Field(3600.0, gt=0)
    stop_s: float = Field(60.0, gt=0, description="after this a stopping server is killed")
    request_s: float = Field(120.0, gt=0)


class Deployment(Settings):
    kind: Literal["simulator", "sglang"] = "simulator"
    scenario: str | None = Field(
        None, description="simulator: name of a packaged scenario, or a folder of the campaign"
    )
    host: str = "127.0.0.1"
    port: int = Field(30000, ge=1, le=65535)
    environment: str = Field("default", description="the environment of the baseline")
    environments: dict[str, ServingEnvironment] = {"default": ServingEnvironment()}
    source: str | None = Field(None, description="git checkout of the server's source that patches are applied to")
    source_path: str = Field("python", description="folder inside the checkout that goes on the server's PYTHONPATH")
    flags: dict[str, FlagValue] = Field({}, description="flags of the baseline, without dashes in front")
    env: dict[str, str] = Field({}, description="environment variables of the baseline")
    files: dict[str, str] = Field(
        {}, description="environment files of the baseline: path in the environment's folder = file of the campaign"
    )
    burst: int = Field(8, ge=1, description="requests at once that a server must answer before it counts as ready")
    timeouts: Timeouts = Timeouts()
