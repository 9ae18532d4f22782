"""Power, sampling, and which devices have something to hand over: the part of a driver that all transports share.

A device has one slot in its driver for ever, and a life while its power is on.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from agent.core.values import Moment
from simulator.fleet.device.device import VirtualDevice
from simulator.fleet.device.fast_path import KnownAnswers
from simulator.fleet.device.hashed_random import HashedRandom
from simulator.fleet.device.http_codec import HttpCodec, Request
from simulator.fleet.device.links import Links
from simulator.fleet.device.model import TIMEOUT_S, Clocks, DeviceModel, Observer, SharedSettings
from simulator.fleet.device.mqtt_links import MqttLinks
from simulator.fleet.device.store import Disk
from simulator.fleet.engine.mqtt import MqttEngine
from simulator.fleet.engine.ports import HttpEngine
from simulator.fleet.engine.wheel import NEVER, Timer, Wheel
from simulator.fleet.faults import ActiveFaults
from simulator.fleet.outcomes import OutcomeClass
from simulator.fleet.signals import DeviceRandom


@dataclass(frozen=True, slots=True)
class Member:
    """One device of a fleet: its ids and its model.

    Attributes:
        device_id, product_id: the service's ids.
        model: shared with all devices of its kind.
    """

    device_id: str
    product_id: str
    model: DeviceModel


Life = TypeVar("Life", bound=VirtualDevice)


class DeviceSlot(Timer, ABC, Generic[Life]):
    """One device: its disk for ever, its life while the power is on; a timer for whatever is due next.

    Args:
        driver: of this device among others.
        index: in the fleet.
        member: what it is.

    Attributes:
        device: its life; None without power.
    """

    __slots__ = ("_chance", "_disk", "_model", "device", "driver", "index")

    def __init__(self, driver: DeviceDriver[Any], index: int, member: Member) -> None:
        super().__init__()
        self.driver = driver
        self.index = index
        self.device: Life | None = None
        self._model = member.model
        self._disk = Disk.empty()
        self._chance = HashedRandom(driver.fleet.seed, index)

    @abstractmethod
    def begin_life(self, now: Moment) -> Life:
        """Make the device that lives from now on."""

    @abstractmethod
    def turn(self, device: Life, now: Moment) -> None:
        """Do what is due, and wake up for what is not."""

    @abstractmethod
    def life_ended(self) -> None:
        """Forget what was under way: the power is gone."""

    @property
    def had_contact(self) -> bool:
        """Whether its journal ever saw a list, so that what comes next is no history."""
        return not self._disk.journal.is_empty

    def switch_on(self, *, sampling: bool) -> None:
        """Power; nothing happens when it has it."""
        if self.device is None:
            now = self.now()
            self.device = device = self.begin_life(now)
            if not sampling:
                device.sample(on=False)
            self.driver.gauges.online += 1
            self.turn(device, now)

    def switch_off(self) -> None:
        """The power goes in this instant."""
        device, driver = self.device, self.driver
        if device is not None:
            driver.engine.cut(self.index)
            driver.wheel.cancel(self)
            device.power_lost(self.now())
            self.device = None
            self.life_ended()
            driver.gauges.online -= 1

    def sample(self, *, on: bool) -> None:
        """Read the sensors, or stop reading them."""
        if self.device is not None:
            self.device.sample(on=on)
            self.turn(self.device, self.now())

    def fire(self) -> None:
        """Do what is due: the timer fired."""
        if self.device is not None:
            self.turn(self.device, self.now())

    def now(self) -> Moment:
        """This instant as the device sees it."""
        return self.seen(self.driver.clocks.now())

    def at(self, now_s: float) -> Moment:
        """An instant of the monotonic clock as the device sees it."""
        return self.seen(self.driver.clocks.moment(now_s))

    def seen(self, now: Moment) -> Moment:
        """An instant by the device's own wall clock."""
        faults = self.driver.fleet.faults
        return now if faults is None else faults.moment(DeviceRandom.at(self.driver.fleet.seed, self.index), now)

    def give_up(self, now_s: float) -> None:
        """The run is over: what waits on the disk was never accepted."""
        self.driver.fleet.ages.given_up(self._disk.outbox.taken_s(), OutcomeClass.TIMEOUT, now_s)

    def live(self, kind: type[Life], codec: HttpCodec, now: Moment) -> Life:
        """The life that begins now."""
        parts = (self.index, codec, self._model, self.driver.fleet, self._disk)
        return kind(*parts, chance=self._chance, known_answers=self.driver.known_answers, now=now)

    def measure(
        self, operation: str, outcome: OutcomeClass, request: Request, sent_s: float | None, now: Moment
    ) -> None:
        """Hand an exchange that ended to the observer."""
        self.driver.observer.exchanged(
            operation,
            outcome,
            self.index,
            intended_s=request.intended_s,
            ready_s=request.ready_s,
            sent_s=sent_s,
            now_s=now.monotonic_s,
            attempt=request.attempt,
        )


AnySlot = TypeVar("AnySlot", bound=DeviceSlot[Any])


class Linked:
    """Devices whose links a scenario may take away or make bad.

    Attributes:
        links: the engine in between; None where nothing is done to links.
    """

    links: Links | MqttLinks | None = None

    def lose(self, device: int) -> None:
        """The connection goes in this instant, and no other can be made."""
        if self.links is not None:
            self.links.lose(device)

    def restore(self, device: int) -> None:
        """Let the device connect again."""
        if self.links is not None:
            self.links.state.restore(device)

    def apply_link_faults(self, faults: ActiveFaults | None) -> None:
        """Apply these faults of the network to everything that is sent from now on; None ends it."""
        if self.links is not None:
            self.links.state.apply_link_faults(faults)

    def has_link_fault(self, device: int) -> bool:
        """Whether what this device does not get out is its link's doing, and not the generator's."""
        return self.links is not None and self.links.has_link_fault(device)


class DeviceDriver(Linked, ABC, Generic[AnySlot]):
    """What every driver does with its devices; all calls come from the loop's thread.

    Args:
        engine: carries what they send.
        wheel: on the same clock as ``clocks``; what concerns every device is spread over its turns.
        fleet: what the devices have in common.
        first_index, observer, clocks, timeout_s: see :class:`~simulator.fleet.device.model.TransportOptions`.
        on_news: called after each exchange, and when all devices have been reached.

    Attributes:
        slots: one for each device, in their order.
        phases_end_s: when the phases were over; infinite before.
        is_over: see :meth:`end`.
    """

    slots: Sequence[AnySlot]

    def __init__(
        self,
        engine: HttpEngine | MqttEngine,
        wheel: Wheel,
        fleet: SharedSettings,
        *,
        first_index: int = 0,
        observer: Observer | None = None,
        clocks: Clocks | None = None,
        timeout_s: float = TIMEOUT_S,
        on_news: Callable[[], None] | None = None,
    ) -> None:
        self.engine: HttpEngine | MqttEngine = engine
        self.links = engine if isinstance(engine, Links | MqttLinks) else None
        self.wheel = wheel
        self.fleet = fleet
        self.gauges = fleet.gauges
        self.observer = observer or Observer()
        self.clocks = clocks or Clocks()
        self.timeout_s = timeout_s
        self.known_answers = KnownAnswers()
        self.first_index = first_index
        self._on_news = on_news
        self._sampling = True
        self._unsettled: set[int] = set()
        self._unreached = 0  # calls of all devices that are not finished yet
        self.phases_end_s = NEVER
        self.is_over = False

    def switch_on(self, index: int) -> None:
        """Power for a device; nothing happens when it has it."""
        self.slots[index - self.first_index].switch_on(sampling=self._sampling)

    def switch_off(self, index: int) -> None:
        """The power of a device goes in this instant: what was in flight is cut off, and only its disk remains."""
        self.slots[index - self.first_index].switch_off()
        self._unsettled.discard(index)

    def sample(self, *, on: bool) -> None:
        """Read the sensors, or stop reading them; also holds for devices that are switched on later.

        Devices are reached some in each turn of the loop; until all of them are, they have not settled.
        """
        self._sampling = on
        self._unreached += 1
        self.wheel.for_each(self.slots, self._reach, self._all_reached)

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
        for slot in self.slots:
            slot.give_up(now_s)

    def had_contact(self, index: int) -> bool:
        """Whether this device ever had a list of its commands, in this life or one before."""
        return self.slots[index - self.first_index].had_contact

    @property
    @abstractmethod
    def connections(self) -> int:
        """How many connections are open."""

    @property
    def online(self) -> int:
        """Devices that are switched on and in touch with the target."""
        return self.connections

    def figures(self) -> Mapping[str, float]:
        """What is the case now: ``online``, ``waiting_readings``, ``connections`` and others, by name."""
        aside = self.gauges.results_put_aside
        return {
            "online": float(self.online),
            "waiting_readings": float(self.gauges.waiting_readings),
            "connections": float(self.connections),
            **({"results_put_aside": float(aside)} if aside else {}),
        }

    def arrive(self, stream: int, device: int, due_s: float) -> None:
        """Refuse: devices have their own schedules, and their scenarios no arrivals."""
        raise ValueError(f"arrival {stream} for device {device} at {due_s}: devices have their own schedules")

    async def close(self) -> int:
        """Close every connection; how many open arrivals had no answer: none."""
        self.end()
        await self.engine.close()
        self.give_up(self.clocks.monotonic())
        return 0

    def notify(self) -> None:
        """Call ``on_news``: something changed."""
        if self._on_news is not None:
            self._on_news()

    def _reach(self, slot: AnySlot) -> None:
        slot.sample(on=self._sampling)

    def _all_reached(self) -> None:
        self._unreached -= 1
        self.notify()
