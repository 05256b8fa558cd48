"""A scenario made to measure: a packaged one, with the serving environments of a campaign that it is to stand in for."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from optagent.tools.simulator.world import scenario_folder


def write_scenario(
    source: str | Path | None,
    target: Path,
    environments: Mapping[str, Mapping[str, str]],
    at_first: Sequence[str],
    sizes: Mapping[str, Any] | None = None,
) -> None:
    """Write a scenario folder: `source` without what its last session left behind, and with these environments.

    `environments` says for each name which versions are other than the source's; one that the source has keeps its own for
    the rest, every other has those of the source's baseline. `at_first` are those that exist from the start, and
    `sizes` take the place of keys, also of those in a section. Raises ScenarioError when there is no such source.
    """
    folder = scenario_folder(source)
    shutil.copytree(folder, target, ignore=shutil.ignore_patterns("__pycache__", "last-session"))
    body: dict[str, Any] = yaml.safe_load((folder / "scenario.yaml").read_text(encoding="utf-8"))
    body.pop("last_session", None)
    for section, values in (sizes or {}).items():
        body[section] = {**body[section], **values} if isinstance(values, Mapping) else values
    known: dict[str, dict[str, str]] = body["environments"]
    usual = known[body["environment"]]
    for name, versions in environments.items():
        if name not in known:
            body["environment"] = name
        known[name] = {**known.get(name, usual), **{k: v for k, v in versions.items() if k in usual}}
    body["environments_at_first"] = [name for name in known if name in at_first]
    (target / "scenario.yaml").write_text(yaml.safe_dump(body, sort_keys=False), encoding="utf-8")
