"""A worker's devices: what they are made of, and what every kind of them does."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from agent.errors import ConfigurationError
from agent.wire.secret import Secret
from simulator.fleet.device.driver import Member
from simulator.fleet.device.http_driver import HttpDriver
from simulator.fleet.device.http_load import LoadDevice
from simulator.fleet.device.model import Observer, SharedSettings
from simulator.fleet.device.mqtt_driver import MqttDriver
from simulator.fleet.engine.addresses import loopback_addresses, own_addresses
from simulator.fleet.engine.wheel import Clock, Wheel
from simulator.fleet.faults import ActiveFaults
from simulator.fleet.scenario.model import Scenario
from simulator.fleet.signals import SignalSet
from simulator.fleet.target.target import KeyPairFile
from simulator.fleet.workload.links import Links
from simulator.fleet.workload.mqtt_links import MqttLinks


@dataclass(frozen=True, slots=True)
class Address:
    """Where devices talk to, and as whom; it travels to the worker without a secret in it.

    Attributes:
        base_url: of the service, or of the gateway's HTTP front.
        keys: those of all devices (:func:`~simulator.fleet.plan.key_of`); unused where there are tokens.
        tokens: file with the device tokens by device id, JSON; None where devices use the keys.
        broker_host, broker_port: for MQTT.
        broker_ca_file: the authorities that alone are trusted there; None trusts the system's.
        ca_file: the same for ``base_url``.
    """

    base_url: str
    keys: tuple[KeyPairFile, ...]
    tokens: Path | None = None
    broker_host: str | None = None
    broker_port: int | None = None
    broker_ca_file: Path | None = None
    ca_file: Path | None = None


@dataclass(frozen=True, slots=True)
class DeviceSpecs:
    """Which devices a worker has.

    Attributes:
        first_index: of the first of them, in the fleet.
        members: one for each device.
        signals: what each one's readings hold.
        fleet: what they have in common.
    """

    first_index: int
    members: Sequence[Member]
    signals: Sequence[SignalSet]
    fleet: SharedSettings


@dataclass(frozen=True, slots=True)
class WorkerContext:
    """What devices need of their worker.

    Attributes:
        clock, wheel: of the worker's loop.
        observer: of every exchange.
        on_news: called after each exchange.
        connections: for devices that share them.
    """

    clock: Clock
    wheel: Wheel
    observer: Observer
    on_news: Callable[[], None]
    connections: int


class Power(Protocol):
    """Switches devices on and off. A device is its index in the fleet."""

    def switch_on(self, device: int) -> None:
        """Give it power; nothing happens when it has it."""
        ...

    def switch_off(self, device: int) -> None:
        """Take its power in this instant."""
        ...


class Devices(Power, Protocol):
    """The devices of one worker."""

    def lose(self, device: int) -> None:
        """The connection goes in this instant, and no other can be made."""
        ...

    def restore(self, device: int) -> None:
        """Let the device connect again."""
        ...

    def apply_link_faults(self, faults: ActiveFaults | None) -> None:
        """Apply these faults of the network to everything that is sent from now on; None ends it."""
        ...

    def has_link_fault(self, device: int) -> bool:
        """Whether what this device does not get out is its link's doing, and not the generator's."""
        ...

    def arrive(self, stream: int, device: int, due_s: float) -> None:
        """A request of one of the scenario's open arrivals, due at that time on the worker's clock."""
        ...

    def sample(self, *, on: bool) -> None:
        """Read the sensors, or stop reading them; pure load begins or ends its users.

        Many devices are reached over several turns of the loop, and have not settled until then.
        """
        ...

    def unsettled(self) -> list[int]:
        """Devices that have something to hand over; their number is what it costs."""
        ...

    def has_settled(self) -> bool:
        """Whether none has; costs the same for any number of devices."""
        ...

    def await_requests(self, before_s: float) -> None:
        """The phases were over at this time: what fell due before and has no answer yet keeps them unsettled.

        To be called once, before sampling ends for good.
        """
        ...

    def had_contact(self, device: int) -> bool:
        """Whether this device ever had a list of its commands, so that nothing in the next one is history to it."""
        ...

    def gauges(self) -> Mapping[str, float]:
        """The gauges of all of them: ``online``, ``waiting_readings``, ``connections`` and others, by name."""
        ...

    async def close(self) -> int:
        """Close every connection of the devices.

        Returns:
            How many open arrivals were still without an answer; they count as timeouts.
        """
        ...


def sources_of(scenario: Scenario) -> tuple[str, ...]:
    """The addresses of this machine that connections come from; empty for the system's choice.

    Raises:
        ConfigurationError: this machine has none of those that are listed.
    """
    listed = scenario.target.source_addresses
    if isinstance(listed, int):
        return loopback_addresses(listed) if listed > 1 else ()
    if not (own := own_addresses(listed)):
        raise ConfigurationError([f"target.source_addresses: none of {', '.join(listed)} is there any more"], "target")
    return own


def read_tokens(path: Path) -> dict[str, Secret]:
    """The devices' tokens by device id, out of the file that the coordinator wrote.

    Raises:
        ConfigurationError: the file cannot be read.
    """
    try:
        return {name: Secret(token) for name, token in json.loads(path.read_text(encoding="utf-8")).items()}
    except (OSError, ValueError, AttributeError) as error:
        raise ConfigurationError([f"the devices' tokens cannot be read: {error}"], str(path)) from None


def load_devices(specs: DeviceSpecs) -> list[LoadDevice]:
    """The devices as pure load has them."""
    return [LoadDevice(member.device_id, signals) for member, signals in zip(specs.members, specs.signals, strict=True)]


class CoreDevices:
    """What devices with the agent's core do alike over every transport: power, sensors and links."""

    def __init__(self, driver: HttpDriver | MqttDriver, links: Links | MqttLinks) -> None:
        self.switch_on = driver.switch_on
        self.switch_off = driver.switch_off
        self.sample = driver.sample
        self.unsettled = driver.unsettled
        self.has_settled = driver.has_settled
        self.await_requests = driver.await_requests
        self.had_contact = driver.had_contact
        self.lose = links.lose
        self.restore = links.state.restore
        self.apply_link_faults = links.apply_link_faults
        self.has_link_fault = links.has_link_fault

    def arrive(self, stream: int, device: int, due_s: float) -> None:
        """Refuse: devices have their own schedules, and the scenario's check lets no arrivals come here."""
        raise ValueError(f"arrival {stream} for device {device} at {due_s}: level core has no arrivals")
