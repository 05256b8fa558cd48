"""The file of the state machine's checkpoints."""

from __future__ import annotations

from pathlib import Path
from sqlite3 import Connection, DatabaseError, connect


def open_checkpoints(path: Path) -> Connection:
    """A connection to the file. One that cannot be read is moved aside and made anew, since the journal is the truth."""
    connection = connect(path, check_same_thread=False)
    try:
        connection.execute("PRAGMA schema_version").fetchone()
    except DatabaseError:
        connection.close()
        path.replace(path.with_suffix(".damaged"))
        connection = connect(path, check_same_thread=False)
    return connection
