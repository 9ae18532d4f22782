"""Devices over HTTP, with the agent's core."""

from __future__ import annotations

from collections.abc import Mapping

from simulator.fleet.device.http_driver import HttpDriver
from simulator.fleet.device.request_template import RequestTemplate
from simulator.fleet.engine.http.engine import Http1Engine, HttpOptions
from simulator.fleet.engine.http.origin import read_origin
from simulator.fleet.plan import key_of
from simulator.fleet.scenario.model import Scenario
from simulator.fleet.target.key_pool import headers_of
from simulator.fleet.target.target import read_keys
from simulator.fleet.workload.devices import (
    Address,
    CoreDevices,
    DeviceSpecs,
    WorkerContext,
    read_tokens,
    sources_of,
)
from simulator.fleet.workload.links import Links


def http_engine(scenario: Scenario, address: Address, context: WorkerContext) -> Http1Engine:
    options = HttpOptions(
        read_origin(address.base_url, address.ca_file),
        per_device=not scenario.target.is_pooled,
        pool=context.connections,
        sources=sources_of(scenario),
    )
    return Http1Engine(options, context.wheel)


def templates_of(address: Address, specs: DeviceSpecs, devices: int) -> list[RequestTemplate]:
    """One for each device of the worker: with its token, or with the key pair that is its own of the whole fleet's."""
    origin, first = read_origin(address.base_url, address.ca_file), specs.first_index
    if address.tokens is None:
        heads = [RequestTemplate(origin, headers_of(pair)) for pair in read_keys(address.keys)]
        return [heads[key_of(first + place, devices, len(heads))] for place in range(len(specs.members))]
    tokens = read_tokens(address.tokens)
    return [
        RequestTemplate(origin, {"authorization": f"Bearer {tokens[member.device_id].reveal()}"})
        for member in specs.members
    ]


class HttpDevices(CoreDevices):
    """Devices with the agent's core, over HTTP."""

    def __init__(self, scenario: Scenario, address: Address, specs: DeviceSpecs, context: WorkerContext) -> None:
        self._engine = http_engine(scenario, address, context)
        self._links = Links(self._engine, context.clock, context.wheel, scenario.seed)
        self._driver = HttpDriver(
            self._links,
            context.wheel,
            templates_of(address, specs, scenario.fleet.devices),
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
