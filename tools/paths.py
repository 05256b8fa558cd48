"""Where files of a campaign and of its deployment lie."""

from __future__ import annotations

import os
from pathlib import Path

from optagent.tools.deployment import Deployment

STATE = Path(".optagent")
"""Everything of a campaign that is not for people: logs, caches, backups, the simulated world."""


class OutsideCampaign(ValueError):
    """A path of a request leads out of the folder that it must stay in."""


def inside(root: Path, path: str) -> Path:
    """`path` below `root`.

    Raises OutsideCampaign when it is absolute or its `..` lead out; links are followed as the owner laid them.
    """
    plain = Path(os.path.normpath(path))
    if plain.is_absolute() or plain.parts[:1] == (os.pardir,) or "\0" in path:
        raise OutsideCampaign(f"{path!r} leads out of {root}: give a path below it")
    return root / plain


def from_root(root: Path, path: str) -> Path:
    """A path of the deployment's settings, which its owner may also give absolutely or from the home folder."""
    return root / Path(path).expanduser()


def simulation_folder(root: Path) -> Path:
    """Where the simulated world of a campaign lies."""
    return root / STATE / "simulation"


def environment_folder(root: Path, deployment: Deployment, name: str) -> Path:
    """The folder for the files of a serving environment: the one that is set, else one of the campaign's own."""
    environment = deployment.environments.get(name)
    if environment is not None and environment.folder is not None:
        return from_root(root, environment.folder)
    home = simulation_folder(root) if deployment.kind == "simulator" else root / STATE
    return home / "environments" / name


def source_folder(root: Path, deployment: Deployment) -> Path | None:
    """The checkout that patches are applied to, None when the deployment has none."""
    return None if deployment.source is None else from_root(root, deployment.source)
