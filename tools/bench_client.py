"""SGLang's own benchmark client, run as a process."""

from __future__ import annotations

import json
import re
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from optagent.tools.bench import LoadFailed
from optagent.tools.bench_progress import Progress
from optagent.tools.clients import run_client
from optagent.tools.commands import Command
from optagent.tools.files import replace_file

TAIL_BYTES = 64 * 1024
BAR = re.compile(rb"(\d+)/(\d+) \[")
"""The count in a line of tqdm: ` 38%|###7      | 12/32 [00:03<00:05,  3.71it/s]`."""

USAGE = 2
"""The exit status of argparse."""


class OptionRefused(LoadFailed):
    """The client does not know an option it was given: it is older than that."""


def client_load(command: Command, output: Path, log: Path, timeout_s: float, progress: Progress) -> dict[str, Any]:
    """Run SGLang's benchmark client, whose only line in the new file `output` is the result.

    The client is killed with all it started when it takes longer than `timeout_s`, or when we are interrupted. Raises
    LoadFailed, OptionRefused when the client does not know an option.
    """
    output.parent.mkdir(parents=True, exist_ok=True)
    output.unlink(missing_ok=True)  # the client appends; what an interrupted attempt left is not this run's

    def tell(since: int) -> None:
        if progress.due:
            progress.tell(requests_done(log, since, progress.requests))

    try:
        ended = run_client(command, log, timeout_s, tell)
    except OSError as error:
        raise LoadFailed(f"{command.argv[0]}: {error.strerror or error}") from None
    if ended.code is None:
        raise LoadFailed(f"the benchmark took longer than {timeout_s:.0f} s and was stopped")
    if ended.code != 0:
        refused = ended.code == USAGE and "unrecognized arguments" in ended.said
        said = f"the benchmark client ended with exit status {ended.code}: {ended.said}"
        raise OptionRefused(said) if refused else LoadFailed(said)
    return _only_line(output)


def client_prompts(prompts: Path, output: Path, count: int) -> Path:
    """Write the campaign's prompts, one {"prompt": str} a line, in the form the client reads, over again until there are
    `count`. Raises LoadFailed."""
    try:
        rows = [json.loads(line) for line in prompts.read_text("utf-8").splitlines() if line.strip()]
        talks = [{"conversations": [{"content": row["prompt"]}, {"content": "unused"}]} for row in rows]
        enough = islice(cycle(talks), max(len(talks), count))
        replace_file(output, "".join(json.dumps(talk) + "\n" for talk in enough).encode())
    except OSError as error:
        raise LoadFailed(f"{prompts}: {error.strerror or error}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise LoadFailed(f'{prompts}: every line must be {{"prompt": "..."}}: {error}') from None
    if not talks:
        raise LoadFailed(f"{prompts} holds no prompts")
    return output


def requests_done(log: Path, since: int, requests: int) -> int | None:
    """How many of the requests have finished by the last progress bar behind `since` bytes; None before there is one."""
    counts = [int(done) for done, of in BAR.findall(_tail(log, since)) if int(of) == requests]
    return counts[-1] if counts else None


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


def _tail(log: Path, since: int) -> bytes:
    """The last part of what was written behind `since` bytes."""
    try:
        with log.open("rb") as file:
            end = file.seek(0, 2)
            file.seek(max(since, end - TAIL_BYTES))
            return file.read(TAIL_BYTES)
    except OSError:
        return b""
