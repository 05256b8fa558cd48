"""Who holds how much GPU memory in a simulated world: one file a running server, named by its process."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

FOLDER = "gpu-holders"


@dataclass(frozen=True)
class Holder:
    """A process that lives and holds `gb` GiB on each of its GPUs."""

    pid: int
    start_time: float
    gb: float
    gpus: int


def hold(world: Path, gb: float, gpus: int) -> Path:
    """Note that this process holds `gb` GiB on its first `gpus` GPUs; the file is the note."""
    import psutil

    folder = world / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{os.getpid()}.json"
    note = {"pid": os.getpid(), "start_time": psutil.Process().create_time(), "gb": gb, "gpus": gpus}
    temporary = path.with_suffix(".new")
    temporary.write_text(json.dumps(note), encoding="utf-8")
    temporary.replace(path)
    return path


def holders(world: Path) -> list[Holder]:
    """The living holders. Notes of dead processes count for nothing: a GPU's memory goes with its process."""
    folder = world / FOLDER
    paths = sorted(folder.glob("*.json")) if folder.is_dir() else []
    found = []
    for path in paths:
        try:
            one = Holder(**json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            continue
        if _alive(one):
            found.append(one)
    return found


def taken_gb(world: Path) -> float:
    """What the other living processes hold on the fullest GPU, in GiB."""
    others = [one.gb for one in holders(world) if one.pid != os.getpid()]
    return sum(others)


def _alive(one: Holder) -> bool:
    import psutil

    try:
        process = psutil.Process(one.pid)
        return abs(process.create_time() - one.start_time) < 1.0 and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
