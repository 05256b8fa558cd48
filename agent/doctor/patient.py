"""The campaign as far as it can be read at all: each part that cannot be leaves the others to be looked at."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from optagent.agent.config import CampaignConfig, load_config
from optagent.agent.errors import BadInput
from optagent.agent.ledger import Ledger, fold
from optagent.agent.plan.model import Plan
from optagent.agent.plan.read import read_plan
from optagent.tools.calls.files import ReadText
from optagent.tools.errors import ToolFailure
from optagent.tools.files import read_text
from optagent.tools.journal_salvage import Health, health
from optagent.tools.journal_store import JournalStore
from optagent.tools.lock import holder
from optagent.tools.paths import STATE, source_folder

JOURNAL = "journal.db"
CHECKPOINTS = "checkpoints.db"
LOCK = "lock"


@dataclass(frozen=True)
class Patient:
    """A campaign's parts, None where they cannot be read, with the reason beside. `at_work` is the process that holds it."""

    root: Path
    config: CampaignConfig | None
    config_problem: str
    plan: Plan | None
    plan_problem: str
    at_work: str | None
    journal: Health | None
    journal_problem: str
    ledger: Ledger | None

    @property
    def state(self) -> Path:
        return self.root / STATE

    @property
    def source(self) -> Path | None:
        return None if self.config is None else source_folder(self.root, self.config.deployment)

    @property
    def under_way(self) -> list[str]:
        current = self.ledger.current() if self.ledger else None
        return [current.id] if current else []


def examine(root: Path, *, held_by_us: bool = False) -> Patient:
    """Read what can be read; nothing on disk changes. `held_by_us` says that the lock is held by whoever asks."""
    root = root.resolve()
    config, config_problem = _config(root)
    plan, plan_problem = _plan(root, config)
    at_work = None if held_by_us else _at_work(root)
    sick, journal_problem = _health(root, at_work)
    ledger = None
    if sick is None or (sick.sound and sick.exists):
        ledger, problem = _ledger(root, sick)
        journal_problem = journal_problem or problem
    return Patient(root, config, config_problem, plan, plan_problem, at_work, sick, journal_problem, ledger)


def _config(root: Path) -> tuple[CampaignConfig | None, str]:
    try:
        return load_config(root), ""
    except BadInput as error:
        return None, str(error)


def _plan(root: Path, config: CampaignConfig | None) -> tuple[Plan | None, str]:
    if config is None:
        return None, ""
    try:
        read = read_text(root, ReadText(path=config.plan))
    except ToolFailure as error:
        return None, str(error)
    if read.text is None:
        return None, read.problem or f"{config.plan} is not there"
    return read_plan(read.text, config.plan), ""


def _at_work(root: Path) -> str | None:
    try:
        found = holder(root / STATE / LOCK)
    except ToolFailure:
        return None
    return str(found) if found else None


def _health(root: Path, at_work: str | None) -> tuple[Health | None, str]:
    """None while somebody writes to it: its file is never whole then, seen from outside."""
    if at_work is not None:
        return None, ""
    try:
        return health(root / STATE / JOURNAL), ""
    except OSError as error:
        return None, f"{error.filename or root / STATE / JOURNAL}: {error.strerror or error}"


def _ledger(root: Path, sick: Health | None) -> tuple[Ledger | None, str]:
    """What the journal says. The file of a journal that nobody writes to is read as it lies there, which leaves no trace."""
    path = root / STATE / JOURNAL
    try:
        with _opened(path, undisturbed=sick is not None) as store:
            return fold(store.entries()), ""
    except (ToolFailure, OSError) as error:
        return None, str(error)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        return None, f"its entries do not fit together ({type(error).__name__}: {str(error)[:80]})"


def _opened(path: Path, *, undisturbed: bool) -> JournalStore:
    if undisturbed:
        return JournalStore.open_copy(path)
    return JournalStore.open(path, create=False, read_only=True)
