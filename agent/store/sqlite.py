"""The store's file: its tables, how it is opened, and what SQLite's errors mean.

One connection, a write-ahead log, and exclusive: SQLite then keeps the log's index in memory instead of in a ``-shm``
file, whose pages the kernel would write to the flash every half minute, and keeps every other process out. Pages of
1 KiB suit an agent whose commits are small.

Source: sqlite.org/wal.html, sqlite.org/pragma.html, sqlite.org/howtocorrupt.html.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Concatenate, Final, ParamSpec, TypeVar

from agent.core.commands import HISTORY_LOST
from agent.errors import ConfigurationError, StorageError

if TYPE_CHECKING:
    from agent.store.store import Store


FILE_NAME: Final = "agent.db"
"""What the database is called inside the state directory."""

VERSION: Final = 1
"""Of the tables. A file of another version is not opened."""

PAGE_BYTES: Final = 1024
WAL_MAX_BYTES: Final = 4 * 1024 * 1024
_CACHE_KIB: Final = 1024
# A smaller file, or one that was not closed in order, is looked through when it is opened.
_CHECK_BELOW_BYTES: Final = 8 * 1024 * 1024

# In SQLite's field for it, with the version added: "dva" in ASCII and a byte for the version.
_APPLICATION: Final = 0x64766100

# command.body: the whole entry as JSON; the state stands beside it for the partial index.
# origin: which boot a reading's clock belongs to, and which opening of the store gave it its key. Ids are small, since
# every reading carries one.
# boot: the true time of a boot minus its monotonic clock, learned at ``mono``; no row: it is not known.
# reading.priority: most have the usual one, 1, and cost no index; a commit of readings then writes two pages.
# gap: what was dropped ever, by reason; ``open`` is the episode that has no record yet, as JSON.
_TABLES: Final = """
CREATE TABLE setting (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE counter (name TEXT PRIMARY KEY, value NOT NULL) WITHOUT ROWID;
CREATE TABLE incident (id INTEGER PRIMARY KEY, wall_s REAL NOT NULL, text TEXT NOT NULL);
CREATE TABLE command (seq INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, state TEXT NOT NULL, body TEXT NOT NULL);
CREATE INDEX command_open ON command (state, seq) WHERE state IN ('received', 'started', 'finished', 'undeliverable');
CREATE TABLE origin (id INTEGER PRIMARY KEY, boot_id TEXT NOT NULL, store_id TEXT NOT NULL);
CREATE TABLE reading (
    key INTEGER PRIMARY KEY, origin INTEGER NOT NULL, mono REAL NOT NULL, wall REAL NOT NULL, body TEXT NOT NULL,
    priority INTEGER NOT NULL
);
CREATE INDEX reading_priority ON reading (priority) WHERE priority != 1;
CREATE TABLE refused (key INTEGER PRIMARY KEY, wall REAL NOT NULL, body TEXT NOT NULL, reason TEXT NOT NULL);
CREATE TABLE gap (
    reason TEXT PRIMARY KEY, rows INTEGER NOT NULL, from_wall REAL NOT NULL, to_wall REAL NOT NULL, open TEXT
) WITHOUT ROWID;
CREATE TABLE boot (boot_id TEXT PRIMARY KEY, offset_s REAL NOT NULL, within_s REAL NOT NULL, mono REAL NOT NULL);
"""

_FIXES: Final = (
    ("SQLITE_FULL", "there is no room left for it: free space on its disk"),
    ("SQLITE_READONLY", "it cannot be written: remount its file system read-write or mend its owner and mode"),
    ("SQLITE_PERM", "it may not be opened: mend its owner and mode"),
    ("SQLITE_CANTOPEN", "it cannot be opened: mend the owner and mode of the file and its directory"),
    ("SQLITE_BUSY", "another device-agent uses it: stop it, or give this one a state_dir of its own"),
    ("SQLITE_IOERR", "its disk answers with an I/O error: look into dmesg and replace the card or disk"),
    ("SQLITE_CORRUPT", "its content is damaged: it is moved aside and a new one is begun"),
    ("SQLITE_NOTADB", "its content is damaged: it is moved aside and a new one is begun"),
    ("SQLITE_NOMEM", "there is not enough memory"),
)


def wal_bytes(max_bytes: int) -> int:
    """How much of a store's bound its write-ahead log may take; it is written back when a quarter of that is used."""
    return min(WAL_MAX_BYTES, max_bytes // 4)


def open_database(path: Path, *, max_bytes: int, check: bool = False) -> sqlite3.Connection:
    """Open the file for writing, and make it (mode 600) with its tables where there is none.

    A new file beside a damaged one, which was moved aside, does not know what has run: it carries :data:`HISTORY_LOST`.

    Args:
        path: its directory must exist.
        max_bytes: of the store; its log takes a share of that.
        check: look through all of it, also when it is large and was closed in order.

    Raises:
        ConfigurationError: it is another program's, or another version's.
        sqlite3.Error: it cannot be opened, or is damaged (:func:`is_damage`).
        OSError: it cannot be made.
    """
    check = check or _is_suspect(path)
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    db = sqlite3.connect(path, timeout=1.0, isolation_level=None)
    log_bytes = wal_bytes(max_bytes)
    pragmas = [
        "locking_mode=EXCLUSIVE",
        f"page_size={PAGE_BYTES}",
        "journal_mode=WAL",
        "synchronous=FULL",
        "trusted_schema=OFF",
        "temp_store=MEMORY",
        f"cache_size=-{_CACHE_KIB}",
        f"wal_autocheckpoint={max(1, log_bytes // 4 // PAGE_BYTES)}",
        f"journal_size_limit={log_bytes}",
    ]
    try:
        for pragma in pragmas:
            db.execute(f"PRAGMA {pragma}").fetchone()
        _prepare(db, path)
        if check and (verdict := db.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
            raise damage(str(verdict))
    except BaseException:
        db.close()
        raise
    return db


def _prepare(db: sqlite3.Connection, path: Path) -> None:
    if check_version(db, path):
        if db.execute("PRAGMA user_version").fetchone() != (VERSION,):
            _mark_version(db)
        return
    # One transaction, so that a half-made file does not exist.
    db.execute("BEGIN IMMEDIATE")
    make_tables(db)
    if damaged_copies(path):
        db.execute("INSERT INTO setting VALUES (?, '1')", (HISTORY_LOST,))
    _mark_version(db)
    db.execute("COMMIT")


def make_tables(db: sqlite3.Connection) -> None:
    """Make all tables; in the transaction that is open, which executescript would commit."""
    for statement in _TABLES.split(";"):
        db.execute(statement)


def _mark_version(db: sqlite3.Connection) -> None:
    """Write the version down twice: one flipped bit on the disk must not make the file look like another version's."""
    db.execute(f"PRAGMA user_version = {VERSION}")
    db.execute(f"PRAGMA application_id = {_APPLICATION + VERSION}")


def check_version(db: sqlite3.Connection, path: Path) -> bool:
    """Whether the file has its tables; False for a new one.

    Raises:
        ConfigurationError: it is another program's, or another version's.
        sqlite3.Error: it cannot be read.
    """
    (version,) = db.execute("PRAGMA user_version").fetchone()
    (application,) = db.execute("PRAGMA application_id").fetchone()
    (tables,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if version == VERSION or application == _APPLICATION + VERSION:
        return True
    if not version and not tables:
        return False
    sentence = (
        f"it has version {version} and this device-agent knows version {VERSION}: install the device-agent that wrote "
        "it, or give this one another state_dir"
        if version
        else "it is another program's database: give the agent a state_dir of its own"
    )
    raise ConfigurationError([sentence], str(path))


def _is_suspect(path: Path) -> bool:
    try:
        log = path.with_name(f"{path.name}-wal")
        return path.stat().st_size < _CHECK_BELOW_BYTES or (log.exists() and log.stat().st_size > 0)
    except OSError:
        return True


def move_aside(path: Path, wall_s: float) -> Path:
    """Give the damaged file, with its log, another name beside it; the new name.

    Raises:
        OSError: the directory cannot be written.
    """
    stamp = datetime.fromtimestamp(max(0.0, wall_s), UTC).strftime("%Y%m%dT%H%M%SZ")
    number = len(damaged_copies(path)) + 1
    aside = path.with_name(f"{path.name}.damaged-{stamp}-{number}")
    # The file first: where the process ends here, the copy says that there was one, and its log makes the next one
    # suspect.
    for ending in ("", "-wal"):
        with suppress(FileNotFoundError):
            path.with_name(path.name + ending).rename(aside.with_name(aside.name + ending))
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    return aside


def damaged_copies(path: Path) -> list[Path]:
    """The damaged files that were moved aside and are still there."""
    return sorted(each for each in path.parent.glob(f"{path.name}.damaged-*") if not each.name.endswith("-wal"))


# --- what errors mean -------------------------------------------------------------------------------------------------


def error_name(error: BaseException | None) -> str:
    """SQLite's own name of the error, such as ``SQLITE_FULL``; empty when it is none of SQLite's."""
    return str(getattr(error, "sqlite_errorname", "") or "")


def damage(what: str) -> sqlite3.DatabaseError:
    """The error for damage that SQLite itself does not see, such as a flipped bit inside a value."""
    error = sqlite3.DatabaseError(what)
    error.sqlite_errorname = "SQLITE_CORRUPT"
    return error


def is_damage(error: BaseException | None) -> bool:
    """The file's content is broken, so that trying again cannot help."""
    if not isinstance(error, sqlite3.Error):
        return False
    # The module itself raises when a text is not UTF-8, and gives that error no name. A column or table that is not
    # there is one whose name was hit in the file.
    is_hit = (not error_name(error) and "decode" in str(error)) or str(error).startswith("no such ")
    return error_name(error).startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")) or is_hit


def explain(error: sqlite3.Error | OSError, path: Path) -> StorageError:
    """The error as ours, in one line with its fix."""
    if isinstance(error, OSError):
        return StorageError(f"{path}: {error.strerror or error}: mend the state directory")
    name = error_name(error) or ("SQLITE_CORRUPT" if is_damage(error) else "")
    for prefix, fix in _FIXES:
        if name.startswith(prefix):
            return StorageError(f"{path}: {fix} ({name})")
    return StorageError(f"{path}: {error} ({name or type(error).__name__}): report this as a bug")


# --- what the tables share --------------------------------------------------------------------------------------------

P = ParamSpec("P")
T = TypeVar("T")
AnyTable = TypeVar("AnyTable", bound="Table")

# ASCII, so that a lone surrogate, which SQLite cannot store, stays an escape.
to_json: Final = partial(json.dumps, separators=(",", ":"), ensure_ascii=True)


class Table:
    """A part of the store.

    Args:
        store: whose.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    @property
    def _db(self) -> sqlite3.Connection:
        return self._store.connection()

    def _count(self, name: str, by: int) -> None:
        """Add to a counter."""
        self._db.execute(
            "INSERT INTO counter VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = value + excluded.value",
            (name, by),
        )

    def _counter(self, name: str) -> int:
        row = self._db.execute("SELECT value FROM counter WHERE name = ?", (name,)).fetchone()
        return 0 if row is None else int(row[0])


def read(method: Callable[Concatenate[AnyTable, P], T]) -> Callable[Concatenate[AnyTable, P], T]:
    """A method that reads; its caller waits for the result."""

    @wraps(method)
    def in_store(self: AnyTable, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._store.call(lambda: method(self, *args, **kwargs), writes=False)

    return in_store


def write(method: Callable[Concatenate[AnyTable, P], T]) -> Callable[Concatenate[AnyTable, P], T]:
    """A method that writes; it returns after the commit, and all of it is undone where it raises."""

    @wraps(method)
    def in_store(self: AnyTable, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._store.call(lambda: method(self, *args, **kwargs), writes=True)

    return in_store
