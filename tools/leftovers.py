"""What an end without warning leaves in a campaign: temporary files, servers, branches of experiments."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from optagent.tools import process_notes, processes
from optagent.tools.branches import experiment_branches, set_branch_aside, short
from optagent.tools.checkout import operation_in_progress
from optagent.tools.commands import Mark
from optagent.tools.git_commands import CheckoutProblem, open_checkout
from optagent.tools.paths import STATE, simulation_folder
from optagent.tools.processes import Family, Process

_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{8}\.part|\.journal\.db\..+\.part")
"""As `files.replace_file` and the journal's copies name what is not whole yet."""


def temporary_files(root: Path, folders: Iterable[Path]) -> list[Path]:
    """Files that were being written and never became what they were to be: in these folders, and anywhere in the
    campaign's state but in the simulated world."""
    found = {file for folder in folders if folder.is_dir() for file in folder.iterdir() if _is_temporary(file)}
    world = simulation_folder(root)
    for name, below, names in os.walk(root / STATE):
        below[:] = [one for one in below if Path(name, one) != world]
        found |= {Path(name, one) for one in names if _is_temporary(Path(name, one))}
    return sorted(found)


def _is_temporary(path: Path) -> bool:
    return _TEMPORARY.fullmatch(path.name) is not None and path.is_file() and not path.is_symlink()


def families(root: Path) -> dict[Mark, Family]:
    """Everything that runs and carries this campaign's mark, by launch; never found by name."""
    noted = {note.mark: note.family() for note in process_notes.read_all(process_notes.notes_of(root))}
    for process in processes.all_processes().values():
        mark = None if process.zombie else processes.mark_of(process.id.pid)
        if mark is not None and mark.campaign == str(root) and mark not in noted:
            noted[mark] = processes.marked(mark)
    return {mark: family for mark, family in noted.items() if mark.campaign == str(root) and family.living()}


def stop_all(root: Path, grace_s: float) -> tuple[list[int], list[Process]]:
    """Stop what `families` finds. Returns the pids that ran, and what could not be stopped."""
    running = families(root)
    pids = sorted({process.id.pid for family in running.values() for process in family.living()})
    left = [process for family in running.values() for process in processes.stop(family, grace_s)]
    if not left:
        for note in process_notes.read_all(process_notes.notes_of(root)):
            process_notes.forget(process_notes.notes_of(root), note.process)
    return pids, left


def branches_left(source: Path, under_way: Iterable[str]) -> list[str]:
    """Names of the experiments that have a branch in the checkout and are not under way. Raises CheckoutProblem."""
    names = [short(ref).partition("/")[2] for ref in experiment_branches(open_checkout(source))]
    return sorted(set(names) - set(under_way))


def set_branches_aside(source: Path, under_way: Iterable[str]) -> list[str]:
    """Give these branches names among the saved ones, but for one that is checked out; returns those. Raises
    CheckoutProblem."""
    checkout = open_checkout(source)
    if problem := operation_in_progress(checkout):
        raise CheckoutProblem(problem)
    keep = {f"refs/heads/optagent/{name}" for name in under_way} | {checkout.head_ref() or ""}
    done = [set_branch_aside(checkout, ref) for ref in experiment_branches(checkout) if ref not in keep]
    return [short(ref) for ref in done if ref is not None]
