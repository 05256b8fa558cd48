"""Asking a server the gate's questions, and holding what it says against earlier examinations."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from optagent.tools.calls.gate import Examine, Examined
from optagent.tools.examining.ask import ask_everything
from optagent.tools.examining.compare import compare
from optagent.tools.examining.examination import Examination, questions_of
from optagent.tools.examining.file import Unreadable, load, save
from optagent.tools.examining.summary import first_error, tally, variety
from optagent.tools.exhausted import stop_if_exhausted
from optagent.tools.paths import OutsideCampaign, inside

__all__ = ["examine"]


def examine(request: Examine, root: Path, timeout_s: float, simulated: bool, report: Callable[[str], None]) -> Examined:
    """What the server at `request.url` answers, with all of it in the request's file below `root`.

    An examination that is in the file for this key is this one already, and nothing is asked. `timeout_s` is for one
    question. `report` is told how it gets on, a few times a second at most. Nothing is stored when nothing was answered.
    """
    try:
        file = inside(root, request.file)
        if file.exists():
            return _earlier(request, root, file, simulated)
    except (OSError, OutsideCampaign) as error:
        stop_if_exhausted(error, request.file)
        return Examined(problem=str(error), simulated=simulated)
    examination = ask_everything(request, timeout_s, simulated, report)
    if not examination.answered:
        reason = first_error(examination) or "there is nothing to ask"
        return Examined(problem=f"nothing was answered: {reason}", simulated=examination.simulated)
    try:
        save(file, examination)
    except OSError as error:
        return Examined(problem=f"{request.file} cannot be written: {error}", simulated=examination.simulated)
    return _examined(request, root, examination)


def _earlier(request: Examine, root: Path, file: Path, simulated: bool) -> Examined:
    try:
        earlier = load(file)
    except Unreadable as error:
        return Examined(problem=f"{request.file} exists and {error}", simulated=simulated)
    if (earlier.key, earlier.questions) != (request.key, questions_of(request)):
        return Examined(problem=f"{request.file} exists and is of another examination", simulated=simulated)
    return _examined(request, root, earlier)


def _examined(request: Examine, root: Path, examination: Examination) -> Examined:
    return Examined(
        passes=[tally(one, request.max_tokens) for one in examination.passes],
        comparisons=[compare(examination, _reference(root, name), name) for name in request.references],
        accept_length=examination.accept_length,
        variety=variety(examination.draws),
        file=request.file,
        simulated=examination.simulated,
    )


def _reference(root: Path, name: str) -> Examination | str:
    """The earlier examination, or why it cannot be read."""
    try:
        return load(inside(root, name))
    except (Unreadable, OutsideCampaign) as error:
        return str(error)
