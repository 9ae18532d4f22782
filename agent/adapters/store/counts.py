"""How many readings wait, and what became of all others, in SQL: delivered, set aside, dropped in gaps."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from typing import Any, Final

from agent.core.gaps import Gap
from agent.core.outbox import NEVER_STORED, DropReason
from agent.core.values import Moment, OutboxStats, Priority

_COUNT_SQL: Final = (
    "SELECT coalesce(max(key), 0), coalesce(sum(length(body)), 0), "  # noqa: S608 - of numbers of this program
    + ", ".join(
        f"count(CASE WHEN priority = {rank:d} THEN body END), min(CASE WHEN priority = {rank:d} THEN key END)"
        for rank in Priority
    )
    + " FROM reading"
)


class Totals:
    """What waits, counted once and kept in step by the outbox instead of being looked up at each commit.

    Args:
        connection: the store's.

    Attributes:
        last_key: the highest key ever given.
        size_bytes: of what waits.
        rows: waiting, by priority.
        first: no waiting row of a priority has a lower key.
    """

    __slots__ = ("first", "last_key", "rows", "size_bytes")

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.last_key, self.size_bytes, *by_priority = connection.execute(_COUNT_SQL).fetchone()
        self.rows = dict(zip(Priority, (count or 0 for count in by_priority[::2]), strict=True))
        self.first = dict(zip(Priority, (first or 0 for first in by_priority[1::2]), strict=True))

    @property
    def waiting(self) -> int:
        """How many readings wait."""
        return sum(self.rows.values())


def read_stats(
    connection: sqlite3.Connection, rows: int, size_bytes: int, last_key: int, oldest_wall_s: float | None
) -> OutboxStats:
    """The stats out of what was counted and the few rows of the counters.

    What was delivered is what was accepted and is neither waiting, nor set aside, nor dropped.
    """
    dropped_rows: Iterable[Any] = connection.execute("SELECT reason, rows FROM gap")
    dropped = {str(reason): int(count) for reason, count in dropped_rows}
    refused = connection.execute("SELECT value FROM meta WHERE name = 'set_aside'").fetchone()
    set_aside_ever = 0 if refused is None else int(refused[0])
    lost = connection.execute("SELECT value FROM meta WHERE name = 'lost'").fetchone()
    (kept,) = connection.execute("SELECT count(*) FROM set_aside").fetchone()
    unstored = sum(dropped.get(str(reason), 0) for reason in NEVER_STORED)
    dropped_stored = sum(dropped.values()) - unstored
    not_delivered = rows + set_aside_ever + dropped_stored + (0 if lost is None else int(lost[0]))
    return OutboxStats(
        rows=rows,
        size_bytes=size_bytes,
        oldest_wall_s=oldest_wall_s,
        set_aside=int(kept),
        dropped=sum(dropped.values()),
        accepted=last_key + unstored,
        delivered=max(0, last_key - not_delivered),
    )


_OPEN_COLUMNS = "reason, rows, since_mono, since_wall, since_boot, until_mono, until_wall, until_boot"
_OPEN_SQL = f"SELECT {_OPEN_COLUMNS} FROM open_gap ORDER BY reason"  # noqa: S608 - its own words


class GapRows:
    """Gaps over one connection; runs inside whatever transaction the caller has open."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._db = connection
        self._open: dict[DropReason, Gap] | None = None

    def forget_memory(self) -> None:
        """Drop the counts held in memory: the transaction was rolled back."""
        self._open = None

    def note(self, gap: Gap) -> None:
        """Count these readings, and join them to the episode that goes on."""
        walls = (gap.since.wall_s, gap.until.wall_s)
        self._db.execute(
            "INSERT INTO gap (reason, rows, from_wall, to_wall) VALUES (?, ?, ?, ?) "
            "ON CONFLICT (reason) DO UPDATE SET rows = rows + excluded.rows, "
            "from_wall = min(from_wall, excluded.from_wall), to_wall = max(to_wall, excluded.to_wall)",
            (str(gap.reason), gap.rows, min(walls), max(walls)),
        )
        found = self.open()
        known = found.get(gap.reason)
        joined = gap if known is None else known.joined(gap)
        self._db.execute(
            f"INSERT OR REPLACE INTO open_gap ({_OPEN_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608 - as above
            _to_row(joined),
        )
        found[gap.reason] = joined

    def close(self, reason: DropReason) -> None:
        """Forget an episode: its record waits in its place."""
        self._db.execute("DELETE FROM open_gap WHERE reason = ?", (str(reason),))
        self.open().pop(reason, None)

    def open(self) -> dict[DropReason, Gap]:
        """The episodes that have no record yet; kept here in step with the rows."""
        if self._open is None:
            self._open = {gap.reason: gap for gap in read_open_gaps(self._db)}
        return self._open


def read_open_gaps(connection: sqlite3.Connection) -> Iterable[Gap]:
    """The episodes that have no record yet, by reason."""
    rows: Iterable[Any] = connection.execute(_OPEN_SQL)
    return [Gap(DropReason(row[0]), row[1], Moment(*row[2:5]), Moment(*row[5:8])) for row in rows]


def _to_row(gap: Gap) -> tuple[Any, ...]:
    moments = (value for at in (gap.since, gap.until) for value in (at.monotonic_s, at.wall_s, at.boot_id))
    return (str(gap.reason), gap.rows, *moments)
