"""The devices of a worker: power, sensors and links of all of them; calls, no tasks.

All calls come from the loop's thread.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from agent.wire.secret import Secret
from simulator.fleet.device.answers import KnownAnswers
from simulator.fleet.device.device import Device
from simulator.fleet.device.http_device import HttpDevice
from simulator.fleet.device.http_messages import HttpMessages
from simulator.fleet.device.links import Links, MqttLinks
from simulator.fleet.device.model import DriverContext, Member
from simulator.fleet.device.mqtt_device import MqttDevice
from simulator.fleet.device.mqtt_messages import MqttMessages
from simulator.fleet.engine.mqtt import MqttEngine
from simulator.fleet.engine.origin import RequestHead
from simulator.fleet.engine.ports import HttpEngine
from simulator.fleet.engine.wheel import NEVER
from simulator.fleet.faults import ActiveFaults
from simulator.fleet.outcomes import OutcomeClass

RECEIPT_TIMEOUT_S: Final = 30.0
"""So long a device waits for the gateway's receipt, once the broker has acknowledged."""


class Driver:
    """What every kind of load does with its engine and links.

    Args:
        engine: carries what goes out.
        context: see there.

    Attributes:
        links: the engine in between where links can be lost or made bad; None where nothing is done to them.
        is_over: the run is over: what is under way never ended, and counts as a timeout with what it has waited.
    """

    def __init__(self, engine: HttpEngine | MqttEngine, context: DriverContext) -> None:
        self.links = engine if isinstance(engine, Links | MqttLinks) else None
        self.wheel = context.wheel
        self.fleet = context.fleet
        self.first_index = context.first_index
        self.observer = context.observer
        self.clocks = context.clocks
        self.timeout_s = context.timeout_s
        self.on_news = context.on_news
        self.is_over = False

    def lose(self, device: int) -> None:
        """The connection goes in this instant, and no other can be made."""
        if self.links is not None:
            self.links.lose(device)

    def restore(self, device: int) -> None:
        """Let the device connect again."""
        if self.links is not None:
            self.links.restore(device)

    def apply_link_faults(self, faults: ActiveFaults | None) -> None:
        """Apply these faults of the network to everything that is sent from now on; None ends it."""
        if self.links is not None:
            self.links.faults = faults

    def has_link_fault(self, device: int) -> bool:
        """Whether what this device does not get out is its link's doing, and not the generator's."""
        return self.links is not None and self.links.has_link_fault(device)


class DeviceDriver(Driver, ABC):
    """What drivers of devices have in common.

    Attributes:
        devices: in their order.
        phases_end_s: when the phases were over; infinite before.
        is_sampling: sensors are read; otherwise everything drains.
    """

    devices: Sequence[Device]

    def __init__(self, engine: HttpEngine | MqttEngine, context: DriverContext) -> None:
        super().__init__(engine, context)
        self.engine: HttpEngine | MqttEngine = engine
        self.known_answers = KnownAnswers()
        self.is_sampling = True
        self.phases_end_s = NEVER
        self._unsettled: set[int] = set()
        self._unreached = 0  # calls of all devices that are not finished yet

    def switch_on(self, index: int) -> None:
        """Power for a device; nothing happens when it has it."""
        self.devices[index - self.first_index].switch_on()

    def switch_off(self, index: int) -> None:
        """The power of a device goes in this instant: what was in flight is cut off, and only its disk remains."""
        self.devices[index - self.first_index].switch_off()
        self._unsettled.discard(index)

    def sample(self, *, on: bool) -> None:
        """Read the sensors, or stop reading them; also holds for devices that are switched on later.

        Devices are reached some in each turn of the loop; until all of them are, they have not settled.
        """
        self.is_sampling = on
        self._unreached += 1
        self.wheel.for_each(self.devices, self.reach, self._all_reached)

    def reach(self, device: Device) -> None:
        """Sensors are read no more, or again: let a device know."""
        device.look()

    def note(self, index: int, *, settled: bool) -> None:
        """Note whether a device that reads its sensors no more has now handed over everything."""
        if settled:
            self._unsettled.discard(index)
        else:
            self._unsettled.add(index)

    def has_settled(self) -> bool:
        """Whether every device that is on has handed over everything; looks at none of them."""
        return not (self.is_sampling or self._unreached or self._unsettled)

    def unsettled(self) -> list[int]:
        """The devices that are on and have something to hand over."""
        if self._unreached:
            return [device.index for device in self.devices if not device.is_settled]
        return sorted(self._unsettled)

    def await_requests(self, before_s: float) -> None:
        """The phases were over then, on the monotonic clock: what fell due before is waited for, and counted.

        To be called before sampling ends.
        """
        self.phases_end_s = before_s

    def had_contact(self, index: int) -> bool:
        """Whether this device ever had a list of its commands, in this life or one before."""
        return not self.devices[index - self.first_index].disk.journal.is_empty

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
        gauges = self.fleet.gauges
        undeliverable = gauges.undeliverable_results
        return {
            "online": float(self.online),
            "waiting_readings": float(gauges.waiting_readings),
            "connections": float(self.connections),
            **({"results_put_aside": float(undeliverable)} if undeliverable else {}),
        }

    def arrive(self, stream: int, device: int, due_s: float) -> None:
        """Refuse: devices have their own schedules, and their scenarios no arrivals."""
        raise ValueError(f"arrival {stream} for device {device} at {due_s}: devices have their own schedules")

    async def close(self) -> int:
        """Close every connection; how many open arrivals had no answer: none."""
        self.is_over = True
        for device in self.devices:
            device.end()
        await self.engine.close()
        now_s = self.clocks.monotonic()
        for device in self.devices:  # what waits on any disk was never accepted
            self.fleet.ages.given_up(device.disk.outbox.taken_s(), OutcomeClass.TIMEOUT, now_s)
        return 0

    def _all_reached(self) -> None:
        self._unreached -= 1
        self.on_news()


class HttpDriver(DeviceDriver):
    """Runs devices over HTTP.

    Args:
        engine: carries the requests.
        context: see there.
        members: the devices.
        heads: of requests, one for each member.

    Attributes:
        awaited_polls: of which devices a poll was due while the phases lasted and has no answer yet.
    """

    engine: HttpEngine

    def __init__(
        self, engine: HttpEngine, context: DriverContext, members: Sequence[Member], heads: Sequence[RequestHead]
    ) -> None:
        super().__init__(engine, context)
        self.awaited_polls: set[int] = set()
        messages = HttpMessages(self.fleet.offers, self.fleet.dialect)
        self.devices = [
            HttpDevice(self, messages, self.first_index + number, member, head)
            for number, (member, head) in enumerate(zip(members, heads, strict=True))
        ]

    @property
    def connections(self) -> int:
        return self.engine.connections

    @property
    def online(self) -> int:
        """Devices that are switched on and have a link."""
        return self.fleet.gauges.online - (self.links.down if self.links is not None else 0)

    def has_settled(self) -> bool:
        """See :class:`DeviceDriver`; and no poll of the phases is without an answer."""
        return not self.awaited_polls and super().has_settled()

    def reach(self, device: Device) -> None:
        super().reach(device)
        is_awaited = isinstance(device, HttpDevice) and device.owes_poll(self.phases_end_s)
        if math.isfinite(self.phases_end_s) and is_awaited:
            self.awaited_polls.add(device.index)


class MqttDriver(DeviceDriver):
    """Runs devices over MQTT, with a session for each.

    Args:
        engine: carries the messages.
        context: see there; readings go as arrays, whatever the service behind the gateway takes.
        members: the devices.
        tokens: a device's password; None for a broker that asks for none.
        receipt_timeout_s: from the broker's acknowledgement until the gateway's receipt.

    Attributes:
        connections: sessions whose subscriptions are acknowledged.
    """

    engine: MqttEngine
    connections = 0

    def __init__(
        self,
        engine: MqttEngine,
        context: DriverContext,
        members: Sequence[Member],
        *,
        tokens: Callable[[int], Secret | None] = lambda _index: None,
        receipt_timeout_s: float = RECEIPT_TIMEOUT_S,
    ) -> None:
        super().__init__(engine, context)
        self.tokens = tokens
        self.receipt_timeout_s = receipt_timeout_s
        messages = MqttMessages()
        self.devices = [
            MqttDevice(self, messages, self.first_index + number, member) for number, member in enumerate(members)
        ]
