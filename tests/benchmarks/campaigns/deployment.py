"""A deployment of the benchmark: a folder with a scenario, a plan and a campaign's configuration."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from optagent.agent.config import CampaignConfig, parse_config
from optagent.tools.calls.configuration import Configuration
from optagent.tools.simulator.scenario import Scenario, load

FOLDER = Path(__file__).parent / "deployments"
APART = 1_000_003
"""Between the seeds of two campaigns on one deployment, so that they share no draw."""


@dataclass(frozen=True)
class Deployment:
    name: str
    folder: Path
    scenario: Scenario
    config: CampaignConfig

    @property
    def gpus(self) -> int:
        return self.scenario.hardware.count

    @property
    def metric(self) -> str:
        return self.config.objective.metric

    @property
    def plan(self) -> str:
        return (self.folder / self.config.plan).read_text(encoding="utf-8")

    @property
    def base(self) -> Configuration:
        """The configuration that a campaign starts from."""
        said = self.config.deployment
        return Configuration(said.environment, dict(said.flags), dict(said.env))

    def better(self, one: float, other: float) -> bool:
        return one > other if self.config.objective.direction == "max" else one < other

    def gain(self, value: float, base: float) -> float:
        """How much better `value` is, as a fraction of `base`."""
        return value / base - 1 if self.config.objective.direction == "max" else base / value - 1

    def with_seed(self, seed: int) -> Deployment:
        """The same deployment with other draws of the noise; seed 0 has those of the scenario itself."""
        return replace(self, scenario=replace(self.scenario, seed=self.scenario.seed + APART * seed))


def read(folder: Path) -> Deployment:
    """The deployment in a folder. Raises OSError, ScenarioError or BadInput for one that cannot be used, and ValueError
    for what is not modelled here: environment files, and a source checkout to patch."""
    config = parse_config((folder / "optagent.toml").read_text(encoding="utf-8"), str(folder / "optagent.toml"))
    if config.deployment.files or config.deployment.source:
        raise ValueError(f"{folder}: environment files and a source checkout have no effect here; leave them out")
    return Deployment(folder.name, folder, load(folder), config)


def find(name: str) -> Path:
    """The folder of a deployment, by its name or its path."""
    for folder in (FOLDER / name, Path(name)):
        if (folder / "scenario.yaml").is_file():
            return folder
    known = ", ".join(sorted(path.parent.name for path in FOLDER.glob("*/scenario.yaml")))
    raise FileNotFoundError(f"{name}: no deployment of this name and no folder with a scenario.yaml; known are {known}")


def all_of_them() -> list[Path]:
    return sorted(path.parent for path in FOLDER.glob("*/scenario.yaml"))
