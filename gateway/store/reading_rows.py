"""Readings on their way to the service as rows. Every method runs inside the caller's transaction."""

from __future__ import annotations

import json
import math
import sqlite3
import uuid
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from agent.core.values import JsonObject
from agent.wire.json_text import encode_json
from agent.wire.limits import BATCH_MAX, BODY_BYTES
from agent.wire.times import to_rfc3339
from gateway.ports import NewReading
from gateway.store.totals import Counters, Usage
from gateway.store.values import Batch

REMEMBER_KEYS_S: Final = 86_400.0
"""A device may hand a reading in again under its key for so long."""

SET_ASIDE_MAX: Final = 10_000
"""Refused readings and results that are kept with their reason; beyond it the oldest go."""

Row = tuple[int, str, float, str, float]
"""A row of ``reading``."""

_SELECT: Final = "SELECT seq, device_id, recorded_at, body, taken_wall_s FROM reading"
# Brackets and commas of an array, with room to spare.
_ARRAY_BYTES: Final = 4096


class ReadingRows:
    """The outbox of all devices' readings.

    Args:
        connection: of the store.
        counters: where what happens is counted.
        usage: how much waits and may wait.
    """

    def __init__(self, connection: sqlite3.Connection, counters: Counters, usage: Usage) -> None:
        self._db = connection
        self._counters = counters
        self._usage = usage

    def take(self, device_id: str, readings: Sequence[NewReading], now_s: float) -> int:
        """Keep what is new; how many were.

        Raises:
            StoreFull: a bound is reached; none was kept.
        """
        new = 0
        for reading in readings:
            if reading.key is not None and not self._is_first(device_id, reading.key, now_s):
                self._counters.add("readings_repeated", 1)
                continue
            text = encode_json(dict(reading.values)).decode()
            self._usage.make_room(readings=1, size_bytes=len(text))
            self._db.execute(
                "INSERT INTO reading (device_id, recorded_at, body, taken_wall_s) VALUES (?, ?, ?, ?)",
                (device_id, now_s if reading.recorded_at is None else reading.recorded_at, text, now_s),
            )
            new += 1
        self._counters.add("readings_taken", new)
        return new

    def _is_first(self, device_id: str, key: str, now_s: float) -> bool:
        cursor = self._db.execute("INSERT OR IGNORE INTO taken VALUES (?, ?, ?)", (device_id, key, now_s))
        return cursor.rowcount == 1

    def next_batch(
        self,
        limit: int,
        now_s: float,
        but_not: Collection[int] = (),
    ) -> Batch | None:
        """What goes to the service as the next request; None when nothing waits.

        A batch that is there already goes first, the same as before. Else the oldest readings become one.

        Args:
            limit: how many readings one request carries.
            now_s: epoch seconds.
            but_not: ids of batches that are being sent now.
        """
        waiting = self._waiting_batch(but_not, now_s)
        if waiting is not None:
            return waiting
        rows = self._db.execute(f"{_SELECT} ORDER BY seq LIMIT ?", (limit,)).fetchall()
        if not rows:
            return self._waiting_batch(but_not, math.inf)
        return self._together(rows)

    def _waiting_batch(self, but_not: Collection[int], now_s: float) -> Batch | None:
        found = self._db.execute(
            "SELECT id, key, body FROM batch WHERE after_wall_s <= ? ORDER BY after_wall_s, id LIMIT ?",
            (now_s, len(but_not) + 1),
        )
        for row in found:
            if row[0] not in but_not:
                return Batch(row[0], row[1], tuple(json.loads(row[2])))
        return None

    def _together(self, rows: Sequence[Row]) -> Batch:
        """As many of these readings as one request takes."""
        bodies: list[JsonObject] = []
        size = _ARRAY_BYTES
        for _, device_id, recorded_at, text, _ in rows:
            body = _body(device_id, json.loads(text), recorded_at)
            size += len(encode_json(body)) + 1
            if bodies and (size > BODY_BYTES or len(bodies) == BATCH_MAX):
                break
            bodies.append(body)
        return self._move(rows[: len(bodies)], bodies)

    def _move(self, rows: Sequence[Row], bodies: Sequence[JsonObject]) -> Batch:
        """Put readings into a batch."""
        self._forget(rows)
        return self._insert(bodies, len(rows), sum(len(row[3]) for row in rows), min(row[4] for row in rows))

    def _forget(self, rows: Sequence[Row]) -> None:
        self._db.executemany("DELETE FROM reading WHERE seq = ?", [(row[0],) for row in rows])

    def _insert(self, bodies: Sequence[JsonObject], rows: int, size_bytes: int, oldest_s: float) -> Batch:
        key = uuid.uuid4().hex
        cursor = self._db.execute(
            "INSERT INTO batch (key, body, rows, size_bytes, oldest_wall_s) VALUES (?, ?, ?, ?, ?)",
            (key, encode_json(list(bodies)).decode(), rows, size_bytes, oldest_s),
        )
        return Batch(int(cursor.lastrowid or 0), key, tuple(bodies))

    def batch_stored(self, batch: Batch, refused: Mapping[int, str], now_s: float) -> None:
        """The service has answered for the whole batch: what it refused, by index, is set aside with the reason."""
        for index, reason in refused.items():
            item = batch.items[index]
            self._db.execute(
                "INSERT INTO set_aside (kind, device_id, body, reason, wall_s) VALUES ('reading', ?, ?, ?, ?)",
                (item.get("device_id", ""), encode_json(item).decode(), reason, now_s),
            )
        rows = self._delete(batch)
        self._counters.add("readings_refused", len(refused))
        self._counters.add("readings_forwarded", max(0, rows - len(refused)))

    def defer(self, batch: Batch, until_wall_s: float) -> None:
        """Others go first: until then this one is tried, under the same key, only when nothing else waits."""
        self._db.execute("UPDATE batch SET after_wall_s = ? WHERE id = ?", (until_wall_s, batch.id))

    def split(self, batch: Batch) -> None:
        """The service refused it as a whole and stored none of it: two halves go instead, so that one bad reading
        ends up alone.
        """
        row = self._db.execute("SELECT rows, size_bytes, oldest_wall_s FROM batch WHERE id = ?", (batch.id,)).fetchone()
        if row is None:
            return
        rows, size, oldest_s = row
        self._db.execute("DELETE FROM batch WHERE id = ?", (batch.id,))
        middle = len(batch.items) // 2
        self._insert(batch.items[:middle], rows // 2, size // 2, oldest_s)
        self._insert(batch.items[middle:], rows - rows // 2, size - size // 2, oldest_s)

    def _delete(self, batch: Batch) -> int:
        row = self._db.execute("SELECT rows, size_bytes FROM batch WHERE id = ?", (batch.id,)).fetchone()
        if row is None:
            return 0
        self._db.execute("DELETE FROM batch WHERE id = ?", (batch.id,))
        self._usage.free(readings=row[0], size_bytes=row[1])
        return int(row[0])

    def tidy(self, now_s: float) -> int:
        """Drop what is too old, forget old keys and refusals beyond the bound; how many readings were dropped."""
        self._db.execute("DELETE FROM set_aside WHERE seq <= (SELECT max(seq) FROM set_aside) - ?", (SET_ASIDE_MAX,))
        self._db.execute("DELETE FROM taken WHERE wall_s < ?", (now_s - REMEMBER_KEYS_S,))
        before_s = now_s - self._usage.bounds.max_age_s
        loose, loose_bytes = self._db.execute(
            "SELECT count(*), coalesce(sum(length(body)), 0) FROM reading WHERE taken_wall_s < ?", (before_s,)
        ).fetchone()
        bound, bound_bytes = self._db.execute(
            "SELECT coalesce(sum(rows), 0), coalesce(sum(size_bytes), 0) FROM batch WHERE oldest_wall_s < ?",
            (before_s,),
        ).fetchone()
        dropped = int(loose + bound)
        if dropped:
            self._db.execute("DELETE FROM reading WHERE taken_wall_s < ?", (before_s,))
            self._db.execute("DELETE FROM batch WHERE oldest_wall_s < ?", (before_s,))
            self._usage.free(readings=dropped, size_bytes=int(loose_bytes + bound_bytes))
        self._counters.add("readings_dropped_for_age", dropped)
        return dropped

    def oldest_wall_s(self) -> float | None:
        """When the oldest waiting reading was taken."""
        (oldest_s,) = self._db.execute(
            "SELECT min(wall_s) FROM (SELECT min(oldest_wall_s) AS wall_s FROM batch UNION ALL"
            " SELECT taken_wall_s FROM reading WHERE seq = (SELECT min(seq) FROM reading))"
        ).fetchone()
        return None if oldest_s is None else float(oldest_s)

    def count_set_aside(self) -> int:
        """Readings and results that the service refused for good."""
        (count,) = self._db.execute("SELECT count(*) FROM set_aside").fetchone()
        return int(count)


def _body(device_id: str, values: Mapping[str, float], recorded_at: float) -> JsonObject:
    """As :class:`agent.wire.sensor_data.PostSensorData` has it."""
    return {"device_id": device_id, "sensor_data": dict(values), "recorded_at": to_rfc3339(recorded_at)}
