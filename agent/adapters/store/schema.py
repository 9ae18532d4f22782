"""The file: its tables, their version, and how it is opened.

One connection, WAL, exclusive: SQLite then keeps the log's index in memory instead of in a ``-shm`` file, whose pages
the kernel would write to the flash every half minute. A page of 1 KiB suits an agent that commits one row a minute: a
commit then dirties one or two pages of the flash's own 4 KiB. Measured over a day of one reading a minute, sent and
deleted: 7 MB where the deletion may wait for the next commit, 15 MB where it may not (with the ``-shm`` file 19 and 27,
with pages of 4 KiB 12 and 24). There are no indices that a reading would have to be written into, and no sequence
table: see :mod:`agent.adapters.store.outbox_rows` for how keys stay unique without one.

Source: sqlite.org/wal.html, sqlite.org/pragma.html, sqlite.org/howtocorrupt.html.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Final

from agent.adapters.store.database import Schema, open_file

PAGE_BYTES: Final = 1024
WAL_MAX_BYTES: Final = 4 * 1024 * 1024
"""The write-ahead log of a store that may be large."""

_WAL_SHARE: Final = 4
_CHECKPOINT_SHARE: Final = 4
_LOAD_SHARE: Final = 8
_FRAME_BYTES: Final = PAGE_BYTES + 24
# As many as an agent uses again and again; each that is kept prepared costs some 3 KB.
_STATEMENTS: Final = 20
_CACHE_KIB: Final = 1024

# command.state has a partial index, so that ten thousand remembered commands do not slow the search for open ones.
# origin: which boot a reading's monotonic clock belongs to, and which opening of the store gave it its key. Ids are
# small, since every reading carries one. reading.body is NULL for the one row that only marks the highest key given.
# reading.priority is 1 where nothing was said, since SQLite has a form of its own for 0 and 1 that needs no content.
# boot: the true time of a boot minus its monotonic clock, as two bounds learned at ``mono``; no row: it is not known.
# command.put_aside: why the service does not have the result of a command that is over here.
_TABLES: Final = """
CREATE TABLE schema_version (version INTEGER NOT NULL);
CREATE TABLE setting (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE meta (name TEXT PRIMARY KEY, value NOT NULL) WITHOUT ROWID;
CREATE TABLE incident (id INTEGER PRIMARY KEY, wall_s REAL NOT NULL, text TEXT NOT NULL);
CREATE TABLE command (
    seq INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    state TEXT NOT NULL,
    handler TEXT NOT NULL,
    payload TEXT NOT NULL,
    created_at REAL,
    expires_at REAL,
    status TEXT,
    size_bytes INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    received_mono REAL NOT NULL, received_wall REAL NOT NULL, received_boot TEXT NOT NULL,
    started_mono REAL, started_wall REAL, started_boot TEXT,
    finished_mono REAL, finished_wall REAL, finished_boot TEXT,
    outcome TEXT, result TEXT, error TEXT,
    put_aside TEXT
);
CREATE INDEX command_put_aside ON command (seq) WHERE state = 'put_aside';
CREATE INDEX command_open ON command (state, seq) WHERE state IN ('received', 'started', 'finished');
CREATE TABLE origin (id INTEGER PRIMARY KEY, boot_id TEXT NOT NULL, store_id TEXT NOT NULL);
CREATE TABLE reading (
    key INTEGER PRIMARY KEY, origin INTEGER NOT NULL, mono REAL NOT NULL, wall REAL NOT NULL, body TEXT,
    priority INTEGER NOT NULL DEFAULT 1
);
CREATE TABLE set_aside (
    key INTEGER PRIMARY KEY, origin INTEGER NOT NULL, mono REAL NOT NULL, wall REAL NOT NULL, body TEXT NOT NULL,
    reason TEXT NOT NULL, priority INTEGER NOT NULL DEFAULT 1
);
CREATE TABLE gap (reason TEXT PRIMARY KEY, rows INTEGER NOT NULL, from_wall REAL NOT NULL, to_wall REAL NOT NULL)
    WITHOUT ROWID;
CREATE TABLE open_gap (
    reason TEXT PRIMARY KEY, rows INTEGER NOT NULL,
    since_mono REAL NOT NULL, since_wall REAL NOT NULL, since_boot TEXT NOT NULL,
    until_mono REAL NOT NULL, until_wall REAL NOT NULL, until_boot TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE boot (boot_id TEXT PRIMARY KEY, low REAL NOT NULL, high REAL NOT NULL, mono REAL NOT NULL) WITHOUT ROWID;
"""


SCHEMA: Final = Schema("the agent", _TABLES, frozenset())


def wal_bytes(max_bytes: int) -> int:
    """How much of a store's bound its write-ahead log may take.

    The log is written back when a quarter of that is used; the rest is for what one commit adds.
    """
    return min(WAL_MAX_BYTES, max_bytes // _WAL_SHARE)


def load_bytes(max_bytes: int) -> int:
    """How much of readings one commit may take along: dropping as many others for them writes pages, too."""
    return wal_bytes(max_bytes) // _LOAD_SHARE


def connect(path: Path, *, max_pages: int | None = None, log_bytes: int = WAL_MAX_BYTES) -> sqlite3.Connection:
    """Open the file for writing, make it (mode 600) where there is none, and set the connection up.

    Args:
        path: the database.
        max_pages: how many pages it may grow to; None leaves SQLite's own bound.
        log_bytes: of the write-ahead log, see :func:`wal_bytes`.

    Raises:
        sqlite3.Error: it cannot be opened, or is no database.
        OSError: it cannot be made.
    """
    pragmas = [
        f"cache_size=-{_CACHE_KIB}",
        f"wal_autocheckpoint={max(1, log_bytes // _CHECKPOINT_SHARE // _FRAME_BYTES):d}",
        f"journal_size_limit={log_bytes:d}",
    ]
    if max_pages is not None:
        pragmas.append(f"max_page_count={max_pages:d}")
    before_log = ("locking_mode=EXCLUSIVE", f"page_size={PAGE_BYTES}")
    return open_file(path, pragmas, before_log=before_log, cached_statements=_STATEMENTS)
