"""The server's log on stderr, in SGLang's prefix and in virtual time."""

from __future__ import annotations

import sys
import threading

from optagent.tools.simulator.batching import BatchSeen
from optagent.tools.simulator.clock import VirtualClock
from optagent.tools.simulator.wording import Wording


class Log:
    """Writes whole lines, or raw text as it is; flushed each time, as a log that is watched must be."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self._lock = threading.RLock()

    def raw(self, text: str) -> None:
        with self._lock:
            sys.stderr.write(text)
            sys.stderr.flush()

    def line(self, text: str, rank: int | None = None, at_s: float | None = None) -> None:
        """A line of a rank, or of the parent when `rank` is None."""
        where = "" if rank is None else f" TP{rank}"
        self.raw(f"[{self._clock.stamp(at_s)}{where}] {text}\n")


def batch_line(words: Wording, seen: BatchSeen, kv_tokens: int, draft_tokens: int) -> str:
    """What SGLang's scheduler reports about a prefill or decode batch."""
    usage = f"token usage: {seen.tokens / max(1, kv_tokens):.2f}"
    if seen.kind == "Prefill":
        return (
            f"Prefill batch, #new-seq: {seen.new_requests}, #new-token: {seen.new_tokens}, "
            f"#cached-token: {seen.cached_tokens}, {usage}, #running-req: {seen.running}, #queue-req: {seen.queued}, "
            f"{words.prefill_extra.format(pending=0)}{words.prefill_tail}input throughput (token/s): {seen.throughput:.2f}"
        )
    accepted = ""
    if seen.accept_length is not None:
        rate = (seen.accept_length - 1) / max(1, draft_tokens - 1)
        accepted = words.accept.format(length=seen.accept_length, rate=rate)
    return (
        f"Decode batch, #running-req: {seen.running}, #token: {seen.tokens}, {usage}, {accepted}"
        f"cuda graph: {seen.in_graph}, gen throughput (token/s): {seen.throughput:.2f}, #queue-req: {seen.queued}"
    )
