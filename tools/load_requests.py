"""One request of a load, sent and measured in the three ways that servers are spoken to.

SGLang's own `/generate`; the same of a simulated server, which answers with its own virtual times; and OpenAI's
`/v1/completions`, which vLLM and others have. Streams are measured by this machine's clock.
"""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from optagent.tools.load_http import events, post
from optagent.tools.load_metrics import Measured

LOAD_HEADER = "X-Optagent-Load"
LONGEST_ERROR = 500


@dataclass(frozen=True)
class Load:
    """One closed loop: which prompts go where, how many clients, and how the run is called. `bodies` are in the words of
    `/generate`; with `model` the server speaks OpenAI's dialect, and serves it under that name."""

    url: str
    bodies: Sequence[Mapping[str, Any]]
    clients: int
    run: str
    seed: int
    timeout_s: float
    simulated: bool
    model: str | None = None


Send = Callable[[http.client.HTTPConnection, Load, int], Measured]


def sender(load: Load) -> Send:
    """How this load's requests are sent."""
    if load.model is not None:
        return send_openai
    return send_simulated if load.simulated else send_native


def send_simulated(connection: http.client.HTTPConnection, load: Load, number: int) -> Measured:
    """A request of an announced load, measured in the server's virtual time."""
    told = {"run": load.run, "clients": load.clients, "requests": len(load.bodies), "index": number, "seed": load.seed}
    answer = post(connection, "/generate", load.bodies[number], {LOAD_HEADER: json.dumps(told)})
    body = json.loads(answer.read())
    if answer.status != 200:
        return failed(f"HTTP {answer.status}: {body}")
    meta = body["meta_info"]
    virtual = meta["virtual"]
    return Measured(
        input_len=meta["prompt_tokens"],
        output_len=meta["completion_tokens"],
        started_s=virtual["arrived_s"],
        first_token_s=virtual["first_token_s"],
        finished_s=virtual["finished_s"],
        itl_runs=[(gap, times) for gap, times in virtual["itl_runs"]],
        text=body["text"],
        verify_steps=meta.get("spec_verify_ct", 0),
        cached_tokens=meta.get("cached_tokens"),
    )


def send_native(connection: http.client.HTTPConnection, load: Load, number: int) -> Measured:
    """A stream of `/generate`, whose every event tells the text so far and the number of its tokens."""
    started = time.perf_counter()
    answer = post(connection, "/generate", {**load.bodies[number], "stream": True}, {})
    if answer.status != 200:
        return refused(answer)
    times: list[float] = []
    last: dict[str, Any] = {}
    tokens = 0
    for event in events(answer):
        if "error" in event:
            return failed(str(event["error"]))
        last = event
        count = event["meta_info"]["completion_tokens"]
        if count > tokens:
            times.append(time.perf_counter())
            tokens = count
    if not times:
        return failed("the stream ended without a token")
    meta = last["meta_info"]
    return Measured(
        input_len=meta["prompt_tokens"],
        output_len=tokens,
        started_s=started,
        first_token_s=times[0],
        finished_s=times[-1],
        itl_runs=gaps(times),
        text=last.get("text", ""),
        verify_steps=meta.get("spec_verify_ct") or 0,
        cached_tokens=meta.get("cached_tokens"),
    )


def send_openai(connection: http.client.HTTPConnection, load: Load, number: int) -> Measured:
    """A stream of `/v1/completions`, whose events tell new text and whose last one the usage: without it nobody knows
    how many tokens there were, and the request counts as failed."""
    started = time.perf_counter()
    answer = post(connection, "/v1/completions", openai_body(load.bodies[number], load.model), {})
    if answer.status != 200:
        return refused(answer)
    times: list[float] = []
    text: list[str] = []
    usage: dict[str, Any] = {}
    for event in events(answer):
        if "error" in event:
            return failed(str(event["error"]))
        usage = event.get("usage") or usage
        piece = "".join(choice.get("text") or "" for choice in event.get("choices") or [])
        if piece:
            times.append(time.perf_counter())
            text.append(piece)
    if not times:
        return failed("the stream ended without any text")
    if not isinstance(usage.get("completion_tokens"), int) or not isinstance(usage.get("prompt_tokens"), int):
        return failed("the stream ended without its usage, so that its tokens cannot be counted")
    return Measured(
        input_len=usage["prompt_tokens"],
        output_len=usage["completion_tokens"],
        started_s=started,
        first_token_s=times[0],
        finished_s=times[-1],
        itl_runs=gaps(times),
        text="".join(text),
        cached_tokens=(usage.get("prompt_tokens_details") or {}).get("cached_tokens"),
    )


def openai_body(native: Mapping[str, Any], model: str | None) -> dict[str, Any]:
    """The body of `/v1/completions` that asks for what a body of `/generate` does."""
    sampling = native["sampling_params"]
    return {
        "model": model,
        "prompt": native["input_ids"] if "input_ids" in native else native["text"],
        "max_tokens": sampling["max_new_tokens"],
        "temperature": sampling["temperature"],
        "ignore_eos": sampling["ignore_eos"],
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def gaps(times: Sequence[float]) -> list[tuple[float, int]]:
    """Inter-token latencies as they were seen: under speculation, and where a server sends several at once, a gap a
    chunk."""
    return [(after - before, 1) for before, after in pairwise(times)]


def refused(answer: http.client.HTTPResponse) -> Measured:
    return failed(f"HTTP {answer.status}: {answer.read(LONGEST_ERROR).decode(errors='replace')}")


def failed(error: str) -> Measured:
    return Measured(error=error[:LONGEST_ERROR])
