"""A virtual device's disk: journal and outbox in memory, kept while the device is off.

The moves and the eviction are the core's own (:mod:`agent.core.commands`, :mod:`agent.core.outbox`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from agent.core.commands import OVER_STATES
from agent.core.outbox import ROW_BYTES, Bounds, StoredItem, choose_next, evict, is_live, too_old
from agent.core.timekeeping import age_s
from agent.core.values import CommandState, JournalEntry, Moment
from simulator.fleet.device.http_messages import Reading, Request
from simulator.fleet.outcomes import Attempt

_BOUNDS: Final = Bounds(max_rows=10_000, max_bytes=1024 * 1024)
_MILLISECONDS_KEPT: Final = 16


class MemoryJournal:
    """The journal of a device: its commands and their states, in memory.

    Attributes:
        entries: by the command's id, in the order of their arrival.
        is_empty: True until the first list was admitted.
    """

    __slots__ = ("entries", "is_empty")

    def __init__(self) -> None:
        self.entries: dict[str, JournalEntry] = {}
        self.is_empty = True

    def known(self, command_ids: Iterable[str]) -> dict[str, JournalEntry]:
        """The entries with these ids."""
        return {name: self.entries[name] for name in command_ids if name in self.entries}

    def admit(self, entries: Sequence[JournalEntry]) -> None:
        """Add new entries; an id that is there already is left as it is."""
        self.is_empty = False
        for entry in entries:
            self.entries.setdefault(entry.command.id, entry)

    def put(self, entry: JournalEntry) -> JournalEntry:
        """Replace an entry."""
        self.entries[entry.command.id] = entry
        return entry

    def in_state(self, state: CommandState) -> list[JournalEntry]:
        """Entries in this state, in the order of their arrival."""
        return [entry for entry in self.entries.values() if entry.state is state]

    def first_finished(self) -> JournalEntry | None:
        """The oldest entry whose result waits to be reported."""
        finished = CommandState.FINISHED
        return next((entry for entry in self.entries.values() if entry.state is finished), None)

    def forget(self, listed_ids: Iterable[str]) -> None:
        """Delete what is over and no longer listed."""
        listed = set(listed_ids)
        over = [name for name, entry in self.entries.items() if entry.state in OVER_STATES and name not in listed]
        for name in over:
            del self.entries[name]

    def forget_before(self, monotonic_s: float) -> None:
        """Delete what is over and came before this instant: for commands that are pushed, and never listed."""
        self.forget([name for name, entry in self.entries.items() if entry.received.monotonic_s >= monotonic_s])


@dataclass(slots=True, eq=False)
class Row(Reading):
    """A reading that waits.

    Its key is ascending in the order of acceptance, from 1 on, and never used again: the reading's sequence number. It
    gets its time once it is first sent.

    Attributes:
        digest: of its values, for the audit.
        at: when it was read.
        due_s: when it was to be read, on the monotonic clock.
    """

    digest: int = field(kw_only=True)
    at: Moment = field(kw_only=True)
    due_s: float = field(kw_only=True)


class MemoryOutbox:
    """The readings that wait.

    Attributes:
        rows: by key.
        next_key: of the reading that is put next.
    """

    __slots__ = ("_dated", "_size_bytes", "next_key", "rows")

    def __init__(self) -> None:
        self.rows: dict[int, Row] = {}
        self.next_key = 1
        self._size_bytes = 0
        self._dated: deque[int] | None = None

    def put(self, text: str, digest: int, at: Moment, due_s: float) -> Sequence[float]:
        """Store one reading; older ones are dropped at a bound. Arguments as for :class:`Row`.

        Returns:
            When the dropped ones were taken, on the monotonic clock.
        """
        key, rows = self.next_key, self.rows
        self.next_key = key + 1
        rows[key] = Row(key, text, digest=digest, at=at, due_s=due_s)
        self._size_bytes += len(text)
        if len(rows) == 1:
            return ()
        dropped: list[float] = []
        age = age_s(next(iter(rows.values())).at, at)
        # Checked here first as the core would, since calling it needs an object for each row.
        if age is None or age > _BOUNDS.max_age_s:
            old, _ = too_old(map(_held, rows.values()), _BOUNDS.max_age_s, at, len(rows))
            dropped += self.remove([held.key for held in old])
        used_bytes = self._size_bytes + ROW_BYTES * len(rows)
        if len(rows) > _BOUNDS.max_rows or used_bytes > _BOUNDS.max_bytes:
            too_many, too_large = len(rows) - _BOUNDS.max_rows, used_bytes - _BOUNDS.max_bytes
            gone = evict([map(_held, rows.values())], too_many, too_large, len(rows))
            dropped += self.remove([held.key for held, _ in gone])
        return dropped

    def next_batch(self, limit: int, now: Moment) -> list[Row]:
        """What to send next: live first, then backlog, oldest first."""
        rows = self.rows
        if len(rows) <= 1:
            return list(rows.values())
        oldest = next(iter(rows.values()))
        # Checked here first as the core would: where the oldest is live all are.
        if is_live(oldest.at, now):
            return [oldest] if limit == 1 else list(islice(rows.values(), limit))
        queue = map(_held, islice(rows.values(), limit))
        newest = map(_held, reversed(rows.values()))
        return [rows[key] for key in choose_next([queue], newest, now, limit)]

    def free_millisecond(self, epoch_ms: int) -> int:
        """A time for a reading that differs from those of the latest readings of this device."""
        dated = self._dated = self._dated or deque(maxlen=_MILLISECONDS_KEPT)
        while epoch_ms in dated:
            epoch_ms += 1
        dated.append(epoch_ms)
        return epoch_ms

    def taken_s(self) -> list[float]:
        """When the readings that wait were taken, on the monotonic clock."""
        return [row.at.monotonic_s for row in self.rows.values()]

    def remove(self, keys: Iterable[int]) -> list[float]:
        """Remove readings; returns when those that were still there were taken, on the monotonic clock."""
        taken_s = []
        for key in keys:
            row = self.rows.pop(key, None)
            if row is not None:
                self._size_bytes -= len(row.text)
                taken_s.append(row.at.monotonic_s)
        return taken_s


def _held(row: Row) -> StoredItem:
    return StoredItem(row.key, len(row.text), row.at)


@dataclass(slots=True)
class Disk:
    """What survives a loss of power.

    Attributes:
        in_flight: readings that were sent without a final answer. The same request is sent again, byte for byte, so
            that a service with idempotency keys recognises it. Its ``attempt`` is that of the next sending.
        report_sent: the last report that went out without a final answer: its command and status, and what sending it
            again is.
        interval_s: the sensor's interval as a command set it; None where none did.
    """

    journal: MemoryJournal = field(default_factory=MemoryJournal)
    outbox: MemoryOutbox = field(default_factory=MemoryOutbox)
    in_flight: Request | None = None
    report_sent: tuple[str, str, Attempt] = ("", "", Attempt.FIRST)
    interval_s: float | None = None
