"""Proof that a server serves: one answer, then a burst of requests at once.

Health alone has been seen to lie, and so has one request: a server may answer both and hang under load.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from optagent.tools.errors import MachineExhausted
from optagent.tools.exhausted import stop_if_exhausted
from optagent.tools.network import Address, client, generates, healthy

if TYPE_CHECKING:
    import httpx

HEALTH_TIMEOUT_S = 5.0
BURST_TOKENS = 16
"""Enough for some decode steps of the whole batch, and done in seconds on a slow server."""
LONGEST_PROBLEM = 200


class Asked:
    """A question to the server, asked in a thread of its own, so that whoever waits for it can look at other things.

    `ask` returns what is wrong in words, None when nothing is. The thread ends with the process: a server that never
    answers keeps nobody from leaving. What `ask` raises where this machine cannot ask is raised to whoever waits.
    """

    def __init__(self, ask: Callable[[], str | None]) -> None:
        self.problem: str | None = "the question was not asked to its end"
        self._raised: MachineExhausted | OSError | None = None
        self._thread = threading.Thread(target=self._run, args=(ask,), daemon=True)
        self._thread.start()

    def over_within(self, timeout_s: float) -> bool:
        """Wait for the answer, at most so long; then `problem` tells what is wrong."""
        self._thread.join(timeout_s)
        if self._raised is not None:
            raise self._raised
        return not self._thread.is_alive()

    def _run(self, ask: Callable[[], str | None]) -> None:
        try:
            self.problem = ask()
        except (MachineExhausted, OSError) as error:  # kept for the thread that waits, which alone can act on it
            self._raised = error


def unanswered(address: Address, timeout_s: float) -> str | None:
    """Why the server does not serve, None when it answers a request for one token."""
    if not healthy(address, HEALTH_TIMEOUT_S):
        return "/health does not answer with 200"
    return None if generates(address, timeout_s) else "a request for one token was not answered"


def unproven(address: Address, burst: int, timeout_s: float) -> str | None:
    """How many of `burst` requests at once were not answered with all their tokens within `timeout_s`, and the first
    one's error; None when all were. Raises MachineExhausted when this machine cannot ask so many at once."""
    late = f"no answer within {timeout_s:.0f} s"
    deadline = time.monotonic() + timeout_s
    with client(address, timeout_s) as http:
        prompts = [f"{number + 2} times {number + 3} makes" for number in range(burst)]
        asked = [Asked(partial(_in_full, http, prompt)) for prompt in prompts]
        problems = [one.problem if one.over_within(max(0.0, deadline - time.monotonic())) else late for one in asked]
    failed = [problem for problem in problems if problem is not None]
    if not failed:
        return None
    return f"{len(failed)} of {burst} requests at once were not answered: {failed[0][:LONGEST_PROBLEM]}"


def _in_full(http: httpx.Client, prompt: str) -> str | None:
    """What is wrong with the answer to a request for BURST_TOKENS tokens."""
    import httpx

    sampling = {"temperature": 0, "max_new_tokens": BURST_TOKENS, "ignore_eos": True}
    try:
        response = http.post("/generate", json={"text": prompt, "sampling_params": sampling})
        if response.status_code != 200:
            return f"HTTP {response.status_code}: {response.text}"
        reply: Any = response.json()
    except (httpx.HTTPError, ValueError) as error:
        stop_if_exhausted(error, http.base_url.host)
        return f"{type(error).__name__}: {error}"
    meta = reply.get("meta_info") if isinstance(reply, dict) else None
    tokens = meta.get("completion_tokens") if isinstance(meta, dict) else None
    return None if tokens == BURST_TOKENS else f"{tokens} tokens instead of {BURST_TOKENS}"
