"""The outbox: readings that wait, bounded, and what became of the others.

Keys ascend and are never given twice. An idempotency key is the id of the opening of the store that took the reading,
and the key in it: a state directory that goes back to what it was, or is copied, gives its keys again, but none of
these.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Final

from agent.core.outbox import (
    RELIEVED_AT,
    Bounds,
    DropReason,
    Gap,
    StoredItem,
    choose_next,
    evict,
    gaps_of,
    too_old,
)
from agent.core.values import Moment, OutboxStats, Priority, Reading, SendOutcome, StoredReading
from agent.store.sqlite import PAGE_BYTES, Table, damage, read, to_json, wal_bytes, write

if TYPE_CHECKING:
    from agent.store.store import Store

REFUSED_MAX: Final = 1000
"""Readings refused for good that are kept with their reason; beyond it the oldest go."""

_ITEMS: Final = "SELECT key, length(body), mono, wall, boot_id FROM reading JOIN origin ON origin.id = origin"
_OLDEST: Final = f"{_ITEMS} WHERE priority > {Priority.GAP:d} ORDER BY key"
"""Without the records of gaps: they tell what was dropped, and are never too old for that."""
_NEWEST: Final = f"{_ITEMS} ORDER BY key DESC"
# The priority stands in the statement, since the planner takes a partial index only for values that it can see.
_QUEUES: Final = {rank: f"{_ITEMS} WHERE priority = {rank:d} ORDER BY key" for rank in Priority}
_SUMS: Final = f"count(*), count(CASE WHEN priority = {Priority.GAP:d} THEN 1 END), coalesce(sum(length(body)), 0)"
_THESE: Final = "WHERE key IN (SELECT value FROM json_each(?))"
# A transaction must stay small; what a bound that was just lowered makes too much goes with the commits that follow.
_GO_AT_ONCE: Final = 2_000
_ROUNDS_MAX: Final = 50
# The age of the oldest is checked this often at least: clocks may be set, and the time of a boot be learned.
_AGE_CHECK_EVERY_S: Final = 60.0
_SETTLED: Final = "settled_at"
# So few of what waits are compared with what the service has.
_COMPARED_MAX: Final = 100


@dataclass(frozen=True, slots=True)
class Draft:
    """A reading on its way into the store, with its JSON text."""

    at: Moment
    body: str
    priority: Priority = Priority.NORMAL


@dataclass(frozen=True, slots=True)
class FoundOutbox:
    """The outbox as an earlier process left it.

    Attributes:
        used_at: when it last took or gave a reading; None when it never did.
        waiting: the values of the readings that waited; None when they were too many to be compared.
    """

    used_at: Moment | None
    waiting: tuple[dict[str, float], ...] | None


class Outbox(Table):
    """The durable queue of readings. A reading leaves it only after the other side's 2xx, or at a bound.

    Args:
        store: whose.
        bounds: how much may wait.
        store_id: of this opening, part of the keys that it gives.
    """

    def __init__(self, store: Store, bounds: Bounds, store_id: str) -> None:
        super().__init__(store)
        self._bounds = bounds
        # A commit takes new pages before it frees those of what gives way.
        log_bytes = wal_bytes(bounds.max_bytes)
        self._max_used_bytes = bounds.max_bytes - log_bytes - log_bytes // 8
        self._store_id = store_id
        # Handed out last: the service may have them already, and knows them only together.
        self._in_flight: frozenset[int] = frozenset()
        self._age_check_at_s = self._age_spare_s = 0.0
        self.forget_memory()

    def forget_memory(self) -> None:
        """A rollback happened, or the file is another: read anew what follows from the rows."""
        self._waiting: tuple[int, int, int] | None = None
        self._origins: dict[str, int] = {}
        self._open_gaps: dict[DropReason, Gap] | None = None
        self._age_check_at_s = 0.0

    def open(self) -> FoundOutbox:
        """Tidy up, and say how an earlier process left it; before anything is put."""
        self._db.execute("DELETE FROM origin WHERE id NOT IN (SELECT origin FROM reading)")
        newest = self._db.execute(
            "SELECT mono, wall, boot_id FROM reading JOIN origin ON origin.id = origin ORDER BY key DESC LIMIT 1"
        )
        moments = [Moment(*row) for row in newest]
        settled = self._db.execute("SELECT value FROM counter WHERE name = ?", (_SETTLED,)).fetchone()
        if settled is not None:
            moments.append(Moment(*json.loads(settled[0])))
        rows = self._db.execute("SELECT body FROM reading LIMIT ?", (_COMPARED_MAX + 1,)).fetchall()
        waiting = tuple(decode_values(body) for (body,) in rows) if len(rows) <= _COMPARED_MAX else None
        used_at = max(map(self._store.boots.dated, moments), key=lambda each: each.wall_s, default=None)
        return FoundOutbox(used_at, waiting)

    # --- taking in ----------------------------------------------------------------------------------------------------

    def put(self, reading: Reading, *, wait: bool = False) -> None:
        """Accept one reading. With ``wait`` it returns after the commit, else that follows within the grouping window,
        or at once where the reading's priority is high.

        Raises:
            ValueError: a value is not a finite number.
            StorageError: the store is closed; with ``wait``, also: it is not stored.
        """
        draft = Draft(reading.at, to_json(reading.values, allow_nan=False), reading.priority)
        if wait:
            self._store.call(lambda: self.accept([draft]), writes=True)
        else:
            self._store.keep(draft)

    def accept(self, drafts: Sequence[Draft]) -> None:
        """Add readings in this order, and drop what is beyond a bound then; in a transaction of the store."""
        self._insert(drafts)
        self._enforce(max(_GO_AT_ONCE, 4 * len(drafts)))
        self._record_gaps()

    def _insert(self, drafts: Sequence[Draft]) -> None:
        if not drafts:
            return
        last_key = self.last_key()
        self._db.executemany(
            "INSERT INTO reading VALUES (?, ?, ?, ?, ?, ?)",
            [
                (key, self._origin(draft.at.boot_id), draft.at.monotonic_s, draft.at.wall_s, draft.body, draft.priority)
                for key, draft in enumerate(drafts, last_key + 1)
            ],
        )
        self._count("accepted", len(drafts))
        gaps = sum(draft.priority is Priority.GAP for draft in drafts)
        self._change(len(drafts), gaps, sum(len(draft.body) for draft in drafts))

    def last_key(self) -> int:
        """The highest key ever given, which is how many readings were ever stored; in the store's thread."""
        return self._counter("accepted")

    def take_back(self, last_key: int) -> None:
        """Delete the readings above this key: their commit was reported as failed, and they are put again."""
        surplus = self.last_key() - last_key
        if surplus > 0:
            self._db.execute("DELETE FROM reading WHERE key > ?", (last_key,))
            self._count("accepted", -surplus)
            self.forget_memory()

    # --- giving way ---------------------------------------------------------------------------------------------------

    def _enforce(self, limit: int) -> None:
        """Drop what is beyond a bound, so many at once."""
        dropped = self._drop_too_old()
        for _ in range(_ROUNDS_MAX):
            waiting, gaps, _ = self._totals()
            # Pages become free only when all of their rows are gone, so the disk has the last word.
            rows, size_bytes = waiting - gaps - self._bounds.max_rows, self._used_bytes() - self._max_used_bytes
            if max(rows, size_bytes) <= 0 or dropped >= limit:
                break
            lowest_first = sorted(set(Priority) - {Priority.GAP}, reverse=True)
            # Not when that batch is most of what waits: new readings would give way to it.
            kept = self._in_flight if 2 * len(self._in_flight) <= waiting else frozenset()
            queues = ((each for each in self._items(_QUEUES[rank]) if each.key not in kept) for rank in lowest_first)
            gone = evict(queues, rows, size_bytes, limit)
            if not gone:
                break
            self._drop(gone)
            dropped += len(gone)

    def _used_bytes(self) -> int:
        """Of the file; it never shrinks, but takes pages that became free before it grows."""
        (pages,) = self._db.execute("PRAGMA page_count").fetchone()
        (unused,) = self._db.execute("PRAGMA freelist_count").fetchone()
        return int(pages - unused) * PAGE_BYTES

    def _drop_too_old(self) -> int:
        now = self._store.boots.dated(self._store.clock.now())
        if now.monotonic_s < self._age_check_at_s:
            return 0
        gone, due_in_s = too_old(self._items(_OLDEST), self._bounds.max_age_s, now, _GO_AT_ONCE)
        self._drop([(item, DropReason.AGE) for item in gone])
        self._age_spare_s = due_in_s
        self._age_check_at_s = now.monotonic_s + min(due_in_s, _AGE_CHECK_EVERY_S)
        return len(gone)

    def _drop(self, gone: Sequence[tuple[StoredItem, DropReason]]) -> None:
        self._delete([item.key for item, _ in gone])
        for gap in gaps_of(gone):
            self.note_gap(gap)

    # --- gaps ---------------------------------------------------------------------------------------------------------

    def note_gap(self, gap: Gap) -> None:
        """Count readings that were dropped, and join them to the running episode; in a transaction of the store."""
        open_gaps = self._gaps()
        known = open_gaps.get(gap.reason)
        open_gaps[gap.reason] = joined = gap if known is None else known.joined(gap)
        walls = (gap.since.wall_s, gap.until.wall_s)
        self._db.execute(
            "INSERT INTO gap VALUES (?, ?, ?, ?, ?) ON CONFLICT (reason) DO UPDATE SET rows = rows + excluded.rows, "
            "from_wall = min(from_wall, excluded.from_wall), to_wall = max(to_wall, excluded.to_wall), "
            "open = excluded.open",
            (str(gap.reason), gap.rows, min(walls), max(walls), to_json(astuple(joined)[1:])),
        )

    def _gaps(self) -> dict[DropReason, Gap]:
        """The episodes that have no record yet."""
        if self._open_gaps is None:
            self._open_gaps = {}
            for reason, text in self._db.execute("SELECT reason, open FROM gap WHERE open IS NOT NULL"):
                rows, since, until = json.loads(text)
                self._open_gaps[DropReason(reason)] = Gap(DropReason(reason), rows, Moment(*since), Moment(*until))
        return self._open_gaps

    def _record_gaps(self) -> None:
        """Turn the episodes that are over into records that wait like readings, in the same transaction."""
        over = [gap for gap in self._gaps().values() if gap.is_over(pressure_is_over=self._has_room_again(gap.reason))]
        for gap in over:
            self._db.execute("UPDATE gap SET open = NULL WHERE reason = ?", (str(gap.reason),))
            del self._gaps()[gap.reason]
        records = [gap.record() for gap in over]
        self._insert([Draft(record.at, to_json(record.values), record.priority) for record in records])

    def _has_room_again(self, reason: DropReason) -> bool:
        if reason is DropReason.UNSAVED:
            return True
        if reason is DropReason.AGE:
            # How old the oldest is was checked some time ago, and all may have been delivered since.
            return not self._totals()[0] or self._age_spare_s > (1.0 - RELIEVED_AT) * self._bounds.max_age_s
        has_rows = self._totals()[0] < RELIEVED_AT * self._bounds.max_rows
        return has_rows and self._used_bytes() < RELIEVED_AT * self._max_used_bytes

    # --- handing out --------------------------------------------------------------------------------------------------

    @read
    def next_batch(self, limit: int) -> list[StoredReading]:
        """What to send next: live first, then backlog by priority, oldest first in each."""
        now = self._store.boots.dated(self._store.clock.now())
        queues = (self._items(_QUEUES[rank]) for rank in Priority)
        return self._hand_out(choose_next(queues, self._items(_NEWEST), now, limit))

    @read
    def again(self, keys: Sequence[int]) -> list[StoredReading]:
        """These once more, in this order: those of them that still wait.

        What was handed out last, here or by :meth:`next_batch`, gives way to nothing at a bound as long as most of the
        outbox is something else: the service may know it as one batch.
        """
        return self._hand_out(keys)

    def _hand_out(self, keys: Sequence[int]) -> list[StoredReading]:
        rows = self._db.execute(
            "SELECT key, store_id, body, mono, wall, boot_id, priority "
            f"FROM reading JOIN origin ON origin.id = origin {_THESE}",
            (json.dumps(keys),),
        )
        found = {
            key: StoredReading(
                key, f"{store_id}-{key}", Reading(decode_values(body), Moment(mono, wall, boot_id), Priority(rank))
            )
            for key, store_id, body, mono, wall, boot_id, rank in rows
        }
        self._in_flight = frozenset(found)
        return [found[key] for key in keys if key in found]

    @write
    def settle(self, outcome: SendOutcome) -> None:
        """Delete what was delivered; keep what was refused for good apart, with the reason. Unknown keys are none."""
        refused = {key: reason for key, reason in outcome.refused.items() if key not in set(outcome.delivered)}
        self._db.executemany(
            "INSERT OR IGNORE INTO refused SELECT key, wall, body, ? FROM reading WHERE key = ?",
            [(reason, key) for key, reason in refused.items()],
        )
        moved = self._delete(list(refused))
        if moved:
            self._count("refused", moved)
            self._db.execute(
                "DELETE FROM refused WHERE key NOT IN (SELECT key FROM refused ORDER BY key DESC LIMIT ?)",
                (REFUSED_MAX,),
            )
        delivered = self._delete(outcome.delivered)
        if delivered:
            self._count("delivered", delivered)
            now = to_json(astuple(self._store.clock.now()))
            self._db.execute("INSERT OR REPLACE INTO counter VALUES (?, ?)", (_SETTLED, now))
        self._record_gaps()

    @read
    def stats(self) -> OutboxStats:
        """What it holds, and what became of the others."""
        rows, _, size_bytes = self._totals()
        return outbox_stats(self._db, rows, size_bytes)

    # --- rows ---------------------------------------------------------------------------------------------------------

    def _delete(self, keys: Sequence[int]) -> int:
        """Delete waiting rows; how many there were."""
        if not keys:
            return 0
        these = (json.dumps(list(keys)),)
        rows, gaps, size_bytes = self._db.execute(f"SELECT {_SUMS} FROM reading {_THESE}", these).fetchone()
        self._db.execute(f"DELETE FROM reading {_THESE}", these)
        self._change(-rows, -gaps, -size_bytes)
        return int(rows)

    def _totals(self) -> tuple[int, int, int]:
        """How many wait, how many of them are gap records, and their bytes: counted once, and kept in step."""
        if self._waiting is None:
            self._waiting = count_waiting(self._db)
        return self._waiting

    def _change(self, rows: int, gaps: int, size_bytes: int) -> None:
        if self._waiting is not None:
            before = self._waiting
            self._waiting = (before[0] + rows, before[1] + gaps, before[2] + size_bytes)

    def _items(self, sql: str) -> Iterator[StoredItem]:
        cursor = self._db.execute(sql)
        try:
            for key, size_bytes, mono, wall, boot_id in cursor:
                yield StoredItem(key, size_bytes, self._store.boots.dated(Moment(mono, wall, boot_id)))
        finally:
            cursor.close()

    def _origin(self, boot_id: str) -> int:
        known = self._origins.get(boot_id)
        if known is None:
            names = (boot_id, self._store_id)
            found = self._db.execute("SELECT id FROM origin WHERE boot_id = ? AND store_id = ?", names).fetchone()
            if found is None:
                found = [self._db.execute("INSERT INTO origin (boot_id, store_id) VALUES (?, ?)", names).lastrowid]
            self._origins[boot_id] = known = int(found[0])
        return known


def decode_values(body: str) -> dict[str, float]:
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


def count_waiting(db: sqlite3.Connection) -> tuple[int, int, int]:
    """How many readings wait, how many of them are gap records, and their bytes."""
    rows, gaps, size_bytes = db.execute(f"SELECT {_SUMS} FROM reading").fetchone()
    return rows, gaps, size_bytes


def outbox_stats(db: sqlite3.Connection, rows: int, size_bytes: int) -> OutboxStats:
    """What the outbox holds, and what became of the others; what waits is counted already."""
    dropped = dict(db.execute("SELECT reason, rows FROM gap").fetchall())
    counters = dict(db.execute("SELECT name, value FROM counter").fetchall())
    (refused,) = db.execute("SELECT count(*) FROM refused").fetchone()
    oldest = db.execute(
        "SELECT coalesce(reading.mono + offset_s + within_s / 2, wall) FROM reading JOIN origin ON origin.id = origin "
        f"LEFT JOIN boot USING (boot_id) WHERE priority > {Priority.GAP:d} ORDER BY key LIMIT 1"
    ).fetchone()
    return OutboxStats(
        rows=rows,
        size_bytes=size_bytes,
        oldest_wall_s=oldest and oldest[0],
        refused=refused,
        dropped=sum(dropped.values()),
        accepted=counters.get("accepted", 0) + dropped.get(DropReason.UNSAVED, 0),
        delivered=counters.get("delivered", 0),
    )
