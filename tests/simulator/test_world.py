"""Laying out worlds: the same everywhere, whole or not at all, as the last session left them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from optagent.tools.simulator import world
from optagent.tools.simulator.scenario import ScenarioError, load, packaged, scenario_from

if TYPE_CHECKING:
    from conftest import Start

BASE_REVISION = "62028850ca70adeed3b48a9ff83bcc98cfa35e81"
EDITED = ["python/sglang/srt/distributed/communicator.py", "python/sglang/srt/server_args.py"]


def git(folder: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True, text=True).stdout


def contents(folder: Path) -> dict[str, bytes]:
    """Every file outside of git's own folder."""
    files = (path for path in folder.rglob("*") if path.is_file() and ".git" not in path.parts)
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_checkout_has_the_known_revision_and_the_last_edits(laid_out: Path) -> None:
    checkout = laid_out / "checkout"
    assert git(checkout, "rev-parse", "HEAD").strip() == BASE_REVISION
    assert git(checkout, "rev-parse", "--abbrev-ref", "HEAD").strip() == "main"
    assert git(checkout, "diff", "--name-only").split() == EDITED
    assert git(checkout, "status", "--porcelain", "--untracked-files=all").count("\n") == len(EDITED)


def test_environment_is_experimental_and_known_good_ships(laid_out: Path) -> None:
    left = (laid_out / "environments/cu128/sitecustomize.py").read_text()
    assert '"NCCL_MAX_NCHANNELS": "4"' in left
    assert '"NCCL_MAX_NCHANNELS": "16"' in world.known_good_files()["sitecustomize.py"]


def test_pending_log_is_the_crash_of_the_last_session(laid_out: Path) -> None:
    log = (laid_out / "logs/pending-launch.log").read_text()
    assert log.splitlines()[0].startswith("This deployment is simulated")
    assert "[2026-03-13 18:0" in log
    assert "Capture cuda graph failed: FlashInfer trtllm_allreduce_fusion" in log
    assert "fired up" not in log


def test_laid_out_again_it_is_the_same_everywhere(
    laid_out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NCCL_ALGO", "Tree")
    monkeypatch.setenv("GIT_AUTHOR_NAME", "somebody else")
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    world.lay_out(None, tmp_path / "again")
    assert contents(tmp_path / "again") == contents(laid_out)
    assert git(tmp_path / "again/checkout", "rev-parse", "HEAD").strip() == BASE_REVISION


def test_a_world_that_stands_is_left_alone(changeable: Path) -> None:
    (changeable / "environments/cu128/sitecustomize.py").write_text("# changed\n")
    before = contents(changeable)
    world.lay_out(None, changeable)
    assert contents(changeable) == before


def test_a_failure_leaves_nothing_behind(tmp_path: Path) -> None:
    source = tmp_path / "broken"
    shutil.copytree(packaged("kimi-k2.5-8x-rtx-pro-6000"), source)
    shutil.rmtree(source / "last-session")  # the last session's launch would serve for ever
    (source / "checkout" / "python").rename(source / "elsewhere")
    (source / "checkout" / "README.md").unlink()  # nothing is left to commit
    with pytest.raises(ScenarioError, match="git commit failed"):
        world.lay_out(source, tmp_path / "simulation")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["broken"]


def test_a_crash_in_the_middle_is_made_good(tmp_path: Path) -> None:
    folder = tmp_path / "simulation"
    code = (
        "import os, sys; from pathlib import Path; from optagent.tools.simulator import world\n"
        "world._pending_launch = lambda *a: os._exit(9)\n"
        "world.lay_out(None, Path(sys.argv[1]))"
    )
    assert subprocess.run([sys.executable, "-c", code, str(folder)], env=os.environ, check=False).returncode == 9
    assert not folder.exists()
    world.lay_out(None, folder)
    assert (folder / "logs/pending-launch.log").is_file()


def test_second_environment_is_created_when_asked_for(laid_out: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(laid_out, tmp_path / "simulation"))
    assert world.versions(folder, "cu13") == {}
    world.create_environment(folder, "cu13")
    assert world.versions(folder, "cu13")["cuda"] == "13.0"
    assert world.versions(folder, "cu128")["cuda"] == "12.8"
    (folder / "environments/cu13/mine").write_text("kept")
    world.create_environment(folder, "cu13")
    assert (folder / "environments/cu13/mine").is_file()
    with pytest.raises(ScenarioError, match="cu14"):
        world.create_environment(folder, "cu14")


def test_gpus_are_idle_without_a_server(laid_out: Path) -> None:
    gpus = world.gpus(laid_out)
    assert len(gpus) == 8
    assert {one.compute_capability for one in gpus} == {"12.0"}
    assert {one.memory_used_gb for one in gpus} == {world.IDLE_GB}


def test_gpu_memory_goes_with_its_process(changeable: Path, start: Start) -> None:
    server = start(changeable)
    server.wait_ready()
    (first, *_) = world.gpus(changeable)
    assert first.memory_used_gb > 80
    assert first.holders == [server.process.pid]
    server.process.kill()
    server.wait_dead()
    assert world.gpus(changeable)[0].memory_used_gb == world.IDLE_GB


def test_a_second_server_finds_no_memory(changeable: Path, start: Start) -> None:
    start(changeable).wait_ready()
    second = start(changeable)
    assert second.wait_dead() != 0
    assert "torch.OutOfMemoryError" in second.log


@pytest.mark.parametrize(
    ("where", "message"), [("hardware", "hardware: unknown key 'colour'"), ("costs", "costs: unknown key 'colour'")]
)
def test_unknown_keys_are_named(where: str, message: str) -> None:
    import yaml

    text = (packaged("kimi-k2.5-8x-rtx-pro-6000") / "scenario.yaml").read_text()
    body = yaml.safe_load(text)
    body[where]["colour"] = "blue"
    with pytest.raises(ScenarioError, match=message):
        scenario_from(body)
    del body[where]
    with pytest.raises(ScenarioError, match=where):
        scenario_from(body)


def test_scenarios_are_found_by_name_or_folder(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="no packaged scenario"):
        world.scenario_folder("nowhere")
    shutil.copy(packaged("kimi-k2.5-8x-rtx-pro-6000") / "scenario.yaml", tmp_path)
    assert world.scenario_folder(tmp_path) == tmp_path
    assert load(tmp_path).hardware.count == 8
