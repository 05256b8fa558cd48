"""`optagent init`: a campaign folder to start from."""

from __future__ import annotations

import re
from pathlib import Path

from optagent.agent.commands.printable import optagent_in
from optagent.agent.errors import BadInput


def folder_named(root: Path, name: str) -> Path:
    """The folder that was asked for, seen from the one that -C names. Raises BadInput for no name at all."""
    if not name.strip():
        raise BadInput("DIR", "expected the name of a folder, or . for this one")
    return root / name


def make_campaign(directory: Path, name: str | None) -> int:
    """Write a commented optagent.toml, an example plan and the folders. Raises BadInput when a campaign is there."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    for taken in (directory / "optagent.toml", directory / "plans" / "plan.md"):
        if taken.exists():
            raise BadInput(str(taken), "exists already; init never overwrites a campaign")
    if directory.exists() and not directory.is_dir():
        raise BadInput(str(directory), "is not a folder")
    called = name or re.sub(r"[^A-Za-z0-9._-]+", "-", directory.resolve().name).strip("-") or "campaign"
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", called):
        raise BadInput("--name", f"letters, digits, dots, dashes and underscores, not {called!r}")
    templates = Environment(
        loader=PackageLoader("optagent.prompts", "init"),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        autoescape=False,
    )
    try:
        for folder in ("plans", "handoffs"):
            (directory / folder).mkdir(parents=True, exist_ok=True)
        (directory / "optagent.toml").write_text(
            templates.get_template("optagent.toml.j2").render(name=called), encoding="utf-8"
        )
        (directory / "plans" / "plan.md").write_text(
            templates.get_template("plan.md.j2").render(name=called), encoding="utf-8"
        )
    except OSError as error:
        raise BadInput(str(directory), f"cannot be written: {error.strerror}") from None
    print(
        f"{directory}: a campaign named {called}\nNext: edit {directory / 'optagent.toml'} and {directory / 'plans/plan.md'}, "
        f"then {optagent_in(directory)} continue --dry-run"
    )
    return 0
