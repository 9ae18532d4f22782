"""How the store is, and what helps after a failed commit: a damaged file is replaced, another one opened anew."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from agent.adapters.store.failures import error_name, is_damage
from agent.errors import StorageError

if TYPE_CHECKING:
    from agent.adapters.sqlite_store import SqliteStore

_log = logging.getLogger(__name__)

OK: Final = "ok"
DEGRADED: Final = "degraded"
"""The disk fails or is full: readings wait in memory; on a full disk commands are still stored."""
FULL: Final = "full"
"""A bound is reached and new readings are refused."""

# From this failure on every second one opens the file anew.
_REOPEN_FROM: Final = 3
_WORTH_REOPENING: Final = ("SQLITE_IOERR", "SQLITE_READONLY", "SQLITE_CANTOPEN")
_DISK_FULL: Final = "SQLITE_FULL"


def says_full(error: StorageError | None) -> bool:
    """The disk, or the file's own bound, has no room."""
    return error is not None and error_name(error.__cause__) == _DISK_FULL


def mend_store(store: SqliteStore, error: StorageError, failures: int) -> None:
    """Do what may help; what this does not cure passes, or is the disk's.

    Args:
        store: its ``incidents`` tell what was done.
        error: why the last commit failed.
        failures: how many failed one after the other.
    """
    if is_damage(error.__cause__):
        try:
            store.replace_damaged(error.__cause__)
        except StorageError as failure:
            _log.error("store=failing %s", failure)
    # A file whose disk came back may need a new handle. Not when the disk is full: opening needs room, too.
    is_time = failures >= _REOPEN_FROM and failures % 2
    if is_time and error_name(error.__cause__).startswith(_WORTH_REOPENING):
        try:
            store.reopen()
        except StorageError as failure:
            _log.debug("the store could not be opened again: %s", failure)
