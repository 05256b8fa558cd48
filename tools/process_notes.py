"""Notes on the servers that run: what another process needs to find all of one after our death.

One file a server, there from its start until nothing of it is left. Pids and start times mean nothing after the machine
was restarted, so a note names the boot that it is of.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from optagent.tools import processes
from optagent.tools.commands import Mark
from optagent.tools.files import remove_unfinished, replace_file
from optagent.tools.paths import STATE
from optagent.tools.processes import Family, ProcessId, boot_id


@dataclass(frozen=True)
class Note:
    """`members` are the processes of the server that were seen, `gpu_gb` is what was in use on each GPU (by its index)
    before it was started."""

    process: ProcessId
    mark: Mark
    boot: str
    members: frozenset[ProcessId] = frozenset()
    gpu_gb: Mapping[int, float] = field(default_factory=dict)

    @property
    def outdated(self) -> bool:
        """Whether it tells of a process that a restart of the machine has ended."""
        return self.boot != boot_id()

    def family(self) -> Family:
        # The root is left out of what was seen: with it, a session's number would be believed in for ever.
        return Family(self.process, self.mark, set(self.members - {self.process}))


def notes_of(root: Path) -> Path:
    """The folder of a campaign's notes."""
    return root / STATE / "processes"


def write(folder: Path, note: Note) -> None:
    """Raises OSError."""
    remove_unfinished(folder)  # of whichever server: its pid may never come again
    content = asdict(note) | {"members": [asdict(member) for member in sorted(note.members)]}
    replace_file(_path(folder, note.process), json.dumps(content).encode())


def read(folder: Path, process: ProcessId) -> Note | None:
    """The note on this process, None when there is none that can be read."""
    return _read(_path(folder, process))


def forget(folder: Path, process: ProcessId) -> None:
    remove_unfinished(folder)
    _path(folder, process).unlink(missing_ok=True)


def read_all(folder: Path) -> list[Note]:
    """Every note of this boot."""
    notes = (_read(path) for path in sorted(folder.glob("*.json")))
    return [note for note in notes if note is not None and not note.outdated]


def left_running(folder: Path) -> list[int]:
    """The pid of every server that was noted and still runs; of one whose first process has gone, those of the others."""
    found: list[int] = []
    for note in read_all(folder):
        living = [process.id for process in note.family().living()]
        found += [note.process.pid] if note.process in living else [process.pid for process in living]
    return found


def kill_left(folder: Path) -> list[int]:
    """Kill at once every server that was noted, and what else this process has started. Returns the pids that live on."""
    families = [*(note.family() for note in read_all(folder)), *processes.started()]
    return sorted({process.id.pid for process in processes.kill_at_once(families)})


def note_of(process: ProcessId) -> Note | None:
    """What can be said of a living process without a note, by its environment."""
    mark = processes.mark_of(process.pid) if processes.is_alive(process) else None
    return None if mark is None else Note(process, mark, boot_id())


def _path(folder: Path, process: ProcessId) -> Path:
    return folder / f"{process.pid}-{process.start_time:.2f}.json"


def _read(path: Path) -> Note | None:
    try:
        noted: dict[str, Any] = json.loads(path.read_bytes())
        return Note(
            process=_process(noted["process"]),
            mark=Mark(str(noted["mark"]["launch"]), str(noted["mark"]["campaign"])),
            boot=str(noted["boot"]),
            members=frozenset(_process(member) for member in noted["members"]),
            gpu_gb={int(index): float(gb) for index, gb in noted["gpu_gb"].items()},
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _process(noted: Mapping[str, Any]) -> ProcessId:
    return ProcessId(int(noted["pid"]), float(noted["start_time"]))
