"""The outbox's rows: readings in SQL.

Keys ascend without a gap and are never given twice, though delivered rows are deleted and there is no sequence table:
the row with the highest key is never deleted but only emptied (its ``body`` becomes NULL), until a later row follows
it. So a commit touches one page, and the highest key is also the number of readings ever accepted.

An idempotency key is the id of the opening of the store that took the reading, and the key in it. Each opening has an
id of its own: a state directory that goes back to what it was, or is copied, gives its rows again, but no key twice.

There is no index over priorities either: the lowest key that each may have is remembered and only ascends, so rows of
other priorities are stepped over once.
"""

from __future__ import annotations

import json
import sqlite3
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from agent.adapters.store.boot_rows import BootRows
from agent.adapters.store.counts import GapRows, Totals, read_stats
from agent.adapters.store.failures import Transaction, damage
from agent.adapters.store.room import DiskRoom
from agent.core.gaps import Gap, gaps_of
from agent.core.outbox import (
    RELIEVED_AT,
    Bounds,
    DropReason,
    Shortage,
    StoredItem,
    WhenFull,
    choose_next,
    evict,
    fitting,
    kept_together,
    too_old,
)
from agent.core.values import Moment, OutboxStats, Priority, Reading, SendOutcome, StoredReading
from agent.errors import StorageError

OUTBOX_FULL: Final = (
    "the outbox is full, so this reading was refused and counted: let the service take some, or raise outbox.max_bytes "
    "and outbox.max_rows"
)
"""The old readings stay (``when_full: block``)."""

SET_ASIDE_MAX: Final = 1000
"""Readings refused for good that are kept with their reason; beyond it the oldest go."""

_HELD_SQL: Final = (
    "SELECT key, length(body), mono, wall, boot_id FROM reading JOIN origin ON origin.id = origin "
    "WHERE body IS NOT NULL AND "
)
_OLDEST_SQL: Final = f"{_HELD_SQL} key >= ? AND priority >= 0 ORDER BY key"
_NEWEST_SQL: Final = f"{_HELD_SQL} key >= ? AND priority >= 0 ORDER BY key DESC"
_QUEUE_SQL: Final = f"{_HELD_SQL} key >= ? AND priority = ? ORDER BY key"
_WAITING: Final = "WHERE key IN (SELECT value FROM json_each(?)) AND body IS NOT NULL"
_READ_SQL: Final = (
    "SELECT key, store_id, body, mono, wall, boot_id, priority FROM reading JOIN origin ON origin.id = origin "  # noqa: S608
    + _WAITING
)
# A transaction must stay small; what a bound that was just lowered makes too much goes with the commits that follow.
_GO_AT_ONCE: Final = 2_000
_ROUNDS_MAX: Final = 50
# The wall clock was set: ages across boots are others now.
_CLOCK_STEP_S: Final = 30.0
_TRIED_MAX: Final = 4096
_SETTLED: Final = "settled_at"
_UNSAVED: Final = "unsaved"
# So few of what waits are compared with what the service has.
_COMPARED_MAX: Final = 100


@dataclass(frozen=True, slots=True)
class EncodedReading:
    """A reading on its way into the store, with its JSON text."""

    at: Moment
    body: str
    priority: Priority = Priority.NORMAL


def encode_reading(reading: Reading) -> EncodedReading:
    """The reading with its JSON text.

    Raises:
        ValueError: a value is not a finite number.
    """
    body = json.dumps(reading.values, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return EncodedReading(reading.at, body, reading.priority)


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


@dataclass(frozen=True, slots=True)
class FoundOutbox:
    """The outbox as an earlier process left it.

    Attributes:
        used_at: when it last took or gave a reading; None when it never did.
        waiting: the values of the readings that waited; None when they were too many to be compared.
    """

    used_at: Moment | None
    waiting: tuple[dict[str, float], ...] | None


class OutboxRows:
    """The :class:`~agent.ports.Outbox` over one connection.

    What it remembers of the rows between two calls follows from them: after a rollback :meth:`forget_memory` makes it
    read them anew, after a commit :meth:`committed` is called.

    Args:
        connection: the store's.
        bounds: how much may wait.
        store_id: of this opening of the file, part of the idempotency keys that it gives.
        room: on the disk.
        boots: what is known of the time that rows are from; every decision goes by that and by no wall clock.
        transaction: the store's.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        bounds: Bounds,
        store_id: str,
        *,
        room: DiskRoom,
        boots: BootRows,
        transaction: Transaction,
    ) -> None:
        self._db = connection
        self._transaction = transaction
        self._boots = boots
        self._bounds = bounds
        self._store_id = store_id
        self._room = room
        self._gaps = GapRows(connection)
        # How often each was handed out in this process; writing that down at each try would wear the flash.
        self._tried: OrderedDict[int, int] = OrderedDict()
        self._totals: Totals | None = None
        self._origins: dict[str, int] = {}
        # Delivered, but their deletion waits for the next commit: key -> size.
        self._hidden: dict[int, int] = {}
        self._deleted: list[int] = []
        # Handed out last: the service may have them already, and only the same ones together are known as such.
        self._in_flight: frozenset[int] = frozenset()
        self._age_due_s = self._age_spare_s = 0.0
        self._age_clock: tuple[str, float] = ("", 0.0)
        self._age_learned = boots.learned

    @property
    def hidden(self) -> tuple[int, ...]:
        """Delivered readings whose deletion waits for the next commit."""
        return tuple(self._hidden)

    def hide(self, keys: Iterable[int]) -> None:
        """Treat these as delivered without writing; :meth:`settle` them with the next commit.

        Until then a crash brings them back, so their idempotency keys must protect from a second storing.
        """
        self._hidden.update((key, size_bytes) for key, size_bytes, _ in self._sizes(keys))

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
        self._age_due_s = 0.0
        self._gaps.forget_memory()

    def found(self) -> FoundOutbox:
        """The outbox as the earlier process left it; call it before anything is put or settled."""
        moments = [
            Moment(*row)
            for row in self._db.execute(
                "SELECT mono, wall, boot_id FROM reading JOIN origin ON origin.id = origin ORDER BY key DESC LIMIT 1"
            )
        ]
        settled = self._db.execute("SELECT value FROM meta WHERE name = ?", (_SETTLED,)).fetchone()
        if settled is not None:
            moments.append(Moment(*json.loads(settled[0])))
        rows = self._db.execute("SELECT body FROM reading WHERE body IS NOT NULL LIMIT ?", (_COMPARED_MAX + 1,))
        bodies = [str(body) for (body,) in rows]
        waiting = tuple(decode_values(body) for body in bodies) if len(bodies) <= _COMPARED_MAX else None
        used_at = max((self._boots.dated(each) for each in moments), key=lambda each: each.wall_s, default=None)
        return FoundOutbox(used_at, waiting)

    def highest_key(self) -> int:
        """The highest key ever given; 0 for none."""
        (highest,) = self._db.execute("SELECT coalesce(max(key), 0) FROM reading").fetchone()
        return int(highest)

    def take_back(self, last_key: int) -> None:
        """Delete the readings above this key, which are not known to be stored and are to be put again.

        A commit whose sync failed is reported as failed, and its readings stay in memory; but its pages are in the log,
        and a connection that reads the log anew finds it whole.
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

    # --- taking in ----------------------------------------------------------------------------------------------------

    def put(self, reading: Reading, *, wait: bool = False) -> None:
        """Accept one reading. With ``wait`` it returns after the commit, else within the grouping window.

        See :class:`agent.ports.Outbox`. Raises ValueError for a value that is not finite.
        """
        if self.accept([encode_reading(reading)]):
            raise StorageError(OUTBOX_FULL)

    def accept(self, drafts: Sequence[EncodedReading]) -> int:
        """Add readings in this order, and drop what is beyond a bound then; how many were refused instead."""
        with self._transaction():
            if not drafts:
                return 0
            now = self._boots.now()
            taken: Sequence[EncodedReading] = drafts
            if self._bounds.when_full is WhenFull.BLOCK:
                self._drop_too_old(now)
                taken = drafts[: fitting([len(draft.body) for draft in drafts], self._shortage())]
                held = [StoredItem(0, len(draft.body), draft.at) for draft in drafts[len(taken) :]]
                self._note((each, DropReason.BLOCKED) for each in held)
            self._insert(taken)
            self.enforce(now, len(taken))
            self._record_gaps()
            return len(drafts) - len(taken)

    def _insert(self, drafts: Sequence[EncodedReading]) -> None:
        if not drafts:
            return
        totals = self._count()
        self._db.executemany(
            "INSERT INTO reading (key, origin, mono, wall, body, priority) VALUES (?, ?, ?, ?, ?, ?)",
            [
                (key, self._origin(draft.at.boot_id), draft.at.monotonic_s, draft.at.wall_s, draft.body, draft.priority)
                for key, draft in enumerate(drafts, totals.last_key + 1)
            ],
        )
        self._db.execute("DELETE FROM reading WHERE key = ? AND body IS NULL", (totals.last_key,))
        for draft in drafts:
            totals.last_key += 1
            totals.size_bytes += len(draft.body)
            if not totals.rows[draft.priority]:
                totals.first[draft.priority] = totals.last_key
            totals.rows[draft.priority] += 1

    # --- giving way ---------------------------------------------------------------------------------------------------

    def enforce(self, now: Moment, incoming: int = 0) -> int:
        """Drop what is beyond a bound; how many."""
        limit = max(_GO_AT_ONCE, 4 * incoming)
        dropped = self._drop_too_old(now)
        if self._bounds.when_full is WhenFull.BLOCK:
            return dropped
        for _ in range(_ROUNDS_MAX):
            # Pages become free only when all of their rows are gone, so the disk has the last word.
            shortage = self._shortage()
            if not shortage.exists or dropped >= limit:
                break
            gone = self._choose_gone(shortage, limit)
            if not gone:
                break
            self._drop(gone)
            dropped += len(gone)
        return dropped

    def _shortage(self) -> Shortage:
        totals = self._count()
        size_bytes, reason = self._room.excess()
        return Shortage(totals.waiting - totals.rows[Priority.GAP] - self._bounds.max_rows, size_bytes, reason)

    def _choose_gone(self, shortage: Shortage, limit: int) -> list[tuple[StoredItem, DropReason]]:
        lowest_first = sorted(set(Priority) - {Priority.GAP}, reverse=True)
        return evict((self._free(self._queue(rank)) for rank in lowest_first), shortage, limit)

    def _drop_too_old(self, now: Moment) -> int:
        """Drop for age, where that may have something to do since it was last looked at."""
        boot_id, offset_s = self._age_clock
        was_set = boot_id != now.boot_id or abs(now.wall_s - now.monotonic_s - offset_s) > _CLOCK_STEP_S
        is_dated_anew = self._age_learned != self._boots.learned
        if now.monotonic_s < self._age_due_s and not was_set and not is_dated_anew:
            return 0
        first = min(self._count().first.values())
        gone, due_in_s = too_old(self._held(_OLDEST_SQL, first), self._bounds.max_age_s, now, _GO_AT_ONCE)
        self._drop([(held, DropReason.AGE) for held in gone])
        self._age_due_s = now.monotonic_s + due_in_s
        self._age_clock = (now.boot_id, now.wall_s - now.monotonic_s)
        self._age_learned = self._boots.learned
        self._age_spare_s = due_in_s
        return len(gone)

    def _drop(self, gone: Sequence[tuple[StoredItem, DropReason]]) -> None:
        self._delete([held.key for held, _ in gone])
        self._note(gone)

    # --- gaps ---------------------------------------------------------------------------------------------------------

    def note_gap(self, gap: Gap) -> None:
        """Count readings that were dropped before they could be stored."""
        with self._transaction():
            self._gaps.note(gap)

    def note_unsaved(self, gap: Gap | None) -> None:
        """Write down what is only in memory; None when all of it is stored. It counts should this process end."""
        with self._transaction():
            if gap is None:
                self._db.execute("DELETE FROM meta WHERE name = ?", (_UNSAVED,))
            else:
                moments = (value for at in (gap.since, gap.until) for value in (at.monotonic_s, at.wall_s, at.boot_id))
                self._db.execute(
                    "INSERT OR REPLACE INTO meta VALUES (?, ?)", (_UNSAVED, json.dumps([gap.rows, *moments]))
                )

    def count_unsaved(self) -> int:
        """Count what an earlier process had only in memory when it ended as dropped; how many readings."""
        row = self._db.execute("SELECT value FROM meta WHERE name = ?", (_UNSAVED,)).fetchone()
        if row is None:
            return 0
        rows, *moments = json.loads(row[0])
        with self._transaction():
            self._gaps.note(Gap(DropReason.UNSAVED, rows, Moment(*moments[:3]), Moment(*moments[3:])))
            self._record_gaps()
            self.note_unsaved(None)
        return int(rows)

    def _note(self, dropped: Iterable[tuple[StoredItem, DropReason]]) -> None:
        for gap in gaps_of(dropped):
            self._gaps.note(gap)

    def _record_gaps(self) -> None:
        """Turn the episodes that are over into records that wait like readings, in the same transaction."""
        over = [
            gap for gap in self._gaps.open().values() if gap.is_over(pressure_is_over=self._has_room_again(gap.reason))
        ]
        for gap in over:
            self._gaps.close(gap.reason)
        self._insert([encode_reading(gap.record()) for gap in over])

    def _has_room_again(self, reason: DropReason) -> bool:
        if reason is DropReason.UNSAVED:
            return True
        if reason is DropReason.AGE:
            return self._age_spare_s > (1.0 - RELIEVED_AT) * self._bounds.max_age_s
        totals = self._count()
        return totals.waiting < RELIEVED_AT * self._bounds.max_rows and self._room.is_relieved()

    def forget_unused_origins(self) -> None:
        """Delete the boots that no reading is from any more."""
        self._origins.clear()
        self._db.execute(
            "DELETE FROM origin WHERE id NOT IN (SELECT origin FROM reading UNION SELECT origin FROM set_aside)"
        )

    # --- handing out --------------------------------------------------------------------------------------------------

    def next_batch(self, limit: int) -> list[StoredReading]:
        """What to send next: live first, then backlog by priority, oldest first in each."""
        first = min(self._count().first.values())
        queues = (self._shown(self._queue(rank)) for rank in Priority)
        newest = self._shown(self._held(_NEWEST_SQL, first))
        return self._hand_out(choose_next(queues, newest, self._boots.now(), limit))

    def again(self, keys: Sequence[int]) -> list[StoredReading]:
        """These once more, in this order: those of them that still wait. See :class:`agent.ports.Outbox`."""
        return self._hand_out([key for key in keys if key not in self._hidden])

    def _hand_out(self, keys: Sequence[int]) -> list[StoredReading]:
        """Those of these that wait, in this order; each try is counted."""
        rows = {row[0]: row for row in self._db.execute(_READ_SQL, (json.dumps(keys),))}
        batch: list[StoredReading] = []
        for number in keys:
            if number not in rows:
                continue
            key, store_id, body, mono, wall, boot_id, rank = rows[number]
            reading = Reading(decode_values(body), Moment(mono, wall, boot_id), Priority(rank))
            tries = self._tried.pop(key, 0)
            self._tried[key] = tries + 1
            batch.append(StoredReading(key, f"{store_id}-{key}", reading, tries))
        while len(self._tried) > max(_TRIED_MAX, len(batch)):
            self._tried.popitem(last=False)
        self._in_flight = frozenset(rows)
        return batch

    def settle(self, outcome: SendOutcome) -> None:
        """Delete what was delivered; set aside what was refused, with the reason.

        See :class:`agent.ports.Outbox`; unknown keys are left alone.
        """
        with self._transaction():
            refused = {key: reason for key, reason in outcome.refused.items() if key not in set(outcome.delivered)}
            self._db.executemany(
                "INSERT OR IGNORE INTO set_aside (key, origin, mono, wall, body, reason, priority) "
                "SELECT key, origin, mono, wall, body, ?, priority FROM reading WHERE key = ? AND body IS NOT NULL",
                [(reason, key) for key, reason in refused.items()],
            )
            moved = self._delete(list(refused))
            if moved:
                self._bump("set_aside", moved)
                self._db.execute(
                    "DELETE FROM set_aside WHERE key NOT IN (SELECT key FROM set_aside ORDER BY key DESC LIMIT ?)",
                    (SET_ASIDE_MAX,),
                )
            if self._delete(outcome.delivered):
                now = self._boots.clock.now()
                self._db.execute(
                    "INSERT OR REPLACE INTO meta VALUES (?, ?)",
                    (_SETTLED, json.dumps([now.monotonic_s, now.wall_s, now.boot_id])),
                )
            self._record_gaps()

    def stats(self) -> OutboxStats:
        """What it holds. See :class:`agent.ports.Outbox`; what only waits for its deletion counts as delivered."""
        totals = self._count()
        oldest = next(self._shown(self._held(_OLDEST_SQL, min(totals.first.values()))), None)
        # 0 stands for a time that is not known.
        oldest_wall_s = (oldest.at.wall_s or None) if oldest else None
        stored = read_stats(self._db, totals.waiting, totals.size_bytes, totals.last_key, oldest_wall_s)
        hidden = len(self._hidden)
        return replace(
            stored,
            rows=stored.rows - hidden,
            size_bytes=stored.size_bytes - sum(self._hidden.values()),
            delivered=stored.delivered + hidden,
        )

    def _delete(self, keys: Sequence[int]) -> int:
        """Delete waiting rows, the highest key ever given becoming a mark instead; how many there were."""
        found = self._sizes(keys) if keys else []
        if not found:
            return 0
        totals = self._count()
        gone = [key for key, _, _ in found]
        if totals.last_key in gone:
            self._db.execute("UPDATE reading SET body = NULL WHERE key = ?", (totals.last_key,))
        self._db.execute(f"DELETE FROM reading {_WAITING}", (json.dumps(gone),))  # noqa: S608
        for key, size_bytes, rank in found:
            totals.rows[Priority(rank)] -= 1
            totals.size_bytes -= size_bytes
            self._tried.pop(key, None)
        self._deleted += gone
        return len(found)

    def _sizes(self, keys: Iterable[int]) -> list[tuple[int, int, int]]:
        """Key, size in bytes and priority of those of these that wait."""
        sql = f"SELECT key, length(body), priority FROM reading {_WAITING}"  # noqa: S608
        return self._db.execute(sql, (json.dumps(list(keys)),)).fetchall()

    def _queue(self, rank: Priority) -> Iterator[StoredItem]:
        """The waiting rows of a priority, from the old end."""
        totals = self._count()
        if not totals.rows[rank]:
            return
        for number, held in enumerate(self._held(_QUEUE_SQL, totals.first[rank], rank)):
            if not number:
                totals.first[rank] = held.key
            yield held

    def _shown(self, rows: Iterable[StoredItem]) -> Iterator[StoredItem]:
        return (held for held in rows if held.key not in self._hidden)

    def _free(self, rows: Iterable[StoredItem]) -> Iterator[StoredItem]:
        """Without those that may be at the service already: another selection of them would be another batch."""
        kept = kept_together(self._in_flight, self._count().waiting)
        return (held for held in rows if held.key not in kept)

    def _held(self, sql: str, *arguments: int) -> Iterator[StoredItem]:
        cursor = self._db.execute(sql, arguments)
        try:
            for key, size_bytes, mono, wall, boot_id in cursor:
                yield StoredItem(key, size_bytes, self._boots.dated(Moment(mono, wall, boot_id)))
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

    def _count(self) -> Totals:
        if self._totals is None:
            self._totals = Totals(self._db)
        return self._totals

    def _bump(self, name: str, by: int) -> None:
        self._db.execute(
            "INSERT INTO meta VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = value + excluded.value", (name, by)
        )
