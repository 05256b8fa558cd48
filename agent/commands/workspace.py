"""A campaign folder opened for a command: configuration, journal, toolbox, lock."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from optagent.agent.config import CampaignConfig, load_config
from optagent.agent.errors import BadInput, CampaignBusy
from optagent.agent.ledger_view import keep_view
from optagent.agent.session import LedgerJournal, Narrator, Session
from optagent.tools.dry import DryToolbox
from optagent.tools.journal_store import Journal, JournalStore
from optagent.tools.live import LiveToolbox
from optagent.tools.lock import Held, hold, holder
from optagent.tools.overlay_journal import OverlayJournal
from optagent.tools.recording import RecordingToolbox
from optagent.tools.toolbox import Toolbox

STATE = ".optagent"


@dataclass(frozen=True)
class Workspace:
    """Where the campaign lies, and its configuration."""

    root: Path
    config: CampaignConfig

    @property
    def journal_path(self) -> Path:
        return self.root / STATE / "journal.db"

    @property
    def checkpoints(self) -> Path:
        return self.root / STATE / "checkpoints.db"


def find_workspace(root: Path) -> Workspace:
    """The campaign in `root`. Raises BadInput when there is none or its configuration cannot be used."""
    return Workspace(root.resolve(), load_config(root.resolve()))


def read_journal(space: Workspace) -> LedgerJournal:
    """The journal for reading; an empty one when nothing has been recorded yet."""
    return LedgerJournal(JournalStore.open(space.journal_path, create=False, read_only=True))


@contextmanager
def writing(
    space: Workspace,
    purpose: str,
    narrator: Narrator,
    sink: Callable[[dict[str, Any]], None] | None = None,
    attended: Callable[[Toolbox], Toolbox] = lambda toolbox: toolbox,
) -> Iterator[Session]:
    """A session that may change things: the only writer of this campaign for as long as it lasts. `attended` may put
    something around its toolbox.

    Raises CampaignBusy when another process is at work, BadInput when the folder cannot be written.
    """
    check_readable(space)
    ensure_writable(space)
    try:
        with hold(space.root / STATE / "lock", purpose) as lease:
            if lease.note:
                narrator.tell("note", lease.note)
            with JournalStore.open(space.journal_path, create=True) as store:
                session = open_session(space, store, attended(live(space, narrator)), narrator, sink)
                yield session
                keep_view(session.journal)
    except Held as error:
        how = " (`optagent attach` shows it, `optagent stop` ends it)" if error.holder.purpose == "continue" else ""
        raise CampaignBusy(f"{error.holder} is at work on this campaign; wait until it ends, or stop it{how}") from None


def who_is_at_work(root: Path) -> str | None:
    """The process that writes to the campaign now, in words; None when there is none."""
    found = holder(root / STATE / "lock")
    return str(found) if found else None


def check_readable(space: Workspace) -> None:
    """Read what a sitting starts from, before anything is created: a malformed document changes nothing on disk."""
    from optagent.agent.orient import check_fit, orient

    session = looking(space)
    check_fit(session, orient(session).plan)
    session.journal.close()


def ensure_writable(space: Workspace) -> None:
    for folder in (space.root, space.root / STATE):
        if folder.exists() and not os.access(folder, os.W_OK):
            raise BadInput(str(folder), "this folder is not writable; a campaign keeps its journal and logs in it")


def live(space: Workspace, narrator: Narrator) -> LiveToolbox:
    return LiveToolbox(space.root, space.config.deployment, narrator.detail)


def open_session(
    space: Workspace,
    store: Journal,
    toolbox: Toolbox,
    narrator: Narrator,
    sink: Callable[[dict[str, Any]], None] | None = None,
) -> Session:
    """A session whose every tool call is journalled, and told to `sink` when there is one."""
    journal = LedgerJournal(store)
    return Session(space.config, RecordingToolbox(toolbox, journal, sink), journal, narrator)


def looking(space: Workspace, toolbox: Toolbox | None = None, journal: Journal | None = None) -> Session:
    """A session that looks at the world and writes nothing: effects are pretended, entries stay in memory."""
    silent = Silent()
    below = journal or JournalStore.open(space.journal_path, create=False, read_only=True)
    dry = DryToolbox(toolbox or live(space, silent))
    overlay = LedgerJournal(OverlayJournal(below))
    return Session(space.config, RecordingToolbox(dry, overlay), overlay, silent)


class Silent:
    """A narrator for commands that print their own result."""

    def tell(self, what: str, text: str) -> None:
        pass

    def now(self, text: str) -> None:
        pass

    def detail(self, text: str) -> None:
        pass
