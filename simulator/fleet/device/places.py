"""The devices of a driver by their number in the fleet: power, sampling, and who has something to hand over."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Generic, Protocol, TypeVar

from simulator.fleet.device.model import Gauges
from simulator.fleet.device.virtual_device import VirtualDevice


class Place(Protocol):
    """One device's place: its disk for ever, its life while the power is on."""

    @property
    def index(self) -> int:
        """In the fleet."""
        ...

    @property
    def device(self) -> VirtualDevice | None:
        """Its life; None without power."""
        ...

    def switch_on(self, *, sampling: bool) -> None:
        """Power; nothing happens when it has it."""
        ...

    def switch_off(self) -> None:
        """The power goes in this instant."""
        ...

    def sample(self, *, on: bool) -> None:
        """Read the sensors, or stop reading them."""
        ...


AnyPlace = TypeVar("AnyPlace", bound=Place)


class Places(Generic[AnyPlace]):
    """What every driver does with its devices, whatever they speak.

    Args:
        places: of the devices, in their order.
        first_index: of the first of them, in the fleet: another worker has the others.
        gauges: what the devices are at.
    """

    def __init__(self, places: Sequence[AnyPlace], first_index: int, gauges: Gauges) -> None:
        self.gauges = gauges
        self._places = places
        self._first = first_index
        self._sampling = True

    def switch_on(self, index: int) -> None:
        """Power for a device; nothing happens when it has it."""
        self._places[index - self._first].switch_on(sampling=self._sampling)

    def switch_off(self, index: int) -> None:
        """The power of a device goes in this instant: what was in flight is cut off, and only its disk remains."""
        self._places[index - self._first].switch_off()

    def sample(self, *, on: bool) -> None:
        """Read the sensors, or stop reading them; also holds for devices that are switched on later."""
        self._sampling = on
        for place in self._places:
            place.sample(on=on)

    @property
    def settled(self) -> bool:
        """Whether every device that is on has handed over everything."""
        return next(self._unsettled(), None) is None

    def unsettled(self) -> list[int]:
        """The devices that are on and have something to hand over."""
        return list(self._unsettled())

    def _unsettled(self) -> Iterator[int]:
        return (place.index for place in self._places if place.device is not None and not place.device.settled)
