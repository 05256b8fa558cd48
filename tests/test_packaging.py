"""What is installed, and who may import what."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
OUTSIDE_WORLD = {"subprocess", "socket", "git", "psutil", "httpx", "sqlite3", "pynvml", "multiprocessing", "requests"}
ALREADY_ASKED = """
import sys
from optagent.tools.journal_store import JournalStore
from pathlib import Path
with JournalStore.open(Path(sys.argv[1]), create=True) as journal:
    journal.append("question", {"id": "Q1", "reason": "needs-approval", "text": "May I?", "why": "it is yours to say"}, "Q1")
"""
LOADED = """
import sys
from optagent.agent.commands import main
sys.argv = ["optagent", *sys.argv[1:]]
try:
    main()
except SystemExit as end:
    status = end.code
print(status, *sorted({m.partition(".")[0] for m in sys.modules} & {"langgraph", "langchain_core", "anthropic"}), file=sys.stderr)
"""


def imports(file: Path) -> Iterator[str]:
    """Every module that the file imports, wherever in it; `from a import b` gives both a and a.b."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}:{node.lineno}: imports are absolute"
            yield str(node.module)
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def modules_of(room: str) -> list[Path]:
    found = [p for p in (ROOT / room).rglob("*.py") if "scenarios" not in p.parts]
    assert found
    return found


def test_nothing_but_optagent_is_installed_at_the_top() -> None:
    assert [name for name, owners in packages_distributions().items() if "optagent" in owners] == ["optagent"]


@pytest.mark.parametrize("room", ["agent", "tools", "prompts"])
def test_the_rooms_are_reached_through_the_package(room: str) -> None:
    link = ROOT / "src" / "optagent" / room
    assert link.is_symlink()
    assert not link.readlink().is_absolute()
    assert link.resolve() == ROOT / room


@pytest.mark.parametrize("file", modules_of("tools"), ids=lambda p: str(p.relative_to(ROOT)))
def test_the_hands_know_nothing_of_the_agent(file: Path) -> None:
    assert not [name for name in imports(file) if name.startswith(("optagent.agent", "agent"))]


@pytest.mark.parametrize("file", modules_of("agent"), ids=lambda p: str(p.relative_to(ROOT)))
def test_the_agent_reaches_the_world_through_its_tools_alone(file: Path) -> None:
    reached = {name.partition(".")[0] for name in imports(file)} & OUTSIDE_WORLD
    assert not reached


@pytest.mark.parametrize("file", [*modules_of("agent"), *modules_of("tools")], ids=lambda p: str(p.relative_to(ROOT)))
def test_the_server_that_is_tuned_is_never_imported(file: Path) -> None:
    assert not {name.partition(".")[0] for name in imports(file)} & {"sglang", "torch"}


@pytest.mark.parametrize(
    "words",
    [["status"], ["status", "--json"], ["plan"], ["plan", "--check"], ["answer", "Q1", "approve"], ["handoff"]],
    ids=" ".join,
)
def test_a_quick_command_loads_no_graph_and_no_model(words: list[str], tmp_path: Path) -> None:
    shutil.copy(ROOT / "optagent.toml", tmp_path)
    for part in ("plans", "handoffs"):
        shutil.copytree(ROOT / part, tmp_path / part)
    (tmp_path / ".optagent").mkdir()
    subprocess.run([sys.executable, "-c", ALREADY_ASKED, str(tmp_path / ".optagent" / "journal.db")], check=True)
    command = [sys.executable, "-c", LOADED, "-C", str(tmp_path), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr.split() == ["0"]
