"""The file: its tables, their version, and how it is opened.

``command`` is the journal of what the service has queued for the devices. ``result`` and ``reading`` wait for the
service. What is sent as one request is first moved into ``batch`` under one idempotency key, so that a retry after a
lost answer, also by the next process, sends the same bytes under the same key. ``taken`` remembers the keys under which
devices handed readings in, so that a device that missed the answer may hand them in again.

Source: sqlite.org/wal.html, sqlite.org/pragma.html.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Final

from agent.adapters.store.database import Schema, open_file
from agent.adapters.store.failures import check, is_damage
from agent.adapters.store.salvage import free_name, move_aside

FILE_NAME: Final = "gateway.db"
"""What the database is called inside the state directory."""

# The system keeps the file's pages as well. A large cache of our own fills over days, and looks like a leak.
_CACHE_KIB: Final = 2 * 1024
_WAL_BYTES: Final = 32 * 1024 * 1024

_TABLES: Final = """
CREATE TABLE schema_version (version INTEGER NOT NULL);
CREATE TABLE setting (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE counter (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE incident (id INTEGER PRIMARY KEY, wall_s REAL NOT NULL, text TEXT NOT NULL);
CREATE TABLE device (
    device_id TEXT PRIMARY KEY, transport TEXT NOT NULL, online INTEGER NOT NULL, seen_wall_s REAL NOT NULL
) WITHOUT ROWID;
CREATE TABLE command (
    seq INTEGER PRIMARY KEY, device_id TEXT NOT NULL, id TEXT NOT NULL, state TEXT NOT NULL, record TEXT NOT NULL,
    created_at REAL, expires_at REAL, changed_wall_s REAL NOT NULL,
    UNIQUE (device_id, id)
);
CREATE INDEX command_open ON command (seq) WHERE state = 'open';
CREATE TABLE result (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, device_id TEXT NOT NULL, command_id TEXT NOT NULL, status TEXT NOT NULL,
    result TEXT, error TEXT, finished_wall_s REAL NOT NULL, size_bytes INTEGER NOT NULL, UNIQUE (device_id, command_id)
);
CREATE TABLE reading (
    seq INTEGER PRIMARY KEY, device_id TEXT NOT NULL, recorded_at REAL NOT NULL, body TEXT NOT NULL,
    taken_wall_s REAL NOT NULL
);
CREATE INDEX reading_device ON reading (device_id, seq);
CREATE TABLE batch (
    id INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL UNIQUE, body TEXT NOT NULL, rows INTEGER NOT NULL,
    size_bytes INTEGER NOT NULL, oldest_wall_s REAL NOT NULL, after_wall_s REAL NOT NULL DEFAULT 0
);
CREATE TABLE taken (device_id TEXT NOT NULL, key TEXT NOT NULL, wall_s REAL NOT NULL, PRIMARY KEY (device_id, key))
    WITHOUT ROWID;
CREATE INDEX taken_age ON taken (wall_s);
CREATE TABLE set_aside (
    seq INTEGER PRIMARY KEY, kind TEXT NOT NULL, device_id TEXT NOT NULL, body TEXT NOT NULL, reason TEXT NOT NULL,
    wall_s REAL NOT NULL
);
"""


SCHEMA: Final = Schema("the gateway", _TABLES, frozenset({"batch", "taken"}))


def open_or_replace(path: Path, wall_s: float) -> tuple[sqlite3.Connection, str | None]:
    """Open the database, make it (mode 600) where there is none, or move a damaged one aside and begin anew.

    Returns:
        The connection, and a sentence about a damaged file.

    Raises:
        sqlite3.Error, OSError: it cannot be opened now.
        ConfigurationError: a newer program's file, or another program's.
    """
    connection: sqlite3.Connection | None = None
    try:
        connection = _connect(path)
        SCHEMA.prepare(connection, path)
        check(connection)
    except sqlite3.DatabaseError as error:
        if not is_damage(error):
            if connection is not None:
                connection.close()
            raise
        return _replace(path, wall_s, error, connection)
    except BaseException:
        if connection is not None:
            connection.close()
        raise
    return connection, None


def _replace(
    path: Path, wall_s: float, error: sqlite3.Error, damaged: sqlite3.Connection | None
) -> tuple[sqlite3.Connection, str]:
    # The names change before the connection closes: closing would write the log back into the damaged file.
    aside = free_name(path, wall_s)
    move_aside(path, aside)
    if damaged is not None:
        damaged.close()
    connection = _connect(path)
    SCHEMA.prepare(connection, path)
    text = (
        f"{path} was damaged ({error}) and is now {aside.name}: commands are fetched anew, results and readings that "
        "waited are in that file; check the disk"
    )
    connection.execute("INSERT INTO incident (wall_s, text) VALUES (?, ?)", (wall_s, text))
    return connection, text


def _connect(path: Path) -> sqlite3.Connection:
    # One thread uses it, but not the one that opens it: the store's thread begins after the first look at the file.
    pragmas = (f"cache_size=-{_CACHE_KIB}", f"journal_size_limit={_WAL_BYTES}")
    return open_file(path, pragmas, cached_statements=128, check_same_thread=False)
