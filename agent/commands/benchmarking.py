"""`optagent bench`: a server that runs already, measured; nothing is launched, stopped or put into the journal."""

from __future__ import annotations

import json
import os
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pydantic import ValidationError

from optagent.agent.commands.interrupting import signals_interrupt
from optagent.agent.commands.narration import narrator_for
from optagent.agent.commands.printable import clean
from optagent.agent.commands.workspace import Workspace, ensure_writable, find_workspace, live
from optagent.agent.config import wrong_key
from optagent.agent.errors import BadInput
from optagent.agent.session import Narrator
from optagent.tools.calls.bench import Bench, BenchRun, Workload
from optagent.tools.calls.clock import AskTime
from optagent.tools.calls.workloads import SINGLE_STREAM, SINGLE_STREAM_LONG, SPECULATIVE, meant_by, shape_of
from optagent.tools.load_http import LoadError
from optagent.tools.loadgen import answers, read_prompts
from optagent.tools.network import address_of
from optagent.tools.paths import OutsideCampaign, inside

if TYPE_CHECKING:
    from rich.console import RenderableType

KNOCK_TIMEOUT_S = 10.0
INTERRUPTED = 130

COLUMNS = {
    "output_throughput": "tok/s",
    "median_ttft_ms": "TTFT\np50",
    "p99_ttft_ms": "TTFT\np99",
    "median_tpot_ms": "TPOT\np50",
    "p99_tpot_ms": "TPOT\np99",
    "mean_e2e_latency_ms": "e2e\nmean",
    "accept_length": "accept\nlength",
}
"""The metrics of the table, with their heads; latencies are in ms. A column without any value is left out."""


@dataclass(frozen=True)
class Series:
    """What is measured: one workload, a number of times, with other prompts each time."""

    url: str
    workload: Workload
    runs: int
    seed: int


def benchmark(root: Path, *, workload: str | None, runs: int, seed: int | None, url: str | None, as_json: bool) -> int:
    """Exit status 0 when all runs are valid, 1 when some are not, 130 when it was interrupted. Raises BadInput."""
    space = find_workspace(root)
    series = _series(space, workload, runs, seed, url)
    ensure_writable(space)
    done: list[BenchRun] = []
    try:
        with narrator_for(sys.stdout, quiet=as_json) as narrator, signals_interrupt():
            _measure(space, series, narrator, done)
    except KeyboardInterrupt:
        print(f"optagent: interrupted: {len(done)} of {runs} runs were measured", file=sys.stderr)
        return INTERRUPTED
    if as_json:
        print(json.dumps(series_json(series, done), ensure_ascii=False))
    else:
        _show(series, done)
    return 0 if all(run.valid for run in done) else 1


def _series(space: Workspace, name: str | None, runs: int, seed: int | None, url: str | None) -> Series:
    workload = chosen_workload(space, name)
    if workload.dataset == "custom":
        try:
            read_prompts(inside(space.root, workload.prompts or ""))
        except (LoadError, OutsideCampaign) as error:
            raise wrong_key(space.root, "workload.prompts", str(error)) from None
    target = checked_url(url) if url is not None else address_of(space.config.deployment).url
    if not answers(target, KNOCK_TIMEOUT_S):
        raise BadInput(f"nobody answers at {target}", "start the server, or name another with --url")
    return Series(target, workload, runs, workload.seed + 1 if seed is None else seed)


def chosen_workload(space: Workspace, name: str | None) -> Workload:
    """The campaign's own workload, or a preset with the campaign's prompts. Raises BadInput for any other name."""
    own = space.config.workload
    if name is None or name == own.name:
        return own
    if not shape_of(name):
        known = dict.fromkeys([own.name, SINGLE_STREAM, SINGLE_STREAM_LONG, "throughput-N", SPECULATIVE])
        near = f"; did you mean {meant}?" if (meant := meant_by(name)) else ""
        raise BadInput("--workload", f"expected one of {', '.join(known)}, not {name!r}{near}")
    try:
        return Workload.model_validate({"name": name, "prompts": own.prompts, "seed": own.seed})
    except ValidationError as error:
        raise wrong_key(space.root, "workload.prompts", _message(error)) from None


def _message(error: ValidationError) -> str:
    return str(error.errors()[0]["msg"]).removeprefix("Value error, ")


def checked_url(url: str) -> str:
    """The address of a server, without a path. Raises BadInput."""
    try:
        parts = urlsplit(url)
        plain = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0 and not parts.username
        bare = parts.path in ("", "/") and not parts.query and not parts.fragment
    except ValueError:
        plain = bare = False
    if not (plain and bare):
        raise BadInput("--url", "expected an address like http://10.0.0.5:30000, without user, path or query")
    return url.rstrip("/")


def _measure(space: Workspace, series: Series, narrator: Narrator, done: list[BenchRun]) -> None:
    """All runs, into `done` as they come. The discarded load is put on once: the server stays what it is."""
    toolbox = live(space, narrator)
    stamp = toolbox.clock(AskTime()).now.replace(":", "").replace("-", "")
    for number in range(1, series.runs + 1):
        narrator.now(f"{series.workload.name}, run {number} of {series.runs}")
        run = toolbox.bench(Bench(
            key=f"bench:{stamp}:{os.getpid()}:{number}", run=f"bench-{stamp}-{number}", url=series.url,
            workload=series.workload, seed=series.seed + number - 1,
            result_file=f".optagent/runs/bench-{stamp}-{number}.jsonl",
            discard_first=space.config.measuring.discard_first and number == 1,
        ))  # fmt: skip
        done.append(run)
        narrator.tell(*_said(number, run))
        for warning in run.warnings:
            narrator.tell("note", f"run {number}: {warning}")


def _said(number: int, run: BenchRun) -> tuple[str, str]:
    """A run in one line, with its sort."""
    if not run.valid:
        return "bad", f"run {number} is invalid: {'; '.join(run.invalid_because)}"
    simulated = " (simulated)" if run.simulated else ""
    throughput = figure(run.metrics["output_throughput"])
    return "good", f"run {number}: {throughput} output tok/s{simulated}, took {run.elapsed_s or 0:.0f} s"


def series_json(series: Series, done: Sequence[BenchRun]) -> dict[str, Any]:
    """The object for scripts: the runs as they are in a recording, with their seeds, and the spread of the valid ones."""
    return {
        "url": series.url,
        "workload": series.workload.model_dump(mode="json"),
        "simulated": any(run.simulated for run in done),
        "valid": all(run.valid for run in done),
        "runs": [{"seed": series.seed + at, **run.model_dump(mode="json")} for at, run in enumerate(done)],
        "spread": {name: found for name in COLUMNS if (found := spread_of(done, name))},
    }


def spread_of(done: Sequence[BenchRun], name: str) -> dict[str, float | None]:
    """Mean, standard deviation in per cent of it, and extremes of a metric over the valid runs; empty without any."""
    values = [run.metrics[name] for run in done if run.valid and name in run.metrics]
    if not values:
        return {}
    mean = statistics.fmean(values)
    sd_percent = 100 * statistics.stdev(values) / mean if len(values) > 1 and mean else None
    return {"mean": mean, "sd_percent": sd_percent, "min": min(values), "max": max(values), "runs": len(values)}


def _show(series: Series, done: Sequence[BenchRun]) -> None:
    from rich.console import Console

    simulated = " (simulated)" if any(run.simulated for run in done) else ""
    print(f"\n{clean(describe(series.workload))}\n{series.url}{simulated}; latencies in ms")
    Console(file=sys.stdout, highlight=False, markup=False).print(_table(series, done))
    files = [run.result_file for run in done if run.result_file]
    if files:
        print(f"results: {files[0]}" + (f" and {len(files) - 1} more" if len(files) > 1 else ""))


def describe(workload: Workload) -> str:
    """A load shape in words."""
    prompts = (
        f"{workload.input_len} tokens in" if workload.dataset == "random-ids" else f"prompts of {workload.prompts}"
    )
    return (
        f"{workload.name}: {workload.num_prompts} requests, {workload.max_concurrency} at a time, {prompts}, "
        f"{workload.output_len} tokens out, prefix cache {'flushed' if workload.flush_cache else 'kept'}"
    )


def _table(series: Series, done: Sequence[BenchRun]) -> RenderableType:
    """A row a run, with the mean and its standard deviation below; latencies in ms."""
    from rich.table import Table

    names = [name for name in COLUMNS if any(name in run.metrics for run in done)]
    table = Table(box=None, pad_edge=False, show_footer=False)
    table.add_column("run")
    for name in names:
        table.add_column(COLUMNS[name], justify="right", no_wrap=True)
    table.add_column("cached", justify="right")
    table.add_column("")
    for number, run in enumerate(done, 1):
        cached = "-" if run.cached_share is None else f"{run.cached_share:.1%}"
        cells = [figure(run.metrics.get(name)) for name in names]
        table.add_row(str(number), *cells, cached, "valid" if run.valid else "INVALID")
    spreads = [spread_of(done, name) for name in names]
    if sum(run.valid for run in done) > 1:
        table.add_row("mean", *(figure(spread.get("mean")) for spread in spreads), "", "")
        table.add_row("sd %", *(figure(spread.get("sd_percent")) for spread in spreads), "", "")
    return table


def figure(value: float | None) -> str:
    """A number in four digits; a dash where there is none."""
    if value is None:
        return "-"
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"
