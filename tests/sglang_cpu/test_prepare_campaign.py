"""Making the small campaign ready. Needs no built environment: a small checkout stands in for SGLang's."""

from __future__ import annotations

import runpy
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("prepare_campaign.py")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "usage: prepare_campaign.py FOLDER [ITEM ...]"),
        (("taken",), "prepare_campaign.py: taken: exists already; name a new folder"),
        (("new", "nothing-like-it"), "prepare_campaign.py: the plan has no nothing-like-it; it has "),
    ],
)
def test_what_cannot_be_made_is_one_line_and_no_folder(tmp_path: Path, words: tuple[str, ...], says: str) -> None:
    (tmp_path / "taken").mkdir()
    done = subprocess.run([sys.executable, SCRIPT, *words], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode != 0
    assert done.stderr.startswith(says)
    assert done.stderr.count("\n") == 1
    assert [p.name for p in tmp_path.iterdir()] == ["taken"]
    assert not list((tmp_path / "taken").iterdir())


def test_the_places_are_filled_in_but_for_the_comment_that_names_them(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "--quiet", tmp_path / "cache" / "checkout"], check=True)
    runpy.run_path(str(SCRIPT))["prepare"](tmp_path / "cache", tmp_path / "made", [])
    text = (tmp_path / "made" / "optagent.toml").read_text()
    assert [line for line in text.splitlines() if "@PORT@" in line] == [
        "# built environment lies and a free port: @CACHE@ and @PORT@."
    ]
    deployment = tomllib.loads(text)["deployment"]
    assert deployment["environments"]["default"]["python"] == f"{tmp_path}/cache/venv/bin/python"
    assert isinstance(deployment["port"], int)


def test_a_checkout_that_cannot_be_cloned_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        runpy.run_path(str(SCRIPT))["prepare"](tmp_path / "nowhere", tmp_path / "made", [])
    assert not (tmp_path / "made").exists()
