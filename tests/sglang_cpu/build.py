"""Builds the real SGLang that the tests drive, on a machine without a GPU: `python tests/sglang_cpu/build.py`.

The cache folder then holds `venv/` (torch, SGLang and what they need, every version pinned), `standins/` (for the
server's PYTHONPATH), `model/` (a tiny Llama with random weights), `checkout/` (the installed SGLang as a git repository)
and `ready.json`, which is written last: an interrupted build has none, and is taken up again by the next call. Later only
those parts are made anew whose inputs have changed. Where pip does not find a CPU build of torch by itself, set
PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu; the CUDA build works as well and is several times as large.

Exit status: 0 it is there, 1 a step failed, 3 it cannot be built here (or, with --check, has not been).
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).resolve().parent
DEFAULT_CACHE = HERE.parents[1] / ".cache" / "sglang-cpu"
CACHE_VARIABLE = "OPTAGENT_SGLANG_CPU"
REQUIREMENTS = HERE / "requirements.txt"
STANDINS = HERE / "standins"
TINY_MODEL = HERE / "tiny_model.py"
SOURCE_CHECKOUT = HERE / "source_checkout.py"

TORCH = "torch==2.13.0"
PYTHON = (3, 11)  # what the pinned versions were tried with
MACHINE = "x86_64"
DISK_GB = 8.0  # 3.1 GB of environment with a CPU build of torch, and the downloads beside it
MODULES = ("sglang.launch_server", "sglang.srt.entrypoints.http_server", "sglang.bench_serving")

STARTED = time.monotonic()


class CannotBuildHere(Exception):
    """The machine is not one this can be built on; the message says why, in one line."""


class StepFailed(Exception):
    """A step of the build failed; the message names it and its log."""


def main() -> int:
    parser = argparse.ArgumentParser(description="Build a real SGLang for the CPU, for the tests.")
    parser.add_argument("--cache", type=Path, help=f"default: ${CACHE_VARIABLE}, otherwise {DEFAULT_CACHE}")
    parser.add_argument("--check", action="store_true", help="build nothing; print the folder, and exit 3 if unbuilt")
    options = parser.parse_args()
    cache = (options.cache or Path(os.environ.get(CACHE_VARIABLE) or DEFAULT_CACHE)).expanduser().absolute()
    if options.check:
        print(cache)
        return 0 if is_ready(cache) else 3
    try:
        with only_builder(cache):
            if is_ready(cache):
                say(f"already built: {cache}")
            else:
                build(cache)
    except CannotBuildHere as error:
        say(f"cannot build: {error}")
        return 3
    except StepFailed as error:
        say(f"failed: {error}")
        return 1
    return 0


def build(cache: Path) -> None:
    """Do every step whose inputs have changed. Each can be repeated, and costs little when it was done before."""
    changed = [part for part, digest in inputs().items() if built(cache).get(part) != digest]
    interpreter = suitable_python()
    check_disk(cache)
    (cache / "ready.json").unlink(missing_ok=True)
    say(f"building in {cache} (output of the steps: build.log)")
    python = str(venv_python(cache))
    if "environment" in changed:
        changed = list(inputs())
        make_venv(cache, interpreter)
        pip = [python, "-m", "pip", "install", "--disable-pip-version-check"]
        run_step(cache, TORCH, [*pip, TORCH])
        run_step(cache, "the pinned requirements", [*pip, "--no-deps", "-r", str(REQUIREMENTS)])
    if "standins" in changed:
        copy_standins(cache)
        check_imports(cache)
    if "model" in changed:
        run_step(cache, "the tiny model", [python, str(TINY_MODEL), str(cache / "model")])
    if "checkout" in changed:
        shutil.rmtree(cache / "checkout", ignore_errors=True)
        run_step(cache, "the checkout of its source", [python, str(SOURCE_CHECKOUT), str(cache / "checkout")])
    write_stamp(cache)
    say("ready")


def say(text: str) -> None:
    print(f"[{time.monotonic() - STARTED:6.1f} s] {text}", flush=True)


def venv_python(cache: Path) -> Path:
    return cache / "venv" / "bin" / "python"


def inputs() -> dict[str, str]:
    """For each part of the build a hash of everything that decides what it is."""
    return {
        "environment": hash_of([REQUIREMENTS], TORCH),
        "standins": hash_of(sorted(STANDINS.rglob("*.py"))),
        "model": hash_of([TINY_MODEL]),
        "checkout": hash_of([SOURCE_CHECKOUT]),
    }


def hash_of(paths: list[Path], more: str = "") -> str:
    digest = hashlib.sha256(more.encode())
    for path in paths:
        digest.update(path.relative_to(HERE).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def built(cache: Path) -> dict[str, str]:
    """The parts of a whole build that has not been moved since, each with the hash of its inputs then."""
    try:
        stamp = json.loads((cache / "ready.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    whole = stamp["cache"] == str(cache) and venv_python(cache).exists() and isinstance(stamp["inputs"], dict)
    return stamp["inputs"] if whole else {}


def is_ready(cache: Path) -> bool:
    """Whether a whole build is there, made from today's inputs."""
    return built(cache) == inputs()


def write_stamp(cache: Path) -> None:
    """Say in `ready.json` that the build is whole, and with which versions."""
    names = ["sglang", "torch", "torchvision", "transformers", "tokenizers"]
    ask = "import sys; from importlib.metadata import version; print(*map(version, sys.argv[1:]))"
    answer = subprocess.run([venv_python(cache), "-c", ask, *names], check=True, capture_output=True, text=True).stdout
    stamp = {
        "inputs": inputs(),
        "cache": str(cache),
        "versions": dict(zip(names, answer.split(), strict=True)),
        "build_s": round(time.monotonic() - STARTED, 1),
    }
    draft = cache / "ready.json.draft"
    draft.write_text(json.dumps(stamp, indent=2) + "\n", encoding="utf-8")
    draft.replace(cache / "ready.json")


@contextmanager
def only_builder(cache: Path) -> Iterator[None]:
    """Keep a second builder of the same folder waiting; the lock ends with this process and the step it has started."""
    try:
        cache.mkdir(parents=True, exist_ok=True)
        lock = (cache / "lock").open("w")
    except OSError as error:
        raise CannotBuildHere(f"{cache} cannot be written to ({error.strerror})") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another build of this folder is running, waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        os.set_inheritable(lock.fileno(), True)
        yield


def suitable_python() -> str:
    """An interpreter of the version the pinned list is for: this one, or else one on the PATH."""
    if sys.platform != "linux" or platform.machine() != MACHINE:
        raise CannotBuildHere(
            f"the pinned packages are for Linux on {MACHINE}, not {sys.platform} {platform.machine()}"
        )
    if sys.version_info[:2] == PYTHON:
        return sys.executable
    name = f"python{PYTHON[0]}.{PYTHON[1]}"
    found = shutil.which(name)
    if found is None or subprocess.run([found, "-c", ""], capture_output=True).returncode != 0:
        raise CannotBuildHere(
            f"the pinned packages are for {name}; this is {platform.python_version()} and none is on PATH"
        )
    return found


def check_disk(cache: Path) -> None:
    """Ask for room before a build from nothing; what an interrupted one has placed already counts."""
    free_gb = shutil.disk_usage(cache).free / 1e9
    if free_gb < DISK_GB and not venv_python(cache).exists():
        raise CannotBuildHere(f"{free_gb:.1f} GB are free at {cache}, {DISK_GB:.0f} GB are needed")


def make_venv(cache: Path, interpreter: str) -> None:
    """Make the virtual environment; where an interrupted build left one without a working pip, make it anew."""
    python = venv_python(cache)
    works = python.exists() and subprocess.run([python, "-m", "pip", "--version"], capture_output=True).returncode == 0
    if not works:
        run_step(cache, "the virtual environment", [interpreter, "-m", "venv", "--clear", str(cache / "venv")])


def copy_standins(cache: Path) -> None:
    """Put the stand-ins beside the environment, so that the cache folder is all a server needs."""
    say("the stand-ins for parts that need a GPU")
    target = cache / "standins"
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(STANDINS, target, ignore=shutil.ignore_patterns("__pycache__"))


def check_imports(cache: Path) -> None:
    """Import what will be run, as it will be run: a build that cannot start is not called ready."""
    imports = "; ".join(f"import {module}" for module in MODULES)
    env = {**os.environ, "PYTHONPATH": str(cache / "standins"), "SGLANG_USE_CPU_ENGINE": "1", "HF_HUB_OFFLINE": "1"}
    run_step(cache, "importing the server and the benchmark client", [str(venv_python(cache)), "-c", imports], env)


def run_step(cache: Path, title: str, command: list[str], env: dict[str, str] | None = None) -> None:
    """Announce and run one command; its output goes to the build's log."""
    say(title)
    log_path = cache / "build.log"
    with log_path.open("a", encoding="utf-8") as log:
        log.write(f"\n== {title}\n")
        log.flush()
        # The step inherits the lock: killed alone, this process leaves a pip behind that still writes to the folder.
        ended = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env, close_fds=False)
    if ended.returncode != 0:
        tail = log_path.read_text(encoding="utf-8", errors="replace").rstrip().rsplit("\n", 1)[-1]
        raise StepFailed(f"{title}: {tail} (exit {ended.returncode}, see {log_path})")


if __name__ == "__main__":
    sys.exit(main())
