"""The file of the state machine's checkpoints."""

from __future__ import annotations

from pathlib import Path
from sqlite3 import Connection, DatabaseError, OperationalError, connect

from optagent.tools.exhausted import stop_if_exhausted
from optagent.tools.sqlite_copies import defect_of, set_aside

DAMAGED = "damaged"


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
