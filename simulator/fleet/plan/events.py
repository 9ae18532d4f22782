"""What can happen in a plan, one by one or as columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from simulator.fleet.plan.hashed_random import Floats, Indices


class EventKind(IntEnum):
    """What happens; of one instant, the smaller one first."""

    SWITCH_ON = 1
    """The device gets power."""
    RECONNECT = 2
    """The device may connect again."""
    COMMAND = 3
    """The operator sends to the device. ``number``: of the scenario's commands; ``serial``: counts that stream."""
    ARRIVAL = 4
    """A request of level wire. ``number``: of the scenario's arrivals; ``serial``: counts that stream."""
    DISCONNECT = 5
    """The device loses its connection and may not connect."""
    SWITCH_OFF = 6
    """The power goes."""


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happens.

    Attributes:
        time_s: since the begin of the first phase.
        device: its number in the fleet, from 0.
        number, serial: see :class:`EventKind`; 0 where it says nothing of them.
    """

    time_s: float
    device: int
    kind: EventKind
    number: int = 0
    serial: int = 0


@dataclass(frozen=True, slots=True)
class EventTable:
    """Events as columns, in the order of time, device, kind, number, serial."""

    time_s: Floats
    device: Indices
    kind: npt.NDArray[np.int8]
    number: Indices
    serial: Indices

    @classmethod
    def joined(cls, parts: Sequence[EventTable]) -> EventTable:
        """All rows of some tables, in order."""
        if not parts:
            empty = np.empty(0, np.int64)
            return cls(np.empty(0), empty, np.empty(0, np.int8), empty, empty)
        columns = [
            np.concatenate([getattr(part, name) for part in parts])
            for name in ("time_s", "device", "kind", "number", "serial")
        ]
        time_s, device, kind, number, serial = columns
        order = np.lexsort((serial, number, kind, device, time_s))
        return cls(time_s[order], device[order], kind[order], number[order], serial[order])

    @classmethod
    def of(
        cls, kind: EventKind, time_s: Floats, device: Indices, number: int = 0, serial: Indices | None = None
    ) -> EventTable:
        """Events of one kind, not ordered yet."""
        zeros = np.zeros(len(device), dtype=np.int64)
        return cls(
            time_s,
            device,
            np.full(len(device), kind, dtype=np.int8),
            zeros + number,
            zeros if serial is None else serial,
        )

    def __len__(self) -> int:
        return len(self.time_s)

    def only(self, rows: npt.NDArray[np.bool_]) -> EventTable:
        """The rows that are marked."""
        return EventTable(self.time_s[rows], self.device[rows], self.kind[rows], self.number[rows], self.serial[rows])

    def row(self, number: int) -> Event:
        """One event of the table."""
        return Event(
            float(self.time_s[number]),
            int(self.device[number]),
            EventKind(int(self.kind[number])),
            int(self.number[number]),
            int(self.serial[number]),
        )
