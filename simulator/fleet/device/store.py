"""A virtual device's disk: journal and outbox in memory, kept while the device is off.

The moves and the eviction are the core's own (:mod:`agent.core.commands`, :mod:`agent.core.outbox`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from agent.core.commands import OVER_STATES, finish_entry, report_entry, start_entry
from agent.core.outbox import ROW_BYTES, Bounds, Held, Shortage, choose_next, evict, too_old
from agent.core.values import CommandState, JournalEntry, Moment, Outcome, Reading, SendOutcome, StoredReading
from agent.wire.json_text import size_bytes
from simulator.fleet.device.exchange import Ask

_BOUNDS: Final = Bounds(max_rows=10_000, max_bytes=1024 * 1024)


class MemoryJournal:
    """The commands that this device knows."""

    __slots__ = ("_contacted", "_entries", "settings")

    def __init__(self) -> None:
        self._entries: dict[str, JournalEntry] = {}
        self._contacted = False
        self.settings: dict[str, str] = {}

    @property
    def is_empty(self) -> bool:
        """True until the first list was admitted."""
        return not self._contacted

    def known(self, command_ids: Iterable[str]) -> dict[str, JournalEntry]:
        """The entries with these ids."""
        return {name: self._entries[name] for name in command_ids if name in self._entries}

    def admit(self, entries: Sequence[JournalEntry]) -> None:
        """Add new entries; an id that is there already is left as it is."""
        self._contacted = True
        for entry in entries:
            self._entries.setdefault(entry.command.id, entry)

    def start(self, command_id: str, at: Moment) -> JournalEntry:
        """``received`` -> ``started``; the entry as it is now."""
        return self._put(start_entry(self._entries[command_id], at))

    def finish(self, command_id: str, outcome: Outcome, at: Moment) -> JournalEntry:
        """-> ``finished``; the entry as it is now."""
        return self._put(finish_entry(self._entries[command_id], outcome, at))

    def reported(self, command_id: str) -> JournalEntry:
        """``finished`` -> ``reported``; the entry as it is now."""
        return self._put(report_entry(self._entries[command_id]))

    def in_state(self, state: CommandState) -> list[JournalEntry]:
        """Entries in this state, in the order of their arrival."""
        return [entry for entry in self._entries.values() if entry.state is state]

    def forget(self, listed_ids: Iterable[str]) -> int:
        """Delete what is over and no longer listed; how many."""
        listed = set(listed_ids)
        gone = [name for name, entry in self._entries.items() if entry.state in OVER_STATES and name not in listed]
        for name in gone:
            del self._entries[name]
        return len(gone)

    def _put(self, entry: JournalEntry) -> JournalEntry:
        self._entries[entry.command.id] = entry
        return entry


class MemoryOutbox:
    """The readings that wait.

    Args:
        name: begins each idempotency key; unique among all devices and runs that talk to one service.
        bounds: how much may wait.
    """

    __slots__ = ("_bounds", "_name", "_next_key", "_rows", "_size_bytes", "_sizes", "dropped", "set_aside")

    def __init__(self, name: str, bounds: Bounds = _BOUNDS) -> None:
        self._name = name
        self._bounds = bounds
        self._rows: dict[int, StoredReading] = {}
        self._sizes: dict[int, int] = {}
        self._size_bytes = 0
        self._next_key = 1
        self.dropped: list[int] = []
        self.set_aside: dict[int, str] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def put(self, reading: Reading, now: Moment) -> StoredReading:
        """Accept one reading; older ones give way at a bound."""
        key = self._next_key
        self._next_key += 1
        stored = StoredReading(key, f"{self._name}-{key}", reading)
        self._rows[key] = stored
        self._sizes[key] = size_bytes(reading.values)
        self._size_bytes += self._sizes[key]
        gone, _ = too_old(map(self._held, self._rows), self._bounds.max_age_s, now, len(self._rows))
        self._drop(gone)
        used_bytes = self._size_bytes + ROW_BYTES * len(self._rows)
        shortage = Shortage(len(self._rows) - self._bounds.max_rows, used_bytes - self._bounds.max_bytes)
        self._drop([held for held, _ in evict([map(self._held, self._rows)], shortage, len(self._rows))])
        return stored

    def next_batch(self, limit: int, now: Moment) -> list[StoredReading]:
        """What to send next: live first, then backlog, oldest first."""
        oldest = map(self._held, islice(self._rows, limit))
        newest = map(self._held, islice(reversed(self._rows), limit))
        return [self._rows[key] for key in choose_next([oldest], newest, now, limit)]

    def settle(self, outcome: SendOutcome) -> None:
        """Delete what was delivered; set aside what was refused, with the reason."""
        self.set_aside.update(outcome.refused)
        for key in (*outcome.delivered, *outcome.refused):
            self._remove(key)

    def _drop(self, gone: Iterable[Held]) -> None:
        for held in gone:
            self._remove(held.key)
            self.dropped.append(held.key)

    def _held(self, key: int) -> Held:
        return Held(key, self._sizes[key], self._rows[key].reading.at)

    def _remove(self, key: int) -> None:
        if self._rows.pop(key, None) is not None:
            self._size_bytes -= self._sizes.pop(key)


@dataclass(slots=True)
class Disk:
    """What survives the power going off.

    Attributes:
        in_flight: the readings that were sent and never answered: they go again in the same request, byte for byte, so
            that a service with idempotency keys can tell that it is the same one.
    """

    journal: MemoryJournal
    outbox: MemoryOutbox
    in_flight: Ask | None = None

    @classmethod
    def empty(cls, name: str) -> Disk:
        """The disk of a device that leaves the factory; ``name`` as for :class:`MemoryOutbox`."""
        return cls(MemoryJournal(), MemoryOutbox(name))
