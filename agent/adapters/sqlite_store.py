"""Journal and outbox in one SQLite file, for one thread.

A method that writes commits before it returns; inside :meth:`SqliteStore.transaction` all of them share one commit.
:mod:`agent.adapters.store_service` puts a thread around it, and that is what the agent uses.

A damaged file is moved aside, a new one is begun with what can still be read, and :attr:`SqliteStore.incidents` tells.
One process at a time: a lock file beside the database keeps a second agent out, since two writers to one
write-ahead log are how SQLite databases are lost.
"""

from __future__ import annotations

import os
import sqlite3
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from agent.adapters.store.boot_rows import BootRows
from agent.adapters.store.encoded_readings import EncodedReading, to_draft
from agent.adapters.store.failures import REPLACING, check, damage, explain, is_damage, is_suspect
from agent.adapters.store.journal_rows import JournalRows
from agent.adapters.store.lock_file import lock
from agent.adapters.store.log_room import LogRoom
from agent.adapters.store.outbox_rows import OutboxRows
from agent.adapters.store.room import DiskRoom, FreeBytes, free_bytes_beside
from agent.adapters.store.schema import checkpoint_bytes, connect, prepare, wal_bytes
from agent.core.gaps import Gap
from agent.core.outbox import Bounds
from agent.core.timekeeping import BootTime
from agent.core.values import (
    Admission,
    JournalEntry,
    JournalLookup,
    Moment,
    OutboxStats,
    Outcome,
    Reading,
    ResultStats,
    SendOutcome,
    StoredReading,
)
from agent.errors import StorageError

if TYPE_CHECKING:
    from agent.ports import Clock

FILE_NAME: Final = "agent.db"
"""What the database is called inside the state directory."""

OUTBOX_FULL: Final = (
    "the outbox is full, so this reading was refused and counted: let the service take some, or raise outbox.max_bytes "
    "and outbox.max_rows"
)
"""The old readings stay (``when_full: block``)."""

_INCIDENTS_MAX: Final = 100
_T = TypeVar("_T")


class SqliteStore:
    """The :class:`~agent.ports.Journal` and the :class:`~agent.ports.Outbox` over one connection.

    Args:
        path: the database; its directory must exist.
        clock: for the age of readings and the time of incidents.
        bounds: how much may wait in the outbox.
        max_pages: how many pages the file may grow to; None leaves SQLite's own bound.
        free_bytes: of the file system; None asks the one that the file lies on.
        trusts_wall: the wall clock counts for a boot whose time nobody has told; a device's may show anything.

    Raises:
        StorageError: it cannot be opened now; the text names the fix.
        ConfigurationError: a newer program's file, or another program's.

    Attributes:
        incidents: what happened to the file at this start, one sentence each.
    """

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
        self._lock = lock(path)
        try:
            self._open()
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
            self._boots = BootRows(connection, trusts_wall=self._trusts_wall)
            self._journal = JournalRows(connection, self._boots)
            room = DiskRoom(connection, self._bounds, self._free_bytes)
            self._outbox = OutboxRows(connection, self._bounds, _store_id(connection), room, self._boots)
            self._outbox.forget_unused_origins()
            self._boots.forget_unused(self._clock.now().boot_id)
            if self._last_key is not None:
                # A commit that failed, and was told so, may have come back out of the log.
                self._outbox.take_back(self._last_key)
            self._last_key = self._outbox.highest_key()
        except sqlite3.Error:
            connection.close()
            raise
        self._db = connection
        self._log = LogRoom(self.path, checkpoint_bytes(self._bounds.max_bytes), self._free_bytes)
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
            prepare(connection, self.path)
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
            prepare(new, self.path)
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
        hidden = self.hidden
        self._is_open = False
        with suppress(sqlite3.Error):
            self._db.close()
        self._open()
        self._outbox.hide(hidden)

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
        hidden = self.hidden
        self._is_open = False
        try:
            self._use(self._replace(damage("found in use"), self._db))
        except (sqlite3.Error, OSError) as error:
            raise explain(error, self.path) from error
        self._outbox.hide(hidden)

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
        self._ensure_open()
        try:
            self._db.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
            self._db.execute("BEGIN IMMEDIATE")
            self._in_transaction = True
            yield
            last_key = self._outbox.highest_key()
            self._boots.write()
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
        self._outbox.committed()
        self._boots.committed()
        self._log.follow()

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
            self._outbox.forget_memory()
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
        self._outbox.forget_memory()

    def _ensure_open(self) -> None:
        if not self._is_open:
            self._open()

    @contextmanager
    def _looking(self) -> Iterator[None]:
        self._ensure_open()
        try:
            yield
        except sqlite3.Error as error:
            raise explain(error, self.path) from error

    # --- Journal --------------------------------------------------------------------------------------------------

    def known(self, command_ids: Sequence[str]) -> dict[str, JournalEntry]:
        """See :class:`agent.ports.Journal`."""
        with self._looking():
            return self._journal.known(command_ids)

    def look_up(self, command_ids: Sequence[str], settings: Sequence[str] = ()) -> JournalLookup:
        """What the journal knows of these commands and settings, and of itself."""
        with self._looking():
            return self._journal.look_up(command_ids, settings)

    def decide(
        self,
        command_ids: Sequence[str],
        choose: Callable[[JournalLookup], Admission | None],
        settings: Sequence[str] = (),
    ) -> None:
        """See :class:`agent.ports.Journal`."""
        admission = choose(self.look_up(command_ids, settings))
        if admission is not None:
            self.admit(admission.entries, admission.settings)

    def admit(self, entries: Sequence[JournalEntry], settings: Mapping[str, str] | None = None) -> None:
        """See :class:`agent.ports.Journal`."""
        with self.transaction():
            self._journal.admit(entries, settings)

    def start(self, command_id: str, at: Moment) -> None:
        """See :class:`agent.ports.Journal`."""
        with self.transaction():
            self._journal.start(command_id, at)

    def finish(self, command_id: str, outcome: Outcome, at: Moment) -> JournalEntry:
        """See :class:`agent.ports.Journal`."""
        with self.transaction():
            return self._journal.finish(command_id, outcome, at)

    def reported(self, command_ids: Sequence[str]) -> None:
        """See :class:`agent.ports.Journal`."""
        with self.transaction():
            self._journal.reported(command_ids)

    def put_aside(self, reasons: Mapping[str, str]) -> int:
        """See :class:`agent.ports.Journal`."""
        with self.transaction():
            return self._journal.put_aside(reasons)

    def offer_again(self, limit: int | None = None) -> int:
        """See :class:`agent.ports.Journal`."""
        with self.transaction():
            return self._journal.offer_again(limit)

    def result_stats(self) -> ResultStats:
        """See :class:`agent.ports.Journal`."""
        with self._looking():
            return self._journal.result_stats()

    def in_state(self, *states: str, limit: int = 1000) -> list[JournalEntry]:
        """See :class:`agent.ports.Journal`."""
        with self._looking():
            return self._journal.in_state(states, limit)

    def forget(self, listed_ids: Sequence[str], older_than_wall_s: float) -> int:
        """See :class:`agent.ports.Journal`."""
        with self.transaction():
            return self._journal.forget(listed_ids, older_than_wall_s, self._clock.now())

    def is_empty(self) -> bool:
        """See :class:`agent.ports.Journal`."""
        with self._looking():
            return self._journal.is_empty()

    def setting(self, name: str) -> str | None:
        """See :class:`agent.ports.Journal`."""
        with self._looking():
            return self._journal.setting(name)

    def put_setting(self, name: str, value: str | None) -> None:
        """See :class:`agent.ports.Journal`."""
        with self.transaction():
            self._journal.put_setting(name, value)

    # --- BootTimes ------------------------------------------------------------------------------------------------

    def known_times(self) -> Mapping[str, BootTime]:
        """See :class:`agent.ports.BootTimes`."""
        self._ensure_open()
        return dict(self._boots.known)

    def learn_time(self, boot_id: str, time: BootTime, *, rides: bool = False) -> None:
        """See :class:`agent.ports.BootTimes`; here it is on the disk when this returns, unless it rides."""
        self._ensure_open()
        self._boots.learn(boot_id, time)
        self._outbox.look_at_ages()
        if not rides:
            with self.transaction():
                pass  # every commit takes along what was learned

    # --- Outbox ---------------------------------------------------------------------------------------------------

    def put(self, reading: Reading, *, wait: bool = False) -> None:  # noqa: ARG002 - here every put waits
        """See :class:`agent.ports.Outbox`. Raises ValueError for a value that is not finite."""
        if self.put_drafts([to_draft(reading)]):
            raise StorageError(OUTBOX_FULL)

    def put_drafts(self, drafts: Sequence[EncodedReading]) -> int:
        """Accept many readings with one commit; how many of them were refused, since old ones stay at a bound."""
        with self.transaction():
            return self._outbox.put(drafts, self._boots.dated(self._clock.now()))

    def next_batch(self, limit: int) -> list[StoredReading]:
        """See :class:`agent.ports.Outbox`."""
        with self._looking():
            return self._outbox.next_batch(limit, self._boots.dated(self._clock.now()))

    def again(self, keys: Sequence[int]) -> list[StoredReading]:
        """See :class:`agent.ports.Outbox`."""
        with self._looking():
            return self._outbox.again(keys)

    def settle(self, outcome: SendOutcome) -> None:
        """See :class:`agent.ports.Outbox`."""
        with self.transaction():
            self._outbox.settle(outcome)

    @property
    def hidden(self) -> tuple[int, ...]:
        """Delivered readings whose deletion waits, see :meth:`hide`."""
        return self._outbox.hidden

    def hide(self, keys: Sequence[int]) -> None:
        """Treat these as delivered without a write; ``settle`` them with a later commit.

        Until then a crash brings them back, so their idempotency keys must protect from a second storing.
        """
        with self._looking():
            self._outbox.hide(keys)

    def stats(self) -> OutboxStats:
        """See :class:`agent.ports.Outbox`."""
        with self._looking():
            return self._outbox.stats()

    def note_gap(self, gap: Gap) -> None:
        """Count readings that were dropped before they could be stored."""
        with self.transaction():
            self._outbox.note_gap(gap)

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


def _store_id(connection: sqlite3.Connection) -> str:
    row = connection.execute("SELECT value FROM meta WHERE name = 'store_id'").fetchone()
    if row is not None:
        return str(row[0])
    new = uuid.uuid4().hex
    connection.execute("INSERT INTO meta VALUES ('store_id', ?)", (new,))
    return new
