"""The outbox's rows: readings in SQL. Runs inside whatever transaction the caller has open.

Keys ascend without a gap and are never given twice, though delivered rows are deleted and there is no sequence table:
the row with the highest key is never deleted but only emptied (its ``body`` becomes NULL), until a later row follows
it. So a commit touches one page, and the highest key is also the number of readings ever accepted.

An idempotency key is the id of the store that first took the reading, and the key in it. A store that replaces a
damaged one has an id of its own, and rows that were salvaged keep the old one.
"""

from __future__ import annotations

import json
import sqlite3
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from agent.adapters.store.boot_rows import BootRows
from agent.adapters.store.failures import damage
from agent.core.outbox import Bounds, DropReason, Held, choose_next, evict
from agent.core.values import Moment, OutboxStats, Reading, SendOutcome, StoredReading

SET_ASIDE_MAX: Final = 1000
"""Readings refused for good that are kept with their reason; beyond it the oldest go."""

_FIRST_SQL: Final = (
    "SELECT key, length(body), mono, wall, boot_id FROM reading JOIN origin ON origin.id = origin "
    "WHERE body IS NOT NULL ORDER BY key"
)
_LAST_SQL: Final = f"{_FIRST_SQL} DESC"
_ONE_SQL: Final = (
    "SELECT key, store_id, body, mono, wall, boot_id FROM reading JOIN origin ON origin.id = origin "
    "WHERE key = ? AND body IS NOT NULL"
)
_TRIED_MAX: Final = 4096


@dataclass(frozen=True, slots=True)
class Draft:
    """A reading on its way into the store, with its JSON text."""

    at: Moment
    body: str


def to_draft(reading: Reading) -> Draft:
    """The reading with its JSON text.

    Raises:
        ValueError: a value is not a finite number.
    """
    return Draft(reading.at, json.dumps(reading.values, separators=(",", ":"), ensure_ascii=True, allow_nan=False))


def to_values(body: str) -> dict[str, float]:
    """The JSON text's named numbers.

    Raises:
        sqlite3.DatabaseError: it is none: the file is damaged where SQLite does not look.
    """
    try:
        values = json.loads(body)
    except (ValueError, TypeError, RecursionError) as error:
        raise damage(f"a reading cannot be read: {error}") from error
    if not isinstance(values, dict):
        raise damage("a reading is not an object")
    return values


@dataclass(frozen=True, slots=True)
class _Totals:
    """What is counted instead of being looked up at each commit."""

    rows: int
    size_bytes: int
    last_key: int


class OutboxRows:
    """Readings over one connection.

    What it remembers of the rows between two calls follows from them: after a rollback :meth:`forget_memory` makes it
    read them anew, after a commit :meth:`committed` is called.

    Args:
        connection: the store's.
        bounds: how much may wait.
        store_id: of this file, part of the idempotency keys that it gives.
        boots: what is known of the time that rows are from; every decision goes by that and by no wall clock.
    """

    def __init__(self, connection: sqlite3.Connection, bounds: Bounds, store_id: str, boots: BootRows) -> None:
        self._db = connection
        self._boots = boots
        self._bounds = bounds
        self._store_id = store_id
        # How often each was handed out in this process; writing that down at each try would wear the flash.
        self._tried: OrderedDict[int, int] = OrderedDict()
        self._totals: _Totals | None = None
        self._origins: dict[str, int] = {}
        # Delivered, but their deletion waits for the next commit: key -> size.
        self._hidden: dict[int, int] = {}
        self._deleted: list[int] = []

    @property
    def hidden(self) -> tuple[int, ...]:
        """Delivered readings whose deletion waits for the next commit."""
        return tuple(self._hidden)

    def hide(self, keys: Iterable[int]) -> None:
        """Treat these as delivered without writing; :meth:`settle` them with the next commit."""
        for key in keys:
            found = self._db.execute(
                "SELECT length(body) FROM reading WHERE key = ? AND body IS NOT NULL", (key,)
            ).fetchone()
            if found is not None:
                self._hidden[key] = found[0]

    def committed(self) -> None:
        """The transaction is on the disk."""
        for key in self._deleted:
            self._hidden.pop(key, None)
        self._deleted.clear()

    def forget_memory(self) -> None:
        """A rollback happened: read the totals anew when they are needed."""
        self._deleted.clear()
        self._totals = None
        self._origins.clear()

    def highest_key(self) -> int:
        """The highest key ever given; 0 for none."""
        (highest,) = self._db.execute("SELECT coalesce(max(key), 0) FROM reading").fetchone()
        return int(highest)

    def take_back(self, last_key: int) -> None:
        """Delete the readings above this key, which nobody knows to be stored and which are to be put again.

        A commit whose sync failed is told as failed, and its readings stay in memory; but its pages are in the log, and
        a connection that reads the log anew finds it whole.
        """
        if self.highest_key() <= last_key:
            return
        self._db.execute("BEGIN IMMEDIATE")
        # The row that marks the highest key may have gone with that commit.
        self._db.execute(
            "INSERT OR IGNORE INTO reading (key, origin, mono, wall, body) "
            "SELECT ?, origin, mono, wall, NULL FROM reading WHERE key > ? ORDER BY key LIMIT 1",
            (last_key, last_key),
        )
        self._db.execute("DELETE FROM reading WHERE key > ?", (last_key,))
        self._db.execute("COMMIT")

    def put(self, drafts: Sequence[Draft], now: Moment) -> None:
        """Add readings in this order, and drop what is beyond a bound then."""
        if not drafts:
            return
        totals = self._count()
        rows = [
            (key, self._origin(draft.at.boot_id), draft.at.monotonic_s, draft.at.wall_s, draft.body)
            for key, draft in enumerate(drafts, totals.last_key + 1)
        ]
        self._db.executemany("INSERT INTO reading VALUES (?, ?, ?, ?, ?)", rows)
        self._db.execute("DELETE FROM reading WHERE key = ? AND body IS NULL", (totals.last_key,))
        self._totals = replace(
            totals,
            rows=totals.rows + len(rows),
            size_bytes=totals.size_bytes + sum(len(draft.body) for draft in drafts),
            last_key=totals.last_key + len(rows),
        )
        self.enforce(now)

    def enforce(self, now: Moment) -> int:
        """Drop what is beyond a bound; how many."""
        totals = self._count()
        gone = evict(self._held(_FIRST_SQL), totals.rows, totals.size_bytes, self._bounds, now)
        if not gone:
            return 0
        self._delete([held.key for held, _ in gone])
        for reason in DropReason:
            walls = [held.at.wall_s for held, why in gone if why is reason]
            if walls:
                self.note_gap(reason, len(walls), min(walls), max(walls))
        return len(gone)

    def forget_unused_origins(self) -> None:
        """Delete the boots that no reading is from any more."""
        self._origins.clear()
        self._db.execute(
            "DELETE FROM origin WHERE id NOT IN (SELECT origin FROM reading UNION SELECT origin FROM set_aside)"
        )

    def note_gap(self, reason: DropReason, rows: int, from_wall_s: float, to_wall_s: float) -> None:
        """Count readings that were dropped, and the time that they were from."""
        self._db.execute(
            "INSERT INTO gap VALUES (?, ?, ?, ?) ON CONFLICT (reason) DO UPDATE SET rows = rows + excluded.rows, "
            "from_wall = min(from_wall, excluded.from_wall), to_wall = max(to_wall, excluded.to_wall)",
            (str(reason), rows, from_wall_s, to_wall_s),
        )

    def next_batch(self, limit: int, now: Moment) -> list[StoredReading]:
        """What to send next, and count the try."""
        first, last = (
            (held for held in self._held(sql) if held.key not in self._hidden) for sql in (_FIRST_SQL, _LAST_SQL)
        )
        keys = choose_next(first, last, now, limit)
        batch = [self._read(key) for key in keys]
        for key in keys:
            self._tried[key] = self._tried.pop(key, 0) + 1
        while len(self._tried) > max(_TRIED_MAX, limit):
            self._tried.popitem(last=False)
        return batch

    def settle(self, outcome: SendOutcome) -> None:
        """Delete what was delivered, set aside what was refused; unknown keys are left alone."""
        refused = {key: reason for key, reason in outcome.refused.items() if key not in set(outcome.delivered)}
        self._db.executemany(
            "INSERT OR IGNORE INTO set_aside SELECT key, origin, mono, wall, body, ? FROM reading "
            "WHERE key = ? AND body IS NOT NULL",
            [(reason, key) for key, reason in refused.items()],
        )
        moved = self._delete(list(refused))
        if moved:
            self._bump("set_aside", moved)
            self._db.execute(
                "DELETE FROM set_aside WHERE key NOT IN (SELECT key FROM set_aside ORDER BY key DESC LIMIT ?)",
                (SET_ASIDE_MAX,),
            )
        self._delete(outcome.delivered)

    def stats(self) -> OutboxStats:
        """What it holds; what only waits for its deletion counts as delivered."""
        totals = self._count()
        oldest = next((held for held in self._held(_FIRST_SQL) if held.key not in self._hidden), None)
        # 0 stands for a time that nobody knows.
        oldest_wall_s = (oldest.at.wall_s or None) if oldest else None
        stored = read_stats(self._db, totals.rows, totals.size_bytes, totals.last_key, oldest_wall_s)
        hidden = len(self._hidden)
        return replace(
            stored,
            rows=stored.rows - hidden,
            size_bytes=stored.size_bytes - sum(self._hidden.values()),
            delivered=stored.delivered + hidden,
        )

    def _delete(self, keys: Sequence[int]) -> int:
        """Delete waiting rows, the highest key ever given becoming a mark instead; how many there were."""
        totals = self._count()
        rows = size_bytes = 0
        for key in dict.fromkeys(keys):
            found = self._db.execute(
                "SELECT length(body) FROM reading WHERE key = ? AND body IS NOT NULL", (key,)
            ).fetchone()
            if found is None:
                continue
            rows, size_bytes = rows + 1, size_bytes + found[0]
            if key == totals.last_key:
                self._db.execute("UPDATE reading SET body = NULL WHERE key = ?", (key,))
            else:
                self._db.execute("DELETE FROM reading WHERE key = ?", (key,))
            self._tried.pop(key, None)
            self._deleted.append(key)
        self._totals = replace(totals, rows=totals.rows - rows, size_bytes=totals.size_bytes - size_bytes)
        return rows

    def _read(self, key: int) -> StoredReading:
        row = self._db.execute(_ONE_SQL, (key,)).fetchone()
        reading = Reading(to_values(row[2]), Moment(row[3], row[4], row[5]))
        return StoredReading(key, f"{row[1]}-{key}", reading, self._tried.get(key, 0))

    def _held(self, sql: str) -> Iterator[Held]:
        cursor = self._db.execute(sql)
        try:
            for key, size_bytes, mono, wall, boot_id in cursor:
                yield Held(key, size_bytes, self._boots.dated(Moment(mono, wall, boot_id)))
        finally:
            cursor.close()

    def _origin(self, boot_id: str) -> int:
        known = self._origins.get(boot_id)
        if known is None:
            found = self._db.execute(
                "SELECT id FROM origin WHERE boot_id = ? AND store_id = ?", (boot_id, self._store_id)
            ).fetchone()
            if found is None:
                cursor = self._db.execute(
                    "INSERT INTO origin (boot_id, store_id) VALUES (?, ?)", (boot_id, self._store_id)
                )
                known = int(cursor.lastrowid or 0)
            else:
                known = int(found[0])
            self._origins[boot_id] = known
        return known

    def _count(self) -> _Totals:
        if self._totals is None:
            row = self._db.execute(
                "SELECT count(body), coalesce(sum(length(body)), 0), coalesce(max(key), 0) FROM reading"
            ).fetchone()
            self._totals = _Totals(rows=row[0], size_bytes=row[1], last_key=row[2])
        return self._totals

    def _bump(self, name: str, by: int) -> None:
        self._db.execute(
            "INSERT INTO meta VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = value + excluded.value", (name, by)
        )


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
    # What was dropped before it was ever stored has no key.
    unsaved = dropped.get(str(DropReason.UNSAVED), 0)
    dropped_stored = sum(dropped.values()) - unsaved
    not_delivered = rows + set_aside_ever + dropped_stored + (0 if lost is None else int(lost[0]))
    return OutboxStats(
        rows=rows,
        size_bytes=size_bytes,
        oldest_wall_s=oldest_wall_s,
        set_aside=int(kept),
        dropped=sum(dropped.values()),
        accepted=last_key + unsaved,
        delivered=max(0, last_key - not_delivered),
    )
