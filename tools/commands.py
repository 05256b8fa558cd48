"""The command lines of the server, of its help and of its clients, as data. Nothing is started here."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from optagent.tools.calls.bench import Workload
from optagent.tools.calls.configuration import Configuration, flag_arguments
from optagent.tools.deployment import Deployment, ServingEnvironment
from optagent.tools.paths import environment_folder, from_root, simulation_folder, source_folder

LAUNCH_VARIABLE = "OPTAGENT_LAUNCH"
CAMPAIGN_VARIABLE = "OPTAGENT_CAMPAIGN"
CACHE_REPORT = "--cache-report"

PASSED_ON = frozenset(
    {
        "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR", "LD_LIBRARY_PATH",
        "LIBRARY_PATH", "CPATH", "CC", "CXX", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE",
        "http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY",
    }
)  # fmt: skip
PASSED_ON_PREFIXES = ("LC_", "XDG_", "CUDA_", "NVIDIA_", "NCCL_", "GLOO_", "UCX_", "HF_", "TRANSFORMERS_", "TRITON_")
"""What describes the machine. SGLANG_*, OMP_* and the like describe the configuration and come from it alone."""

SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL", re.IGNORECASE)
NEEDED_SECRETS = frozenset({"HF_TOKEN"})  # a server cannot load gated weights without it


@dataclass(frozen=True)
class Command:
    """What to start: its words, its whole environment and the folder it starts in."""

    argv: tuple[str, ...]
    env: dict[str, str]
    cwd: Path


@dataclass(frozen=True)
class Mark:
    """Says in the environment of every process of a launch whose it is; by it they are found again. Two campaigns on
    one machine may have launches of the same name, so the campaign's folder belongs to it."""

    launch: str
    campaign: str

    def variables(self) -> dict[str, str]:
        return {LAUNCH_VARIABLE: self.launch, CAMPAIGN_VARIABLE: self.campaign}


def mark_of(root: Path, launch: str) -> Mark:
    return Mark(launch, str(root))


class NoInterpreter(ValueError):
    """The deployment names no Python for this environment, or no such environment."""


def launch_command(
    root: Path, deployment: Deployment, configuration: Configuration, launch: str, parent: Mapping[str, str]
) -> Command:
    """Starts `configuration` at the deployment's host and port, marked as `launch`. `parent` is our environment.

    Raises NoInterpreter.
    """
    flags = {name: value for name, value in configuration.flags.items() if name not in ("host", "port")}
    words = ["--host", deployment.host, "--port", str(deployment.port), *flag_arguments(flags)]
    server = _server_module(root, deployment, configuration.environment)
    env = _with(_environment(root, deployment, configuration.environment, parent), configuration.env)
    return Command((*server, *words), env | mark_of(root, launch).variables(), root)


def help_command(root: Path, deployment: Deployment, environment: str, parent: Mapping[str, str]) -> Command:
    """Prints which flags the environment's server accepts. Raises NoInterpreter."""
    words = (*_server_module(root, deployment, environment), "--help")
    return Command(words, _environment(root, deployment, environment, parent), root)


def python_command(
    root: Path, deployment: Deployment, environment: str, script: str, parent: Mapping[str, str]
) -> Command:
    """Runs `script` with the environment's Python and its modules. Raises NoInterpreter."""
    words = (str(interpreter(root, deployment, environment)), "-c", script)
    return Command(words, _environment(root, deployment, environment, parent), root)


def bench_command(
    root: Path,
    deployment: Deployment,
    url: str,
    workload: Workload,
    seed: int,
    output: Path,
    parent: Mapping[str, str],
    prompts: Path | None = None,
    *,
    cache_report: bool = True,
) -> Command:
    """Measures the server at `url` with SGLang's own client, which appends one line to `output`.

    `prompts` is the file of a custom workload in the client's own format. With `cache_report` the result tells how much
    of each prompt came from the prefix cache, an option that older releases do not know. The client runs on the
    baseline's environment without its environment files and without the patched source: what is measured must not
    reach the yardstick. Raises NoInterpreter.
    """
    words = [str(interpreter(root, deployment, deployment.environment)), "-m", "sglang.bench_serving"]
    words += ["--backend", "sglang", "--base-url", url, *_model_words(deployment), *_load_words(workload, prompts)]
    words += ["--num-prompts", str(workload.num_prompts), "--max-concurrency", str(workload.max_concurrency)]
    words += ["--request-rate", "inf", "--warmup-requests", str(workload.warmup_requests), "--seed", str(seed)]
    words += ["--flush-cache"] if workload.flush_cache else []
    words += ["--output-file", str(output), "--output-details", *([CACHE_REPORT] if cache_report else [])]
    settings = _settings(deployment, deployment.environment)
    env = _with(passed_on(parent, NEEDED_SECRETS) | _python_env(_further_folders(root, settings)), settings.env)
    return Command(tuple(words), env, root)


def eval_command(
    root: Path,
    deployment: Deployment,
    url: str,
    tasks: Path,
    examples: int,
    threads: int,
    max_tokens: int,
    name: str,
    parent: Mapping[str, str],
) -> Command:
    """Lets the server at `url` solve the GSM8K `tasks` with SGLang's own evaluation, which names its reports by the
    model's `name`. It runs where the benchmark client runs, and downloads nothing. Raises NoInterpreter."""
    words = [str(interpreter(root, deployment, deployment.environment)), "-m", "sglang.test.run_eval"]
    words += ["--base-url", url.rstrip("/"), "--model", name, "--eval-name", "gsm8k", "--gsm8k-data-path", str(tasks)]
    words += ["--num-examples", str(examples), "--num-threads", str(threads), "--max-tokens", str(max_tokens)]
    settings = _settings(deployment, deployment.environment)
    env = _with(passed_on(parent) | _python_env(_further_folders(root, settings)), settings.env)
    return Command(tuple(words), env, root)


def interpreter(root: Path, deployment: Deployment, environment: str) -> Path:
    """The Python of a real serving environment. It is not resolved: a link in a virtual environment is the
    environment. Raises NoInterpreter."""
    settings = _settings(deployment, environment)
    if settings.python is None:
        raise NoInterpreter(f"environment {environment!r} has no python: set the interpreter that has sglang installed")
    return from_root(root, settings.python)


def passed_on(parent: Mapping[str, str], secrets: Iterable[str] = ()) -> dict[str, str]:
    """The part of our own environment that a server may see: an allow-list, without secrets but the named ones."""
    wanted = frozenset(secrets)
    env = {
        name: value
        for name, value in parent.items()
        if name in wanted or ((name in PASSED_ON or name.startswith(PASSED_ON_PREFIXES)) and not SECRET.search(name))
    }
    if any(name.lower() in ("http_proxy", "https_proxy") for name in env):
        # A server warms itself up over its own address, and must not ask a proxy for it.
        for name in ("NO_PROXY", "no_proxy"):
            env[name] = ",".join(filter(None, [env.get(name), "localhost,127.0.0.1,::1"]))
    return env


def _settings(deployment: Deployment, environment: str) -> ServingEnvironment:
    if environment not in deployment.environments:
        known = ", ".join(sorted(deployment.environments)) or "none"
        raise NoInterpreter(f"there is no environment {environment!r}; known: {known}")
    return deployment.environments[environment]


def _server_module(root: Path, deployment: Deployment, environment: str) -> tuple[str, ...]:
    if deployment.kind == "simulator":
        return (sys.executable, "-m", "optagent.tools.simulator")
    return (str(interpreter(root, deployment, environment)), "-m", "sglang.launch_server")


def _environment(root: Path, deployment: Deployment, name: str, parent: Mapping[str, str]) -> dict[str, str]:
    """Ours, then the environment's own variables, then what says where code comes from."""
    settings = _settings(deployment, name)
    source = source_folder(root, deployment)
    folders = [environment_folder(root, deployment, name), *_further_folders(root, settings)]
    if deployment.kind == "simulator":
        tuning = {name: value for name, value in parent.items() if name.startswith("OPTAGENT_SIMULATION_")}
        env = passed_on(parent) | tuning | {"OPTAGENT_SIMULATION": str(simulation_folder(root))}
        if source is not None:
            env["OPTAGENT_SIMULATION_SOURCE"] = str(source)
        folders.append(simulation_folder(root) / "environments" / name)  # its versions, wherever its files are
        folders += [Path(p) for p in parent.get("PYTHONPATH", "").split(os.pathsep) if p]
    else:
        env = passed_on(parent, NEEDED_SECRETS)
        if source is not None:
            folders.append(source / deployment.source_path)
    # Without SPT_NOENV, setproctitle overwrites the memory in which /proc shows the marker of a scheduler.
    return _with(env | _python_env(folders) | {"SPT_NOENV": "1"}, settings.env)


def _with(env: Mapping[str, str], more: Mapping[str, str]) -> dict[str, str]:
    """`env` with `more` put on. Folders of a PYTHONPATH come behind those that are there: where the deployment's code
    comes from is not for a variable to say."""
    folders = [f for path in (env, more) for f in path.get("PYTHONPATH", "").split(os.pathsep) if f]
    return {**env, **more} | ({"PYTHONPATH": os.pathsep.join(dict.fromkeys(folders))} if folders else {})


def _python_env(folders: list[Path]) -> dict[str, str]:
    path = {"PYTHONPATH": os.pathsep.join(dict.fromkeys(map(str, folders)))} if folders else {}
    return {"PYTHONUNBUFFERED": "1"} | path


def _further_folders(root: Path, settings: ServingEnvironment) -> list[Path]:
    return [from_root(root, folder) for folder in settings.pythonpath]


def _model_words(deployment: Deployment) -> list[str]:
    words: list[str] = []
    for option, names in (("--model", ("model-path", "model")), ("--tokenizer", ("tokenizer-path",))):
        value = next((deployment.flags[name] for name in names if name in deployment.flags), None)
        words += [option, str(value)] if value is not None else []
    return words


def _load_words(workload: Workload, prompts: Path | None) -> list[str]:
    if workload.dataset == "custom":
        words = ["--dataset-name", "custom", "--dataset-path", str(prompts), "--apply-chat-template"]
        return [*words, "--sharegpt-output-len", str(workload.output_len)]
    lengths = ["--random-input-len", str(workload.input_len), "--random-output-len", str(workload.output_len)]
    # The client's own default ratio of 0 would draw every length anew between 1 and the one given.
    return ["--dataset-name", "random-ids", "--tokenize-prompt", *lengths, "--random-range-ratio", "1.0"]
