"""A sitting at work: the toolbox, the journal with its ledger, the configuration, and somebody to tell what happens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from optagent.agent.config import CampaignConfig
from optagent.agent.jsonable import to_body
from optagent.agent.ledger import Ledger, fold
from optagent.agent.records import Baseline
from optagent.agent.workloads import record_under
from optagent.tools.calls.clock import AskTime
from optagent.tools.calls.configuration import Configuration
from optagent.tools.journal_store import Draft, Entry, Journal, View
from optagent.tools.stop_request import StopRequest
from optagent.tools.toolbox import Toolbox


class Narrator(Protocol):
    """Somebody who is told what happens, for people to see. Nothing depends on what it does."""

    def tell(self, what: str, text: str) -> None:
        """One line that stays. `what` is its sort: step, why, good, bad, note, ask, plain."""
        ...

    def now(self, text: str) -> None:
        """What is being done at this moment; replaces the one before."""
        ...

    def detail(self, text: str) -> None:
        """How far that is; replaces the detail before."""
        ...


class LedgerJournal:
    """A journal that keeps its ledger up to date with every entry it takes."""

    def __init__(self, inner: Journal) -> None:
        self._inner = inner
        self.ledger: Ledger = fold(inner.entries())

    def append(self, kind: str, body: Mapping[str, Any], key: str | None = None, at: str | None = None) -> Entry:
        return self.append_all([Draft(kind, body, key, at)])[0]

    def append_all(self, drafts: Sequence[Draft]) -> list[Entry]:
        entries = self._inner.append_all(drafts)
        for entry in entries:
            if entry.seq > self.ledger.seq:
                self.ledger.apply(entry)
        return entries

    def entries(self, after: int = 0, kind: str | None = None, limit: int | None = None) -> Iterator[Entry]:
        return self._inner.entries(after, kind, limit)

    def find(self, kind: str, key: str) -> Entry | None:
        return self._inner.find(kind, key)

    def last(self, kind: str) -> Entry | None:
        return self._inner.last(kind)

    def last_seq(self) -> int:
        return self._inner.last_seq()

    def save_view(self, name: str, seq: int, body: Mapping[str, Any]) -> None:
        self._inner.save_view(name, seq, body)

    def load_view(self, name: str) -> View | None:
        return self._inner.load_view(name)

    def close(self) -> None:
        self._inner.close()


@dataclass
class Session:
    """What the nodes of the state machine work with. `node` is the one that is at work, "" before the first; `stop` is where
    somebody asks to end."""

    config: CampaignConfig
    toolbox: Toolbox
    journal: LedgerJournal
    narrator: Narrator
    step_limit: int | None = None
    node: str = ""
    stop: StopRequest = field(default_factory=StopRequest)

    @property
    def ledger(self) -> Ledger:
        return self.journal.ledger

    def note(self, kind: str, body: Any, key: str | None = None) -> Entry:
        """Record a fact; a dataclass is recorded as its JSON object."""
        return self.journal.append(kind, to_body(body), key)

    def time(self) -> str:
        return self.toolbox.clock(AskTime()).now

    def baseline(self) -> Baseline:
        """The configuration that is kept so far; before anything was recorded, the one of optagent.toml. Its record is one of
        the present workload."""
        kept = self.ledger.baseline
        return record_under(kept, self.ledger.under) if kept else Baseline(self.configured(), None, "as configured")

    def configured(self) -> Configuration:
        """The baseline that optagent.toml describes, without its environment files' text and its revision."""
        d = self.config.deployment
        return Configuration(d.environment, dict(d.flags), dict(d.env))
