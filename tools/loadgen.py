"""A small load generator: a closed loop of clients with real HTTP requests, measured as `bench_serving` measures.

It serves deployments without SGLang's own client. A real server is measured by this machine's clock, with streaming. A
simulated one (its `/server_info` says so) is told who its clients are and answers with its own virtual times, so that
the same load gives the same numbers.
"""

from __future__ import annotations

import http.client
import json
import random
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from optagent.tools.bench_progress import REPORT_EVERY_S, Progress
from optagent.tools.calls.bench import Workload
from optagent.tools.load_http import Connection, LoadError, call, connect, json_object
from optagent.tools.load_metrics import Measured, details, summarise
from optagent.tools.load_requests import Load, Send, failed, sender

IN_ANY_VOCABULARY = range(100, 1000)
"""Token ids that every model has. One that a model does not have brings a real SGLang down, and we are not told which
it has."""

SIMULATED_IDS = range(32000)

QUESTION_TIMEOUT_S = 60.0
LOOKS, LOOK_PAUSE_S, LOOK_TIMEOUT_S = 3, 0.5, 20.0
FLUSH_TRIES = 5
FLUSH_PAUSE_S = 1.0
"""SGLang refuses to flush while it still has a request; releases that know the parameter wait by themselves."""


def generate_load(
    url: str,
    workload: Workload,
    seed: int,
    *,
    root: Path | None = None,
    run: str = "",
    timeout_s: float = 600.0,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Run `workload` against the server at `url`; the keys are those of a `bench_serving` result line with details.

    `seed` fixes the prompts, `run` names the run (a simulated server draws its run-to-run noise from both), `root` is
    the folder the workload's prompts file is relative to, `timeout_s` is for the whole. Failed requests are in `errors`;
    LoadError means no run at all.
    """
    short_s = min(timeout_s, QUESTION_TIMEOUT_S)
    info = server_info(url, short_s)
    model = None if info else model_name(url, short_s)
    simulated = bool(info.get("simulated"))
    bodies = request_bodies(workload, seed, root or Path(), SIMULATED_IDS if simulated else IN_ANY_VOCABULARY)
    load = Load(url, bodies, min(workload.max_concurrency, len(bodies)), run, seed, timeout_s, simulated, model)
    warm_up(load, workload.warmup_requests)
    if workload.flush_cache:
        flush(url, short_s, native=model is None)
    measured, wall_s = closed_loop(load, progress)
    good = [one for one in measured if not one.error]
    duration_s = wall_s
    if simulated and good:
        duration_s = max(one.finished_s for one in good) - min(one.started_s for one in good)
    line = labels(workload, seed, load) | summarise(measured, duration_s) | details(measured)
    if line["accept_length"] is None and model is None:
        line["accept_length"] = server_accept_length(server_info(url, short_s))
    return line


def labels(workload: Workload, seed: int, load: Load) -> dict[str, Any]:
    return {
        "backend": "sglang" if load.model is None else "openai",
        "dataset_name": workload.dataset,
        "max_concurrency": workload.max_concurrency,
        "random_input_len": workload.input_len,
        "random_output_len": workload.output_len,
        "random_range_ratio": 1.0,
        "seed": seed,
        "simulated": load.simulated,
    }


def request_bodies(
    workload: Workload, seed: int, root: Path, vocabulary: range = IN_ANY_VOCABULARY
) -> list[dict[str, Any]]:
    """The bodies of all requests: random token ids, or the prompts of a file in a seeded order, repeated as needed."""
    sampling = {"max_new_tokens": workload.output_len, "temperature": 0.0, "ignore_eos": True}
    draws = random.Random(seed)
    if workload.dataset == "random-ids":
        first, end = vocabulary.start, vocabulary.stop
        return [
            {"input_ids": [draws.randrange(first, end) for _ in range(workload.input_len)], "sampling_params": sampling}
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


def closed_loop(load: Load, progress: Progress | None = None) -> tuple[list[Measured], float]:
    """Every request's measurement in the order of the prompts, and the wall time it took (s). Raises LoadError when it
    takes longer than the load's time."""
    loop = _Loop(load)
    progress = progress or Progress(lambda text: None, len(load.bodies))
    began = time.perf_counter()
    threads = [threading.Thread(target=loop.client, daemon=True) for _ in range(load.clients)]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            progress.tell(loop.done)
            while thread.is_alive() and not loop.overdue:
                thread.join(REPORT_EVERY_S)
                progress.tell(loop.done)
    finally:
        loop.stop()
    if loop.overdue and loop.done < len(load.bodies):
        raise LoadError(f"the benchmark took longer than {load.timeout_s:.0f} s and was stopped")
    return [one if one is not None else failed("never sent") for one in loop.results], loop.last_s - began


class _Loop:
    """What the clients of a closed loop share: which request is next, and what has come of the others."""

    def __init__(self, load: Load) -> None:
        self.results: list[Measured | None] = [None] * len(load.bodies)
        self.done = 0
        self.last_s = time.perf_counter()
        self._deadline = self.last_s + load.timeout_s
        self._load, self._send = load, sender(load)
        self._numbers = iter(range(len(load.bodies)))
        self._connections: list[Connection] = []
        self._lock = threading.Lock()

    @property
    def overdue(self) -> bool:
        return time.perf_counter() > self._deadline

    def client(self) -> None:
        """Send one request after the other until there are no more."""
        connection = connect(self._load.url, self._load.timeout_s)
        with self._lock:
            self._connections.append(connection)
        try:
            while (number := self._next()) is not None:
                measured = attempt(self._send, connection, self._load, number)
                with self._lock:
                    self.results[number] = measured
                    self.done += 1
                    self.last_s = time.perf_counter()
        finally:
            connection.close()

    def stop(self) -> None:
        """Send nothing any more, and end what is under way: a load that nobody waits for must not go on."""
        with self._lock:
            self._numbers = iter(range(0))
            connections = list(self._connections)
        for connection in connections:
            connection.hang_up()

    def _next(self) -> int | None:
        with self._lock:
            return None if self.overdue else next(self._numbers, None)


def attempt(send: Send, connection: http.client.HTTPConnection, load: Load, number: int) -> Measured:
    """One request's measurement; what went wrong is in its `error`."""
    try:
        return send(connection, load, number)
    except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError, AttributeError) as error:
        connection.close()
        return failed(f"{type(error).__name__}: {error}")


def answers(url: str, timeout_s: float) -> bool:
    """Whether anybody speaks HTTP there, whatever is said."""
    try:
        call(url, "GET", "/health", timeout_s)
    except LoadError:
        return False
    return True


def serves(url: str) -> bool:
    """Whether a server whose client or requests failed still answers, also a little later: a server that loses one of its
    processes takes a moment to end. One without /health says at least so."""
    for look in range(LOOKS):
        if look:
            time.sleep(LOOK_PAUSE_S)
        try:
            status, _ = call(url, "GET", "/health", LOOK_TIMEOUT_S)
        except LoadError:
            return False
        if status >= 500:
            return False
    return True


def flush(url: str, timeout_s: float, *, native: bool) -> None:
    """Empty the server's prefix cache. Raises LoadError when it cannot be done."""
    paths = (f"/flush_cache?timeout={timeout_s:.0f}",) if native else ("/reset_prefix_cache", "/flush_cache")
    status = 0
    for path in paths:
        for tried in range(FLUSH_TRIES):
            status, _ = call(url, "POST", path, 2 * timeout_s)
            if status == 200:
                return
            if status != 400 or tried == FLUSH_TRIES - 1:
                break
            time.sleep(FLUSH_PAUSE_S)
    hint = "" if native else "; set workload.flush_cache = false for a server that has no way to"
    raise LoadError(f"the server did not empty its prefix cache (HTTP {status}){hint}")


def server_info(url: str, timeout_s: float) -> dict[str, Any]:
    """What an SGLang server says about itself, under either name of the endpoint; empty when it says nothing."""
    for path in ("/server_info", "/get_server_info"):
        status, body = call(url, "GET", path, timeout_s)
        if status == 200 and (info := json_object(body)):
            return info
    return {}


def model_name(url: str, timeout_s: float) -> str:
    """The first model that an OpenAI-compatible server has. Raises LoadError when it is no such server."""
    status, body = call(url, "GET", "/v1/models", timeout_s)
    models = json_object(body).get("data")
    first = models[0] if status == 200 and isinstance(models, Sequence) and models else None
    if not isinstance(first, Mapping) or not isinstance(first.get("id"), str):
        raise LoadError(f"{url} is neither SGLang (/server_info) nor OpenAI-compatible (/v1/models)")
    return str(first["id"])


def server_accept_length(info: Mapping[str, Any]) -> float | None:
    """The server's own accept length, which counts from its start; None without speculation."""
    states = info.get("internal_states")
    first = states[0] if isinstance(states, list) and states else None
    value = first.get("avg_spec_accept_length") if isinstance(first, Mapping) else None
    return float(value) if isinstance(value, int | float) and value else None
