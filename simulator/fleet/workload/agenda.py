"""The plan's events on one timer of the wheel, of which each turn of the loop takes a bounded part."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import numpy as np

from simulator.fleet.engine.wheel import NEVER, Timer, Wheel
from simulator.fleet.plan import Event, EventKind, EventTable, event_at


class Agenda(Timer):
    """Calls for each event at its time, one for each time that the timer fires: the wheel bounds a turn of the loop.

    Events stay columns until then, so that filing ten thousand costs as much as filing one.

    Args:
        wheel: of the worker.
        began_s: the run's begin on the wheel's clock; events count from it.
        happen: called with each event.
    """

    __slots__ = ("_began_s", "_happen", "_row", "_tables", "_wheel")

    def __init__(self, wheel: Wheel, began_s: float, happen: Callable[[Event], None]) -> None:
        super().__init__()
        self._wheel = wheel
        self._began_s = began_s
        self._happen = happen
        self._tables: deque[EventTable] = deque()
        self._row = 0  # of the first table: those before it have happened

    def __bool__(self) -> bool:
        return bool(self._tables)

    def add(self, table: EventTable) -> None:
        """These events are to happen, too; none of them before those that are there already."""
        if len(table):
            self._tables.append(table)
            self._wait()

    def keep(self, kinds: frozenset[EventKind], before_s: float) -> None:
        """Drop all events but those of some kinds that are due before a time; seconds since the run's begin."""
        self._tables = deque(table for table in self._chosen(kinds, before_s) if len(table))
        self._row = 0
        self._wait()

    def count(self, kinds: frozenset[EventKind], before_s: float) -> int:
        """How many of them there are."""
        return sum(map(len, self._chosen(kinds, before_s)))

    def clear(self) -> None:
        """Nothing is to happen any more."""
        self._tables.clear()
        self._wait()

    def fire(self) -> None:
        """The first event's time has come."""
        event = event_at(self._tables[0], self._row)
        self._row += 1
        if self._row == len(self._tables[0]):
            self._tables.popleft()
            self._row = 0
        self._wait()
        self._happen(event)

    def _wait(self) -> None:
        due_s = self._began_s + float(self._tables[0]["time_s"][self._row]) if self._tables else NEVER
        if due_s != self.due_s:
            self._wheel.at(due_s, self)

    def _chosen(self, kinds: frozenset[EventKind], before_s: float) -> list[EventTable]:
        found, first = [], self._row
        for table in self._tables:
            wanted = np.isin(table["kind"], [int(kind) for kind in kinds]) & (table["time_s"] < before_s)
            wanted[:first] = False
            found.append(table[wanted])
            first = 0
        return found
