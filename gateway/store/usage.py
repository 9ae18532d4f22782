"""How much waits in the store, kept in memory so that taking one more needs no counting."""

from __future__ import annotations

import sqlite3

from gateway.ports import StoreFull
from gateway.store.values import StoreBounds


class Usage:
    """What waits for the service, and whether there is room for more.

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
        """Where it stands, for :meth:`back_to`."""
        return self.readings, self.results, self.size_bytes

    def back_to(self, mark: tuple[int, int, int]) -> None:
        """A part of the transaction was undone."""
        self.readings, self.results, self.size_bytes = mark

    def make_room(self, *, readings: int = 0, results: int = 0, size_bytes: int = 0) -> None:
        """Count these in.

        Raises:
            DeskFull: a bound is reached; nothing was counted.
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
