"""optagent.toml: what a campaign is about, checked key by key."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, SettingsError

from optagent.agent.errors import BadInput
from optagent.agent.plan.fits import RESERVED
from optagent.tools.calls.bench import Workload
from optagent.tools.deployment import Deployment

CONFIG_NAME = "optagent.toml"
PREFIX = "OPTAGENT_"
"""Of variables that override a key."""


GPU_MEMORY = "gpu_memory_gb"
LATENCY = r"^(mean|median|std|p90|p95|p99)_(ttft|tpot|itl|e2e_latency)_ms$"
GUARDED = rf"{LATENCY}|^{GPU_MEMORY}$"
"""What can be guarded: latencies, and the memory of the fullest GPU after a run."""
METRIC = rf"{LATENCY}|^(request|input|output|total)_throughput$|^accept_length$|^max_output_tokens_per_s$|^duration$"
"""Keys of `bench_serving`'s result line that can be an objective."""
LATENCIES = "a latency such as median_tpot_ms (mean, median, std, p90, p95 or p99 of ttft, tpot, itl or e2e_latency)"
KNOWN = {
    METRIC: "output_throughput (or that of request, input or total), accept_length, max_output_tokens_per_s, duration, "
    f"or {LATENCIES}",
    GUARDED: f"{GPU_MEMORY}, or {LATENCIES}",
}
"""The same for people."""


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Objective(_Section):
    """What is to get better. `metric` is a key of `bench_serving`'s result line, `min_effect` a fraction."""

    metric: str = Field("output_throughput", pattern=METRIC)
    direction: Literal["max", "min"] = "max"
    min_effect: float = Field(0.02, gt=0, lt=10)
    statement: str = ""


class Principles(_Section):
    preserve_precision: bool = True
    allow_code_changes: bool = True
    forbidden_flags: list[str] = []
    statements: list[str] = []


class Budget(_Section):
    """Limits of one sitting. None is no limit."""

    steps: int | None = Field(None, ge=1)
    hours: float | None = Field(None, gt=0)


class Measuring(_Section):
    """How noise is learnt and how much a verdict may cost.

    `calibration_launches` of the unchanged baseline tell a first noise, `sentinel_launches` check the baseline in later
    sittings; every launch of a verdict adds to what is known of it. A launch gets `runs` runs until the noise says how many
    are worth their time. With `pool`, all launches of the baseline count, and one more is made where `sentinel_every`
    experiments went by without; otherwise launches are held against each other in pairs. From
    launches of `survey_from_s` seconds on, simple items are looked at together first (inf: never).

    `max_pairs` bounds one verdict, `confirm_pairs` are made at least of all kept changes against the first baseline.
    `guards` are metrics that must not get worse by more than the fraction given. `baseline_tolerance` is how far a
    re-measured baseline may lie from its record. With `discard_first` the whole load is put on a fresh launch once before
    it is measured: the first cell is cold.
    """

    calibration_launches: int = Field(2, ge=2)
    sentinel_launches: int = Field(2, ge=1)
    runs: int = Field(2, ge=1, le=20)
    pool: bool = True
    sentinel_every: int = Field(3, ge=1)
    survey_from_s: float = Field(45, ge=0)
    confirm_pairs: int = Field(4, ge=2)
    max_pairs: int = Field(12, ge=2)
    guards: dict[Annotated[str, Field(pattern=GUARDED)], Annotated[float, Field(gt=0)]] = {}
    baseline_tolerance: float = Field(0.03, gt=0)
    discard_first: bool = True
    seed: int = 1


class Gate(_Section):
    """The check that output is still right, before anything is measured.

    `prompts` are answered with `max_tokens` each, alone and `concurrency` at a time, and `texts` are scored: the first
    so many of those that optagent brings. `gsm8k` is a file of the campaign with GSM8K's tasks as JSON lines; of them
    `gsm8k_examples` are solved where a change may move numbers in unknown ways.
    """

    prompts: int = Field(32, ge=1, le=32)
    max_tokens: int = Field(128, ge=1)
    concurrency: int = Field(8, ge=1)
    texts: int = Field(24, ge=0, le=24)
    gsm8k: str | None = None
    gsm8k_examples: int = Field(200, ge=1)


class CampaignConfig(_Section):
    """The whole of a campaign's configuration."""

    name: str
    plan: str = "plans/plan.md"
    handoffs: str = "handoffs"
    planner: Literal["ranked"] = "ranked"
    approvals: list[str] = Field([], description="ids of items that are approved in advance")
    objective: Objective = Objective()
    workload: Workload = Workload()
    deployment: Deployment = Deployment()
    principles: Principles = Principles()
    budget: Budget = Budget()
    measuring: Measuring = Measuring()
    gate: Gate = Gate()

    @field_validator("deployment")
    @classmethod
    def _environment_is_known(cls, deployment: Deployment) -> Deployment:
        if deployment.environment not in deployment.environments:
            known = ", ".join(deployment.environments)
            raise ValueError(f"environment {deployment.environment!r} is not among its environments ({known})")
        return deployment


class _FileAndEnvironment(CampaignConfig, BaseSettings):
    """optagent.toml with the variables that override it, as in OPTAGENT_DEPLOYMENT__PORT=31000."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_nested_delimiter="__",
        extra="forbid",
        frozen=True,
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Variables win over the file, whose content comes in as keyword arguments."""
        return env_settings, init_settings


def parse_config(text: str, name: str = CONFIG_NAME) -> CampaignConfig:
    """The campaign's configuration. Raises BadInput with file, line and key of the first thing that is wrong, or with
    the variable that it comes from."""
    try:
        data = tomllib.loads(text)
    except RecursionError:
        raise BadInput(name, "not valid TOML: nested too deeply") from None
    except tomllib.TOMLDecodeError as error:
        line = re.search(r"line (\d+)", str(error))
        raise BadInput(
            name, f"not valid TOML: {error}", int(line[1]) if line else max(1, len(text.splitlines()))
        ) from None
    try:
        config = _FileAndEnvironment(**data)
    except SettingsError as error:
        section = re.search(r'field "(\w+)"', str(error))
        set_by = _variables(section[1] if section else "")
        raise BadInput(", ".join(set_by), "a list or a table in a variable is written as JSON") from None
    except ValidationError as error:
        path, problem = _first_problem(error)
        if set_by := _variables("__".join(path)):
            raise BadInput(set_by[0], problem) from None
        raise BadInput(name, problem, line_of(text, path)) from None
    for flag in sorted(RESERVED & config.deployment.flags.keys()):
        path = ["deployment", "flags", flag]
        problem = f"{'.'.join(path)}: the server is always given deployment.{flag}; set that instead"
        if set_by := _variables("__".join(path)):
            raise BadInput(set_by[0], problem)
        raise BadInput(name, problem, line_of(text, path))
    return config


def _variables(key: str) -> list[str]:
    """The variables that set this key, or something in it."""
    name = f"{PREFIX}{key}".upper()
    return sorted(v for v in os.environ if v.upper() == name or v.upper().startswith(f"{name}__"))


def config_from(body: Mapping[str, Any], where: str, line: int | None = None) -> CampaignConfig:
    """A configuration that somebody recorded, whatever the variables of this process say. Raises BadInput."""
    try:
        return CampaignConfig.model_validate(body)
    except ValidationError as error:
        raise BadInput(where, f"config.{_first_problem(error)[1]}", line) from None


def load_config(root: Path) -> CampaignConfig:
    """The configuration of the campaign in `root`. Raises BadInput when there is none or it cannot be used."""
    path = root / CONFIG_NAME
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise BadInput(
            str(path), "no campaign here; `optagent init DIR` makes one, `-C DIR` names another folder"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(str(path), f"cannot be read: {error}") from None
    return parse_config(text, CONFIG_NAME)


def wrong_key(root: Path, key: str, problem: str) -> BadInput:
    """The error for a key, as in "deployment.host", whose value is valid and cannot be used here: with the place that
    sets it."""
    path = key.split(".")
    if set_by := _variables("__".join(path)):
        return BadInput(set_by[0], f"{key}: {problem}")
    return BadInput(CONFIG_NAME, f"{key}: {problem}", line_of((root / CONFIG_NAME).read_text("utf-8"), path))


def line_of(text: str, path: list[str]) -> int | None:
    """The line of a TOML key given as its path, or of the nearest table that holds it; None when neither is there."""
    best: int | None = None
    table: list[str] = []
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if header := re.match(r"\[+\s*([^\]]+?)\s*\]+", line):
            table = [part.strip().strip("\"'") for part in header[1].split(".")]
            if path[: len(table)] == table:
                best = number
        elif key := re.match(r"([\w.\-\"']+)\s*=", line):
            full = table + [part.strip("\"'") for part in key[1].split(".")]
            if full == path[: len(full)]:
                best = number
                if full == path:
                    return number
    return best


def _first_problem(error: ValidationError) -> tuple[list[str], str]:
    """(path of the key, what is wrong with it)."""
    first = error.errors()[0]
    path = [str(part) for part in first["loc"] if part != "[key]"]
    if first["loc"][:2] == ("deployment", "flags") and len(path) > 3:  # pydantic names the type it tried last
        path, message = path[:3], "must be true, false, a number or a text"
    else:
        message = _plain(first)
    return path, f"{'.'.join(path) or 'the file'}: {message}"


def _plain(error: Any) -> str:
    if error["type"] == "extra_forbidden":
        return "unknown key"
    if error["type"] == "missing":
        return "is missing"
    if (known := KNOWN.get(error.get("ctx", {}).get("pattern", ""))) is not None:
        return f"expected {known}, not {str(error.get('input'))[:60]!r}"
    message = str(error["msg"]).removeprefix("Value error, ")
    value = error.get("input")
    return f"{message[0].lower()}{message[1:]}" + (f", not {value!r}" if isinstance(value, str | int | float) else "")
