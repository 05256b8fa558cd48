"""What one launch runs with: flags, environment variables, environment files, source revision."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

FlagValue = bool | int | float | str
"""A flag's value; True stands for a bare switch, False for a switch that is not given."""


@dataclass(frozen=True)
class Configuration:
    """One launchable configuration of a deployment.

    `flags` are keyed without dashes in front (`tp-size`), `files` by path inside the environment's folder with their
    whole text, `revision` is the commit of the deployment's source checkout ("" when it has none).
    """

    environment: str
    flags: dict[str, FlagValue] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    revision: str = ""

    def fingerprint(self) -> str:
        """A short hash that is equal for equal configurations, whatever the order of their keys."""
        text = json.dumps([self.environment, self.flags, self.env, self.files, self.revision], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]


def flag_arguments(flags: Mapping[str, FlagValue]) -> list[str]:
    """The command line words of `flags`, in the order they were given: True is a bare switch, False is left out."""
    words: list[str] = []
    for name, value in flags.items():
        if value is False:
            continue
        words.append(f"--{name}")
        if value is not True:
            words.append(str(value))
    return words


def configuration_from(body: Mapping[str, Any]) -> Configuration:
    """The configuration a JSON object describes, as `dataclasses.asdict` wrote it."""
    return Configuration(
        environment=str(body["environment"]),
        flags=dict(body.get("flags", {})),
        env={str(k): str(v) for k, v in body.get("env", {}).items()},
        files={str(k): str(v) for k, v in body.get("files", {}).items()},
        revision=str(body.get("revision", "")),
    )
