"""A worker's devices as the scenario wants them: over HTTP or MQTT with the agent's core, or requests without them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from agent.errors import ConfigurationError
from agent.wire.network import trust_store
from agent.wire.secret import Secret
from simulator.fleet.device.driver import Member
from simulator.fleet.device.http_driver import HttpDriver
from simulator.fleet.device.links import Links
from simulator.fleet.device.model import SharedSettings, TransportOptions
from simulator.fleet.device.mqtt_driver import MqttDriver
from simulator.fleet.device.mqtt_links import MqttLinks
from simulator.fleet.device.request_template import RequestTemplate
from simulator.fleet.device.requests import RequestDriver
from simulator.fleet.engine.addresses import loopback_addresses, own_addresses
from simulator.fleet.engine.http.engine import Http1Engine, HttpOptions
from simulator.fleet.engine.http.origin import read_origin
from simulator.fleet.engine.mqtt import BrokerAddress, MqttSessions
from simulator.fleet.engine.ports import HttpEngine
from simulator.fleet.engine.wheel import Clock, Wheel
from simulator.fleet.plan import key_of
from simulator.fleet.scenario.model import RequestsScenario, Scenario, StormPhase
from simulator.fleet.target.key_pool import headers_of
from simulator.fleet.target.target import KeyPairFile, read_keys

Devices = HttpDriver | MqttDriver | RequestDriver
"""What plays the devices of a worker; all of them have the same methods."""


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
class WorkerParts:
    """The devices of a worker, and what they need of it.

    Attributes:
        members: one for each device.
        fleet: what they have in common.
        clock, wheel: of the worker's loop.
        connections: for devices that share them.
    """

    members: Sequence[Member]
    fleet: SharedSettings
    clock: Clock
    wheel: Wheel
    connections: int


def make_devices(scenario: Scenario, address: Address, parts: WorkerParts, options: TransportOptions) -> Devices:
    """The devices as the scenario wants them.

    Raises:
        ConfigurationError: an address, a key or a certificate cannot be used.
    """
    timeout_s = scenario.target.timeout_s
    sources, has_links = _sources_of(scenario), _touches_links(scenario)
    if scenario.target.transport == "mqtt":
        broker = broker_of(scenario, address)
        sessions = MqttSessions(broker, parts.wheel, sources=sources, connect_timeout_s=timeout_s)
        links = MqttLinks(sessions, parts.clock, parts.wheel, connect_timeout_s=timeout_s, seed=scenario.seed)
        tokens = read_tokens(address.tokens) if address.tokens is not None else {}
        first = options["first_index"]
        return MqttDriver(
            links if has_links else sessions,
            parts.wheel,
            parts.members,
            parts.fleet,
            tokens=lambda device: tokens.get(parts.members[device - first].device_id),
            **options,
        )
    http = HttpOptions(
        read_origin(address.base_url, address.ca_file),
        per_device=not scenario.target.is_pooled,
        pool=parts.connections,
        sources=sources,
    )
    engine: HttpEngine = Http1Engine(http, parts.wheel)
    if has_links:
        engine = Links(engine, parts.clock, parts.wheel, scenario.seed)
    templates = _templates_of(scenario, address, parts.members, options["first_index"])
    if isinstance(scenario, RequestsScenario):
        share = len(parts.members) / scenario.fleet.devices
        return RequestDriver(
            engine, parts.wheel, templates, parts.members, parts.fleet, scenario.arrivals, share, **options
        )
    return HttpDriver(engine, parts.wheel, templates, parts.members, parts.fleet, **options)


def _touches_links(scenario: Scenario) -> bool:
    """Whether something of the scenario is done to links, so that an engine has to be in between."""
    cuts = any(isinstance(phase, StormPhase) and phase.loss == "connection" for phase in scenario.phases)
    return cuts or bool(scenario.faults)


def broker_of(scenario: Scenario, address: Address) -> BrokerAddress:
    """Where sessions go; one TLS context for all of them, None for connections in the clear.

    Raises:
        ConfigurationError: there is no broker, or its authority cannot be read.
    """
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


def read_tokens(path: Path) -> dict[str, Secret]:
    """The devices' tokens by device id, out of the file that the coordinator wrote.

    Raises:
        ConfigurationError: the file cannot be read.
    """
    try:
        return {name: Secret(token) for name, token in json.loads(path.read_text(encoding="utf-8")).items()}
    except (OSError, ValueError, AttributeError) as error:
        raise ConfigurationError([f"the devices' tokens cannot be read: {error}"], str(path)) from None


def _templates_of(
    scenario: Scenario, address: Address, members: Sequence[Member], first_index: int
) -> list[RequestTemplate]:
    """One for each device of the worker: with its token, or with the key pair that is its own of the whole fleet's."""
    origin = read_origin(address.base_url, address.ca_file)
    if address.tokens is None:
        heads = [RequestTemplate(origin, headers_of(pair)) for pair in read_keys(address.keys)]
        devices = range(first_index, first_index + len(members))
        return [heads[key_of(device, scenario.fleet.devices, len(heads))] for device in devices]
    tokens = read_tokens(address.tokens)
    credentials = [f"Bearer {tokens[member.device_id].reveal()}" for member in members]
    return [RequestTemplate(origin, {"authorization": each}) for each in credentials]


def _sources_of(scenario: Scenario) -> tuple[str, ...]:
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
