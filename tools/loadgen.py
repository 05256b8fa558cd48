"""A small load generator: a closed loop of clients with real HTTP requests, measured as `bench_serving` measures.

A real server is measured by this machine's clock, with streaming. A simulated one (its `/server_info` says so) is told
who its clients are and answers with its own virtual times, so that the same load gives the same numbers.
"""

from __future__ import annotations

import http.client
import json
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from optagent.tools.calls.bench import Workload
from optagent.tools.load_metrics import Measured, details, summarise

VOCABULARY = 32000
"""Random prompts draw their token ids below this, which every model's vocabulary holds."""

LOAD_HEADER = "X-Optagent-Load"


class LoadError(RuntimeError):
    """No benchmark was possible: the server cannot be reached, or there are no prompts."""


@dataclass(frozen=True)
class Load:
    """One closed loop: which prompts go where, how many clients, and how the run is called."""

    url: str
    bodies: Sequence[Mapping[str, Any]]
    clients: int
    run: str
    seed: int
    timeout_s: float
    simulated: bool


Send = Callable[[http.client.HTTPConnection, Load, int], Measured]


def generate_load(
    url: str, workload: Workload, seed: int, *, root: Path | None = None, run: str = "", timeout_s: float = 600.0
) -> dict[str, Any]:
    """Run `workload` against the server at `url`; the keys are those of a `bench_serving` result line with details.

    `seed` fixes the prompts, `run` names the run (a simulated server draws its run-to-run noise from both), `root` is
    the folder the workload's prompts file is relative to. Failed requests are in `errors`; LoadError means no run at all.
    """
    info = server_info(url, timeout_s)
    simulated = bool(info.get("simulated"))
    bodies = request_bodies(workload, seed, root or Path())
    load = Load(url, bodies, min(workload.max_concurrency, len(bodies)), run, seed, timeout_s, simulated)
    warm_up(load, workload.warmup_requests)
    if workload.flush_cache:
        call(url, "POST", "/flush_cache", timeout_s)
    measured, wall_s = closed_loop(load)
    good = [one for one in measured if not one.error]
    duration_s = wall_s
    if simulated and good:
        duration_s = max(one.finished_s for one in good) - min(one.started_s for one in good)
    line = labels(workload, seed, simulated) | summarise(measured, duration_s) | details(measured)
    if line["accept_length"] is None:
        line["accept_length"] = server_accept_length(server_info(url, timeout_s))
    return line


def labels(workload: Workload, seed: int, simulated: bool) -> dict[str, Any]:
    return {
        "backend": "sglang",
        "dataset_name": workload.dataset,
        "max_concurrency": workload.max_concurrency,
        "random_input_len": workload.input_len,
        "random_output_len": workload.output_len,
        "random_range_ratio": 1.0,
        "seed": seed,
        "simulated": simulated,
    }


def request_bodies(workload: Workload, seed: int, root: Path) -> list[dict[str, Any]]:
    """The bodies of all requests: random token ids, or the prompts of a file in a seeded order, repeated as needed."""
    sampling = {"max_new_tokens": workload.output_len, "temperature": 0.0, "ignore_eos": True}
    draws = random.Random(seed)
    if workload.dataset == "random-ids":
        return [
            {"input_ids": [draws.randrange(VOCABULARY) for _ in range(workload.input_len)], "sampling_params": sampling}
            for _ in range(workload.num_prompts)
        ]
    prompts = read_prompts(root / (workload.prompts or ""))
    draws.shuffle(prompts)
    return [{"text": prompts[at % len(prompts)], "sampling_params": sampling} for at in range(workload.num_prompts)]


def read_prompts(path: Path) -> list[str]:
    """The prompts of a JSONL file, one {"prompt": str} a line. Raises LoadError when there are none."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        prompts = [str(json.loads(line)["prompt"]) for line in lines if line.strip()]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise LoadError(f"{path} holds no prompts: {error}") from error
    if not prompts:
        raise LoadError(f"{path} holds no prompts")
    return prompts


def warm_up(load: Load, count: int) -> None:
    """Requests whose times count for nothing, with the prompts of the run and as many clients."""
    if count:
        bodies = [load.bodies[at % len(load.bodies)] for at in range(count)]
        closed_loop(replace(load, bodies=bodies, clients=min(load.clients, count), run=f"{load.run}/warm-up"))


def closed_loop(load: Load) -> tuple[list[Measured], float]:
    """Every request's measurement in the order of the prompts, and the wall time it took (s)."""
    send = send_simulated if load.simulated else send_streaming
    results: list[Measured | None] = [None] * len(load.bodies)
    numbers = iter(range(len(load.bodies)))
    lock = threading.Lock()

    def client() -> None:
        connection = connect(load.url, load.timeout_s)
        try:
            while True:
                with lock:
                    number = next(numbers, None)
                if number is None:
                    return
                results[number] = attempt(send, connection, load, number)
        finally:
            connection.close()

    began = time.perf_counter()
    threads = [threading.Thread(target=client, daemon=True) for _ in range(load.clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wall_s = time.perf_counter() - began
    return [one if one is not None else Measured(error="never sent") for one in results], wall_s


def attempt(send: Send, connection: http.client.HTTPConnection, load: Load, number: int) -> Measured:
    """One request's measurement; what went wrong is in its `error`."""
    try:
        return send(connection, load, number)
    except (OSError, http.client.HTTPException, ValueError, KeyError) as error:
        connection.close()
        return Measured(error=f"{type(error).__name__}: {error}")


def send_simulated(connection: http.client.HTTPConnection, load: Load, number: int) -> Measured:
    """A request of an announced load, measured in the server's virtual time."""
    told = {"run": load.run, "clients": load.clients, "requests": len(load.bodies), "index": number, "seed": load.seed}
    answer = post(connection, "/generate", load.bodies[number], {LOAD_HEADER: json.dumps(told)})
    body = json.loads(answer.read())
    if answer.status != 200:
        return Measured(error=f"HTTP {answer.status}: {body}")
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
    )


def send_streaming(connection: http.client.HTTPConnection, load: Load, number: int) -> Measured:
    """A streamed request, measured by this machine's clock."""
    started = time.perf_counter()
    answer = post(connection, "/generate", {**load.bodies[number], "stream": True}, {})
    if answer.status != 200:
        return Measured(error=f"HTTP {answer.status}: {answer.read(500).decode(errors='replace')}")
    times: list[float] = []
    last: dict[str, Any] = {}
    tokens = 0
    for line in answer:
        data = line.decode().strip().removeprefix("data:").strip()
        if not data or data == "[DONE]":
            continue
        last = json.loads(data)
        if "error" in last:
            return Measured(error=str(last["error"]))
        count = last["meta_info"]["completion_tokens"]
        if count > tokens:
            times.append(time.perf_counter())
            tokens = count
    if not times:
        return Measured(error="the stream ended without a token")
    meta = last["meta_info"]
    return Measured(
        input_len=meta["prompt_tokens"],
        output_len=tokens,
        started_s=started,
        first_token_s=times[0],
        finished_s=times[-1],
        itl_runs=[(after - before, 1) for before, after in pairwise(times)],
        text=last.get("text", ""),
        verify_steps=meta.get("spec_verify_ct") or 0,
    )


def connect(url: str, timeout_s: float) -> http.client.HTTPConnection:
    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    return kind(parts.hostname or "127.0.0.1", parts.port, timeout=timeout_s)


def post(
    connection: http.client.HTTPConnection, path: str, body: Mapping[str, Any], headers: Mapping[str, str]
) -> http.client.HTTPResponse:
    connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json", **headers})
    return connection.getresponse()


def call(url: str, method: str, path: str, timeout_s: float) -> tuple[int, bytes]:
    """Status and body of one request. Raises LoadError when the server cannot be reached."""
    connection = connect(url, timeout_s)
    try:
        connection.request(method, path, headers={"Content-Length": "0"})
        answer = connection.getresponse()
        return answer.status, answer.read()
    except (OSError, http.client.HTTPException) as error:
        raise LoadError(f"{url}{path} cannot be reached: {error}") from error
    finally:
        connection.close()


def server_info(url: str, timeout_s: float) -> dict[str, Any]:
    """What the server says about itself, under either name of the endpoint; empty when it says nothing."""
    for path in ("/server_info", "/get_server_info"):
        status, body = call(url, "GET", path, timeout_s)
        if status == 200:
            parsed = json.loads(body)
            return parsed if isinstance(parsed, dict) else {}
    return {}


def server_accept_length(info: Mapping[str, Any]) -> float | None:
    """The server's own accept length, which counts from its start; None without speculation."""
    states = info.get("internal_states") or [{}]
    value = states[0].get("avg_spec_accept_length")
    return float(value) if value else None
