"""One benchmark run, and whether it counts."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from optagent.tools import processes
from optagent.tools.calls.bench import Bench, BenchRun, Workload
from optagent.tools.commands import Command
from optagent.tools.files import replace_file
from optagent.tools.processes import Family

KEY = "optagent_key"
"""Stands in every result file: whose result it is."""

ELAPSED = "optagent_elapsed_s"
TOKEN_TOLERANCE = 0.01
"""A request may end a token early or late at the edge of its length; a server that answers shorter is not faster."""

NEEDED = ("duration", "completed", "total_output_tokens", "output_throughput")
LATENCIES = ("median_ttft_ms", "median_tpot_ms")
REQUEST_RATE = "request_rate"
"""What was asked for, not a result: infinite when as many requests as allowed are sent at once."""

Load = Callable[[], Mapping[str, Any]]
"""Puts the load on the server and returns the result with `bench_serving`'s keys; raises LoadFailed."""


class LoadFailed(Exception):
    """No result came out; the message says why."""


def run_bench(request: Bench, result_file: Path, load: Load, simulated: bool) -> BenchRun:
    """One run, with its whole result in `result_file`. A result that is there for this key is the run's already."""
    earlier = _stored(result_file)
    if earlier is not None and earlier.get(KEY) == request.key:
        return _judged(request, earlier, simulated)
    if result_file.exists():
        return _invalid(request, f"{request.result_file} exists and is of another run", simulated)
    began = time.monotonic()
    try:
        result = dict(load())
        elapsed_s = round(time.monotonic() - began, 3)
        result |= {KEY: request.key, "optagent_run": request.run, ELAPSED: elapsed_s}
        replace_file(result_file, json.dumps(result).encode() + b"\n")
    except (LoadFailed, OSError) as error:
        return _invalid(request, str(error), simulated, round(time.monotonic() - began, 3))
    return _judged(request, result, simulated)


def judge(result: Mapping[str, Any], workload: Workload) -> list[str]:
    """Why a result does not count, nothing when it does."""
    reasons = [f"{name} is missing" for name in NEEDED if _number(result.get(name)) is None]
    latencies = [name for name in LATENCIES if workload.output_len > 1 or name != "median_tpot_ms"]
    reasons += [f"{name} is missing" for name in latencies if _number(result.get(name)) is None]
    completed = _number(result.get("completed"))
    if completed is not None and completed != workload.num_prompts:
        reasons.append(f"{completed:.0f} of {workload.num_prompts} requests completed")
    errors = [e for e in result.get("errors") or [] if e]
    if errors:
        reasons.append(f"{len(errors)} requests failed, the first with: {str(errors[0])[:200]}")
    tokens, wanted = _number(result.get("total_output_tokens")), workload.num_prompts * workload.output_len
    if tokens is not None and abs(tokens - wanted) > TOKEN_TOLERANCE * wanted:
        reasons.append(f"{tokens:.0f} output tokens instead of {wanted}")
    broken = sorted(k for k, v in result.items() if isinstance(v, float) and not math.isfinite(v) and k != REQUEST_RATE)
    reasons += [f"{name} is not a finite number" for name in broken if f"{name} is missing" not in reasons]
    return reasons


def metrics_of(result: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a result by their names; what is not a number was not measured, and is left out."""
    numbers = {name: _number(value) for name, value in result.items() if not name.startswith("optagent_")}
    return {name: value for name, value in numbers.items() if value is not None}


def client_load(command: Command, output: Path, log: Path, timeout_s: float) -> dict[str, Any]:
    """Run SGLang's benchmark client, whose only line in the new file `output` is the result.

    The client is killed with all it started when it takes longer than `timeout_s`, or when we are interrupted. Raises
    LoadFailed.
    """
    output.parent.mkdir(parents=True, exist_ok=True)
    output.unlink(missing_ok=True)  # the client appends; what an interrupted attempt left is not this run's
    try:
        client = processes.start(command, log)
    except OSError as error:
        raise LoadFailed(f"{command.argv[0]}: {error.strerror or error}") from None
    family = Family(client, None)
    deadline = time.monotonic() + timeout_s
    try:
        while processes.is_alive(client) and time.monotonic() < deadline:
            family.living()
            time.sleep(0.1)
        in_time = not processes.is_alive(client)
    finally:
        processes.stop(family, grace_s=1.0)
    if not in_time:
        raise LoadFailed(f"the benchmark took longer than {timeout_s:.0f} s and was stopped")
    code = processes.exit_code(client)
    if code != 0:
        raise LoadFailed(f"the benchmark client ended with exit status {code}: {_last_line(log)}")
    return _only_line(output)


def client_prompts(prompts: Path, output: Path) -> Path:
    """Write the campaign's prompts, one {"prompt": str} a line, in the form the client reads. Raises LoadFailed."""
    try:
        rows = [json.loads(line) for line in prompts.read_text("utf-8").splitlines() if line.strip()]
        talks = [{"conversations": [{"content": row["prompt"]}, {"content": "unused"}]} for row in rows]
        replace_file(output, "".join(json.dumps(talk) + "\n" for talk in talks).encode())
    except OSError as error:
        raise LoadFailed(f"{prompts}: {error.strerror or error}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise LoadFailed(f'{prompts}: every line must be {{"prompt": "..."}}: {error}') from None
    return output


def _judged(request: Bench, result: Mapping[str, Any], simulated: bool) -> BenchRun:
    reasons = judge(result, request.workload)
    return BenchRun(
        valid=not reasons,
        invalid_because=reasons,
        metrics=metrics_of(result),
        result_file=request.result_file,
        elapsed_s=_number(result.get(ELAPSED)),
        simulated=simulated,
    )


def _invalid(request: Bench, reason: str, simulated: bool, elapsed_s: float | None = None) -> BenchRun:
    return BenchRun(valid=False, invalid_because=[reason], elapsed_s=elapsed_s, simulated=simulated)


def _stored(result_file: Path) -> dict[str, Any] | None:
    """A complete result, None when there is none."""
    try:
        result = json.loads(result_file.read_bytes())
    except (OSError, ValueError):
        return None
    return result if isinstance(result, dict) else None


def _only_line(output: Path) -> dict[str, Any]:
    try:
        lines = [line for line in output.read_text("utf-8").splitlines() if line.strip()]
    except OSError as error:
        raise LoadFailed(f"the benchmark client wrote no result: {error.strerror or error}") from None
    if len(lines) != 1:
        raise LoadFailed(f"the benchmark client wrote {len(lines)} results instead of one")
    try:
        result = json.loads(lines[0])
    except ValueError as error:
        raise LoadFailed(f"the benchmark client's result is not JSON: {error}") from None
    if not isinstance(result, dict):
        raise LoadFailed("the benchmark client's result is not a JSON object")
    return result


def _last_line(log: Path) -> str:
    lines = [line for line in log.read_text("utf-8", errors="replace").splitlines() if line.strip()]
    return lines[-1][:300] if lines else "it said nothing"


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None
