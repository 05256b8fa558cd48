"""What a serving environment has installed, asked of its own interpreter without importing any of it."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from optagent.tools.commands import Command

ASK_TIMEOUT_S = 60.0

SCRIPT = """
import importlib.metadata as metadata, json, platform, re, sysconfig
names = {"torch": "torch", "sglang": "sglang", "sgl-kernel": "sgl-kernel", "sglang-kernel": "sgl-kernel",
         "flashinfer-python": "flashinfer", "nvidia-nccl-cu12": "nccl", "nvidia-nccl-cu13": "nccl",
         "transformers": "transformers", "triton": "triton"}
versions = {"python": platform.python_version()}
for package, name in names.items():
    try:
        versions[name] = metadata.version(package)
    except metadata.PackageNotFoundError:
        pass
try:
    text = metadata.distribution("torch").locate_file("torch/version.py").read_text()
    found = re.search(r"^cuda[^=]*= *['\\"]([\\d.]+)", text, re.MULTILINE)
    if found:
        versions["cuda"] = found.group(1)
except (metadata.PackageNotFoundError, OSError):
    pass
print(json.dumps([sysconfig.get_paths()["purelib"], versions]))
"""


@dataclass
class VersionReader:
    """Remembers what an interpreter answered until something is installed into its site-packages."""

    _answers: dict[tuple[str, str], tuple[str, float, dict[str, str]]] = field(default_factory=dict)

    def ask(self, command: Command) -> dict[str, str]:
        """What `command`, which runs SCRIPT, says; empty when it fails."""
        key = (command.argv[0], command.env.get("PYTHONPATH", ""))
        if key in self._answers:
            folder, changed, versions = self._answers[key]
            if _changed(folder) == changed:
                return dict(versions)
        answer = _ask(command)
        if answer is None:
            return {}
        folder, versions = answer
        self._answers[key] = (folder, _changed(folder), versions)
        return dict(versions)


def _ask(command: Command) -> tuple[str, dict[str, str]] | None:
    try:
        done = subprocess.run(
            command.argv,
            env=command.env,
            cwd=command.cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=ASK_TIMEOUT_S,
            start_new_session=True,
        )
        folder, versions = json.loads(done.stdout.splitlines()[-1])
    except (OSError, subprocess.TimeoutExpired, ValueError, TypeError, IndexError):
        return None
    return str(folder), {str(name): str(version) for name, version in dict(versions).items()}


def _changed(folder: str) -> float:
    try:
        return Path(folder).stat().st_mtime
    except OSError:
        return 0.0
