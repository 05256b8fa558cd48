"""Whether a real deployment's settings can be used on this machine at all, before anything is done with them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from optagent.tools.commands import NoInterpreter, python_command
from optagent.tools.deployment import Deployment
from optagent.tools.environment_check import SCRIPT, broken
from optagent.tools.git_commands import CheckoutProblem, open_checkout
from optagent.tools.import_check import PACKAGE
from optagent.tools.paths import OutsideCampaign, inside, source_folder


@dataclass(frozen=True)
class Unusable:
    """The key of optagent.toml whose value cannot be used here, and why."""

    key: str
    problem: str


def unusable_source(root: Path, deployment: Deployment) -> Unusable | None:
    """What is wrong with the checkout that patches go into; a deployment without one has nothing wrong."""
    source = source_folder(root, deployment)
    if source is None:
        return None
    try:
        open_checkout(source)
        folder = inside(source, deployment.source_path)
    except (CheckoutProblem, OSError) as error:
        return Unusable("deployment.source", f"{error}; expected a git checkout of SGLang's source")
    except OutsideCampaign as error:
        return Unusable("deployment.source_path", str(error))
    if not (folder / PACKAGE / "__init__.py").is_file():
        problem = f"{folder} holds no package {PACKAGE}" if folder.is_dir() else f"there is no folder {folder}"
        return Unusable(
            "deployment.source_path", f"{problem}; expected the checkout's folder that goes on the server's PYTHONPATH"
        )
    return None


def unusable_interpreter(
    root: Path, deployment: Deployment, environment: str, parent: Mapping[str, str]
) -> Unusable | None:
    """Why the environment cannot run any server."""
    try:
        problem = broken(python_command(root, deployment, environment, SCRIPT, parent))
    except NoInterpreter as error:
        problem = str(error)
    if problem is None:
        return None
    return Unusable(
        f"deployment.environments.{environment}.python", f"{problem}; expected a Python that has sglang installed"
    )
