"""Changing a checkout: real repositories, hostile settings, edits in between, and kills at any moment."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from optagent.tools.calls.patch import (
    ApplyPatch,
    CheckoutRestored,
    CheckoutSettled,
    DropPatch,
    KeepPatch,
    PatchApplied,
    RestoreCheckout,
)
from optagent.tools.deployment import Deployment
from optagent.tools.patch import apply_patch, drop_patch, keep_patch, look_at_checkout, restore_checkout

DEPLOYMENT = Deployment(source="source")
LINES = "".join(f"line {n}\n" for n in range(1, 21))


class Source:
    """A campaign folder with a git checkout in it, and hands that work in it as its owner would."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.top = root / "source"
        self.top.mkdir(parents=True)
        self.git("init", "-q", "-b", "main")
        self.write("engine.py", LINES)
        self.write("pkg/util.py", "x = 1\n")
        self.write(".gitignore", "*.log\n__pycache__/\n")
        self.commit("first")
        self.base = self.revision()

    def git(self, *arguments: str, check: bool = True) -> str:
        identity = [
            "-c", "user.name=Owner", "-c", "user.email=owner@host", "-c", "commit.gpgSign=false", "-c", "core.hooksPath=",
        ]  # fmt: skip
        done = subprocess.run(
            ["git", *identity, *arguments], cwd=self.top, capture_output=True, check=False, encoding="utf-8"
        )
        assert done.returncode == 0 or not check, done.stderr
        return done.stdout.rstrip("\n")

    def write(self, name: str, text: str) -> None:
        (self.top / name).parent.mkdir(parents=True, exist_ok=True)
        (self.top / name).write_text(text)

    def commit(self, message: str) -> str:
        self.git("add", "-A")
        self.git("commit", "-q", "-m", message)
        return self.revision()

    def revision(self, name: str = "HEAD") -> str:
        return self.git("rev-parse", name)

    def status(self) -> str:
        return self.git("status", "--porcelain", "-uall")

    def branches(self) -> list[str]:
        return self.git("for-each-ref", "--format=%(refname:short)").split()

    def branch(self) -> str:
        return self.git("branch", "--show-current")

    def apply(self, diff: str, experiment: str = "e1", base: str | None = None, key: str | None = None) -> str | None:
        """The problem, None when it went well."""
        request = ApplyPatch(
            key=key or f"apply {experiment}",
            experiment=experiment,
            base=base or self.base,
            diff=diff,
            message="Change it",
        )
        return apply_patch(self.root, DEPLOYMENT, request).problem

    def keep(self, experiment: str = "e1") -> str | None:
        return keep_patch(self.root, DEPLOYMENT, KeepPatch(key=f"keep {experiment}", experiment=experiment)).problem

    def drop(self, experiment: str = "e1", base: str | None = None) -> str | None:
        request = DropPatch(key=f"drop {experiment}", experiment=experiment, base=base or self.base)
        return drop_patch(self.root, DEPLOYMENT, request).problem


@pytest.fixture
def source(tmp_path: Path) -> Source:
    return Source(tmp_path)


def edit(line: int, text: str = "changed") -> str:
    """A diff of engine.py as git writes it, for one line that has its neighbours unchanged."""
    context = [f" line {n}\n" for n in range(line - 3, line)]
    after = [f" line {n}\n" for n in range(line + 1, line + 4)]
    hunk = "".join([*context, f"-line {line}\n", f"+{text}\n", *after])
    return f"--- a/engine.py\n+++ b/engine.py\n@@ -{line - 3},7 +{line - 3},7 @@\n{hunk}"


NEW_FILE = "--- /dev/null\n+++ b/fast/new.py\n@@ -0,0 +1,2 @@\n+a = 1\n+b = 2\n"


def test_a_patch_is_applied_kept_and_built_upon(source: Source) -> None:
    request = ApplyPatch(key="k1", experiment="e1", base=source.base, diff=edit(5) + NEW_FILE, message="Two things")
    applied = apply_patch(source.root, DEPLOYMENT, request)
    assert (applied.problem, applied.branch, applied.files) == (None, "optagent/e1", ["engine.py", "fast/new.py"])
    assert (source.branch(), source.revision(), source.status()) == ("optagent/e1", applied.revision, "")
    assert (source.top / "fast/new.py").read_text() == "a = 1\nb = 2\n"
    author = "optagent <optagent@localhost>"
    assert source.git("log", "-1", "--format=%an <%ae>%n%cn <%ce>%n%B").splitlines()[:6] == [
        author, author, "Two things", "", "Optagent-Experiment: e1", "Optagent-Key: k1",
    ]  # fmt: skip
    kept = keep_patch(source.root, DEPLOYMENT, KeepPatch(key="k2", experiment="e1"))
    assert (kept.problem, kept.revision, source.branch()) == (None, applied.revision, "optagent/kept")
    assert source.apply(edit(12), "e2", base=kept.revision) is None
    assert source.drop("e2", base=kept.revision) is None
    assert source.branch() == "optagent/kept"
    assert source.branches() == ["main", "optagent/kept"]
    assert source.revision("main") == source.base


def test_a_dropped_patch_leaves_no_trace(source: Source) -> None:
    assert source.apply(edit(5) + NEW_FILE) is None
    source.write("fast/__pycache__/new.cpython-311.pyc", "bytecode")
    source.write("server.log", "ignored, and the owner's")
    assert source.drop() is None
    assert (source.status(), source.branches(), source.git("stash", "list")) == ("", ["main"], "")
    assert source.revision() == source.base
    assert not (source.top / "fast").exists()
    assert (source.top / "server.log").exists()
    assert list((source.top / ".git/logs/refs/heads").rglob("e1")) == []


@pytest.mark.parametrize(
    ("diff", "said"),
    [
        ("", "empty"),
        (" \n", "empty"),
        ("nonsense\n", "No valid patches"),
        (edit(5).replace("line 4", "line four"), "patch does not apply"),
        (edit(5).replace("engine.py", "missing.py"), "missing.py"),
        (edit(5).replace("engine.py", "../engine.py"), "../engine.py"),
        (NEW_FILE.replace("b/fast", "b//etc"), "/etc"),
        (NEW_FILE.replace("fast/new.py", ".git/hooks/pre-commit"), ".git"),
        (NEW_FILE.replace("fast/new.py", "sub/.GIT/config"), ".GIT"),
        (edit(5, "line 5"), "changes nothing"),
        (
            "diff --git a/link b/link\nnew file mode 120000\n--- /dev/null\n+++ b/link\n@@ -0,0 +1 @@\n+/etc\n"
            "\\ No newline at end of file\n",
            "symbolic link",
        ),
    ],
)
def test_a_diff_that_cannot_be_applied_changes_nothing(source: Source, diff: str, said: str) -> None:
    problem = source.apply(diff)
    assert problem is not None
    assert said in problem
    assert "\n" not in problem
    assert (source.status(), source.branches(), source.branch(), source.revision()) == (
        "",
        ["main"],
        "main",
        source.base,
    )


def test_a_diff_without_its_last_newline_is_whole(source: Source) -> None:
    assert source.apply(edit(5).rstrip("\n")) is None


def leave_edit(source: Source) -> None:
    source.write("engine.py", "mine\n")


def leave_untracked(source: Source) -> None:
    source.write("notes.txt", "mine\n")


def leave_staged(source: Source) -> None:
    source.write("engine.py", "mine\n")
    source.git("add", "-A")
    source.write("engine.py", LINES)


def leave_merge(source: Source) -> None:
    source.git("checkout", "-q", "-b", "other")
    source.write("engine.py", "theirs\n")
    source.commit("theirs")
    source.git("checkout", "-q", "main")
    source.write("engine.py", "ours\n")
    source.commit("ours")
    source.git("merge", "other", check=False)


def leave_rebase(source: Source) -> None:
    leave_merge(source)
    source.git("merge", "--abort")
    source.git("rebase", "other", check=False)


@pytest.mark.parametrize(
    ("leave", "said"),
    [
        (leave_edit, "engine.py"),
        (leave_untracked, "notes.txt"),
        (leave_staged, "engine.py"),
        (leave_merge, "merge is in progress"),
        (leave_rebase, "rebase is in progress"),
    ],
)
def test_what_the_owner_has_begun_is_in_the_way(source: Source, leave: Callable[[Source], None], said: str) -> None:
    leave(source)
    before = (source.status(), source.branches(), source.revision(), (source.top / "engine.py").read_text())
    for problem in (source.apply(edit(5)), source.drop()):
        assert problem is not None
        assert said in problem
    if "progress" in said:
        request = RestoreCheckout(key="r", revision=source.base, reason="test")
        restored = restore_checkout(source.root, DEPLOYMENT, request)
        assert said in (restored.problem or "")
    assert before == (source.status(), source.branches(), source.revision(), (source.top / "engine.py").read_text())


def test_names_and_revisions_that_are_none(source: Source) -> None:
    for experiment in ("kept", "kept/x", "saved", "saved/x", "a..b", "-x y", "", "x.lock"):
        assert "cannot be the name" in (source.apply(edit(5), experiment) or "")
    for base in ("missing", "0" * 40, "-x", "", "HEAD:engine.py"):
        assert "has no commit" in (source.apply(edit(5), base=base or " ") or "")
    assert "no branch" in (source.keep("never") or "")
    assert source.branches() == ["main"]


def test_an_ignored_file_in_the_way_is_not_overwritten(source: Source) -> None:
    source.write("debug.log", "the owner's\n")
    problem = source.apply(NEW_FILE.replace("fast/new.py", "debug.log"))
    assert "debug.log" in (problem or "")
    assert (source.top / "debug.log").read_text() == "the owner's\n"
    assert (source.branches(), source.branch(), source.status()) == (["main"], "main", "")


def test_the_owners_settings_and_hooks_decide_nothing(source: Source) -> None:
    for name, value in {
        "commit.gpgSign": "true", "gpg.program": "false", "apply.whitespace": "error",
        "apply.ignoreWhitespace": "change", "log.showSignature": "true", "diff.noprefix": "true",
        "status.showUntrackedFiles": "no", "color.ui": "always", "merge.ff": "only", "user.name": "Somebody",
        "submodule.recurse": "true", "i18n.commitEncoding": "latin1",
    }.items():  # fmt: skip
        source.git("config", name, value)
    for hook in ("post-checkout", "reference-transaction", "pre-commit", "post-commit", "post-index-change"):
        source.write(f".git/hooks/{hook}", "#!/bin/sh\ntouch hook-ran.log\nexit 1\n")
        (source.top / f".git/hooks/{hook}").chmod(0o755)
    assert source.apply(edit(5, "trailing space ")) is None
    assert source.keep() is None
    assert (source.top / "engine.py").read_text() == LINES.replace("line 5\n", "trailing space \n")
    assert not (source.top / "hook-ran.log").exists()
    assert "does not apply" in (source.apply(edit(9).replace(" line 7", "  line 7"), "e2", "optagent/kept") or "")


def test_the_same_effect_is_done_once(source: Source) -> None:
    request = ApplyPatch(key="k", experiment="e1", base=source.base, diff=edit(5), message="m")
    first = apply_patch(source.root, DEPLOYMENT, request)
    source.write("engine.py", "edited after it was applied\n")
    assert apply_patch(source.root, DEPLOYMENT, request) == first
    source.git("checkout", "-q", "-f", "main")
    assert apply_patch(source.root, DEPLOYMENT, request) == first
    assert source.branch() == "optagent/e1"
    assert "holds something else" in (source.apply(edit(5), key="another") or "")
    assert [source.keep(), source.keep()] == [None, None]
    assert apply_patch(source.root, DEPLOYMENT, request).revision == first.revision
    assert source.branches() == ["main", "optagent/kept"]
    assert [source.drop(), source.drop()] == [None, None]
    assert (source.revision(), source.revision("optagent/kept")) == (source.base, first.revision)


def test_kept_changes_that_were_made_side_by_side_are_merged(source: Source) -> None:
    assert source.apply(edit(5), "e1") is None
    assert source.apply(edit(15), "e2") is None
    assert source.apply(edit(6), "e3") is None
    assert [source.keep("e1"), source.keep("e2"), source.keep("e2")] == [None, None, None]
    assert (source.top / "engine.py").read_text().count("changed") == 2
    kept = source.revision()
    assert "engine.py" in (source.keep("e3") or "")
    assert (source.revision(), source.branch(), source.status()) == (kept, "optagent/kept", "")
    assert source.branches() == ["main", "optagent/e3", "optagent/kept"]


def restore(source: Source, revision: str, key: str = "r1") -> tuple[str | None, list[str]]:
    request = RestoreCheckout(key=key, revision=revision, reason="a test")
    restored = restore_checkout(source.root, DEPLOYMENT, request)
    assert restored.problem is None
    assert (source.revision(), source.status()) == (revision, "")
    assert restore_checkout(source.root, DEPLOYMENT, request) == restored, "asked again, it says the same"
    return restored.saved_branch, restored.saved_files


def test_restoring_saves_everything_uncommitted(source: Source) -> None:
    assert source.apply(edit(5)) is None
    experiment = source.revision()
    source.write("engine.py", "staged\n")
    source.write("staged new.py", "staged new\n")
    source.git("add", "-A")
    source.write("engine.py", "on disk\n")
    source.write("deep/er/ünträcked \n.txt", "untracked\n")
    source.write("empty", "")
    source.write("intended.py", "intended\n")
    source.git("add", "-N", "intended.py")
    (source.top / "pkg/util.py").unlink()
    (source.top / "link").symlink_to("nowhere")
    (source.top / "deep/run.sh").write_text("#!/bin/sh\n")
    (source.top / "deep/run.sh").chmod(0o755)
    source.write("server.log", "ignored\n")
    seen = look_at_checkout(source.top)
    assert seen is not None
    branch, files = restore(source, source.base)
    assert branch is not None
    assert branch.startswith("optagent/saved/")
    assert files == sorted(set(seen.dirty))
    assert source.git("show", f"{branch}:engine.py") == "on disk"
    assert source.git("show", f"{branch}^:engine.py") == "staged"
    assert source.git("show", f"{branch}:deep/er/ünträcked \n.txt") == "untracked"
    assert source.git("show", f"{branch}:intended.py") == "intended"
    modes = {
        path: mode
        for mode, _, _, path in (e.split(maxsplit=3) for e in source.git("ls-tree", "-rz", branch).split("\0") if e)
    }
    assert (modes["deep/run.sh"], modes["link"], modes["empty"]) == ("100755", "120000", "100644")
    assert "pkg/util.py" not in source.git("ls-tree", "-r", "--name-only", branch)
    assert not (source.top / "deep").exists()
    assert (source.top / "server.log").exists()
    assert source.revision("optagent/e1") == experiment


def test_a_change_of_the_same_size_at_the_same_time_is_saved(source: Source) -> None:
    """Git sees it only because the index is as old as the file; a copy of the index must be that, too."""
    source.git("config", "core.trustctime", "false")
    then = (1_700_000_000, 1_700_000_000)
    source.write("notes.txt", "staged\n")
    os.utime(source.top / "notes.txt", then)
    source.git("add", "-A")
    source.write("notes.txt", "latest\n")
    os.utime(source.top / "notes.txt", then)
    os.utime(source.top / ".git/index", then)
    branch, _ = restore(source, source.base)
    assert source.git("show", f"{branch}:notes.txt") == "latest"
    assert source.git("show", f"{branch}^:notes.txt") == "staged"


def test_restoring_a_clean_checkout_saves_nothing_and_prefers_our_branches(source: Source) -> None:
    assert restore(source, source.base) == (None, [])
    assert source.branch() == "main"
    assert source.apply(edit(5)) is None
    applied = source.revision()
    assert restore(source, source.base, "r2") == (None, [])
    assert source.branch() == ""
    restore(source, applied, "r3")
    assert source.branch() == "optagent/e1"
    assert source.keep() is None
    restore(source, source.base, "r4")
    restore(source, applied, "r5")
    assert source.branch() == "optagent/kept"


def test_commits_that_no_branch_has_are_saved_before_they_are_left(source: Source) -> None:
    source.git("checkout", "-q", "--detach")
    source.write("engine.py", "detached work\n")
    mine = source.commit("detached work")
    request = RestoreCheckout(key="r", revision=source.base, reason="a test")
    assert restore_checkout(source.root, DEPLOYMENT, request).saved_branch == f"optagent/saved/{mine[:12]}"
    assert source.revision(f"optagent/saved/{mine[:12]}") == mine
    assert source.apply(edit(5)) is None
    source.write("engine.py", "on top of the experiment\n")
    mine = source.commit("on top of the experiment")
    assert source.drop() is None
    assert source.revision(f"optagent/saved/{mine[:12]}") == mine


def test_what_a_killed_git_left_locked_is_cleared_and_a_living_one_respected(source: Source) -> None:
    lock = source.top / ".git/index.lock"
    lock.touch()
    assert source.apply(edit(5)) is None
    assert source.drop() is None
    lock.touch()
    with subprocess.Popen(["tail", "-f", str(lock)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as holder:
        wait_until(lambda: any(os.path.realpath(fd) == str(lock) for fd in Path(f"/proc/{holder.pid}/fd").iterdir()))
        assert f"pid {holder.pid}" in (source.apply(edit(5)) or "")
        assert lock.exists()
        holder.kill()
    assert source.apply(edit(5)) is None


def wait_until(condition: Callable[[], bool]) -> None:
    while not condition():
        time.sleep(0.01)


def none_at_all(root: Path) -> None:
    """No folder."""


def plain_folder(root: Path) -> None:
    (root / "source").mkdir()


def folder_in_a_repository(root: Path) -> None:
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    (root / "source").mkdir()


def bare(root: Path) -> None:
    subprocess.run(["git", "init", "-q", "--bare", "source"], cwd=root, check=True)


def unborn(root: Path) -> None:
    subprocess.run(["git", "init", "-q", "source"], cwd=root, check=True)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (none_at_all, "does not exist"),
        (plain_folder, "not the top folder of a git checkout"),
        (folder_in_a_repository, "not the top folder of a git checkout"),
        (bare, "bare"),
        (unborn, "no commit"),
    ],
)
def test_what_is_no_checkout_is_a_problem_everywhere(tmp_path: Path, make: Callable[[Path], None], said: str) -> None:
    make(tmp_path)
    seen = look_at_checkout(tmp_path / "source")
    assert seen is not None
    assert said in (seen.problem or "")
    apply = ApplyPatch(key="k", experiment="e", base="HEAD", diff=edit(5), message="m")
    assert said in (apply_patch(tmp_path, DEPLOYMENT, apply).problem or "")
    assert "names no source" in (apply_patch(tmp_path, Deployment(), apply).problem or "")
    assert look_at_checkout(None) is None


def test_submodules_and_repositories_inside_are_left_alone(source: Source, tmp_path: Path) -> None:
    inner = Source(tmp_path / "inner")
    source.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(inner.top), "sub")
    source.base = source.commit("with a submodule")
    shutil.copytree(inner.top, source.top / "cloned")
    source.write("sub/engine.py", "edited in the submodule\n")
    seen = look_at_checkout(source.top)
    assert seen is not None
    assert seen.dirty == []
    assert source.apply(edit(5)) is None
    assert source.drop() is None
    assert (source.top / "sub/engine.py").read_text() == "edited in the submodule\n"
    assert (source.top / "cloned/engine.py").read_text() == LINES


def test_a_linked_worktree_is_a_checkout(source: Source, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    source.git("worktree", "add", "-q", "--detach", str(tmp_path / "other/source"))
    request = ApplyPatch(key="k", experiment="e1", base=source.base, diff=edit(5), message="m")
    assert apply_patch(tmp_path / "other", DEPLOYMENT, request).problem is None
    assert (source.branch(), source.status(), source.branches()) == ("main", "", ["main", "optagent/e1"])


def test_the_hash_of_what_is_uncommitted_is_one_of_content(source: Source) -> None:
    def seen() -> tuple[list[str], str | None]:
        state = look_at_checkout(source.top)
        assert state is not None
        assert state.problem is None
        return state.dirty, state.dirty_sha256

    assert seen() == ([], None)
    source.write("b.txt", "b\n")
    (source.top / "pkg/util.py").unlink()
    source.write("engine.py", "one\n")
    first = seen()
    assert first[0] == ["b.txt", "engine.py", "pkg/util.py"]
    source.git("add", "-A")
    os.utime(source.top / "engine.py", (0, 0))
    assert seen() == first
    source.write("engine.py", "two\n")
    assert seen() != first
    source.write("engine.py", "one\n")
    assert seen() == first
    (source.top / ".git/index.lock").touch()
    assert seen() == first


OPERATION = """
import sys
from pathlib import Path
from optagent.tools import patch
from optagent.tools.calls import patch as calls
from optagent.tools.deployment import Deployment
root, operation, request = Path(sys.argv[1]), *sys.argv[2:]
kind = getattr(calls, request).model_validate_json((root / "request.json").read_text())
getattr(patch, operation)(root, Deployment(source="source"), kind)
"""
DEADLY_GIT = """#!/bin/sh
# Counts its calls; the fatal one takes the whole process group, or only the process that called it, with it.
count=$(($(cat "$COUNT") + 1))
echo $count > "$COUNT"
[ $count = "$FATAL" ] || exec "$GIT" "$@"
case "$MOMENT" in
    before) ;;
    after) "$GIT" "$@" ;;
    during) "$GIT" "$@" & while [ ! -e "$LOCK" ] && kill -0 $! 2>/dev/null; do :; done; sleep 0.00$DELAY_MS ;;
    orphaned) kill -9 $PPID; exec "$GIT" "$@" ;;
esac
kill -9 0
"""
MANY = "".join(
    f"--- /dev/null\n+++ b/many/f{n}.py\n@@ -0,0 +1,40 @@\n" + "".join(f"+value_{i} = {n}\n" for i in range(40))
    for n in range(60)
)
NOTES = {f"notes/{n}.txt": f"{n}\n" for n in range(60)} | {"engine.py": "mine\n", "many/f3.py": "mine too\n"}


def final_state(source: Source) -> tuple[object, ...]:
    """What must be the same whenever the effect was interrupted. Ids of commits hold dates, those of trees do not."""
    refs = [name for name in source.branches() if "/saved/" not in name]
    trees = {name: source.revision(f"{name}^{{tree}}") for name in refs}
    saved = any("/saved/" in name for name in source.branches())
    return source.branch(), source.revision("HEAD^{tree}"), source.status(), trees, saved


def perform(source: Source, operation: str) -> None:
    result: PatchApplied | CheckoutSettled | CheckoutRestored
    match request_of(source, operation):
        case ApplyPatch() as request:
            result = apply_patch(source.root, DEPLOYMENT, request)
        case KeepPatch() as request:
            result = keep_patch(source.root, DEPLOYMENT, request)
        case DropPatch() as request:
            result = drop_patch(source.root, DEPLOYMENT, request)
        case RestoreCheckout() as request:
            result = restore_checkout(source.root, DEPLOYMENT, request)
    assert result.problem is None


def request_of(source: Source, operation: str) -> ApplyPatch | KeepPatch | DropPatch | RestoreCheckout:
    match operation:
        case "apply_patch":
            return ApplyPatch(key="apply", experiment="e1", base=source.base, diff=MANY, message="m")
        case "keep_patch":
            return KeepPatch(key="keep", experiment="e1")
        case "drop_patch":
            return DropPatch(key="drop", experiment="e1", base=source.base)
        case _:
            return RestoreCheckout(key="restore", revision=source.base, reason="kill")


def perform_with(source: Source, operation: str, **deadly: str) -> None:
    """Perform it in a process of its own, with the git that may die."""
    request = request_of(source, operation)
    (source.root / "request.json").write_text(request.model_dump_json())
    env = (
        os.environ
        | deadly
        | {
            "PATH": f"{source.root / 'bin'}:{os.environ['PATH']}",
            "GIT": shutil.which("git") or "git",
            "COUNT": str(source.root / "count"),
            "LOCK": str(source.top / ".git/index.lock"),
        }
    )
    command = [sys.executable, "-c", OPERATION, str(source.root), operation, type(request).__name__]
    subprocess.run(command, env=env, start_new_session=True, check=False)


def begun(root: Path, operation: str) -> Source:
    """A checkout in which `operation` has a good deal to do, and a git that can be told to die."""
    source = Source(root)
    (root / "count").write_text("0\n")
    (root / "bin").mkdir()
    (root / "bin/git").write_text(DEADLY_GIT)
    (root / "bin/git").chmod(0o755)
    if operation != "apply_patch":
        assert source.apply(MANY) is None
    if operation == "restore_checkout":
        for name, text in NOTES.items():
            source.write(name, text)
    return source


@pytest.fixture(scope="module", params=["apply_patch", "keep_patch", "drop_patch", "restore_checkout"])
def interrupted(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Interrupted:
    return Interrupted(tmp_path_factory.mktemp(request.param), request.param)


class Interrupted:
    """An operation to be killed: the state before it, and the one it ends in when nobody disturbs it."""

    def __init__(self, folder: Path, operation: str) -> None:
        self.operation = operation
        self.template = begun(folder / "template", operation)
        calm = self.copy(folder / "calm")
        perform_with(calm, operation, FATAL="0")
        self.calls = int((calm.root / "count").read_text())
        self.expected = final_state(calm)

    def copy(self, root: Path) -> Source:
        copied = Source.__new__(Source)
        copied.root, copied.top, copied.base = root, root / "source", self.template.base
        shutil.copytree(self.template.root, root, symlinks=True)
        return copied


@given(data=st.data(), moment=st.sampled_from(["before", "during", "after", "orphaned"]), delay_ms=st.integers(0, 9))
@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
def test_killed_at_any_git_call_and_repeated_ends_the_same(
    interrupted: Interrupted, data: st.DataObject, moment: str, delay_ms: int
) -> None:
    fatal = data.draw(st.integers(1, interrupted.calls), label="fatal call")
    with tempfile.TemporaryDirectory() as folder:
        source = interrupted.copy(Path(folder) / "killed")
        perform_with(source, interrupted.operation, FATAL=str(fatal), MOMENT=moment, DELAY_MS=str(delay_ms))
        assert int((source.root / "count").read_text()) == fatal
        perform(source, interrupted.operation)
        assert final_state(source) == interrupted.expected
        assert not list((source.top / ".git").rglob("*.lock"))
        if interrupted.operation == "restore_checkout":
            assert_saved(source, NOTES)


def assert_saved(source: Source, contents: dict[str, str]) -> None:
    saved = [name for name in source.branches() if name.startswith("optagent/saved/")]
    held = source.git("log", "--format=", "--raw", "--no-abbrev", "-r", "-m", "--root", *saved, "--") if saved else ""
    for name, text in contents.items():
        done = subprocess.run(["git", "hash-object", "--stdin"], input=text.encode(), capture_output=True, check=True)
        assert done.stdout.decode().strip() in held, f"{name} is lost"


class OwnerAndAgent(RuleBasedStateMachine):
    """The agent's operations in any order, with the owner editing, staging and committing in between."""

    @initialize()
    def begin(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.source = Source(Path(self.folder.name))
        self.written: dict[str, str] = {}
        self.count = 0

    @rule(name=st.sampled_from(["engine.py", "pkg/util.py", "notes.txt", "fast/new.py"]), staged=st.booleans())
    def owner_writes(self, name: str, staged: bool) -> None:
        self.count += 1
        text = f"unique text {self.count}\n"
        self.source.write(name, text)
        self.written[name] = text
        if staged:
            self.source.git("add", "--", name)

    @rule(name=st.sampled_from(["engine.py", "pkg/util.py"]))
    def owner_deletes(self, name: str) -> None:
        (self.source.top / name).unlink(missing_ok=True)
        self.written.pop(name, None)

    @rule(experiment=st.sampled_from(["e1", "e2"]), line=st.sampled_from([5, 6, 15]), new=st.booleans())
    def applies(self, experiment: str, line: int, new: bool) -> None:
        self.source.apply(edit(line) + (NEW_FILE if new else ""), experiment)

    @rule(line=st.sampled_from([5, 6, 15]), on_kept=st.booleans())
    def applies_and_keeps(self, line: int, on_kept: bool) -> None:
        self.count += 1
        base = "optagent/kept" if on_kept and "optagent/kept" in self.source.branches() else None
        self.source.apply(edit(line, f"changed {self.count}"), f"k{self.count}", base)
        self.source.keep(f"k{self.count}")

    @rule(experiment=st.sampled_from(["e1", "e2"]))
    def keeps(self, experiment: str) -> None:
        self.source.keep(experiment)

    @rule(experiment=st.sampled_from(["e1", "e2"]))
    def drops(self, experiment: str) -> None:
        self.source.drop(experiment)

    @rule(to_kept=st.booleans())
    def restores(self, to_kept: bool) -> None:
        kept = "optagent/kept" in self.source.branches()
        revision = self.source.revision("optagent/kept") if to_kept and kept else self.source.base
        self.count += 1
        restore(self.source, revision, f"restore {self.count}")

    @invariant()
    def nothing_is_lost_and_the_owners_branch_stays(self) -> None:
        if not hasattr(self, "source"):
            return
        assert self.source.revision("main") == self.source.base
        gone = {n: t for n, t in self.written.items() if not self.has(n, t)}
        if gone:
            assert_saved(self.source, gone)

    def has(self, name: str, text: str) -> bool:
        path = self.source.top / name
        return path.exists() and path.read_text() == text

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            self.folder.cleanup()


TestOwnerAndAgent = OwnerAndAgent.TestCase
TestOwnerAndAgent.settings = settings(
    max_examples=20, stateful_step_count=10, deadline=None, suppress_health_check=list(HealthCheck)
)
