"""A launch whose server would not run the checkout's code does not start, and says where it would be taken from."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from optagent.tools.calls.configuration import Configuration
from optagent.tools.calls.server import Launch, Launched
from optagent.tools.commands import Command
from optagent.tools.deployment import Deployment, ServingEnvironment
from optagent.tools.import_check import elsewhere, taken_from
from optagent.tools.live import LiveToolbox

LEAVES_AT_ONCE = "raise SystemExit(3)\n"
SITE_THAT_HIDES = "import sys\nsys.path[:] = [p for p in sys.path if not p.endswith('checkout/python')]\n"


def package(folder: Path) -> Path:
    """A package sglang in `folder`, whose server ends with status 3."""
    (folder / "sglang").mkdir(parents=True)
    (folder / "sglang" / "__init__.py").write_text("")
    (folder / "sglang" / "launch_server.py").write_text(LEAVES_AT_ONCE)
    return folder


@pytest.fixture
def launched(tmp_path: Path, free_port: int, quiet: Callable[[str], None]) -> Callable[..., Launched]:
    package(tmp_path / "checkout" / "python")

    def launch(pythonpath: list[str], env: dict[str, str], revision: str = "abc") -> Launched:
        environment = ServingEnvironment(python=sys.executable, folder="files", pythonpath=pythonpath, env=env)
        deployment = Deployment(kind="sglang", port=free_port, source="checkout", environments={"default": environment})
        toolbox = LiveToolbox(tmp_path, deployment, quiet)
        request = Launch(key="k", launch="L", configuration=Configuration("default", revision=revision), log="l.log")
        return toolbox.launch(request)

    return launch


def test_another_package_before_the_checkout_is_not_launched(tmp_path: Path, launched: Callable[..., Launched]) -> None:
    other = package(tmp_path / "other")
    result = launched([str(other)], {})
    assert (result.outcome, result.pid) == ("not-started", None)
    assert str(other / "sglang") in (result.problem or "")
    assert str(tmp_path / "checkout" / "python" / "sglang") in (result.problem or "")
    assert not (tmp_path / "l.log").exists()
    without = launched([str(other)], {}, revision="")
    assert (without.outcome, without.exit_code) == ("crashed", 3), "without a revision nothing is promised"


def test_the_checkout_is_launched_whatever_a_variable_says(tmp_path: Path, launched: Callable[..., Launched]) -> None:
    result = launched([], {"PYTHONPATH": str(package(tmp_path / "other"))})
    assert (result.outcome, result.exit_code) == ("crashed", 3)


def test_environment_files_that_hide_the_checkout_are_seen(tmp_path: Path, launched: Callable[..., Launched]) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "sitecustomize.py").write_text(SITE_THAT_HIDES)
    result = launched([], {})
    assert result.outcome == "not-started"
    assert "from nowhere, not from the checkout" in (result.problem or "")


def test_a_package_in_the_folder_it_starts_in_wins(tmp_path: Path) -> None:
    here, checkout = package(tmp_path / "here"), package(tmp_path / "checkout")
    command = Command((sys.executable, "-m", "sglang.launch_server"), {"PYTHONPATH": str(checkout)}, here)
    places = taken_from(command)
    assert places == [str(here / "sglang")]
    assert elsewhere(places, checkout)
    (tmp_path / "link").symlink_to(here)
    assert elsewhere(places, tmp_path / "link") is None


@pytest.mark.parametrize("words", [("/bin/cat",), ("/nowhere/python",), ("/bin/true",)])
def test_an_interpreter_that_does_not_tell(tmp_path: Path, words: tuple[str, ...]) -> None:
    assert taken_from(Command(words, {}, tmp_path)) is None


def test_a_place_is_bounded_and_on_one_line() -> None:
    told = elsewhere(["/a\n\x1b[2J" + "b" * 9999], Path("/checkout")) or ""
    assert len(told) < 600
    assert told.isprintable()
