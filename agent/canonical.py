"""A change in one form: one name for each flag, one notation for each value, so that changes that are equal look equal.

What is accepted stays accepted: a second name becomes the first one, which every release that knows the second knows too.
A name that a release retired is another matter. It becomes the new name only where the release at hand is one that has it.
"""

from __future__ import annotations

import hashlib
import json
import re
from functools import lru_cache
from pathlib import PurePosixPath

from optagent.agent import flag_facts
from optagent.agent.change import Change, change_body
from optagent.agent.flag_facts import RENAMED, Renamed
from optagent.tools.calls.configuration import Configuration, FlagValue

ALIASES = {
    "context-bucket": "cuda-graph-prefill-max-context",
    "grpc-http-sidecar-port": "smg-http-sidecar-port",
    "hierarchical-sparse-attention-extra-config": "hisparse-config",
    "nccl-init-addr": "dist-init-addr",
}
"""Second names that SGLang 0.5.23 declares beside those of `flag_facts`, which are the ones that rules ask about."""
NEW_NAMES = ">=0.5.23"
"""Releases that take the new names of `flag_facts.RENAMED` (looked up in 0.5.23)."""

_NUMBER = re.compile(r"[+-]?(?:0|[1-9]\d{0,14})(?:\.\d{1,15})?\Z", re.ASCII)
_NAMES_TEXT = re.compile(
    r"(?:\A|-)(?:path|paths|name|revision|version|key|dir|folder|file|url|urls|addr|host|endpoint|template|config|args|"
    r"prefixes|parser|id|header|labels|modules|hooks|device|token|pattern)\Z"
)
"""In the names of flags whose values are text even where they look like a number: a revision 1.10 is not 1.1."""


def canonical(change: Change) -> Change:
    """The change in its one form. Doing it twice is doing it once; of two names for one flag the last one counts."""
    flags: dict[str, FlagValue | None] = {}
    for name, value in change.flags.items():
        flags[flag_name(name)] = flag_value(flag_name(name), value)
    return Change(
        flags=dict(sorted(flags.items())),
        env={k: variable(v) for k, v in sorted(change.env.items())},
        files={_path(k): file_text(v) for k, v in sorted(change.files.items())},
        patch=_path(change.patch) if change.patch else None,
        environment=(change.environment or "").strip() or None,
    )


def canonical_configuration(configuration: Configuration) -> Configuration:
    """The configuration likewise; flags that are not given are not in it."""
    flags = {flag_name(k): flag_value(flag_name(k), v) for k, v in configuration.flags.items()}
    return Configuration(
        configuration.environment.strip(),
        {k: v for k, v in sorted(flags.items()) if v is not None},
        {k: v.strip() for k, v in sorted(configuration.env.items())},
        {_path(k): file_text(v) for k, v in sorted(configuration.files.items())},
        configuration.revision.strip(),
    )


def mark(change: Change) -> str:
    """A short hash that is equal for equal changes, however they are written."""
    text = json.dumps(change_body(canonical(change)), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def equal(one: Change, other: Change) -> bool:
    """Whether two changes do the same."""
    return one == other or canonical(one) == canonical(other)


@lru_cache(maxsize=4096)
def flag_name(name: str) -> str:
    """The first name of a flag, without dashes in front."""
    first = flag_facts.canonical(name.strip())
    return ALIASES.get(first, first)


def flag_value(name: str, value: FlagValue | None) -> FlagValue | None:
    """The value of the flag of this first name: 0.9 for "0.90", True for "true", None for a switch that is not given."""
    if value is None or value is False:
        return None
    if isinstance(value, str):
        text = value.strip()
        if _NAMES_TEXT.search(name):
            return text
        if text.lower() in ("true", "false"):
            return True if text.lower() == "true" else None
        if not _NUMBER.match(text):
            return text
        value = float(text) if "." in text else int(text)
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return int(value)
    return value


def variable(value: str | None) -> str | None:
    """The value of an environment variable, without the blanks around it."""
    return None if value is None else value.strip()


def file_text(text: str) -> str:
    """The text of a file with one line end behind it, which editors and YAML blocks differ in."""
    return f"{stripped}\n" if (stripped := text.rstrip()) else ""


def present_flag(name: str, value: FlagValue | None, release: str | None) -> tuple[str, FlagValue | None]:
    """The flag as the release writes it: a retired name by its new one, where the release is known to have that."""
    first = flag_name(name)
    value = flag_value(first, value)
    row = _renamed().get(first)
    if row is None or not _has_new_names(release):
        return first, value
    words = row.instead.split()
    if len(words) == 2 and value is True:
        return row.new, flag_value(row.new, words[1])
    return (row.new, value) if not words else (first, value)


@lru_cache(maxsize=1)
def _renamed() -> dict[str, Renamed]:
    return {r.old: r for r in RENAMED if r.old != "enable-expert-distribution-metrics"}  # a switch that became a mode


@lru_cache(maxsize=64)
def _has_new_names(release: str | None) -> bool:
    from optagent.agent.flag_lint import is_of

    return release is not None and is_of(release, NEW_NAMES)


def _path(path: str) -> str:
    return str(PurePosixPath(path.strip()))
