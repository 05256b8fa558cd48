"""Whether a serving environment can run a server at all: what tells its breakage from a change that does not come up."""

from __future__ import annotations

import subprocess
from dataclasses import replace

from optagent.tools.commands import Command
from optagent.tools.versions import ASK_TIMEOUT_S

HAS_NO_SGLANG = 83
SCRIPT = f"""
import importlib.util, sys
sys.exit(0 if importlib.util.find_spec("sglang") else {HAS_NO_SGLANG})
"""
"""Finds the package without importing it."""


def broken(command: Command) -> str | None:
    """Why the environment cannot run a server, None when it can as far as this tells.

    `command` runs SCRIPT in it. Where only its environment files or the patched source are in the way, they are a
    configuration's, and the environment is not broken.
    """
    asked = _exit_status(command)
    if asked == 0:
        return None
    if asked == HAS_NO_SGLANG:
        return f"{command.argv[0]} has no package sglang"
    alone = _exit_status(replace(command, argv=(command.argv[0], "-I", "-c", "pass")))
    why = alone if isinstance(alone, str) else f"exit status {alone}"
    return None if alone == 0 else f"{command.argv[0]} does not run: {why}"


def _exit_status(command: Command) -> int | str:
    """The exit status, or why there is none."""
    try:
        return subprocess.run(
            command.argv,
            env=command.env,
            cwd=command.cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=ASK_TIMEOUT_S,
            start_new_session=True,
        ).returncode
    except subprocess.TimeoutExpired:
        return f"no answer within {ASK_TIMEOUT_S:.0f} s"
    except OSError as error:
        return error.strerror or str(error)
