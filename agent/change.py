"""A change: what turns one configuration into another, and how it is put on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeVar

from optagent.tools.calls.configuration import Configuration, FlagValue

V = TypeVar("V")


@dataclass(frozen=True)
class Change:
    """Flags and variables to set (None removes one), environment files to write, a patch, another environment.

    `files` maps a path inside the environment's folder to its new whole text; `patch` is the path of a diff relative
    to the plan's folder; `environment` names a serving environment of the deployment.
    """

    flags: dict[str, FlagValue | None] = field(default_factory=dict)
    env: dict[str, str | None] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    patch: str | None = None
    environment: str | None = None

    @property
    def empty(self) -> bool:
        return not (self.flags or self.env or self.files or self.patch or self.environment)


def apply_change(base: Configuration, change: Change) -> Configuration:
    """`base` with the change put on. A patch changes the revision, which only the checkout knows: set it afterwards."""
    return replace(
        base,
        environment=change.environment or base.environment,
        flags=_merged(base.flags, change.flags),
        env=_merged(base.env, change.env),
        files={**base.files, **change.files},
    )


def _merged(base: Mapping[str, V], edits: Mapping[str, V | None]) -> dict[str, V]:
    merged = {k: v for k, v in base.items() if k not in edits}
    merged.update({k: v for k, v in edits.items() if v is not None})
    return merged


def merged(changes: Iterable[Change]) -> Change:
    """Several changes as one."""
    whole = Change()
    for c in changes:
        whole = Change(
            {**whole.flags, **c.flags},
            {**whole.env, **c.env},
            {**whole.files, **c.files},
            c.patch or whole.patch,
            c.environment or whole.environment,
        )
    return whole


def change_from(body: Mapping[str, Any]) -> Change:
    """The change a JSON object describes, as `change_body` wrote it."""
    return Change(
        flags=dict(body.get("flags", {})),
        env=dict(body.get("env", {})),
        files=dict(body.get("files", {})),
        patch=body.get("patch"),
        environment=body.get("environment"),
    )


def change_body(change: Change) -> dict[str, Any]:
    """The change as a JSON object without its empty parts."""
    return {k: v for k, v in asdict(change).items() if v}


def describe(change: Change) -> str:
    """The change in one line, as a person would type it."""
    words = [
        f"--{k}" if v is True else f"--{k} {v}" if v is not None else f"(without --{k})"
        for k, v in change.flags.items()
    ]
    words += [f"{k}={v}" if v is not None else f"(without {k})" for k, v in change.env.items()]
    words += [f"file {name}" for name in change.files]
    if change.patch:
        words.append(f"patch {change.patch}")
    if change.environment:
        words.append(f"environment {change.environment}")
    return " ".join(words) or "(nothing)"
