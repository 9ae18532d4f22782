"""Journal and outbox in one SQLite file, for one thread: opened, replaced when damaged, written in transactions.

A method of its parts that writes commits before it returns; inside :meth:`SqliteStore.transaction` all of them share
one commit. :mod:`agent.adapters.store_service` puts a thread around it, and that is what the agent uses.

A damaged file is moved aside, a new one is begun with what can still be read; :attr:`SqliteStore.incidents` says so.
One process at a time: a lock file beside the database keeps a second agent out, since two writers to one
write-ahead log are how SQLite databases are lost.
"""

from __future__ import annotations

import fcntl
import logging
import os
import sqlite3
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from agent.adapters.store.boot_rows import BootRows
from agent.adapters.store.failures import REPLACING, check, damage, error_name, explain, is_damage, is_suspect
from agent.adapters.store.journal_rows import JournalRows
from agent.adapters.store.outbox_rows import FoundOutbox, OutboxRows
from agent.adapters.store.room import DiskRoom, FreeBytes, free_bytes_beside
from agent.adapters.store.schema import SCHEMA, connect, wal_bytes
from agent.adapters.store.status import StoreStatus, status_of
from agent.core.outbox import Bounds
from agent.errors import StorageError

if TYPE_CHECKING:
    from agent.ports import Clock

FILE_NAME: Final = "agent.db"
"""What the database is called inside the state directory."""

_INCIDENTS_MAX: Final = 100
# From this failure on every second one opens the file anew.
_REOPEN_FROM: Final = 3
_WORTH_REOPENING: Final = ("SQLITE_IOERR", "SQLITE_READONLY", "SQLITE_CANTOPEN")
_log = logging.getLogger(__name__)
_T = TypeVar("_T")


class SqliteStore:
    """One database file over one connection.

    What is done with its rows, its parts do. They belong to the connection: after :meth:`reopen` there are others.

    Args:
        path: the database; its directory must exist.
        clock: for the age of readings and the time of incidents.
        bounds: how much may wait in the outbox.
        max_pages: how many pages the file may grow to; None leaves SQLite's own bound.
        free_bytes: of the file system; None asks the one that the file lies on.
        trusts_wall: the wall clock counts for a boot whose time is not known; a device's may show anything.

    Raises:
        StorageError: it cannot be opened now; the text names the fix.
        ConfigurationError: a newer program's file, or another program's.

    Attributes:
        journal: the commands and settings, a :class:`~agent.ports.Journal`.
        outbox: the readings, an :class:`~agent.ports.Outbox`.
        boots: the time of each boot, a :class:`~agent.ports.BootTimes`.
        incidents: what happened to the file at this start, one sentence each.
        found: the outbox as an earlier process left it.
    """

    journal: JournalRows
    outbox: OutboxRows
    boots: BootRows
    found: FoundOutbox

    def __init__(
        self,
        path: Path,
        *,
        clock: Clock,
        bounds: Bounds | None = None,
        max_pages: int | None = None,
        free_bytes: FreeBytes | None = None,
        trusts_wall: bool = True,
    ) -> None:
        self.path = path
        self.incidents: list[str] = []
        self._clock = clock
        self._bounds = bounds or Bounds()
        self._max_pages = max_pages
        self._free_bytes = free_bytes or free_bytes_beside(path)
        self._trusts_wall = trusts_wall
        # The highest key of a reading that a commit of this process is known to have stored.
        self._last_key: int | None = None
        # SQLite found damage in use: the file is looked through before that is believed.
        self._is_doubted = False
        self._lock = _lock(path)
        try:
            self._open()
            with self.looking():
                self.found = self.outbox.found()
                lost = self.outbox.count_unsaved()
            if lost:
                _log.error("store=lost %d readings were only in memory when the last process ended", lost)
        except BaseException:
            os.close(self._lock)
            raise

    def _open(self) -> None:
        try:
            self._use(self._open_or_replace())
        except (sqlite3.Error, OSError) as error:
            raise explain(error, self.path) from error

    def _use(self, connection: sqlite3.Connection) -> None:
        """Take this connection from now on."""
        try:
            self.boots = BootRows(connection, self._clock, self.transaction, trusts_wall=self._trusts_wall)
            self.journal = JournalRows(connection, self.boots, self.transaction)
            room = DiskRoom(connection, self._bounds, self._free_bytes)
            self.outbox = OutboxRows(
                connection, self._bounds, uuid.uuid4().hex, room=room, boots=self.boots, transaction=self.transaction
            )
            self.outbox.forget_unused_origins()
            self.boots.forget_unused(self._clock.now().boot_id)
            if self._last_key is not None:
                # A commit that was reported as failed may have come back out of the log.
                self.outbox.take_back(self._last_key)
            self._last_key = self.outbox.highest_key()
        except sqlite3.Error:
            connection.close()
            raise
        self._db = connection
        self._is_open = True
        self._in_transaction = False

    def _open_or_replace(self) -> sqlite3.Connection:
        if self.path.with_name(self.path.name + REPLACING).exists():
            return self._replace(damage("its replacement was interrupted"))
        suspect = self._is_doubted or is_suspect(self.path)
        try:
            connection = self._connect()
        except sqlite3.DatabaseError as error:
            if not is_damage(error):
                raise
            return self._replace(error)
        try:
            SCHEMA.prepare(connection, self.path)
            if suspect:
                check(connection)
        except sqlite3.DatabaseError as error:
            if not is_damage(error):
                connection.close()
                raise
            return self._replace(error, connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _connect(self) -> sqlite3.Connection:
        return connect(self.path, max_pages=self._max_pages, log_bytes=wal_bytes(self._bounds.max_bytes))

    def _replace(self, error: sqlite3.Error, connection: sqlite3.Connection | None = None) -> sqlite3.Connection:
        """Move the damaged file aside and go on with a new one that holds what can be salvaged."""
        # Only for a damaged file.
        from agent.adapters.store.salvage import begin_replacing, end_replacing, move_aside, salvage

        wall_s = self._clock.now().wall_s
        try:
            aside = begin_replacing(self.path, wall_s)
            # The names change before the connection closes: closing would write the log back into the damaged file.
            move_aside(self.path, aside)
        finally:
            if connection is not None:
                with suppress(sqlite3.Error):
                    connection.close()
        new = self._connect()
        try:
            SCHEMA.prepare(new, self.path)
            new.execute("BEGIN IMMEDIATE")
            copied = salvage(aside, new)
            text = (
                f"{self.path} was damaged ({error}) and is now {aside.name}; salvaged: {copied['command']} commands, "
                f"{copied['reading']} readings; check the disk, and delete that file when you have looked at it"
            )
            new.execute("INSERT INTO incident (wall_s, text) VALUES (?, ?)", (wall_s, text))
            new.execute(
                "DELETE FROM incident WHERE id NOT IN (SELECT id FROM incident ORDER BY id DESC LIMIT ?)",
                (_INCIDENTS_MAX,),
            )
            new.execute("COMMIT")
            end_replacing(self.path)
        except BaseException:
            new.close()
            raise
        self.incidents.append(text)
        return new

    def reopen(self) -> None:
        """Close and open again, as after an I/O error; damage found now is handled as at the start.

        Raises:
            StorageError: it cannot be opened now; the next use tries again.
        """
        hidden = self.outbox.hidden
        self._is_open = False
        with suppress(sqlite3.Error):
            self._db.close()
        self._open()
        self.outbox.hide(hidden)

    def mend(self, error: StorageError, failures: int) -> None:
        """Do what may help after a failed commit or look; what this does not cure passes, or is the disk's.

        Args:
            error: why it failed. :attr:`incidents` says what was done about it.
            failures: how many commits failed one after the other.
        """
        cause = error.__cause__
        if is_damage(cause):
            try:
                self.replace_damaged(cause)
            except StorageError as failure:
                _log.error("store=failing %s", failure)
        # A file whose disk came back may need a new handle. Not when the disk is full: opening needs room, too.
        is_time = failures >= _REOPEN_FROM and failures % 2
        if is_time and error_name(cause).startswith(_WORTH_REOPENING):
            try:
                self.reopen()
            except StorageError as failure:
                _log.debug("the store could not be opened again: %s", failure)

    def replace_damaged(self, found: BaseException | None = None) -> None:
        """Damage showed up in use: move the file aside and go on with what can be salvaged.

        A disk that cannot be read for a moment looks like damage to SQLite. So what SQLite itself found (``found``) is
        believed once the file was looked through anew, or when it is found again before anything could be written.

        Raises:
            StorageError: that failed, too; the next use tries again.
        """
        if hasattr(found, "sqlite_errorcode") and not self._is_doubted:
            self._is_doubted = True
            self.reopen()
            return
        hidden = self.outbox.hidden
        self._is_open = False
        try:
            self._use(self._replace(damage("found in use"), self._db))
        except (sqlite3.Error, OSError) as error:
            raise explain(error, self.path) from error
        self.outbox.hide(hidden)

    def close(self) -> None:
        """Write the log back into the file and release it."""
        with suppress(sqlite3.Error):
            self._db.close()
        with suppress(OSError):
            os.close(self._lock)

    # --- transactions ---------------------------------------------------------------------------------------------

    @contextmanager
    def transaction(self, *, durable: bool = True) -> Iterator[None]:
        """One commit for everything inside; all or nothing. Inside another one it is part of that.

        Args:
            durable: the commit is on the disk when the block ends. Else a power cut may undo it as a whole, but never
                a part of it.

        Raises:
            StorageError: nothing of it was written. Its cause is SQLite's own error.
        """
        if self._in_transaction:
            yield
            return
        if not self._is_open:
            self._open()
        try:
            self._db.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
            self._db.execute("BEGIN IMMEDIATE")
            self._in_transaction = True
            yield
            last_key = self.outbox.highest_key()
            self.boots.write()
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            self._roll_back()
            raise explain(error, self.path) from error
        except BaseException:
            self._roll_back()
            raise
        self._in_transaction = False
        self._is_doubted = False
        self._last_key = last_key
        self.outbox.committed()
        self.boots.committed()

    def attempt(self, work: Callable[[], _T]) -> _T:
        """Do a part of a transaction so that its failure undoes this part only.

        Raises:
            StorageError: these values cannot be stored; the transaction goes on without them.
            sqlite3.Error: the disk failed, and with it the whole transaction.
        """
        self._db.execute("SAVEPOINT part")
        try:
            result = work()
        except (sqlite3.OperationalError, MemoryError):
            raise
        except BaseException as error:
            if is_damage(error):
                raise
            self._db.execute("ROLLBACK TO part")
            self._db.execute("RELEASE part")
            self.outbox.forget_memory()
            if isinstance(error, sqlite3.Error | ValueError | TypeError | OverflowError):
                raise StorageError(f"{self.path}: this cannot be stored: {error}") from error
            raise
        self._db.execute("RELEASE part")
        return result

    def _roll_back(self) -> None:
        with suppress(sqlite3.Error):
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
        self._in_transaction = False
        self.outbox.forget_memory()

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Read inside the block.

        Raises:
            StorageError: its cause is SQLite's own error.
        """
        if not self._is_open:
            self._open()
        try:
            yield
        except sqlite3.Error as error:
            raise explain(error, self.path) from error

    def status(self) -> StoreStatus:
        """Counts of journal and outbox, for `status` and diagnostics."""
        with self.looking():
            return status_of(self._db, self.path, self.outbox.stats())

    # --- for the writer ---------------------------------------------------------------------------------------------

    def touch(self) -> None:
        """Write something small, so that a commit shows whether the disk takes anything."""
        with self.transaction():
            self._db.execute(
                "INSERT INTO meta VALUES ('touched', 1) ON CONFLICT (name) DO UPDATE SET value = value + 1"
            )

    def write_back(self) -> None:
        """Write the log back into the file, so that the next commits find room in the log as it is."""
        with suppress(sqlite3.Error):
            self._db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()


def _lock(path: Path) -> int:
    """Lock ``<path>.lock`` and return its open descriptor; the kernel releases it however the process ends.

    Raises:
        StorageError: it cannot be opened, or another process holds it; the text names the fix.
    """
    lock_path = path.with_name(f"{path.name}.lock")
    try:
        descriptor = os.open(lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StorageError(f"{lock_path}: {error.strerror}: mend the state directory's owner and mode") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        text = f"another device-agent uses {path.parent}: stop it, or give this one a state_dir of its own"
        raise StorageError(text) from error
    return descriptor
