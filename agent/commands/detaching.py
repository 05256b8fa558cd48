"""`optagent continue --detach`: a sitting that goes on after logout."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from optagent.agent.commands.printable import clean, optagent_in
from optagent.tools.detach import Split, detach
from optagent.tools.narration_log import narration_of


def split_off() -> Split:
    """What the new process says until it holds the campaign goes to standard error."""
    return detach(lambda text: print(text, end="", file=sys.stderr, flush=True))


def tell_detached(process: Split, root: Path, *, as_json: bool) -> int:
    """The exit status of the command that was called: of the new process where it did not get so far."""
    if process.exit_status is not None:
        return process.exit_status
    log = str(narration_of(root.resolve()))
    if as_json:
        print(json.dumps({"detached": True, "pid": process.pid, "log": log}, ensure_ascii=False))
        return 0
    optagent = optagent_in(root)
    print(f"detached: pid {process.pid} goes on without this terminal")
    print(f"  look:  {optagent} attach   (Ctrl-C leaves it running), or {optagent} status")
    print(f"  stop:  {optagent} stop     (with a handoff), or kill -TERM {process.pid}")
    print(f"  log:   {clean(log)}")
    return 0
