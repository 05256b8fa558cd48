"""`optagent stop`: asks the sitting to end, from another terminal, and waits until it has."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from optagent.agent.commands.attaching import Screen, follow
from optagent.agent.commands.interrupting import TWIN_S
from optagent.agent.commands.printable import clean, optagent_in
from optagent.agent.commands.sittings import Seen, end_line, look_at_sitting
from optagent.agent.errors import INTERRUPTED, OptagentError
from optagent.tools.lock import Holder, lives
from optagent.tools.narration_log import narration_of, set_aside
from optagent.tools.tail import Tail


def stop(root: Path, *, at_once: bool) -> int:
    """Exit status 0 when no sitting is at work any more. Raises OptagentError when it cannot be asked from here."""
    optagent, root = optagent_in(root), root.resolve()
    seen = look_at_sitting(root)
    if not seen.at_work or seen.holder is None:
        return _nothing_to_stop(seen)
    tail = Tail(narration_of(root), set_aside(narration_of(root)))
    tail.last()
    _ask(seen.holder)
    print(f"asked pid {seen.holder.pid} to end", file=sys.stderr)
    asked_at = time.monotonic()
    again = at_once

    def ask_again(seen: Seen) -> None:
        nonlocal again
        heard = seen.now is not None and seen.now.get("asked_to_end")
        if again and heard and seen.holder is not None and time.monotonic() - asked_at > 1.5 * TWIN_S:
            again = False
            _ask(seen.holder)

    try:
        seen = follow(root, tail, Screen(None), ask_again)
    except KeyboardInterrupt:
        print(f"\npid {seen.holder.pid if seen.holder else ''} is still ending; `{optagent} stop --now` does not wait")
        return INTERRUPTED
    print(end_line(seen))
    return 0


def _nothing_to_stop(seen: Seen) -> int:
    if seen.holder is not None:
        print(f"no sitting is at work; {clean(str(seen.holder))} ends by itself")
    elif seen.now is None:
        print("no sitting is at work, and there was none yet")
    else:
        print(f"no sitting is at work; {end_line(seen)}")
    return 0


def _ask(holder: Holder) -> None:
    """Send SIGTERM to this process, and to no other one that got its pid since."""
    if holder.host != os.uname().nodename:
        raise OptagentError(f"{clean(str(holder))} runs on another machine: stop it there")
    try:
        descriptor = os.pidfd_open(holder.pid)
    except ProcessLookupError:
        return
    try:
        if lives(holder):
            signal.pidfd_send_signal(descriptor, signal.SIGTERM)
    except ProcessLookupError:
        pass
    except PermissionError:
        raise OptagentError(f"{clean(str(holder))} is another user's: ask that user, or root, to stop it") from None
    finally:
        os.close(descriptor)
