"""One benchmark run: the load that is put on and discarded, the one that is measured, and what is kept of both."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from optagent.tools.bench_judging import (
    cached_share,
    errors_of,
    judge,
    metrics_of,
    number,
    oddities,
    openings_of,
    repetitive_share,
)
from optagent.tools.bench_progress import Progress, Report
from optagent.tools.calls.bench import Bench, BenchRun
from optagent.tools.exhausted import stop_if_exhausted, stop_if_told
from optagent.tools.files import replace_file

KEY = "optagent_key"
"""Stands in every result file: whose result it is."""

ELAPSED = "optagent_elapsed_s"
DIED = "the server died while it was measured"
OTHER_PROMPTS = 10_000
"""Added to the seed of the discarded load. Runs count their seeds up from the workload's, and never come that far."""

Load = Callable[[Bench, Path, Progress], Mapping[str, Any]]
"""Puts the load on the server and returns the result with `bench_serving`'s keys; the file is where its output may lie
beside. Raises LoadFailed."""


class LoadFailed(Exception):
    """No result came out; the message says why."""


def run_bench(
    request: Bench,
    result_file: Path,
    load: Load,
    simulated: bool,
    report: Report,
    alive: Callable[[], bool] = lambda: True,
) -> BenchRun:
    """One run, with its whole result in `result_file`. A result that is there for this key is the run's already.

    Without one the discarded load comes again too, whatever came of an earlier attempt: what it warmed up may have been
    stopped since. Its result lies beside, as evidence. Where requests or their client fail, `alive` says whether the server
    still serves.
    """
    earlier = _stored(result_file)
    if earlier is not None and earlier.get(KEY) == request.key:
        return _judged(request, earlier, simulated)
    if result_file.exists():
        return _invalid(request, f"{request.result_file} exists and is of another run", simulated)
    began = time.monotonic()
    try:
        if request.discard_first:
            progress = Progress(report, request.workload.num_prompts, "benchmark, first load (discarded)")
            _put_on(first_of(request), result_file.with_suffix(".first.jsonl"), load, progress)
        began = time.monotonic()
        result = _put_on(request, result_file, load, Progress(report, request.workload.num_prompts))
    except (LoadFailed, OSError) as error:
        stop_if_exhausted(error, request.result_file)
        stop_if_told(str(error), request.result_file)
        reason = str(error) if alive() else f"{DIED}: {error}"
        return _invalid(request, reason, simulated, round(time.monotonic() - began, 3))
    run = _judged(request, result, simulated)
    if run.valid or not errors_of(result) or alive():
        return run
    return run.model_copy(update={"invalid_because": [DIED, *run.invalid_because]})


def first_of(request: Bench) -> Bench:
    """The load before the measured one, as large and with other prompts, or the same in another order. It is a run of
    its own, so that what depends on a run's name stays as it is without it."""
    first = {"key": f"{request.key}:first", "run": f"{request.run}/first", "seed": request.seed + OTHER_PROMPTS}
    return request.model_copy(update=first)


def _put_on(request: Bench, result_file: Path, load: Load, progress: Progress) -> dict[str, Any]:
    """Put one load on and keep its result. Raises LoadFailed and OSError."""
    began = time.monotonic()
    result = dict(load(request, result_file, progress))
    elapsed_s = round(time.monotonic() - began, 3)
    ours = {KEY: request.key, "optagent_run": request.run, ELAPSED: elapsed_s, "optagent_cache": _cache_state(request)}
    result |= ours
    replace_file(result_file, json.dumps(result).encode() + b"\n")
    return result


def _cache_state(request: Bench) -> Literal["flushed", "kept"]:
    """Of the prefix cache when the measured requests began: whoever cannot flush it, although asked, has no result."""
    return "flushed" if request.workload.flush_cache else "kept"


def _judged(request: Bench, result: Mapping[str, Any], simulated: bool) -> BenchRun:
    reasons = judge(result, request.workload)
    return BenchRun(
        valid=not reasons,
        invalid_because=reasons,
        metrics=metrics_of(result),
        result_file=request.result_file,
        elapsed_s=number(result.get(ELAPSED)),
        cache=_cache_state(request),
        cached_share=cached_share(result),
        repetitive=repetitive_share(result),
        openings=openings_of(result),
        warnings=oddities(result),
        simulated=_is_simulated(result, simulated),
    )


def _is_simulated(result: Mapping[str, Any], otherwise: bool) -> bool:
    """What the server that was measured says of itself, which need not be the deployment's own."""
    info = result.get("server_info")
    said = result.get("simulated", info.get("simulated") if isinstance(info, Mapping) else None)
    return said if isinstance(said, bool) else otherwise


def _invalid(request: Bench, reason: str, simulated: bool, elapsed_s: float | None = None) -> BenchRun:
    return BenchRun(valid=False, invalid_because=[reason], elapsed_s=elapsed_s, simulated=simulated)


def _stored(result_file: Path) -> dict[str, Any] | None:
    """A complete result, None when there is none."""
    try:
        result = json.loads(result_file.read_bytes())
    except (OSError, ValueError):
        return None
    return result if isinstance(result, dict) else None
