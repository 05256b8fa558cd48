"""Files of the campaign, read, written and installed on a real file system."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optagent.tools.calls.files import ListFolder, ReadText, WriteText
from optagent.tools.files import (
    LARGEST_TEXT_BYTES,
    file_sha256,
    install_files,
    list_folder,
    read_text,
    sha256,
    write_text,
)
from optagent.tools.paths import OutsideCampaign, inside

OUTSIDE = ["../x", "a/../../x", "/etc/hostname", "..", "a/../..", "x\0y"]


@pytest.mark.parametrize("path", OUTSIDE)
def test_a_path_that_leads_out_is_a_problem_everywhere(tmp_path: Path, path: str) -> None:
    root = tmp_path / "campaign"
    root.mkdir()
    assert read_text(root, ReadText(path=path)).problem
    assert not write_text(root, WriteText(key="k", path=path, text="x")).written
    assert list_folder(root, ListFolder(path=path)).names == []
    assert install_files(root, root / "backups", {path: "x"}).problem
    assert list(tmp_path.iterdir()) == [root]


@given(st.text())
def test_no_path_leads_out(path: str) -> None:
    root = Path("/campaign")
    try:
        found = inside(root, path)
    except OutsideCampaign:
        return
    assert Path(os.path.normpath(found)).is_relative_to(root)


def test_what_was_written_is_read(tmp_path: Path) -> None:
    written = write_text(tmp_path, WriteText(key="k", path="plans/p.md", text="Grüße\r\n"))
    read = read_text(tmp_path, ReadText(path="plans/p.md"))
    assert written.written
    assert (read.text, read.sha256) == ("Grüße\r\n", written.sha256)
    assert [p.name for p in (tmp_path / "plans").iterdir()] == ["p.md"]


def test_a_missing_file_is_no_problem(tmp_path: Path) -> None:
    read = read_text(tmp_path, ReadText(path="plans/none.md"))
    assert (read.text, read.problem) == (None, None)


def test_what_is_no_text_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "bad.md").write_bytes(b"ab\xff")
    (tmp_path / "big.md").write_bytes(b"a" * (LARGEST_TEXT_BYTES + 1))
    assert "byte 2" in (read_text(tmp_path, ReadText(path="bad.md")).problem or "")
    assert "larger" in (read_text(tmp_path, ReadText(path="big.md")).problem or "")
    assert read_text(tmp_path, ReadText(path=".")).problem


def test_text_that_is_no_utf8_is_not_written(tmp_path: Path) -> None:
    assert not write_text(tmp_path, WriteText(key="k", path="a.md", text="\ud800")).written
    assert list(tmp_path.iterdir()) == []


def test_a_change_by_somebody_else_is_not_overwritten(tmp_path: Path) -> None:
    plan = tmp_path / "plan.md"
    plan.write_text("mine")
    read = read_text(tmp_path, ReadText(path="plan.md"))
    plan.write_text("theirs")
    refused = write_text(tmp_path, WriteText(key="k", path="plan.md", text="new", expect_sha256=read.sha256))
    assert (refused.written, refused.sha256) == (False, sha256(b"theirs"))
    assert plan.read_text() == "theirs"
    plan.unlink()
    gone = write_text(tmp_path, WriteText(key="k", path="plan.md", text="new", expect_sha256=read.sha256))
    assert "gone" in (gone.problem or "")


def test_mode_and_link_survive_a_write(tmp_path: Path) -> None:
    real = tmp_path / "real.sh"
    real.write_text("old")
    real.chmod(0o751)
    (tmp_path / "link.sh").symlink_to("real.sh")
    assert write_text(tmp_path, WriteText(key="k", path="link.sh", text="new")).written
    assert (tmp_path / "link.sh").is_symlink()
    assert real.read_text() == "new"
    assert real.stat().st_mode & 0o777 == 0o751


def test_a_folder_is_listed_by_suffix(tmp_path: Path) -> None:
    for name in ("b.md", "a.md", "c.txt"):
        (tmp_path / name).write_text("")
    (tmp_path / "d.md").mkdir()
    assert list_folder(tmp_path, ListFolder(path=".")).names == ["a.md", "b.md"]
    assert list_folder(tmp_path, ListFolder(path="none")).names == []


def test_installed_files_and_what_they_replaced(tmp_path: Path) -> None:
    folder, backups = tmp_path / "env", tmp_path / "backups"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text("old")
    for _ in range(2):
        installed = install_files(folder, backups, {"sitecustomize.py": "new", "pkg/x.py": "x"})
        assert installed.after == {"sitecustomize.py": sha256(b"new"), "pkg/x.py": sha256(b"x")}
    assert (folder / "pkg" / "x.py").read_text() == "x"
    assert (backups / sha256(b"old")).read_text() == "old"
    assert sorted(p.name for p in backups.iterdir()) == sorted(sha256(c) for c in (b"old", b"new", b"x"))


def test_a_new_file_has_no_hash_before(tmp_path: Path) -> None:
    assert install_files(tmp_path / "env", tmp_path / "backups", {"a.py": "1"}).before == {"a.py": None}


def test_one_bad_name_and_nothing_is_installed(tmp_path: Path) -> None:
    folder = tmp_path / "env"
    assert install_files(folder, tmp_path / "backups", {"a.py": "1", "../b.py": "2"}).problem
    assert not folder.exists()


def test_a_failed_write_puts_the_others_back(tmp_path: Path) -> None:
    folder = tmp_path / "env"
    (folder / "b").mkdir(parents=True)
    (folder / "a.py").write_text("old")
    (folder / "blocked").write_text("a file where a folder is wanted")
    installed = install_files(folder, tmp_path / "backups", {"a.py": "new", "blocked/b.py": "2"})
    assert installed.problem
    assert (folder / "a.py").read_text() == "old"


def test_the_hash_of_what_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert file_sha256(tmp_path / "none") is None
    assert file_sha256(tmp_path / "file" / "below") is None
