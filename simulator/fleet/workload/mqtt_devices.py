"""Devices over MQTT, through the gateway's broker, with the agent's core."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from agent.errors import ConfigurationError
from agent.wire.secret import Secret
from agent.wire.trust import trust_store
from simulator.fleet.device.mqtt_driver import MqttDriver
from simulator.fleet.engine.mqtt import BrokerAddress, MqttSessions
from simulator.fleet.scenario.model import Scenario
from simulator.fleet.workload.devices import (
    Address,
    CoreDevices,
    DeviceSpecs,
    WorkerContext,
    read_tokens,
    sources_of,
)
from simulator.fleet.workload.mqtt_links import MqttLinks


def broker_of(scenario: Scenario, address: Address) -> BrokerAddress:
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
    broker = broker_of(scenario, address)
    return MqttSessions(broker, context.wheel, sources=sources_of(scenario), connect_timeout_s=target.timeout_s)


def _tokens(address: Address, specs: DeviceSpecs) -> Callable[[int], Secret | None]:
    """Each device's password at the broker."""
    tokens = read_tokens(address.tokens) if address.tokens is not None else {}
    members, first = specs.members, specs.first_index
    return lambda device: tokens.get(members[device - first].device_id)


class MqttDevices(CoreDevices):
    """Devices with the agent's core, over MQTT through the gateway's broker."""

    def __init__(self, scenario: Scenario, address: Address, specs: DeviceSpecs, context: WorkerContext) -> None:
        self._engine = _sessions(scenario, address, context)
        self._links = MqttLinks(
            self._engine,
            context.clock,
            context.wheel,
            connect_timeout_s=scenario.target.timeout_s,
            seed=scenario.seed,
        )
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
