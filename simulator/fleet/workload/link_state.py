"""Which devices have a link, and what faults do to their messages: the same over every transport."""

from __future__ import annotations

from collections import Counter
from typing import Final

from simulator.fleet.engine.wheel import Clock
from simulator.fleet.faults import FREE, ActiveFaults, Passage
from simulator.fleet.signals import DeviceRandom

DOWN: Final = "the link is down"


class LinkState:
    """The links of a worker's devices.

    Args:
        clock: the engine's.
        seed: of the run.
    """

    def __init__(self, clock: Clock, seed: int) -> None:
        self._clock = clock
        self._seed = seed
        self._down: Counter[int] = Counter()
        self._faults: ActiveFaults | None = None
        self._numbers: Counter[int] = Counter()

    @property
    def down(self) -> int:
        """How many devices have no link."""
        return len(self._down)

    @property
    def is_plain(self) -> bool:
        """Nothing is done to what gets through."""
        return self._faults is None

    def is_down(self, device: int) -> bool:
        """Whether this device has no link."""
        return device in self._down

    def lose(self, device: int) -> bool:
        """One more cause of being down; whether it is the first."""
        self._down[device] += 1
        return self._down[device] == 1

    def restore(self, device: int) -> None:
        """One cause of being down is over; the device can connect again when it was the last."""
        self._down[device] -= 1
        if self._down[device] <= 0:
            del self._down[device]

    def apply_link_faults(self, faults: ActiveFaults | None) -> None:
        """These do something to everything that is sent from now on; None ends it."""
        self._faults = faults

    def passage(self, device: int, size_bytes: int) -> Passage:
        """How the device's next message of this size gets through."""
        if self._faults is None:
            return FREE
        self._numbers[device] += 1
        who = DeviceRandom.at(self._seed, device)
        return self._faults.passage(who, self._numbers[device], self._clock.time(), size_bytes)

    def has_link_fault(self, device: int) -> bool:
        """Whether what this device does not get out is the link's doing, and not the generator's."""
        if device in self._down:
            return True
        faults = self._faults
        return faults is not None and faults.has_link_fault(DeviceRandom.at(self._seed, device), self._clock.time())
