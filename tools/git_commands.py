"""Runs git in one checkout so that nothing but its arguments decides what it does.

The owner's configuration stays in force where it says what the files mean (ignore rules, filters, line endings). What
could run programs, ask questions, sign, reword a patch or touch submodules is switched off.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from optagent.tools.exhausted import stop_if_told
from optagent.tools.undisturbed import undisturbed

MARKER = "OPTAGENT_GIT"
"""In the environment of every git we start, with the checkout's path: so one that outlived us can be recognised."""

_SETTINGS = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.fsync=committed",
    "commit.gpgSign=false",
    "submodule.recurse=false",
    "log.showSignature=false",
    "i18n.commitEncoding=UTF-8",
    "gc.auto=0",
    "maintenance.auto=false",
    "advice.detachedHead=false",
)
_ENVIRONMENT = {
    "GIT_AUTHOR_NAME": "optagent",
    "GIT_AUTHOR_EMAIL": "optagent@localhost",
    "GIT_COMMITTER_NAME": "optagent",
    "GIT_COMMITTER_EMAIL": "optagent@localhost",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_EDITOR": "true",
    "LC_ALL": "C",
}


class CheckoutProblem(Exception):
    """What stands in the way of working in the checkout, in one line that its owner can act on."""


@dataclass(frozen=True)
class Output:
    """What git answered; `stderr` is text, `stdout` bytes, because paths need not be text."""

    status: int
    stdout: bytes
    stderr: str

    def reason(self) -> str:
        """Git's own words for what went wrong, on one line."""
        told: list[str] = []
        for line in self.stderr.splitlines():
            if line.startswith(("error: ", "fatal: ")):
                told.append(line.split(": ", 1)[1].strip())
            elif line.startswith("\t") and told:  # the files that the line before speaks of
                told[-1] += f" {line.strip()}"
        if not told:
            told = [line.strip() for line in self.stderr.splitlines() if line.strip()]
        return "; ".join(told[:3]) or f"git ended with status {self.status}"


@dataclass(frozen=True)
class Checkout:
    """A working tree with its repository. `common_dir` differs from `git_dir` in a linked worktree."""

    top: Path
    git_dir: Path
    common_dir: Path

    @property
    def index(self) -> Path:
        return self.git_dir / "index"

    def attempt(
        self, *arguments: str, index: Path | None = None, stdin: bytes = b"", date: str | None = None
    ) -> Output:
        """Run git and return what it answered, whatever that is.

        `index` is used instead of the checkout's own, `date` (as git writes it) instead of now.
        """
        from git.cmd import Git  # costs a tenth of a second, which commands without a checkout need not pay

        settings = [word for setting in _SETTINGS for word in ("-c", setting)]
        where = [f"--git-dir={self.git_dir}", f"--work-tree={self.top}"]
        environment = _ENVIRONMENT | {"GIT_INDEX_FILE": str(index or self.index), MARKER: str(self.top)}
        if date is not None:
            environment |= {"GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date}
        with tempfile.TemporaryFile() as source:
            source.write(stdin)
            source.seek(0)
            with undisturbed():
                process: Any = Git(str(self.top)).execute(
                    ["git", "--no-optional-locks", *settings, *where, *arguments],
                    istream=source,
                    env=environment,
                    as_process=True,
                )
            stdout, stderr = process.communicate()
        return Output(process.returncode, stdout, stderr.decode("utf-8", "backslashreplace"))

    def run(self, *arguments: str, index: Path | None = None, stdin: bytes = b"", date: str | None = None) -> bytes:
        """What git prints. Raises CheckoutProblem with git's reason when it fails."""
        output = self.attempt(*arguments, index=index, stdin=stdin, date=date)
        if output.status != 0:
            stop_if_told(output.stderr, f"git {arguments[0]} in {self.top}")
            raise CheckoutProblem(f"git {arguments[0]} in {self.top}: {output.reason()}")
        return output.stdout

    def text(self, *arguments: str, index: Path | None = None, stdin: bytes = b"", date: str | None = None) -> str:
        return self.run(*arguments, index=index, stdin=stdin, date=date).decode("utf-8", "backslashreplace").strip()

    def commit_of(self, name: str) -> str | None:
        """The full id of the commit that `name` stands for, None when there is no such commit."""
        if not name or name.startswith("-"):
            return None
        output = self.attempt("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
        return output.stdout.decode().strip() if output.status == 0 else None

    def tree_of(self, commit: str) -> str:
        return self.text("rev-parse", "--verify", f"{commit}^{{tree}}")

    def head_ref(self) -> str | None:
        """The full name of the branch that is checked out, None when HEAD is detached."""
        output = self.attempt("symbolic-ref", "--quiet", "HEAD")
        return output.stdout.decode("utf-8", "backslashreplace").strip() if output.status == 0 else None


def open_checkout(path: Path) -> Checkout:
    """The checkout whose top folder is `path`. A repository further up is not it. Raises CheckoutProblem."""
    try:
        from git import InvalidGitRepositoryError, NoSuchPathError, Repo
    except ImportError as error:
        raise CheckoutProblem("git is not installed, or not on the PATH") from error
    try:
        with Repo(path, expand_vars=False) as repo:
            if repo.bare or repo.working_tree_dir is None:
                raise CheckoutProblem(f"{path} is a bare repository: name a checkout of it")
            top = Path(os.path.realpath(repo.working_tree_dir))
            checkout = Checkout(top, Path(repo.git_dir).absolute(), Path(repo.common_dir).absolute())
    except NoSuchPathError as error:
        raise CheckoutProblem(f"{path} does not exist") from error
    except InvalidGitRepositoryError as error:
        raise CheckoutProblem(f"{path} is not the top folder of a git checkout") from error
    if top != Path(os.path.realpath(path)):
        raise CheckoutProblem(f"{path} is not the top folder of a git checkout, {top} is")
    if checkout.commit_of("HEAD") is None:
        raise CheckoutProblem(f"{path} has no commit yet")
    return checkout
