"""GSM8K through SGLang's own evaluation, with a stub in its place: what counts as a score, and which tasks were solved."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from optagent.tools import processes
from optagent.tools.calls.gate import Evaluate, Evaluated
from optagent.tools.commands import NoInterpreter, eval_command
from optagent.tools.deployment import Deployment, ServingEnvironment, Timeouts
from optagent.tools.evaluating import SHOTS, EvaluationFailed, evaluate, read_tasks, solved_of

FAKES = Path(__file__).parent / "fakes"
TASKS = 4
Evaluating = Callable[..., Evaluated]


def task(number: int) -> str:
    return json.dumps({"question": f"How much is {number} + 1?", "answer": f"#### {number + 1}"})


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "tasks.jsonl"
    path.write_text("\n\n".join(task(number) for number in range(SHOTS + TASKS + 3)) + "\n")
    return path


@pytest.fixture
def evaluating(tmp_path: Path, data: Path) -> Evaluating:
    """Evaluates with a stub that behaves as it is told."""
    stub = tmp_path / "python"
    stub.write_text(f"#!{sys.executable}\n" + (FAKES / "stub_eval.py").read_text())
    stub.chmod(0o755)

    def run(
        behaviour: str,
        key: str = "k",
        file: str = "evals/k.json",
        reference: str | None = None,
        examples: int = TASKS,
        timeout_s: float = 60.0,
        report: Callable[[str], None] = lambda text: None,
    ) -> Evaluated:
        environment = ServingEnvironment(python=str(stub), env={"STUB_EVAL": behaviour})
        deployment = Deployment(
            kind="sglang", environments={"default": environment}, timeouts=Timeouts(bench_s=timeout_s)
        )
        request = Evaluate(
            key=key, url="http://127.0.0.1:1/", data=data.name, examples=examples, file=file, reference=reference
        )
        return evaluate(request, tmp_path, deployment, os.environ, False, report)

    return run


def test_a_score(evaluating: Evaluating, tmp_path: Path) -> None:
    before = set(Path("/tmp").glob("gsm8k_optagent-*"))
    done = evaluating("1101")
    assert done == Evaluated(score=0.75, examples=4, file="evals/k.json")
    kept = json.loads((tmp_path / "evals/k.json").read_text())
    assert kept["solved"] == [True, True, False, True]
    assert kept["metrics"] == {"score": 0.75, "score:std": 0.5, "latency": 0.5}
    assert {path.name for path in (tmp_path / "evals").iterdir()} == {"k.json", "k.log"}
    assert set(Path("/tmp").glob("gsm8k_optagent-*")) == before


def test_a_finished_evaluation_is_not_run_again(evaluating: Evaluating) -> None:
    assert evaluating("1101") == evaluating("exit")


def test_another_evaluation_s_file_is_not_taken_nor_overwritten(evaluating: Evaluating, tmp_path: Path) -> None:
    evaluating("1101")
    before = (tmp_path / "evals/k.json").read_bytes()
    assert "of another evaluation" in (evaluating("1111", key="other").problem or "")
    assert (tmp_path / "evals/k.json").read_bytes() == before


def test_tasks_are_held_against_the_same_tasks(evaluating: Evaluating) -> None:
    evaluating("1100", key="base", file="evals/base.json")
    done = evaluating("1011", reference="evals/base.json")
    assert (done.gained, done.lost) == (2, 1)


@pytest.mark.parametrize("reference", ["evals/none.json", "tasks.jsonl", "evals/fewer.json"])
def test_without_the_same_tasks_nothing_was_gained_or_lost(evaluating: Evaluating, reference: str) -> None:
    evaluating("110", key="fewer", file="evals/fewer.json", examples=3)
    done = evaluating("1011", reference=reference)
    assert (done.score, done.gained, done.lost) == (0.75, None, None)


@pytest.mark.parametrize(
    ("behaviour", "reason"),
    [
        ("refused", "2 of 4 tasks were not answered: Bad Request Error"),
        ("exit", "exit status 1: openai.APIConnectionError"),
        ("nothing", "left no result"),
    ],
)
def test_no_score(evaluating: Evaluating, tmp_path: Path, behaviour: str, reason: str) -> None:
    done = evaluating(behaviour)
    assert done.score is None
    assert reason in (done.problem or "")
    assert not (tmp_path / "evals/k.json").exists()
    assert evaluating("1111").score == 1.0, "what an earlier attempt printed is not this one's"


def test_an_evaluation_that_takes_too_long_is_stopped_with_its_children(evaluating: Evaluating, tmp_path: Path) -> None:
    assert "longer than" in (evaluating("children", timeout_s=1.5).problem or "")
    assert not runs(tmp_path / "child")


def test_an_interrupted_evaluation_leaves_nothing_behind(evaluating: Evaluating, tmp_path: Path) -> None:
    def interrupt(text: str) -> None:
        if (tmp_path / "child").exists():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        evaluating("children", report=interrupt)
    assert not runs(tmp_path / "child")
    assert [path.name for path in (tmp_path / "evals").iterdir()] == ["k.log"]


def runs(noted: Path) -> bool:
    """Whether the process whose pid was noted runs."""
    seen = processes.look_at(int(noted.read_text()))
    return seen is not None and not seen.zombie


def test_progress_is_told(evaluating: Evaluating) -> None:
    said: list[str] = []
    evaluating("1101", report=said.append)
    assert said
    assert all(text.startswith("GSM8K: ") for text in said)


@pytest.mark.parametrize("change", [{"file": "../k.json"}, {"reference": "/etc/passwd"}])
def test_files_stay_in_the_campaign(evaluating: Evaluating, change: dict[str, str]) -> None:
    assert "leads out of" in (evaluating("1101", **change).problem or "")


def test_the_simulator_solves_nothing(tmp_path: Path) -> None:
    request = Evaluate(key="k", url="u", data="d", examples=1, file="f")
    done = evaluate(request, tmp_path, Deployment(), {}, True, lambda text: None)
    assert (done.score, done.problem, done.simulated) == (None, "the simulator solves no tasks", True)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "No such file"),
        ("", "holds 0 tasks: 1 are to be asked, behind 5"),
        ("\n".join(task(n) for n in range(5)), "holds 5 tasks"),
        ("nonsense\n", "line 1 is not JSON"),
        (task(1) + '\n{"question": "?"}\n', "line 2 is no task"),
        ('{"question": 1, "answer": "2"}\n', "line 1 is no task"),
    ],
)
def test_data_that_cannot_be_used(tmp_path: Path, text: str | None, reason: str) -> None:
    data = tmp_path / "data.jsonl"
    if text is not None:
        data.write_text(text)
    with pytest.raises(EvaluationFailed, match=reason):
        read_tasks(data, 1)


def test_only_the_tasks_that_are_needed_are_read(data: Path) -> None:
    data.write_text(data.read_text() + "nonsense\n")
    assert [json.loads(line)["question"] for line in read_tasks(data, 2)][-1] == "How much is 6 + 1?"


@pytest.mark.parametrize(("count", "score"), [(3, 2 / 3), (2, 1.0), (2, 0.0)])
def test_a_report_that_does_not_fit_tells_no_task(count: int, score: float) -> None:
    page = "<p>Score: 1.0</p>\n<p>Score: 0.0</p>"
    assert solved_of(page, 2, 0.5) == [True, False]
    assert solved_of(page, count, score) is None


def test_the_command(tmp_path: Path) -> None:
    environment = ServingEnvironment(python="venv/bin/python", pythonpath=["standins"], env={"OMP_NUM_THREADS": "1"})
    deployment = Deployment(kind="sglang", environments={"default": environment})
    parent = {"PATH": "/bin", "OPENAI_API_KEY": "sk-1", "HF_TOKEN": "hf"}
    command = eval_command(Path("/c"), deployment, "http://h:1/", Path("/t"), 200, 64, 512, "optagent-1", parent)
    assert " ".join(command.argv) == (
        "/c/venv/bin/python -m sglang.test.run_eval --base-url http://h:1 --model optagent-1 --eval-name gsm8k "
        "--gsm8k-data-path /t --num-examples 200 --num-threads 64 --max-tokens 512"
    )
    assert command.env["PYTHONPATH"] == "/c/standins"
    assert not {"OPENAI_API_KEY", "HF_TOKEN"} & set(command.env)
    with pytest.raises(NoInterpreter):
        eval_command(Path("/c"), Deployment(kind="sglang"), "u", Path("/t"), 1, 1, 8, "n", {})
