"""The devices of a worker behind one face: over HTTP or MQTT with the agent's core, or as pure load without it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from agent.errors import ConfigurationError
from agent.wire.secret import Secret
from agent.wire.trust import trust_store
from simulator.fleet.device.http_driver import HttpDriver, Member
from simulator.fleet.device.http_load import HttpLoad, LoadOptions
from simulator.fleet.device.load_base import LoadDevice, RequestKind
from simulator.fleet.device.model import Fleetwide
from simulator.fleet.device.mqtt_driver import MqttDriver
from simulator.fleet.device.mqtt_load import MqttLoad
from simulator.fleet.device.observer import Observer
from simulator.fleet.device.request_template import RequestTemplate
from simulator.fleet.engine.addresses import loopback_addresses
from simulator.fleet.engine.http.engine import Http1Engine, HttpOptions
from simulator.fleet.engine.http.origin import read_origin
from simulator.fleet.engine.mqtt.engine import BrokerAddress, MqttSessions
from simulator.fleet.engine.wheel import Clock, Wheel
from simulator.fleet.scenario.model import Scenario
from simulator.fleet.scenario.target import TargetSettings
from simulator.fleet.signals.base import SignalSet
from simulator.fleet.target.key_pool import headers_of
from simulator.fleet.target.target import KeyPairFile, read_keys
from simulator.fleet.workload.link_state import LinkFaults
from simulator.fleet.workload.links import Links
from simulator.fleet.workload.mqtt_links import MqttLinks
from simulator.fleet.workload.slow_connections import SlowTarget, over_http, over_mqtt


@dataclass(frozen=True, slots=True)
class Address:
    """Where devices talk to, and as whom; it travels to the worker without a secret in it.

    Attributes:
        base_url: of the service, or of the gateway's HTTP front.
        keys: the devices are dealt out over them by their number; unused where there are tokens.
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
    fleet: Fleetwide


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
    """A worker's devices."""

    def lose(self, device: int) -> None:
        """The connection goes in this instant, and no other can be made."""
        ...

    def restore(self, device: int) -> None:
        """It can connect again."""
        ...

    def apply_link_faults(self, faults: LinkFaults) -> None:
        """From now on what is said gets through as these faults of the network let it."""
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
        """Close every connection.

        Returns:
            How many open arrivals were still without an answer; they count as timeouts.
        """
        ...


def make_devices(scenario: Scenario, address: Address, specs: DeviceSpecs, context: WorkerContext) -> Devices:
    """The devices as the scenario wants them.

    Raises:
        ConfigurationError: an address, a key or a certificate cannot be used.
    """
    if scenario.level == "wire":
        return WireDevices(scenario, address, specs, context)
    if scenario.target.transport == "mqtt":
        return MqttDevices(scenario, address, specs, context)
    return HttpDevices(scenario, address, specs, context)


def _http_engine(target: TargetSettings, address: Address, context: WorkerContext) -> Http1Engine:
    options = HttpOptions(
        read_origin(address.base_url, address.ca_file),
        per_device=target.connections == "per_device",
        pool=context.connections,
        sources=_sources(target),
    )
    return Http1Engine(options, context.wheel)


def _sources(target: TargetSettings) -> tuple[str, ...]:
    return loopback_addresses(target.source_addresses) if target.source_addresses > 1 else ()


def _read_tokens(path: Path) -> dict[str, Secret]:
    try:
        return {name: Secret(token) for name, token in json.loads(path.read_text(encoding="utf-8")).items()}
    except (OSError, ValueError, AttributeError) as error:
        raise ConfigurationError([f"the devices' tokens cannot be read: {error}"], str(path)) from None


def _templates(address: Address, specs: DeviceSpecs) -> list[RequestTemplate]:
    """One for each key pair, or one for each device that has a token; dealt out by the device's number."""
    origin = read_origin(address.base_url, address.ca_file)
    if address.tokens is None:
        return [RequestTemplate(origin, headers_of(pair)) for pair in read_keys(address.keys)]
    tokens, count = _read_tokens(address.tokens), len(specs.members)
    heads = [
        RequestTemplate(origin, {"authorization": f"Bearer {tokens[member.device_id].reveal()}"})
        for member in specs.members
    ]
    # Device i takes number i modulo the count, and this worker's first device is not number 0.
    shift = -specs.first_index % count
    return heads[shift:] + heads[:shift]


class _CoreDevices:
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
        """They have their own schedules; the scenario's check refuses arrivals for them."""
        raise ValueError(f"arrival {stream} for device {device} at {due_s}: level core has no arrivals")


class HttpDevices(_CoreDevices):
    """Devices with the agent's core, over HTTP."""

    def __init__(self, scenario: Scenario, address: Address, specs: DeviceSpecs, context: WorkerContext) -> None:
        self._engine = _http_engine(scenario.target, address, context)
        self._links = Links(self._engine, context.clock, context.wheel)
        self._driver = HttpDriver(
            self._links,
            context.wheel,
            _templates(address, specs),
            specs.members,
            specs.fleet,
            first_index=specs.first_index,
            observer=context.observer,
            timeout_s=scenario.target.timeout_s,
            on_news=context.on_news,
        )
        super().__init__(self._driver, self._links)

    def gauges(self) -> Mapping[str, float]:
        """The gauges of all of them: ``online``, ``waiting_readings``, ``connections`` and others, by name."""
        gauges = self._driver.gauges
        return {
            "online": float(gauges.online - self._links.state.down),
            "waiting_readings": float(gauges.waiting_readings),
            "connections": float(self._engine.connections),
            **({"results_put_aside": float(gauges.results_put_aside)} if gauges.results_put_aside else {}),
        }

    async def close(self) -> int:
        """Close every connection. See :class:`Devices`."""
        self._driver.end()
        await self._links.close()
        self._driver.give_up(self._driver.clocks.monotonic())
        return 0


def _broker(scenario: Scenario, address: Address) -> BrokerAddress:
    """Where sessions go; one TLS context for all of them, None for connections in the clear."""
    if address.broker_host is None or address.broker_port is None:
        raise ConfigurationError(["transport mqtt needs target.broker, or --up of a service with a broker"], "fleet")
    settings, tls = scenario.target.broker, None
    if settings is not None and settings.tls:
        try:
            tls = trust_store(address.broker_ca_file)
        except OSError as error:
            source = f"target.broker.ca_file {address.broker_ca_file}"
            raise ConfigurationError([f"it is no file with an authority to trust: {error}"], source) from None
    return BrokerAddress(address.broker_host, address.broker_port, tls)


def _sessions(scenario: Scenario, address: Address, context: WorkerContext) -> MqttSessions:
    target = scenario.target
    broker = _broker(scenario, address)
    return MqttSessions(broker, context.wheel, sources=_sources(target), connect_timeout_s=target.timeout_s)


def _tokens(address: Address, specs: DeviceSpecs) -> Callable[[int], Secret | None]:
    """Each device's password at the broker."""
    tokens = _read_tokens(address.tokens) if address.tokens is not None else {}
    members, first = specs.members, specs.first_index
    return lambda device: tokens.get(members[device - first].device_id)


def slow_target(scenario: Scenario, address: Address) -> SlowTarget:
    """Where the slow connections of a slow loris go: where the devices go."""
    if scenario.target.transport == "mqtt":
        return over_mqtt(_broker(scenario, address))
    return over_http(read_origin(address.base_url, address.ca_file))


class MqttDevices(_CoreDevices):
    """Devices with the agent's core, over MQTT through the gateway's broker."""

    def __init__(self, scenario: Scenario, address: Address, specs: DeviceSpecs, context: WorkerContext) -> None:
        self._engine = _sessions(scenario, address, context)
        self._links = MqttLinks(self._engine, context.clock, context.wheel, connect_timeout_s=scenario.target.timeout_s)
        self._driver = MqttDriver(
            self._links,
            context.wheel,
            specs.members,
            specs.fleet,
            tokens=_tokens(address, specs),
            first_index=specs.first_index,
            observer=context.observer,
            timeout_s=scenario.target.timeout_s,
            on_news=context.on_news,
        )
        super().__init__(self._driver, self._links)

    def gauges(self) -> Mapping[str, float]:
        """The gauges of all of them: ``online``, ``waiting_readings``, ``connections`` and others, by name."""
        return {
            "online": float(self._driver.connections),
            "waiting_readings": float(self._driver.gauges.waiting_readings),
            "connections": float(self._driver.connections),
        }

    async def close(self) -> int:
        """Close every connection. See :class:`Devices`."""
        self._driver.end()
        self._driver.give_up(self._driver.clocks.monotonic())
        await self._engine.close()
        return 0


class WireDevices:
    """Pure load: requests or messages as devices send them, without devices."""

    def __init__(self, scenario: Scenario, address: Address, specs: DeviceSpecs, context: WorkerContext) -> None:
        self._engine: MqttSessions | Http1Engine
        self._load: HttpLoad | MqttLoad
        self._links: Links | MqttLinks
        self._online: set[int] = set()
        subjects = [
            LoadDevice(member.device_id, signals) for member, signals in zip(specs.members, specs.signals, strict=True)
        ]
        if scenario.target.transport == "mqtt":
            self._over_mqtt(scenario, address, specs, context, subjects)
        else:
            self._over_http(scenario, address, specs, context, subjects)
        self._arrivals = scenario.arrivals
        self.lose = self._links.lose
        self.restore = self._links.state.restore
        self.apply_link_faults = self._links.apply_link_faults
        self.has_link_fault = self._links.has_link_fault
        self._share = len(specs.members) / scenario.fleet.devices
        self._users_are_on = False
        self._is_draining = False

    def _over_http(
        self,
        scenario: Scenario,
        address: Address,
        specs: DeviceSpecs,
        context: WorkerContext,
        subjects: Sequence[LoadDevice],
    ) -> None:
        engine = self._engine = _http_engine(scenario.target, address, context)
        links = self._links = Links(engine, context.clock, context.wheel)
        self._load = HttpLoad(
            links if scenario.faults else engine,
            context.wheel,
            _templates(address, specs),
            subjects,
            specs.fleet,
            first_index=specs.first_index,
            observer=context.observer,
            options=LoadOptions(timeout_s=scenario.target.timeout_s),
            on_news=context.on_news,
        )

    def _over_mqtt(
        self,
        scenario: Scenario,
        address: Address,
        specs: DeviceSpecs,
        context: WorkerContext,
        subjects: Sequence[LoadDevice],
    ) -> None:
        engine = self._engine = _sessions(scenario, address, context)
        timeout_s = scenario.target.timeout_s
        links = self._links = MqttLinks(engine, context.clock, context.wheel, connect_timeout_s=timeout_s)
        self._load = MqttLoad(
            links if scenario.faults else engine,
            context.wheel,
            subjects,
            specs.fleet,
            tokens=_tokens(address, specs),
            first_index=specs.first_index,
            observer=context.observer,
            timeout_s=timeout_s,
            on_news=context.on_news,
        )

    def switch_on(self, device: int) -> None:
        """A device counts from now on; the plan's arrivals go by it. The first one brings the closed users."""
        self._online.add(device)
        if isinstance(self._load, MqttLoad):
            self._load.switch_on(device)
        if not self._is_draining:
            self.sample(on=True)

    def switch_off(self, device: int) -> None:
        """It does not count any more."""
        self._online.discard(device)
        if isinstance(self._load, MqttLoad):
            self._load.switch_off(device)

    def arrive(self, stream: int, device: int, due_s: float) -> None:
        """A request of one of the scenario's open arrivals, due at that time on the worker's clock."""
        self._load.send(RequestKind(self._arrivals[stream].operation), device, due_s)

    def sample(self, *, on: bool) -> None:
        """Read the sensors, or stop reading them; pure load begins or ends its users. See :class:`Devices`."""
        if on == self._users_are_on:
            return
        self._users_are_on = on
        if not on:
            self._load.stop_users()
            return
        for arrivals in self._arrivals:
            if arrivals.kind == "closed":
                users = max(1, round(arrivals.users * self._share))
                self._load.start_users(RequestKind(arrivals.operation), users, arrivals.pause_s)

    def unsettled(self) -> list[int]:
        """Devices that have something to hand over; their number is what it costs.

        See :class:`Devices`: those whose requests are under way, which end by themselves.
        """
        return list({sending.device for sending in self._load.under_way})

    def has_settled(self) -> bool:
        """Whether none has; costs the same for any number of devices. See :class:`Devices`."""
        return not self._load.under_way

    def await_requests(self, before_s: float) -> None:
        """The phases were over at this time: what fell due before and has no answer yet keeps them unsettled.

        See :class:`Devices`: requests under way are waited for whenever they fell due.
        """
        del before_s
        self._is_draining = True

    def had_contact(self, device: int) -> bool:
        """Whether this device ever had a list of its commands, so that nothing in the next one is history to it.

        See :class:`Devices`: no device carries anything out here.
        """
        del device
        return True

    def gauges(self) -> Mapping[str, float]:
        """The gauges of all of them: ``online``, ``waiting_readings``, ``connections`` and others, by name."""
        if isinstance(self._engine, Http1Engine):
            online, connections = len(self._online), self._engine.connections
        else:
            online = connections = self._engine.standing
        return {
            "online": float(online),
            "waiting_readings": float(len(self._load.under_way)),
            "connections": float(connections),
        }

    async def close(self) -> int:
        """Close every connection. See :class:`Devices`."""
        self._load.end()
        await self._links.close()
        return self._load.undelivered
