"""Which devices have a link, and what faults do to their messages: the same over every transport.

What a fault does is decided by the fault (:mod:`simulator.fleet.faults.link`); what that means for a request is HTTP's
business (:mod:`simulator.fleet.workload.links`), for a session MQTT's (:mod:`simulator.fleet.workload.mqtt_links`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from simulator.fleet.engine.wheel import Clock
from simulator.fleet.faults.link import FREE, LinkFault, LinkPassage
from simulator.fleet.signals.base import Individual

DOWN: Final = "the link is down"


@dataclass(frozen=True, slots=True)
class LinkFaults:
    """Faults of the network, and what they go by.

    Attributes:
        individual: a device as faults see it.
        true_s: the worker's clock as seconds since the epoch.
    """

    faults: Sequence[LinkFault[Any]]
    individual: Callable[[int], Individual]
    true_s: Callable[[float], float]


class LinkState:
    """The links of a worker's devices.

    Args:
        clock: the engine's.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._down: Counter[int] = Counter()
        self._faults: Sequence[LinkFault[Any]] = ()
        self._seen: LinkFaults | None = None
        self._numbers: Counter[int] = Counter()

    @property
    def down(self) -> int:
        """How many devices have no link."""
        return len(self._down)

    @property
    def is_plain(self) -> bool:
        """Nothing is done to what gets through."""
        return not self._faults

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

    def apply_link_faults(self, faults: LinkFaults) -> None:
        """Apply these faults to everything that is sent from now on."""
        # Those that take links away altogether leave alone what gets through.
        self._faults = [fault for fault in faults.faults if type(fault).passage is not LinkFault.passage]
        self._seen = faults

    def passage(self, device: int, size_bytes: int) -> LinkPassage:
        """How the device's next message gets through.

        Args:
            device: whose, its index in the fleet.
            size_bytes: of the message.
        """
        self._numbers[device] += 1
        found = FREE
        for fault, individual, now_s in self._acting(device):
            found = found.then(fault.passage(individual, self._numbers[device], now_s, size_bytes))
        return found

    def has_link_fault(self, device: int) -> bool:
        """Whether what this device does not get out is the link's doing, and not the generator's."""
        return device in self._down or any(fault.chooses(each) for fault, each, _ in self._acting(device))

    def _acting(self, device: int) -> Iterator[tuple[LinkFault[Any], Individual, float]]:
        seen = self._seen
        if not self._faults or seen is None:
            return
        now_s = seen.true_s(self._clock.time())
        individual = seen.individual(device)
        for fault in self._faults:
            if fault.begin_s <= now_s < fault.end_s:
                yield fault, individual, now_s
