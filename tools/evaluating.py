"""Letting a server solve GSM8K through SGLang's own evaluation: how many of the tasks, and which."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from optagent.tools.bench_client import requests_done
from optagent.tools.bench_progress import Progress
from optagent.tools.calls.gate import Evaluate, Evaluated
from optagent.tools.clients import run_client
from optagent.tools.commands import NoInterpreter, eval_command
from optagent.tools.deployment import Deployment
from optagent.tools.exhausted import stop_if_exhausted
from optagent.tools.files import replace_file, sha256
from optagent.tools.paths import OutsideCampaign, from_root, inside

SHOTS = 5
"""The first tasks of the file are given to the model with their answers, and not asked (`run_eval --num-shots`)."""

REPORTS = Path("/tmp")
"""Where `run_eval` writes gsm8k_<model>.json and .html, whatever its environment says."""

UNANSWERED = ("Bad Request Error", "All retry attempts exhausted")
"""What `run_eval` prints about a task that was refused or not answered, and then counts as not solved."""

ITEM = re.compile(r"<p>Score: ([01])\.0</p>")
"""One for each task in the order of the file. What a model says is escaped there."""

LARGEST_REPORT_BYTES = 256 * 1024 * 1024
LARGEST_LOG_BYTES = 16 * 1024 * 1024


class EvaluationFailed(Exception):
    """No score came out; the message says why."""


class Evaluation(BaseModel):
    """What is kept of an evaluation. `solved` has a value for each task, None when they could not be told apart."""

    model_config = ConfigDict(frozen=True)

    key: str
    tasks_sha256: str
    score: float
    solved: list[bool] | None
    metrics: dict[str, float]


def evaluate(
    request: Evaluate,
    root: Path,
    deployment: Deployment,
    parent: Mapping[str, str],
    simulated: bool,
    report: Callable[[str], None],
) -> Evaluated:
    """The score of the server at `request.url`, with what it solved in the request's file below `root`.

    An evaluation that is in the file for this key is this one already, and nothing is asked. A task that the server
    refused or did not answer is not one it got wrong: then there is no score.
    """
    if simulated:
        return Evaluated(problem="the simulator solves no tasks", simulated=True)
    try:
        file = inside(root, request.file)
        reference = inside(root, request.reference) if request.reference is not None else None
        evaluation = stored(file)
        if evaluation is None or evaluation.key != request.key:
            if file.exists():
                raise EvaluationFailed(f"{request.file} exists and is of another evaluation")
            evaluation = _solve(request, root, deployment, parent, report)
            replace_file(file, evaluation.model_dump_json().encode() + b"\n")
        gained, lost = _against(evaluation, stored(reference) if reference is not None else None)
    except (EvaluationFailed, NoInterpreter, OutsideCampaign, OSError) as error:
        stop_if_exhausted(error, request.file)
        return Evaluated(problem=str(error))
    return Evaluated(score=evaluation.score, examples=request.examples, gained=gained, lost=lost, file=request.file)


def read_tasks(data: Path, count: int) -> list[str]:
    """The first `count` tasks of a file and those that are shown before, a JSON line each. Raises EvaluationFailed."""
    lines: list[str] = []
    try:
        with data.open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    lines.append(_task(line, f"{data}, line {number}"))
                if len(lines) == count + SHOTS:
                    return lines
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise EvaluationFailed(f"{data} cannot be read: {reason}") from None
    raise EvaluationFailed(
        f"{data} holds {len(lines)} tasks: {count} are to be asked, behind {SHOTS} that are shown with their answers"
    )


def solved_of(page: str, count: int, score: float) -> list[bool] | None:
    """Which of `count` tasks were solved by the report's page, None when it does not tell for each, or not this score."""
    solved = [item == "1" for item in ITEM.findall(page)]
    return solved if len(solved) == count and abs(sum(solved) / count - score) < 1e-9 else None


def stored(file: Path) -> Evaluation | None:
    """The evaluation that is in a file, None when there is none."""
    try:
        return Evaluation.model_validate_json(file.read_bytes())
    except (OSError, ValidationError):
        return None


def _task(line: str, where: str) -> str:
    try:
        body = json.loads(line)
    except ValueError as error:
        raise EvaluationFailed(f"{where} is not JSON: {error}") from None
    if not isinstance(body, dict) or not all(isinstance(body.get(name), str) for name in ("question", "answer")):
        raise EvaluationFailed(f'{where} is no task: expected {{"question": "...", "answer": "..."}}')
    return json.dumps({"question": body["question"], "answer": body["answer"]})


def _solve(
    request: Evaluate, root: Path, deployment: Deployment, parent: Mapping[str, str], report: Callable[[str], None]
) -> Evaluation:
    if request.examples < 1:
        raise EvaluationFailed(f"{request.examples} tasks are none")
    tasks = "".join(f"{line}\n" for line in read_tasks(from_root(root, request.data), request.examples)).encode()
    file = inside(root, request.file)
    given, log = file.with_suffix(".tasks"), file.with_suffix(".log")
    # The model's name decides how the reports are called. A server takes any, and this one is nobody else's.
    name = f"optagent-{secrets.token_hex(8)}"
    numbers, page = (REPORTS / f"gsm8k_{name}{suffix}" for suffix in (".json", ".html"))
    progress = Progress(report, request.examples, "GSM8K")

    def tell(since: int) -> None:
        if progress.due:
            progress.tell(requests_done(log, since, request.examples))

    try:
        replace_file(given, tasks)
        command = eval_command(
            root, deployment, request.url, given, request.examples, request.threads, request.max_tokens, name, parent
        )
        ended = run_client(command, log, deployment.timeouts.bench_s, tell)
        if ended.code is None:
            raise EvaluationFailed(
                f"the evaluation took longer than {deployment.timeouts.bench_s:.0f} s and was stopped"
            )
        if ended.code != 0:
            raise EvaluationFailed(f"the evaluation ended with exit status {ended.code}: {ended.said}")
        _all_answered(log, ended.written_before, request.examples)
        metrics = _metrics(numbers)
        solved = solved_of(_bounded(page, 0, LARGEST_REPORT_BYTES), request.examples, metrics["score"])
    finally:
        for left in (given, numbers, page):
            left.unlink(missing_ok=True)
    return Evaluation(
        key=request.key, tasks_sha256=sha256(tasks), score=metrics["score"], solved=solved, metrics=metrics
    )


def _all_answered(log: Path, since: int, count: int) -> None:
    said = _bounded(log, since, LARGEST_LOG_BYTES)
    missing = sum(said.count(words) for words in UNANSWERED)
    if missing:
        first = next(line for line in said.splitlines() if any(words in line for words in UNANSWERED))
        raise EvaluationFailed(f"{missing} of {count} tasks were not answered: {first.strip()[:300]}")


def _metrics(numbers: Path) -> dict[str, float]:
    try:
        body = json.loads(numbers.read_bytes())
    except (OSError, ValueError) as error:
        raise EvaluationFailed(f"the evaluation left no result in {numbers}: {error}") from None
    score = body.get("score") if isinstance(body, dict) else None
    if isinstance(score, bool) or not isinstance(score, int | float) or not 0 <= score <= 1:
        raise EvaluationFailed("the evaluation's result has no score")
    return {name: float(value) for name, value in body.items() if isinstance(value, int | float)}


def _bounded(path: Path, since: int, most: int) -> str:
    """Text of a file behind `since` bytes, as much as `most`; "" when it cannot be read."""
    try:
        with path.open("rb") as file:
            file.seek(since)
            return file.read(most).decode(errors="replace")
    except OSError:
        return ""


def _against(evaluation: Evaluation, earlier: Evaluation | None) -> tuple[int | None, int | None]:
    """How many tasks were solved only now, and only in the earlier evaluation."""
    if earlier is None or earlier.tasks_sha256 != evaluation.tasks_sha256:
        return None, None
    if evaluation.solved is None or earlier.solved is None:
        return None, None
    pairs = list(zip(evaluation.solved, earlier.solved, strict=True))
    return sum(now and not then for now, then in pairs), sum(then and not now for now, then in pairs)
