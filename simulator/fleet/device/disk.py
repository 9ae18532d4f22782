"""A virtual device's disk: journal and outbox in memory, kept while the device is off.

The moves and the eviction are the core's own (:mod:`agent.core.commands`, :mod:`agent.core.outbox`). What most devices
do not have at most times (a command, a reading that waits) takes no memory: containers are made when something comes,
and go when it is gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from types import MappingProxyType
from typing import Final

from agent.core.commands import OVER_STATES, finish_entry, report_entry, start_entry, undeliverable_entry
from agent.core.outbox import ROW_BYTES, Bounds, StoredItem, choose_next, evict, is_live, too_old
from agent.core.timekeeping import age_s
from agent.core.values import CommandState, JournalEntry, Moment, Outcome
from simulator.fleet.device.http_messages import Reading, Request

_BOUNDS: Final = Bounds(max_rows=10_000, max_bytes=1024 * 1024)
_NO_ENTRIES: Final[Mapping[str, JournalEntry]] = MappingProxyType({})
_NO_SETTINGS: Final[Mapping[str, str]] = MappingProxyType({})
_MILLISECONDS_KEPT: Final = 16


class MemoryJournal:
    """The journal of a device: its commands and their states, in memory.

    Attributes:
        entries: by the command's id; None while there is none: nothing to run, to report or to forget.
    """

    __slots__ = ("_contacted", "_settings", "entries")

    def __init__(self) -> None:
        self.entries: dict[str, JournalEntry] | None = None
        self._contacted = False
        self._settings: dict[str, str] | None = None

    @property
    def is_empty(self) -> bool:
        """True until the first list was admitted."""
        return not self._contacted

    @property
    def settings(self) -> Mapping[str, str]:
        """What was stored with :meth:`put_setting`."""
        return _NO_SETTINGS if self._settings is None else self._settings

    def put_setting(self, name: str, value: str) -> None:
        """Store a setting of the device."""
        self._settings = {**self.settings, name: value}

    def known(self, command_ids: Iterable[str]) -> dict[str, JournalEntry]:
        """The entries with these ids."""
        entries = self._known
        return {name: entries[name] for name in command_ids if name in entries}

    def admit(self, entries: Sequence[JournalEntry]) -> None:
        """Add new entries; an id that is there already is left as it is."""
        self._contacted = True
        for entry in entries:
            if self.entries is None:
                self.entries = {}
            self.entries.setdefault(entry.command.id, entry)

    def start(self, command_id: str, at: Moment) -> JournalEntry:
        """``received`` -> ``started``; the entry as it is now."""
        return self._put(start_entry(self._known[command_id], at))

    def finish(self, command_id: str, outcome: Outcome, at: Moment) -> JournalEntry:
        """-> ``finished``; the entry as it is now."""
        return self._put(finish_entry(self._known[command_id], outcome, at))

    def reported(self, command_id: str) -> JournalEntry:
        """``finished`` -> ``reported``; the entry as it is now."""
        return self._put(report_entry(self._known[command_id]))

    def undeliverable(self, command_id: str, reason: str) -> JournalEntry:
        """``finished`` -> ``undeliverable``: nothing takes its result; the entry as it is now."""
        return self._put(undeliverable_entry(self._known[command_id], reason))

    def in_state(self, state: CommandState) -> list[JournalEntry]:
        """Entries in this state, in the order of their arrival."""
        return [entry for entry in self._known.values() if entry.state is state]

    def first_finished(self) -> JournalEntry | None:
        """The oldest entry whose result waits to be reported."""
        if not self.entries:
            return None
        finished = CommandState.FINISHED
        return next((entry for entry in self.entries.values() if entry.state is finished), None)

    def forget(self, listed_ids: Iterable[str]) -> int:
        """Delete what is over and no longer listed; how many."""
        if not self.entries:
            return 0
        listed = set(listed_ids)
        gone = [name for name, entry in self.entries.items() if entry.state in OVER_STATES and name not in listed]
        for name in gone:
            del self.entries[name]
        if not self.entries:
            self.entries = None
        return len(gone)

    def forget_before(self, monotonic_s: float) -> None:
        """Delete what is over and came before this instant: for commands that are pushed, and never listed."""
        if self.entries:
            self.forget([name for name, entry in self.entries.items() if entry.received.monotonic_s >= monotonic_s])

    @property
    def _known(self) -> Mapping[str, JournalEntry]:
        return _NO_ENTRIES if self.entries is None else self.entries

    def _put(self, entry: JournalEntry) -> JournalEntry:
        if self.entries is None:
            raise AssertionError("an entry moves that was never admitted")
        self.entries[entry.command.id] = entry
        return entry


class Row(Reading):
    """A reading that waits.

    Its key is ascending in the order of acceptance, from 1 on, and never used again: the reading's sequence number. It
    gets its time once it is first sent.

    Attributes:
        digest: of its values, for the audit.
        at: when it was read.
        due_s: when it was to be read, on the monotonic clock.
    """

    __slots__ = ("at", "digest", "due_s")

    def __init__(self, key: int, text: str, digest: int, at: Moment, due_s: float) -> None:
        self.key = key
        self.text = text
        self.recorded_ms = None
        self.digest = digest
        self.at = at
        self.due_s = due_s


class MemoryOutbox:
    """The readings that wait.

    Args:
        bounds: how much may wait.

    Attributes:
        rows: by key; None while nothing waits.
        next_key: of the reading that is put next.
    """

    __slots__ = ("_bounds", "_dated", "_size_bytes", "next_key", "rows")

    def __init__(self, bounds: Bounds = _BOUNDS) -> None:
        self._bounds = bounds
        self.rows: dict[int, Row] | None = None
        self._size_bytes = 0
        self.next_key = 1
        self._dated: list[int] | None = None

    def __len__(self) -> int:
        return 0 if self.rows is None else len(self.rows)

    def put(self, text: str, digest: int, at: Moment, due_s: float) -> Sequence[float]:
        """Accept one reading; older ones give way at a bound. Arguments as for :class:`Row`.

        Returns:
            When those that gave way were taken, on the monotonic clock.
        """
        key = self.next_key
        self.next_key = key + 1
        row = Row(key, text, digest, at, due_s)
        rows = self.rows
        if rows is None:
            self.rows = {key: row}
            self._size_bytes = len(text)
            return ()
        rows[key] = row
        dropped: list[float] = []
        self._size_bytes += len(text)
        age = age_s(next(iter(rows.values())).at, at)
        # The core's own first questions, before anything is made for it.
        if age is None or age > self._bounds.max_age_s:
            dropped += self._drop(too_old(map(_held, rows.values()), self._bounds.max_age_s, at, len(rows))[0])
        used_bytes = self._size_bytes + ROW_BYTES * len(rows)
        if len(rows) > self._bounds.max_rows or used_bytes > self._bounds.max_bytes:
            too_many, too_large = len(rows) - self._bounds.max_rows, used_bytes - self._bounds.max_bytes
            gone = evict([map(_held, rows.values())], too_many, too_large, len(rows))
            dropped += self._drop([held for held, _ in gone])
        return dropped

    def next_batch(self, limit: int, now: Moment) -> list[Row]:
        """What to send next: live first, then backlog, oldest first."""
        rows = self.rows
        if not rows:
            return []
        oldest = next(iter(rows.values()))
        # The core's own first question, before anything is made for it: where the oldest is live all are.
        if is_live(oldest.at, now):
            return [oldest] if limit == 1 or len(rows) == 1 else list(islice(rows.values(), limit))
        queue = map(_held, islice(rows.values(), limit))
        newest = map(_held, reversed(rows.values()))
        return [rows[key] for key in choose_next([queue], newest, now, limit)]

    def date(self, row: Row, recorded_ms: int) -> int:
        """Give a reading the time that it carries from now on; no two of the latest of one device carry the same."""
        dated = self._dated
        if dated is None:
            self._dated = dated = []
        while recorded_ms in dated:
            recorded_ms += 1
        dated.append(recorded_ms)
        del dated[:-_MILLISECONDS_KEPT]
        row.recorded_ms = recorded_ms
        return recorded_ms

    def taken_s(self) -> list[float]:
        """When the readings that wait were taken, on the monotonic clock."""
        return [row.at.monotonic_s for row in (self.rows or {}).values()]

    def remove(self, keys: Iterable[int]) -> list[float]:
        """These need not be sent any more; when those of them that still waited were taken, on the monotonic clock."""
        rows = self.rows
        if rows is None:
            return []
        taken_s = []
        for key in keys:
            row = rows.pop(key, None)
            if row is not None:
                self._size_bytes -= len(row.text)
                taken_s.append(row.at.monotonic_s)
        if not rows:
            self.rows = None
        return taken_s

    def _drop(self, gone: Iterable[StoredItem]) -> list[float]:
        return self.remove([held.key for held in gone])


def _held(row: Row) -> StoredItem:
    return StoredItem(row.key, len(row.text), row.at)


@dataclass(slots=True)
class Disk:
    """What survives the power going off.

    Attributes:
        in_flight: the readings that were sent and never answered: they go again in the same request, byte for byte, so
            that a service with idempotency keys recognises it. Its ``attempt`` is that of the next sending.
    """

    journal: MemoryJournal = field(default_factory=MemoryJournal)
    outbox: MemoryOutbox = field(default_factory=MemoryOutbox)
    in_flight: Request | None = None
