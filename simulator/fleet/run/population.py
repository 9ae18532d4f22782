"""A worker's devices with what carries their words: over HTTP, or over MQTT. The same for whoever plays them."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from agent.errors import ConfigurationError
from agent.wire.extensions import BATCH_SENSOR_DATA
from agent.wire.secret import Secret
from simulator.fleet.device.driver import Clocks, Driver, Member
from simulator.fleet.device.letterhead import Letterhead
from simulator.fleet.device.model import Fleetwide, Gauges
from simulator.fleet.device.mqtt_driver import MqttDriver
from simulator.fleet.device.observer import Observer
from simulator.fleet.engine.http.engine import Http1Engine, HttpOptions
from simulator.fleet.engine.mqtt.engine import BrokerAddress, MqttSessions
from simulator.fleet.engine.wheel import LoopClock, Wheel
from simulator.fleet.run.links import Links

MQTT_OFFERS: Final = frozenset({BATCH_SENSOR_DATA})
"""Over MQTT readings go as arrays, whatever the service behind the gateway takes."""


class Population(Protocol):
    """Devices that can be switched and cut off. All calls come from the loop's thread."""

    @property
    def gauges(self) -> Gauges:
        """What the devices are at."""
        ...

    @property
    def connections(self) -> int:
        """How many stand."""
        ...

    @property
    def settled(self) -> bool:
        """Whether every device that is on has handed over everything."""
        ...

    def unsettled(self) -> list[int]:
        """The devices that are on and have something to hand over."""
        ...

    def switch_on(self, index: int) -> None:
        """Power for a device."""
        ...

    def switch_off(self, index: int) -> None:
        """The power of a device goes."""
        ...

    def lose(self, index: int) -> None:
        """The connection of a device goes, and no other one can be made."""
        ...

    def restore(self, index: int) -> None:
        """The device can connect again."""
        ...

    def sample(self, *, on: bool) -> None:
        """Read the sensors, or stop reading them."""
        ...

    async def close(self) -> None:
        """Close every connection."""
        ...


@dataclass(frozen=True, slots=True)
class Parts:
    """What both kinds are made of.

    Attributes:
        sources: addresses of this machine to connect from; empty lets the system choose.
        on_news: called after each exchange.
    """

    wheel: Wheel
    clock: LoopClock
    members: Sequence[Member]
    fleet: Fleetwide
    first_index: int
    observer: Observer
    timeout_s: float
    sources: tuple[str, ...]
    on_news: Callable[[], None]


class HttpPopulation:
    """Devices that speak HTTP.

    Args:
        parts: the devices.
        options: of the engine.
        letterheads: how requests begin; the devices are dealt out over them.
    """

    def __init__(self, parts: Parts, options: HttpOptions, letterheads: Sequence[Letterhead]) -> None:
        self._engine = Http1Engine(options, parts.wheel)
        self._links = Links(self._engine, parts.clock)
        self._driver = driver = Driver(
            self._links,
            parts.wheel,
            letterheads,
            parts.members,
            parts.fleet,
            first_index=parts.first_index,
            observer=parts.observer,
            clocks=Clocks(),
            timeout_s=parts.timeout_s,
            on_news=parts.on_news,
        )
        self.switch_on = driver.switch_on
        self.switch_off = driver.switch_off
        self.sample = driver.sample
        self.unsettled = driver.unsettled
        self.lose = self._links.lose
        self.restore = self._links.restore

    @property
    def gauges(self) -> Gauges:
        """See :class:`Population`."""
        return self._driver.gauges

    @property
    def connections(self) -> int:
        """See :class:`Population`."""
        return self._engine.connections

    @property
    def settled(self) -> bool:
        """See :class:`Population`."""
        return self._driver.settled

    async def close(self) -> None:
        """See :class:`Population`."""
        await self._engine.close()


@dataclass(frozen=True, slots=True)
class BrokerTarget:
    """Where devices speak MQTT, and the gateway on this machine that stands behind the broker.

    Attributes:
        ca_file: the authority to trust; None for the system's. Without ``tls`` it says nothing.
        gateway_folder: of the gateway's own files: it gives the devices their tokens.
        gateway_url: where it serves devices over HTTP.
    """

    host: str
    port: int
    tls: bool
    ca_file: Path | None
    gateway_folder: Path
    gateway_url: str

    def address(self) -> BrokerAddress:
        """For the engine, with one context for all sessions.

        Raises:
            ConfigurationError: the authority's file cannot be used.
        """
        if not self.tls:
            return BrokerAddress(self.host, self.port)
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
        except OSError as error:
            raise ConfigurationError([f"cannot be used: {error}"], f"target.broker.ca_file {self.ca_file}") from None
        return BrokerAddress(self.host, self.port, context)


class MqttPopulation:
    """Devices that speak MQTT to a gateway behind a broker.

    Args:
        parts: the devices.
        broker: where.
        tokens: by device id.
    """

    def __init__(self, parts: Parts, broker: BrokerTarget, tokens: Mapping[str, Secret]) -> None:
        self._engine = MqttSessions(
            broker.address(), parts.wheel, sources=parts.sources, connect_timeout_s=parts.timeout_s
        )
        ids = [member.device_id for member in parts.members]
        self._driver = driver = MqttDriver(
            self._engine,
            parts.wheel,
            parts.members,
            parts.fleet,
            tokens=lambda index: tokens[ids[index - parts.first_index]],
            first_index=parts.first_index,
            observer=parts.observer,
            timeout_s=parts.timeout_s,
            on_news=parts.on_news,
        )
        self.switch_on = driver.switch_on
        self.switch_off = driver.switch_off
        self.sample = driver.sample
        self.unsettled = driver.unsettled
        self.lose = driver.lose
        self.restore = driver.restore

    @property
    def gauges(self) -> Gauges:
        """See :class:`Population`."""
        return self._driver.gauges

    @property
    def connections(self) -> int:
        """See :class:`Population`."""
        return self._driver.connections

    @property
    def settled(self) -> bool:
        """See :class:`Population`."""
        return self._driver.settled

    async def close(self) -> None:
        """See :class:`Population`."""
        await self._engine.close()
