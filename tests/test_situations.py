"""Continue or ask: each file of tests/situations is a situation, and expected.yaml says what is decided in it and why."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
import yaml
from pydantic import BaseModel

from optagent.agent.commands.going_on import decision_json, go_on
from optagent.agent.commands.initialising import make_campaign
from optagent.agent.decide import Decision, Verb
from optagent.agent.errors import BadInput
from optagent.agent.ledger import KINDS, fold
from optagent.agent.replay import recorded_journal
from optagent.tools.errors import RecordingBroken
from optagent.tools.stub import TOOLS, load_recording
from optagent.tools.toolbox import Toolbox

ROOT = Path(__file__).parents[1]
FOLDER = Path(__file__).parent / "situations"
EXPECTED: dict[str, dict[str, Any]] = yaml.safe_load((FOLDER / "expected.yaml").read_text(encoding="utf-8"))


def campaign_of(name: str) -> Path:
    folder: str = EXPECTED[name].get("campaign", "campaign")
    return (FOLDER / folder).resolve()


def check(decided: dict[str, Any], exit_status: int, expected: dict[str, Any]) -> None:
    """Hold what was decided against the table: reasons and ids, never wording."""
    step = decided["step"]
    shown = None if step is None else f"{step['kind']} {step['item'] or ''}".strip()
    found = {
        "decision": decided["decision"],
        "reason": decided["reason"],
        "step": shown,
        "questions": [q["reason"] for q in decided["questions"]],
        "reopened": [r["dead_end"] for r in decided["reopened"]],
        "exit": exit_status,
    }
    wanted = {"step": None, "questions": [], "reopened": []} | {k: v for k, v in expected.items() if k in (*found,)}
    assert found == wanted, f"{expected['why']} ({decided['because']})"
    standings = {i["id"]: i["standing"] for i in decided["items"]}
    named = expected.get("standings", {})
    assert {item: standings.get(item) for item in named} == named, expected["why"]


def test_every_situation_is_in_the_table() -> None:
    assert sorted(p.stem for p in FOLDER.glob("*.jsonl")) == sorted(EXPECTED)
    assert all(e["why"] for e in EXPECTED.values())


@pytest.mark.parametrize("name", EXPECTED)
def test_situation(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    status = go_on(
        campaign_of(name), steps=None, dry_run=True, as_json=True, record=None, stub=FOLDER / f"{name}.jsonl"
    )
    check(json.loads(capsys.readouterr().out), status, EXPECTED[name])


def optagent(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "optagent", *words], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", ["002-next-by-rank", "070-foreign-server-on-the-port", "119-reference-all-done"])
def test_the_command_line_decides_the_same(name: str) -> None:
    done = optagent(
        "-C", str(campaign_of(name)), "continue", "--dry-run", "--json", "--stub", str(FOLDER / f"{name}.jsonl")
    )
    check(json.loads(done.stdout), done.returncode, EXPECTED[name])
    assert done.stderr == ""


def test_looking_leaves_no_trace() -> None:
    assert not (FOLDER / "campaign" / ".optagent").exists()


def test_what_was_measured_of_an_accepted_baseline_is_its_record() -> None:
    accepted = next(FOLDER.glob("*-baseline-moved-accepted.jsonl"))
    ledger = fold(recorded_journal(load_recording(accepted)).entries())
    assert ledger.baseline is not None
    record = ledger.baseline.measurement
    assert record is not None
    assert (record.value, record.runs, record.verified) == (pytest.approx(90.15, abs=0.001), 4, True)
    assert record.evidence[:2] == ("E0001", "E0002")
    assert ledger.first_baseline == ledger.baseline, "it is the first one, whose record moved with it"


# What cannot be used

HEADER = '{"optagent_recording": 1}'
PROBE = '{"tool": "probe", "result": {}}'


def journal(*entries: str) -> str:
    return f'{{"journal": [{", ".join(entries)}]}}'


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ([HEADER, "{"], ":2: not a JSON object"),
        ([HEADER, "[]"], ":2: not a JSON object"),
        (['{"optagent_recording": 3}'], ":1: recording version 3; this optagent reads up to 2"),
        (['{"optagent_recording": "x"}'], ":1: recording version 'x'"),
        (['{"optagent_recording": 1, "jurnal": []}'], ":1: unknown key 'jurnal'"),
        ([HEADER, PROBE, '{"tool": "prob", "result": {}}'], ":3: `tool` must be one of"),
        ([HEADER, '{"tool": "probe", "results": {}}'], ":2: unknown key 'results'"),
        ([HEADER, '{"tool": "probe", "result": []}'], ":2: `request` and `result` must be JSON objects"),
        ([HEADER, '{"tool": "probe", "result": {"port_open": "perhaps"}}'], ":2: result of probe, port_open:"),
        ([HEADER, '{"tool": "probe", "result": {"gpu": []}}'], ":2: result of probe, gpu:"),
        ([HEADER, PROBE, '{"tool": "bench", "result": {}}'], ":3: result of bench, valid:"),
        ([HEADER, '{"tool": "read_log", "request": {"file": "a"}}'], ":2: read_log is not asked with 'file'"),
        ([journal("3"), PROBE], ":1: an entry of `journal` needs a `kind` and a `body`"),
        ([journal('{"kind": "sitting"}'), PROBE], ":1: an entry of `journal` needs a `kind` and a `body`"),
        (
            [journal('{"kind": "sitting", "body": {}}'), PROBE],
            ":1: entry 1 of `journal` (sitting) has nothing under 'id'",
        ),
        (
            [
                journal(
                    '{"kind": "sitting", "body": {"id": "S001"}}',
                    '{"kind": "answer", "body": {"id": "Q1", "answer": "a"}}',
                )
            ],
            ":1: entry 2 of `journal` (answer) has nothing under 'Q1'",
        ),
        (
            [journal('{"kind": "item-status", "body": {"item": "a", "status": "good"}}')],
            ":1: entry 1 of `journal` (item-status)",
        ),
        ([journal('{"kind": "experimnt", "body": {}}')], ":1: `journal` has no kind 'experimnt'"),
        (['{"config": {"objective": {"min_effect": "much"}}}'], ":1: config.objective.min_effect:"),
        (['{"config": {"objectives": {}}}'], ":1: config.objectives: unknown key"),
    ],
)
def test_a_script_that_cannot_be_used_is_one_line_with_its_place(lines: list[str], says: str, tmp_path: Path) -> None:
    script = tmp_path / "broken.jsonl"
    script.write_text("\n".join(lines) + "\n", encoding="utf-8")
    with pytest.raises((BadInput, RecordingBroken)) as told:
        go_on(FOLDER / "campaign", steps=None, dry_run=True, as_json=True, record=None, stub=script)
    assert str(told.value).startswith(f"{script}{says}")
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("line", ["{", '{"tool": "bench", "result": {}}', '{"journal": [{"kind": "run", "body": {}}]}'])
def test_a_script_that_cannot_be_used_ends_the_command_with_2(line: str, tmp_path: Path) -> None:
    script = tmp_path / "broken.jsonl"
    script.write_text(line, encoding="utf-8")
    done = optagent("-C", str(FOLDER / "campaign"), "continue", "--dry-run", "--json", "--stub", str(script))
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(r"optagent: .*broken\.jsonl:1: .*\n", done.stderr)


def test_a_script_that_is_not_there(tmp_path: Path) -> None:
    done = optagent("-C", str(FOLDER / "campaign"), "continue", "--dry-run", "--stub", str(tmp_path / "none.jsonl"))
    assert done.returncode == 2
    assert re.fullmatch(r"optagent: .*none\.jsonl: cannot be read: .*\n", done.stderr)


# The document

DOCUMENT = (ROOT / "docs" / "recordings.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(
    r"```json\n(.*?)```\s*```console\n\$ optagent (.*?)\n(\{.*?), \.\.\.\n\$ echo \$\?\n(\d)\n```", DOCUMENT, re.DOTALL
)


@pytest.mark.parametrize("number", [0, 1])
def test_the_examples_decide_as_the_document_says(
    number: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, command, shown, status = EXAMPLES[number]
    assert command == "continue --dry-run --json --stub situation.jsonl"
    make_campaign(tmp_path, "small")
    script = tmp_path / "situation.jsonl"
    script.write_text(text, encoding="utf-8")
    capsys.readouterr()
    ended = go_on(tmp_path, steps=None, dry_run=True, as_json=True, record=None, stub=script)
    printed = capsys.readouterr().out
    assert printed.startswith(shown)
    assert ended == int(status)


def test_the_document_has_no_other_examples() -> None:
    assert len(EXAMPLES) == DOCUMENT.count("```json") == 2


def keys_of(model: type[BaseModel]) -> Iterator[str]:
    """The keys of a request or result, and of what it holds."""
    for name, field in model.model_fields.items():
        yield name
        for part in (field.annotation, *get_args(field.annotation)):
            if isinstance(part, type) and issubclass(part, BaseModel):
                yield from keys_of(part)


@pytest.mark.parametrize("tool", TOOLS)
def test_every_tool_and_every_key_is_in_the_document(tool: str) -> None:
    types = get_type_hints(getattr(Toolbox, tool))
    own = [*types["request"].model_fields, *keys_of(types["return"])]
    missing = [name for name in (tool, *own) if f"`{name}`" not in DOCUMENT]
    assert not missing


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_kind_of_entry_is_in_the_document(kind: str) -> None:
    assert f"`{kind}`" in DOCUMENT.split("## Journal entries")[1].split("## The decision")[0]


def test_every_key_of_the_decision_and_every_reason_is_in_the_document() -> None:
    told = DOCUMENT.split("## The decision")[1]
    keys = decision_json(Decision(Verb.FINISH, "plan-finished", ""))
    reasons = {e["reason"] for e in EXPECTED.values()}
    assert not [name for name in (*keys, *reasons) if f"`{name}`" not in told]


def test_the_situations_cover_every_reason_of_the_contract() -> None:
    asked = set(re.findall(r"`([a-z-]+)`", DOCUMENT.split("ask: ")[1].split(" finish:")[0]))
    assert len(asked) == 10
    assert asked <= {r for e in EXPECTED.values() for r in (*e.get("questions", []), e["reason"])}
