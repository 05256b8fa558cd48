"""Which flags a server accepts, read from its own `--help`, since every release has others."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
from pathlib import Path

from optagent.tools.calls.server import FlagsListed
from optagent.tools.commands import Command
from optagent.tools.files import replace_file

HELP_TIMEOUT_S = 300.0
"""Importing SGLang alone takes some 12 s on an idle machine, and minutes from a cold network file system."""

OPTION_LINE = re.compile(r"^ {1,4}(?=-)(.*?)(?: {2,}|$)")
LONG_OPTION = re.compile(r"(?:^|[ ,])--([A-Za-z0-9][\w.-]*)")


def parse_help(text: str) -> list[str]:
    """The long options in argparse's help, without dashes, sorted. Prose that mentions an option does not count."""
    lines = (OPTION_LINE.match(line) for line in text.splitlines())
    return sorted({name for line in lines if line for name in LONG_OPTION.findall(line.group(1))})


def ask_for_flags(command: Command, timeout_s: float = HELP_TIMEOUT_S) -> FlagsListed:
    """The flags that the server's help names."""
    try:
        done = subprocess.run(
            command.argv,
            env=command.env,
            cwd=command.cwd,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout_s,
            start_new_session=True,
        )
    except subprocess.TimeoutExpired:
        return FlagsListed(problem=f"{command.argv[0]} printed no help within {timeout_s:.0f} s")
    except OSError as error:
        return FlagsListed(problem=f"{command.argv[0]}: {error.strerror or error}")
    flags = parse_help(done.stdout.decode(errors="replace"))
    if done.returncode != 0 or not flags:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        return FlagsListed(
            problem=f"the server's help failed (exit {done.returncode}): {said[-1] if said else 'silent'}"
        )
    return FlagsListed(flags=flags)


def flags_of(command: Command, version: str | None, cache: Path) -> FlagsListed:
    """The flags of the server at `command`, remembered in `cache` for its version; without a version, asked anew."""
    if version is None:
        return ask_for_flags(command)
    identity = json.dumps([command.argv, command.env.get("PYTHONPATH", ""), version])
    kept = cache / f"flags-{hashlib.sha256(identity.encode()).hexdigest()[:16]}.json"
    try:
        flags = json.loads(kept.read_bytes())
        return FlagsListed(flags=flags)
    except (OSError, ValueError):  # never asked, or a damaged file
        listed = ask_for_flags(command)
    if listed.flags is not None:
        replace_file(kept, json.dumps(listed.flags).encode())
    return listed
