"""optagent.toml: every mistake is told with its file, its line and its key; variables override, and are checked too."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optagent.agent.config import CampaignConfig, config_from, line_of, load_config, parse_config, wrong_key
from optagent.agent.errors import BadInput

ROOT = Path(__file__).parent.parent
SMALL = """\
name = "small"
approvals = ["cuda-13"]

[objective]
metric = "median_tpot_ms"
direction = "min"

[deployment]
environment = "cu128"
port = 30310

[deployment.environments.cu128]
folder = "environments/cu128"

[deployment.flags]
tp-size = 8
trust-remote-code = true

[measuring]
guards = { p99_ttft_ms = 0.1 }
"""


def refused(text: str) -> str:
    with pytest.raises(BadInput) as error:
        parse_config(text)
    assert error.value.exit_status == 2
    assert "\n" not in str(error.value)
    return str(error.value)


def test_a_small_configuration() -> None:
    config = parse_config(SMALL)
    assert (config.name, config.objective.direction, config.deployment.port) == ("small", "min", 30310)
    assert config.deployment.flags == {"tp-size": 8, "trust-remote-code": True}
    assert config.measuring.guards == {"p99_ttft_ms": 0.1}


def test_a_name_is_all_that_is_needed() -> None:
    assert parse_config('name = "x"').model_dump() == CampaignConfig(name="x").model_dump()


def test_the_reference_campaign_s_own() -> None:
    assert load_config(ROOT).name == "kimi-k2.5-pro6000"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("plant = 1", "optagent.toml:2: plant: unknown key"),
        ("objective.metrics = 'x'", "optagent.toml:2: objective.metrics: unknown key"),
        ("name = 'twice'", "optagent.toml:2: not valid TOML: Cannot overwrite a value"),
        ("plan = ", "optagent.toml:2: not valid TOML: Invalid value"),
        ("plan = 'open", "optagent.toml:2: not valid TOML: "),
        ("plan = 3", "optagent.toml:2: plan: input should be a valid string, not 3"),
        ("approvals = 'cuda-13'", "optagent.toml:2: approvals: input should be a valid list, not 'cuda-13'"),
        ("planner = 'magic'", "optagent.toml:2: planner: input should be 'ranked', not 'magic'"),
        ("objective.direction = 'up'", "optagent.toml:2: objective.direction: input should be 'max' or 'min', not 'up'"),
        ("objective.min_effect = 0", "optagent.toml:2: objective.min_effect: input should be greater than 0, not 0"),
        ("deployment.port = 0", "optagent.toml:2: deployment.port: input should be greater than or equal to 1, not 0"),
        ("deployment.port = 65536", "optagent.toml:2: deployment.port: input should be less than or equal to 65535"),
        ("deployment.port = '80a'", "optagent.toml:2: deployment.port: input should be a valid integer"),
        ("deployment.kind = 'vllm'", "optagent.toml:2: deployment.kind: input should be 'simulator' or 'sglang'"),
        ("deployment.flags.tp-size = [8]", "optagent.toml:2: deployment.flags.tp-size: must be true, false, a number or"),
        ("budget.steps = -3", "optagent.toml:2: budget.steps: input should be greater than or equal to 1, not -3"),
        ("budget.hours = 0", "optagent.toml:2: budget.hours: input should be greater than 0, not 0"),
        ("workload.output_len = 0", "optagent.toml:2: workload.output_len: input should be greater than 0, not 0"),
        ("workload.name = 'single-steam'", "optagent.toml:2: workload.name: expected single-stream, or a name of your own"),
        ("workload.name = 'throughput-x'", "optagent.toml:2: workload.name: expected throughput-8, or a name of your own"),
        (
            "[workload]\nseed = 1\nname = 'speculative'",
            'optagent.toml:2: workload.prompts: "speculative" needs a file of real prompts',
        ),
        ("[workload]\ndataset = 'custom'", 'optagent.toml:2: workload.prompts: dataset "custom" needs a JSONL file'),
        ("measuring.discard_first = 'perhaps'", "optagent.toml:2: measuring.discard_first: input should be a valid bool"),
        (
            "measuring.survey_from_s = -1",
            "optagent.toml:2: measuring.survey_from_s: input should be greater than or equal to 0",
        ),
        ("measuring.max_pairs = 1", "optagent.toml:2: measuring.max_pairs: input should be greater than or equal to 2"),
        (
            "measuring.guards = { p99_ttft_ms = 'much' }",
            "optagent.toml:2: measuring.guards.p99_ttft_ms: input should be a valid number",
        ),
        ("measuring.guards = { bla = 0.1 }", "optagent.toml:2: measuring.guards.bla: expected gpu_memory_gb, or a latency"),
        ("objective.metric = 'otput_throughput'", "optagent.toml:2: objective.metric: expected output_throughput (or"),
        ("principles.preserve_precision = 'perhaps'", "optagent.toml:2: principles.preserve_precision: input should be"),
    ],
)  # fmt: skip
def test_what_is_wrong_and_where(line: str, says: str) -> None:
    assert refused(f"name = 'x'\n{line}\n").startswith(says)


def test_a_missing_name() -> None:
    assert refused("plan = 'plans/plan.md'\n") == "optagent.toml: name: is missing"


def test_a_file_that_ends_too_early() -> None:
    assert refused("name = 'x'\napprovals = [\n").startswith("optagent.toml:2: not valid TOML: ")


def test_the_baseline_s_environment_must_be_one_of_the_environments() -> None:
    text = SMALL.replace('environment = "cu128"', 'environment = "cu13"')
    assert refused(text) == "optagent.toml:8: deployment: environment 'cu13' is not among its environments (cu128)"


def test_a_key_inside_a_table() -> None:
    assert refused(SMALL.replace("port = 30310", "ports = 30310")) == "optagent.toml:10: deployment.ports: unknown key"


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (["name"], 1),
        (["objective", "direction"], 6),
        (["objective", "min_effect"], 4),  # not there: the table it belongs to
        (["deployment", "environments", "cu128", "folder"], 13),
        (["deployment", "flags", "tp-size"], 16),
        (["measuring", "guards", "p99_ttft_ms"], 20),
        (["workload", "seed"], None),
    ],
)
def test_the_line_of_a_key(path: list[str], line: int | None) -> None:
    assert line_of(SMALL, path) == line


@settings(deadline=None, max_examples=60)
@given(st.text(max_size=60))
def test_any_text_is_a_configuration_or_bad_input(text: str) -> None:
    with contextlib.suppress(BadInput):
        parse_config(text)


@pytest.mark.parametrize("content", [None, b"\xff\xfe"], ids=["missing", "not-text"])
def test_a_file_that_cannot_be_read(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "optagent.toml").write_bytes(content)
    with pytest.raises(BadInput, match=r"optagent\.toml: (no campaign here|cannot be read)"):
        load_config(tmp_path)


# Named workloads


def test_a_named_workload_and_what_is_given_beside_it() -> None:
    workload = parse_config("name = 'x'\n[workload]\nname = 'throughput-16'\noutput_len = 64\n").workload
    assert (workload.max_concurrency, workload.num_prompts, workload.output_len) == (16, 80, 64)


def test_a_campaign_with_a_named_workload_comes_back_from_its_recording() -> None:
    config = parse_config("name = 'x'\n[workload]\nname = 'throughput-16'\nnum_prompts = 10\nwarmup_requests = 3\n")
    recorded = config.model_dump(mode="json", exclude_defaults=True)
    assert config_from(recorded, "a.jsonl", 1).workload == config.workload


def test_the_place_of_a_key_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "optagent.toml").write_text(SMALL)
    assert str(wrong_key(tmp_path, "deployment.port", "is taken")) == "optagent.toml:10: deployment.port: is taken"


# A recorded configuration


def test_a_recorded_configuration_comes_back() -> None:
    config = parse_config(SMALL)
    recorded = config.model_dump(mode="json", exclude_defaults=True)
    assert config_from(recorded, "a.jsonl", 1).model_dump() == config.model_dump()


def test_a_recorded_configuration_that_is_wrong() -> None:
    with pytest.raises(BadInput, match=r"^a\.jsonl:1: config\.budget\.steps: input should be greater"):
        config_from({"name": "x", "budget": {"steps": 0}}, "a.jsonl", 1)


# Variables: each case in a process of its own

READ = """
import sys
from pathlib import Path
from optagent.agent.config import load_config
from optagent.agent.errors import BadInput
try:
    print(load_config(Path(sys.argv[1])).model_dump_json())
except BadInput as error:
    print("refused:", error)
"""


def read_with(folder: Path, **variables: str) -> str:
    (folder / "optagent.toml").write_text(SMALL)
    environment = {k: v for k, v in os.environ.items() if not k.upper().startswith("OPTAGENT_")} | variables
    done = subprocess.run(
        [sys.executable, "-c", READ, str(folder)], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_variables_override_the_file(tmp_path: Path) -> None:
    text = read_with(
        tmp_path, OPTAGENT_DEPLOYMENT__PORT="31000", OPTAGENT_APPROVALS='["a", "b"]', OPTAGENT_OBJECTIVE__MIN_EFFECT="0.05",
        OPTAGENT_SIMULATION_SPEED="1000", OPTAGENT_UNHEARD_OF="1",
    )  # fmt: skip
    config = CampaignConfig.model_validate_json(text)
    assert (config.deployment.port, config.approvals, config.objective.min_effect) == (31000, ["a", "b"], 0.05)
    assert config.deployment.environment == "cu128"  # what no variable names stays
    assert config.objective.metric == "median_tpot_ms"


def test_a_variable_for_a_table_that_the_file_does_not_have(tmp_path: Path) -> None:
    text = read_with(tmp_path, OPTAGENT_BUDGET__STEPS="7", OPTAGENT_WORKLOAD__NAME="throughput-2")
    config = CampaignConfig.model_validate_json(text)
    assert (config.budget.steps, config.budget.hours) == (7, None)
    assert (config.workload.max_concurrency, config.workload.num_prompts) == (2, 40)


@pytest.mark.parametrize(
    ("variable", "value", "says"),
    [
        ("OPTAGENT_DEPLOYMENT__PORT", "eighty", "deployment.port: input should be a valid integer"),
        ("OPTAGENT_BUDGET__STEPS", "-1", "budget.steps: input should be greater than or equal to 1"),
        ("OPTAGENT_DEPLOYMENT__PORTS", "1", "deployment.ports: unknown key"),
        ("OPTAGENT_APPROVALS", "cuda-13", "a list or a table in a variable is written as JSON"),
        ("OPTAGENT_WORKLOAD__NAME", "speculatve", "workload.name: expected speculative, or a name of your own"),
        ("OPTAGENT_MEASURING", "{", "a list or a table in a variable is written as JSON"),
    ],
)
def test_a_wrong_variable_is_named(tmp_path: Path, variable: str, value: str, says: str) -> None:
    assert read_with(tmp_path, **{variable: value}).startswith(f"refused: {variable}: {says}")
