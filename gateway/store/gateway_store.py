"""The gateway's store over one connection, for one thread: :mod:`gateway.store.service`."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from agent.adapters.store.failures import explain, is_damage
from agent.errors import AgentError, StorageError
from gateway.store.command_rows import CommandRows
from gateway.store.reading_rows import ReadingRows
from gateway.store.schema import open_or_replace
from gateway.store.totals import Counters, Usage
from gateway.store.values import Presence, StoreBounds, StoreStats

_T = TypeVar("_T")


class GatewayStore:
    """Everything in one file; what is done between :meth:`begin` and :meth:`commit` is one transaction.

    Args:
        path: the database; its directory must exist.
        bounds: how much may wait.
        wall_s: now, for the name of a damaged file.

    Raises:
        StorageError: it cannot be opened now; the text names the fix.
        ConfigurationError: a newer program's file, or another program's.

    Attributes:
        commands, readings, counters: the groups of rows.
        usage: how much waits.
        incident: what happened to the file at this start; None when nothing did.
    """

    def __init__(self, path: Path, bounds: StoreBounds, wall_s: float) -> None:
        self.path = path
        try:
            self._db, self.incident = open_or_replace(path, wall_s)
            self.counters = Counters(self._db)
            self.usage = Usage(self._db, bounds)
            self.commands = CommandRows(self._db, self.counters, self.usage)
            self.readings = ReadingRows(self._db, self.counters, self.usage)
            self._after_commit: list[Callable[[], None]] = []
        except (sqlite3.Error, OSError) as error:
            raise explain(error, path) from error

    def close(self) -> None:
        """Write the log back into the file and release it."""
        with suppress(sqlite3.Error):
            self._db.close()

    def begin(self) -> None:
        """Begin a transaction of the store.

        Raises:
            StorageError: the disk refuses.
        """
        try:
            self._db.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            raise explain(error, self.path) from error

    def commit(self) -> None:
        """Commit: all of it is on the disk when this returns.

        Raises:
            StorageError: none of it is.
        """
        try:
            self.counters.write()
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            self.roll_back()
            raise explain(error, self.path) from error
        self.counters.committed()
        callbacks, self._after_commit = self._after_commit, []
        for callback in callbacks:
            callback()

    def after_commit(self, callback: Callable[[], None]) -> None:
        """Have ``callback`` called right after this transaction's commit, in the store's thread; never when it fails.

        What is done there is in the order of the commits, so an older state never replaces a newer one.
        """
        self._after_commit.append(callback)

    def roll_back(self) -> None:
        """Undo the transaction, if there is one."""
        with suppress(sqlite3.Error):
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
        self._after_commit.clear()
        self.counters.back_to(type(self.counters.mark())())
        with suppress(sqlite3.Error):
            self.usage.count_again()

    def attempt(self, work: Callable[[GatewayStore], _T]) -> _T:
        """Do a part of the transaction so that its own failure undoes this part only.

        Raises:
            AgentError: the part's own; the transaction goes on without it.
            StorageError: likewise: these values cannot be stored.
            sqlite3.Error: the disk failed, and with it the whole transaction.
        """
        counted, used = self.counters.mark(), self.usage.mark()
        before = len(self._after_commit)
        self._db.execute("SAVEPOINT part")
        try:
            result = work(self)
        except (sqlite3.OperationalError, MemoryError):
            raise
        except Exception as error:
            if is_damage(error):
                raise
            self._db.execute("ROLLBACK TO part")
            self._db.execute("RELEASE part")
            self.counters.back_to(counted)
            self.usage.back_to(used)
            del self._after_commit[before:]
            if isinstance(error, AgentError):
                raise
            raise StorageError(f"{self.path}: this cannot be stored: {error}") from error
        self._db.execute("RELEASE part")
        return result

    # --- what belongs to no group ---------------------------------------------------------------------------------

    def put_presence(self, devices: Mapping[str, Presence]) -> None:
        """Save when these devices were last seen."""
        self._db.executemany(
            "INSERT INTO device VALUES (?, ?, ?, ?) ON CONFLICT (device_id) DO UPDATE SET"
            " transport = excluded.transport, online = excluded.online, seen_wall_s = excluded.seen_wall_s",
            [(device_id, seen.transport, seen.online, seen.seen_wall_s) for device_id, seen in devices.items()],
        )

    def presence(self) -> dict[str, Presence]:
        """When each device was last seen."""
        rows = self._db.execute("SELECT device_id, transport, online, seen_wall_s FROM device")
        return {row[0]: Presence(row[1], bool(row[2]), row[3]) for row in rows}

    def setting(self, name: str) -> str | None:
        """A value that must survive a restart."""
        row = self._db.execute("SELECT value FROM setting WHERE name = ?", (name,)).fetchone()
        return None if row is None else str(row[0])

    def put_setting(self, name: str, value: str | None) -> None:
        """Store it, or delete it with None."""
        if value is None:
            self._db.execute("DELETE FROM setting WHERE name = ?", (name,))
        else:
            self._db.execute("INSERT OR REPLACE INTO setting VALUES (?, ?)", (name, value))

    def stats(self) -> StoreStats:
        """What the store holds, counted."""
        return StoreStats(
            readings=self.usage.readings,
            size_bytes=self.usage.size_bytes,
            oldest_wall_s=self.readings.oldest_wall_s(),
            results=self.usage.results,
            commands=self.commands.by_state(),
            set_aside=self.readings.count_set_aside(),
            counters=self.counters.all(),
        )
