"""A journal on top of another: what is appended stays in memory, the one below is only read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from optagent.tools.journal_store import Draft, Entry, Journal, MemoryJournal, View


class OverlayJournal:
    """A `Journal` for looking ahead: it goes on from `below`, and nothing of it is kept."""

    def __init__(self, below: Journal) -> None:
        self._below, self._above = below, MemoryJournal()
        self._base = below.last_seq()

    def append(self, kind: str, body: Mapping[str, Any], key: str | None = None, at: str | None = None) -> Entry:
        return self.append_all([Draft(kind, body, key, at)])[0]

    def append_all(self, drafts: Sequence[Draft]) -> list[Entry]:
        there = [self._below.find(d.kind, d.key) if d.key is not None else None for d in drafts]
        new = [draft for draft, found in zip(drafts, there, strict=True) if found is None]
        added = iter(self._above.append_all(new))
        return [found or self._lifted(next(added)) for found in there]

    def entries(self, after: int = 0, kind: str | None = None, limit: int | None = None) -> Iterator[Entry]:
        until = self.last_seq()
        wanted = (entry for entry in self._all(after, kind) if entry.seq <= until)
        yield from islice(wanted, None if limit is None else max(limit, 0))

    def find(self, kind: str, key: str) -> Entry | None:
        above = self._above.find(kind, key)
        return self._lifted(above) if above else self._below.find(kind, key)

    def last(self, kind: str) -> Entry | None:
        above = self._above.last(kind)
        return self._lifted(above) if above else self._below.last(kind)

    def last_seq(self) -> int:
        return self._base + self._above.last_seq()

    def save_view(self, name: str, seq: int, body: Mapping[str, Any]) -> None:
        self._above.save_view(name, seq, body)

    def load_view(self, name: str) -> View | None:
        return self._above.load_view(name) or self._below.load_view(name)

    def close(self) -> None:
        self._below.close()

    def _all(self, after: int, kind: str | None) -> Iterator[Entry]:
        yield from (e for e in self._below.entries(after, kind) if e.seq <= self._base)
        for entry in self._above.entries(max(0, after - self._base), kind):
            yield self._lifted(entry)

    def _lifted(self, entry: Entry) -> Entry:
        return Entry(entry.seq + self._base, entry.at, entry.kind, entry.key, entry.body)
