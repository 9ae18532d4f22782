"""Gaps in SQL: what was dropped ever, by reason, and the episodes that the service was not told of yet."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from typing import Any

from agent.core.gaps import Gap
from agent.core.outbox import DropReason
from agent.core.values import Moment

_OPEN_SQL = (
    "SELECT reason, rows, since_mono, since_wall, since_boot, until_mono, until_wall, until_boot FROM open_gap "
    "ORDER BY reason"
)


class GapRows:
    """Gaps over one connection; runs inside whatever transaction the caller has open."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._db = connection
        self._open: dict[DropReason, Gap] | None = None

    def forget_memory(self) -> None:
        """A rollback happened."""
        self._open = None

    @property
    def open(self) -> tuple[Gap, ...]:
        """The episodes that are not told yet."""
        return tuple(self._look().values())

    def note(self, gap: Gap) -> None:
        """Count these readings, and join them to the episode that goes on."""
        walls = (gap.since.wall_s, gap.until.wall_s)
        self._db.execute(
            "INSERT INTO gap VALUES (?, ?, ?, ?) ON CONFLICT (reason) DO UPDATE SET rows = rows + excluded.rows, "
            "from_wall = min(from_wall, excluded.from_wall), to_wall = max(to_wall, excluded.to_wall)",
            (str(gap.reason), gap.rows, min(walls), max(walls)),
        )
        found = self._look()
        known = found.get(gap.reason)
        joined = gap if known is None else known.joined(gap)
        self._db.execute("INSERT OR REPLACE INTO open_gap VALUES (?, ?, ?, ?, ?, ?, ?, ?)", _to_row(joined))
        found[gap.reason] = joined

    def close(self, reason: DropReason) -> None:
        """Forget an episode: its record waits in its place."""
        self._db.execute("DELETE FROM open_gap WHERE reason = ?", (str(reason),))
        self._look().pop(reason, None)

    def _look(self) -> dict[DropReason, Gap]:
        if self._open is None:
            self._open = {gap.reason: gap for gap in read_open_gaps(self._db)}
        return self._open


def read_open_gaps(connection: sqlite3.Connection) -> Iterable[Gap]:
    """The episodes that are not told yet, by reason."""
    rows: Iterable[Any] = connection.execute(_OPEN_SQL)
    return [Gap(DropReason(row[0]), row[1], Moment(*row[2:5]), Moment(*row[5:8])) for row in rows]


def _to_row(gap: Gap) -> tuple[Any, ...]:
    moments = (value for at in (gap.since, gap.until) for value in (at.monotonic_s, at.wall_s, at.boot_id))
    return (str(gap.reason), gap.rows, *moments)
