"""The file of the state machine's checkpoints."""

from __future__ import annotations

from pathlib import Path
from sqlite3 import Connection, DatabaseError, Error, OperationalError, connect

from optagent.tools.exhausted import stop_if_exhausted
from optagent.tools.sqlite_copies import defect_of, opened_copy, set_aside

DAMAGED = "damaged"
UNREADABLE = (DatabaseError, ValueError, TypeError, KeyError, AttributeError)
"""What reading a checkpoint raises whose content is damaged: LangGraph and its serializer have no error of their own."""


def open_checkpoints(path: Path) -> Connection:
    """A connection to the file. One that is damaged is moved aside and made anew, since the journal is the truth.

    Raises MachineExhausted where it cannot be opened at all.
    """
    connection = connect(path, check_same_thread=False)
    try:
        connection.execute("PRAGMA schema_version").fetchone()
        damaged = bool(defect_of(connection))
    except OperationalError as error:
        connection.close()
        stop_if_exhausted(error, path)
        raise
    except DatabaseError:
        damaged = True
    if damaged:
        connection.close()
        return made_anew(path)
    return connection


def made_anew(path: Path) -> Connection:
    """A connection to an empty file; the one that is there, which nobody may have open, is moved aside."""
    set_aside(path, DAMAGED)
    return connect(path, check_same_thread=False)


def checkpoints_defect(path: Path) -> str:
    """What is wrong with the file, "" when nothing is. It is looked at in a copy."""
    try:
        with opened_copy(path) as connection:
            return defect_of(connection)
    except (Error, OSError) as error:
        return str(error)
