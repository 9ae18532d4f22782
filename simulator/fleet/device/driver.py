"""The devices of a worker: switches their power, drains them, and counts them.

All calls come from the loop's thread.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from agent.wire.secret import Secret
from simulator.fleet.device.device import Device
from simulator.fleet.device.http_device import HttpDevice
from simulator.fleet.device.http_messages import HttpMessages
from simulator.fleet.device.links import Links
from simulator.fleet.device.model import Fleet, Member
from simulator.fleet.device.mqtt_device import MqttDevice, MqttMessages
from simulator.fleet.engine.addresses import RequestHead
from simulator.fleet.engine.http import Http1Engine
from simulator.fleet.engine.mqtt import MqttSessions
from simulator.fleet.engine.timers import NEVER
from simulator.fleet.outcomes import OutcomeClass


class DeviceDriver(ABC):
    """What drivers of devices have in common.

    Attributes:
        links: of the devices.
        devices: in their order.
        is_over: the run is over: what is under way counts as a timeout with the time that it has waited.
        phases_end_s: when the phases were over; infinite before.
        is_sampling: sensors are read; False during the drain.
    """

    engine: Http1Engine | MqttSessions
    devices: Sequence[Device]

    def __init__(self, fleet: Fleet, links: Links | None) -> None:
        self.fleet = fleet
        self.links = links or Links(fleet)
        self.links.on_lost = lambda index: self.device(index).link_lost(fleet.monotonic())
        self.is_over = False
        self.is_sampling = True
        self.phases_end_s = NEVER
        self._unsettled: set[int] = set()
        self._passes_running = 0  # calls of :meth:`drain` that have not reached all devices yet

    @property
    @abstractmethod
    def connections(self) -> int:
        """How many connections are open."""

    @property
    def online(self) -> int:
        """Devices that are switched on and in touch with the target."""
        return self.fleet.online - sum(self.device(index).is_on for index in self.links.down)

    def device(self, index: int) -> Device:
        """By its index in the fleet."""
        return self.devices[index - self.fleet.first_index]

    def switch_on(self, index: int) -> None:
        """See :meth:`Device.switch_on`."""
        self.device(index).switch_on()

    def switch_off(self, index: int) -> None:
        """See :meth:`Device.switch_off`."""
        self.device(index).switch_off()
        self._unsettled.discard(index)

    def drain(self, from_s: float = NEVER) -> None:
        """Read no sensors any more, also not on devices that are switched on later, and send what is left.

        Each turn of the loop reaches some devices; until all are reached, :meth:`has_settled` is False.

        Args:
            from_s: when the phases were over, on the monotonic clock: polls that fell due before it are waited for;
                without it, none.
        """
        self.phases_end_s = from_s
        self.is_sampling = False
        self._passes_running += 1
        self.fleet.timers.for_each(self.devices, lambda device: device.drain(), self._all_reached)

    def note(self, index: int, *, settled: bool) -> None:
        """Note during the drain whether a device has sent everything."""
        if settled:
            self._unsettled.discard(index)
        else:
            self._unsettled.add(index)

    def has_settled(self) -> bool:
        """Whether every device that is on has sent everything; a look-up, not a loop over devices."""
        return not (self.is_sampling or self._passes_running or self._unsettled)

    def unsettled(self) -> list[int]:
        """The devices that are on and have something to send."""
        devices = self.devices if self._passes_running else map(self.device, sorted(self._unsettled))
        return [device.index for device in devices if device.holds_something]

    def had_contact(self, index: int) -> bool:
        """Whether this device ever received a list of its commands, also before a power loss."""
        return not self.device(index).disk.journal.is_empty

    def figures(self) -> Mapping[str, float]:
        """Current values by name: ``online``, ``waiting_readings``, ``connections`` and others."""
        undeliverable = self.fleet.undeliverable_results
        return {
            "online": float(self.online),
            "waiting_readings": float(self.fleet.waiting_readings),
            "connections": float(self.connections),
            **({"results_put_aside": float(undeliverable)} if undeliverable else {}),
        }

    async def close(self) -> int:
        """Close every connection; the number of open arrivals without an answer, of which devices have none."""
        self.is_over = True
        await self.engine.close()
        now_s = self.fleet.monotonic()
        for device in self.devices:
            device.end()
            # Readings that still wait were never accepted.
            self.fleet.observer.readings_ended(device.disk.outbox.taken_s(), OutcomeClass.TIMEOUT, now_s)
        return 0

    def _all_reached(self) -> None:
        self._passes_running -= 1
        self.fleet.on_news()


class HttpDriver(DeviceDriver):
    """Runs devices over HTTP.

    Args:
        engine: carries the requests.
        fleet: what the devices have in common.
        members: the devices.
        heads: of requests, one for each member.
        links: of the devices; without them nothing is done to links.

    Attributes:
        send: the engine's, or that of the links in front of it.
    """

    engine: Http1Engine

    def __init__(
        self,
        engine: Http1Engine,
        fleet: Fleet,
        members: Sequence[Member],
        heads: Sequence[RequestHead],
        links: Links | None = None,
    ) -> None:
        super().__init__(fleet, links)
        self.engine = engine
        self.send = partial(self.links.send, engine) if self.links.has_faults else engine.send
        messages = HttpMessages(fleet.offers, fleet.dialect)
        self.devices = [
            HttpDevice(self, messages, fleet.first_index + number, member, head)
            for number, (member, head) in enumerate(zip(members, heads, strict=True))
        ]

    @property
    def connections(self) -> int:
        return self.engine.connections


class MqttDriver(DeviceDriver):
    """Runs devices over MQTT, with a session for each.

    Args:
        engine: carries the messages.
        fleet: what the devices have in common; readings go as arrays, whatever the service behind the gateway takes.
        members: the devices.
        tokens: a device's password; None for a broker that asks for none.
        links: of the devices; without them nothing is done to links.

    Attributes:
        connections: sessions whose subscriptions are acknowledged.
    """

    engine: MqttSessions
    connections = 0

    def __init__(
        self,
        engine: MqttSessions,
        fleet: Fleet,
        members: Sequence[Member],
        *,
        tokens: Callable[[int], Secret | None] = lambda _index: None,
        links: Links | None = None,
    ) -> None:
        super().__init__(fleet, links)
        self.engine = engine
        self.tokens = tokens
        messages = MqttMessages()
        self.devices = [
            MqttDevice(self, messages, fleet.first_index + number, member) for number, member in enumerate(members)
        ]

    @property
    def online(self) -> int:
        return self.connections
