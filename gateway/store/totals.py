"""Numbers about the store that are kept in memory: how much waits, and counts that survive a restart.

Both are part of the transaction: undone with it, and written with the next commit.
"""

from __future__ import annotations

import sqlite3
from collections import Counter

from gateway.ports import StoreFull
from gateway.store.values import StoreBounds


class Usage:
    """Rows and bytes that wait for the service, and the bounds for them.

    Args:
        connection: of the store.
        bounds: how much may wait.

    Attributes:
        readings, results: how many wait.
        size_bytes: their JSON text.
    """

    def __init__(self, connection: sqlite3.Connection, bounds: StoreBounds) -> None:
        self._db = connection
        self.bounds = bounds
        self.readings = self.results = self.size_bytes = 0
        self.count_again()

    def count_again(self) -> None:
        """Count what is there, after a start and after a transaction that was undone."""
        self.readings, self.results, self.size_bytes = self._db.execute(
            "SELECT (SELECT count(*) FROM reading) + (SELECT coalesce(sum(rows), 0) FROM batch),"
            " (SELECT count(*) FROM result),"
            " (SELECT coalesce(sum(length(body)), 0) FROM reading) + (SELECT coalesce(sum(size_bytes), 0) FROM batch)"
            " + (SELECT coalesce(sum(size_bytes), 0) FROM result)"
        ).fetchone()

    def mark(self) -> tuple[int, int, int]:
        """The numbers now, for :meth:`back_to`."""
        return self.readings, self.results, self.size_bytes

    def back_to(self, mark: tuple[int, int, int]) -> None:
        """A part of the transaction was undone."""
        self.readings, self.results, self.size_bytes = mark

    def make_room(self, *, readings: int = 0, results: int = 0, size_bytes: int = 0) -> None:
        """Count rows that are about to be stored, and refuse them where there is no room.

        Raises:
            StoreFull: a bound is reached; nothing was counted.
        """
        bounds = self.bounds
        if (
            self.readings + readings > bounds.max_rows
            or self.results + results > bounds.max_results
            or self.size_bytes + size_bytes > bounds.max_bytes
        ):
            raise StoreFull(
                f"{self.readings} readings and {self.results} results ({self.size_bytes} bytes) wait for the service: "
                "no more are taken until it has some of them; look at the service, or raise the bounds under store"
            )
        self.readings += readings
        self.results += results
        self.size_bytes += size_bytes

    def free(self, *, readings: int = 0, results: int = 0, size_bytes: int = 0) -> None:
        """Count readings or results out that wait no longer."""
        self.readings -= readings
        self.results -= results
        self.size_bytes -= size_bytes


class Counters:
    """Named counts. A transaction that is undone forgets what it counted."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._db = connection
        self._kept: Counter[str] = Counter(dict(connection.execute("SELECT name, value FROM counter").fetchall()))
        self._new: Counter[str] = Counter()

    def add(self, name: str, count: int) -> None:
        """Count something that happened ``count`` times."""
        if count:
            self._new[name] += count

    def mark(self) -> Counter[str]:
        """The counts of this transaction so far, for :meth:`back_to`."""
        return self._new.copy()

    def back_to(self, mark: Counter[str]) -> None:
        """Forget what was counted since the mark."""
        self._new = mark

    def write(self) -> None:
        """Put the new counts into the transaction."""
        self._db.executemany(
            "INSERT INTO counter VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = value + excluded.value",
            list(self._new.items()),
        )

    def committed(self) -> None:
        """Add the counts of the transaction to those that are kept: they are on the disk."""
        self._kept.update(self._new)
        self._new.clear()

    def all(self) -> dict[str, int]:
        """Name -> how often ever, sorted."""
        return dict(sorted(self._kept.items()))
