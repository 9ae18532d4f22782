"""The devices of a driver by their number in the fleet: power, sampling, and who has something to hand over."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Generic, Protocol, TypeVar

from agent.core.values import Moment
from simulator.fleet.device.fast_path import KnownAnswers
from simulator.fleet.device.hashed_random import HashedRandom
from simulator.fleet.device.http_codec import HttpCodec
from simulator.fleet.device.model import DeviceModel, Fleetwide, Gauges
from simulator.fleet.device.runtime import DeviceRuntime
from simulator.fleet.device.store import Disk
from simulator.fleet.device.virtual_device import VirtualDevice
from simulator.fleet.engine.wheel import Timer, Wheel
from simulator.fleet.outcomes import OutcomeClass
from simulator.fleet.signals.base import Individual

_NEVER_S: Final = float("inf")


class DeviceSlot(Protocol):
    """One device's place: its disk for ever, its life while the power is on."""

    @property
    def index(self) -> int:
        """In the fleet."""
        ...

    @property
    def device(self) -> VirtualDevice | None:
        """Its life; None without power."""
        ...

    @property
    def had_contact(self) -> bool:
        """Whether it ever had a list of its commands."""
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

    def give_up(self, now_s: float) -> None:
        """The run is over: what waits on the disk was never accepted."""
        ...


class SlotBase(Timer):
    """What there is of a device while its power is off: its disk, its chance, its clock's faults.

    Args:
        fleet: what it has in common with all others.
        index: in the fleet.
        model: what it is.
    """

    __slots__ = ("_chance", "_disk", "_fleet", "_model", "index")

    def __init__(self, fleet: Fleetwide, index: int, model: DeviceModel) -> None:
        super().__init__()
        self._fleet = fleet
        self._model = model
        self._disk = Disk.empty()
        self._chance = HashedRandom(fleet.seed, index)
        self.index = index

    @property
    def had_contact(self) -> bool:
        """Whether its journal ever saw a list, so that what comes next is no history."""
        return not self._disk.journal.is_empty

    def moment(self, now: Moment) -> Moment:
        """This instant as the device sees it."""
        around = self._fleet.environment
        if around is None or around.clocks_are_right:
            return now
        return around.moment(Individual.at(self._fleet.seed, self.index), self._model, now)

    def give_up(self, now_s: float) -> None:
        """The run is over: what waits on the disk was never accepted."""
        self._fleet.ages.given_up(self._disk.outbox.taken_s(), OutcomeClass.TIMEOUT, now_s)

    def body(self, speaker: HttpCodec, known_answers: KnownAnswers, now: Moment) -> DeviceRuntime:
        """For a life that begins now."""
        parts = (self.index, speaker, self._model, self._fleet, self._disk)
        return DeviceRuntime(*parts, chance=self._chance, known_answers=known_answers, now=now)


AnyPlace = TypeVar("AnyPlace", bound=DeviceSlot)


class DeviceSlots(Generic[AnyPlace]):
    """What every driver does with its devices, whatever they speak.

    Args:
        places: of the devices, in their order.
        first_index: of the first of them, in the fleet: another worker has the others.
        gauges: what the devices are at.
        wheel: what concerns every device is spread over the turns of its clock.
        on_news: called when all of them have been reached.

    Attributes:
        phases_end_s: when the phases were over; infinite before.
        is_over: see :meth:`end`.
    """

    def __init__(
        self,
        places: Sequence[AnyPlace],
        first_index: int,
        gauges: Gauges,
        wheel: Wheel,
        on_news: Callable[[], None] | None,
    ) -> None:
        self.gauges = gauges
        self.on_news = on_news
        self._places = places
        self._first = first_index
        self._wheel = wheel
        self._sampling = True
        self._unsettled: set[int] = set()
        self._unreached = 0  # calls of all devices that are not finished yet
        self.phases_end_s = _NEVER_S
        self.is_over = False

    def switch_on(self, index: int) -> None:
        """Power for a device; nothing happens when it has it."""
        self._places[index - self._first].switch_on(sampling=self._sampling)

    def switch_off(self, index: int) -> None:
        """The power of a device goes in this instant: what was in flight is cut off, and only its disk remains."""
        self._places[index - self._first].switch_off()
        self._unsettled.discard(index)

    def sample(self, *, on: bool) -> None:
        """Read the sensors, or stop reading them; also holds for devices that are switched on later.

        Devices are reached some in each turn of the loop; until all of them are, they have not settled.
        """
        self._sampling = on
        self._unreached += 1
        self._wheel.for_each(self._places, self._reach, self._all_reached)

    def note(self, index: int, *, settled: bool) -> None:
        """Note whether a device has now handed over everything."""
        if settled:
            self._unsettled.discard(index)
        else:
            self._unsettled.add(index)

    def has_settled(self) -> bool:
        """Whether every device that is on has handed over everything; looks at none of them."""
        return not self._unreached and not self._unsettled

    def await_requests(self, before_s: float) -> None:
        """The phases were over then, on the monotonic clock: what fell due before is waited for, and counted.

        To be called before sampling ends.
        """
        self.phases_end_s = before_s

    def end(self) -> None:
        """The run is over: what is under way never ended, and counts as a timeout with what it has waited."""
        self.is_over = True

    def unsettled(self) -> list[int]:
        """The devices that are on and have something to hand over."""
        return sorted(self._unsettled)

    def give_up(self, now_s: float) -> None:
        """The run is over: what waits on any disk was never accepted."""
        for place in self._places:
            place.give_up(now_s)

    def had_contact(self, index: int) -> bool:
        """Whether this device ever had a list of its commands, in this life or one before."""
        return self._places[index - self._first].had_contact

    def _reach(self, place: AnyPlace) -> None:
        place.sample(on=self._sampling)

    def _all_reached(self) -> None:
        self._unreached -= 1
        if self.on_news is not None:
            self.on_news()
