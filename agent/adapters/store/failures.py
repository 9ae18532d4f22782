"""What SQLite's errors mean, one line each with cause and fix; and the look at a file that may be damaged."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final

from agent.errors import StorageError

_FIXES: Final = (
    ("SQLITE_FULL", "there is no room left for it: free space on its disk"),
    ("SQLITE_READONLY", "it cannot be written: remount its file system read-write or mend its owner and mode"),
    ("SQLITE_PERM", "it may not be opened: mend its owner and mode"),
    ("SQLITE_CANTOPEN", "it cannot be opened: mend the owner and mode of the file and its directory"),
    ("SQLITE_BUSY", "another program holds it: let only one agent use this state directory"),
    ("SQLITE_LOCKED", "another program holds it: let only one agent use this state directory"),
    ("SQLITE_IOERR", "its disk answers with an I/O error: look into dmesg and replace the card or disk"),
    ("SQLITE_CORRUPT", "its content is damaged: it is moved aside and a new one is begun"),
    ("SQLITE_NOTADB", "its content is damaged: it is moved aside and a new one is begun"),
    ("SQLITE_NOMEM", "there is not enough memory"),
)
_DAMAGE: Final = ("SQLITE_CORRUPT", "SQLITE_NOTADB")
Transaction = Callable[[], AbstractContextManager[None]]
"""Opens a transaction of the store, or joins the one that is open: :meth:`~.sqlite_store.SqliteStore.transaction`."""

REPLACING: Final = ".replacing"
"""What is appended to the database's name for the note that a damaged one is being replaced."""

_CHECK_ALWAYS_BELOW_BYTES: Final = 8 * 1024 * 1024


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
    return error_name(error).startswith(_DAMAGE) or is_hit


def is_disk_full(error: StorageError) -> bool:
    """The disk, or the file's own bound, has no room."""
    return error_name(error.__cause__) == "SQLITE_FULL"


def is_suspect(path: Path) -> bool:
    """The file deserves a check at start: it is small, or the last process did not close it in order."""
    try:
        wal = path.with_name(f"{path.name}-wal")
        return path.stat().st_size < _CHECK_ALWAYS_BELOW_BYTES or (wal.exists() and wal.stat().st_size > 0)
    except OSError:
        return True


def check(connection: sqlite3.Connection) -> None:
    """Look through the whole file.

    Raises:
        sqlite3.DatabaseError: it is damaged.
    """
    (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        raise damage(str(verdict))


def explain(error: sqlite3.Error | OSError, path: Path) -> StorageError:
    """The error as ours, in one line."""
    if isinstance(error, OSError):
        return StorageError(f"{path}: {error.strerror or error}: mend the state directory")
    name = error_name(error) or ("SQLITE_CORRUPT" if is_damage(error) else "")
    for prefix, fix in _FIXES:
        if name.startswith(prefix):
            return StorageError(f"{path}: {fix} ({name})")
    return StorageError(f"{path}: {error} ({name or type(error).__name__}): report this as a bug")


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn every error of SQLite inside the block into a :class:`~agent.errors.StorageError`."""
    try:
        yield
    except sqlite3.Error as error:
        raise explain(error, path) from error
