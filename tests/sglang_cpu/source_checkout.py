"""A git checkout of the installed SGLang, for patches: `python source_checkout.py FOLDER`, with the interpreter that has
sglang installed.

`FOLDER/python` goes on a server's PYTHONPATH, before the installed package. The checkout has one commit, whose hash is
the same wherever the same wheel was installed. Parts that no text model on the CPU imports are left out; byte code that
Python writes beside the sources is ignored by git.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

LEFT_OUT = ("__pycache__", "multimodal_gen", "_*.so")
"""Byte code, diffusion models, and the Rust extensions of entry points that are not used here."""
IGNORED = "__pycache__/\n*.py[co]\n"
WHO, WHEN = "SGLang", "2026-01-01T00:00:00+0000"


def make_checkout(package: Path, folder: Path, title: str) -> str:
    """Copy `package` to `folder`/python and commit it there; the commit's hash. `folder` must not exist yet."""
    draft = folder.with_name(f"{folder.name}.draft")
    shutil.rmtree(draft, ignore_errors=True)
    shutil.copytree(package, draft / "python" / package.name, ignore=shutil.ignore_patterns(*LEFT_OUT))
    (draft / ".gitignore").write_text(IGNORED, encoding="utf-8")
    git(draft, "init", "--quiet", "--initial-branch", "main")
    git(draft, "add", "--all", "--force")
    git(draft, "commit", "--quiet", "--message", title)
    revision = git(draft, "rev-parse", "HEAD")
    draft.rename(folder)
    return revision


def git(folder: Path, *arguments: str) -> str:
    """What git prints; nobody's own settings have a say, so that the commit is the same everywhere."""
    env = {
        **os.environ,
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_AUTHOR_NAME": WHO,
        "GIT_AUTHOR_EMAIL": "",
        "GIT_AUTHOR_DATE": WHEN,
        "GIT_COMMITTER_NAME": WHO,
        "GIT_COMMITTER_EMAIL": "",
        "GIT_COMMITTER_DATE": WHEN,
    }
    return subprocess.run(
        ["git", "-C", str(folder), *arguments], env=env, check=True, capture_output=True, text=True
    ).stdout.strip()


def installed_package() -> Path:
    """Where sglang lies, without importing it."""
    found = find_spec("sglang")
    if found is None or found.origin is None:
        raise SystemExit("this interpreter has no sglang")
    return Path(found.origin).parent


if __name__ == "__main__":
    print(make_checkout(installed_package(), Path(sys.argv[1]), f"SGLang {version('sglang')} as installed"))
