"""Counts that survive a restart, added up in memory and written with the next commit."""

from __future__ import annotations

import sqlite3
from collections import Counter


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
        """What was counted so far in this transaction, for :meth:`back_to`."""
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
