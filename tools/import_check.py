"""Where a server would take the package `sglang` from: a patch that is not what is loaded must not be judged."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path

from optagent.tools.commands import Command
from optagent.tools.versions import ASK_TIMEOUT_S

PACKAGE = "sglang"
SHOWN = 300
SCRIPT = f"""
import importlib.util, json
spec = importlib.util.find_spec("{PACKAGE}")
places = [] if spec is None else list(spec.submodule_search_locations or [spec.origin])
print()
print(json.dumps([str(place) for place in places]))
"""
"""Finds the package without importing it."""


def taken_from(command: Command) -> list[str] | None:
    """The folders that the interpreter of `command`, in its environment and folder, would take the package from; none when
    it finds no such package. None when it does not tell, which its server then does as well."""
    asking = replace(command, argv=(command.argv[0], "-c", SCRIPT))
    try:
        done = subprocess.run(
            asking.argv,
            env=asking.env,
            cwd=asking.cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=ASK_TIMEOUT_S,
            start_new_session=True,
        )
        told = json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else None
    except (OSError, subprocess.TimeoutExpired, ValueError, IndexError):
        return None
    return [str(place) for place in told] if isinstance(told, list) else None


def elsewhere(places: list[str], below: Path) -> str | None:
    """What is wrong when the package comes from `places` and not from the checkout's folder `below`, None when it does."""
    wanted = os.path.realpath(below / PACKAGE)
    if any(os.path.realpath(place) == wanted for place in places):
        return None
    found = ", ".join(ascii(place)[1:-1] for place in places)[:SHOWN] or "nowhere"
    return (
        f"the server would take {PACKAGE} from {found}, not from the checkout ({wanted}): what is patched there would not "
        "be what runs"
    )
