"""What a scenario asks of the machine that runs it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from agent.errors import ConfigurationError
from simulator.fleet.engine.addresses import own_addresses, why_unreachable
from simulator.fleet.engine.preflight import Demand, Host, ResourceCheck, examine, missing, read_host
from simulator.fleet.forecast import sockets_of
from simulator.fleet.scenario.model import Scenario
from simulator.fleet.target.target import Target

CORE_DEVICE_BYTES: Final = 12 * 1024
"""A device that runs the agent's core, with a short backlog."""
WIRE_DEVICE_BYTES: Final = 1024
"""A number, an address and when it is due."""


@dataclass(frozen=True, slots=True)
class Sources:
    """The addresses of a machine that its devices connect from.

    Attributes:
        count: how many; 1 where the system chooses.
        faults: why they cannot be used, one sentence each.
    """

    count: int = 1
    faults: tuple[str, ...] = ()


def find_sources(listed: Sequence[str], addresses: Sequence[str]) -> Sources:
    """Those of this machine, held against the ways to the target; nothing is sent.

    Args:
        listed: ``target.source_addresses`` of a scenario.
        addresses: that devices connect to, as URLs.
    """
    if not listed:
        return Sources()
    own = own_addresses(listed)
    if not own:
        return Sources(0, (f"has none of {', '.join(listed)}: list one of its addresses",))
    ways = [(source, address, why_unreachable(source, address)) for source in own for address in addresses]
    first = next(((source, address, why) for source, address, why in ways if why), None)
    if first is None:
        return Sources(len(own))
    source, address, why = first
    return Sources(len(own), (f"no way from {source} to {address} ({why}): leave it out, or set up a route",))


def addresses_of_devices(scenario: Scenario, target: Target) -> tuple[str, ...]:
    """The URLs that the devices of a scenario connect to: service or gateway, and over MQTT the broker."""
    settings = scenario.target
    front = (target.gateway_url if settings.uses_gateway else None) or target.base_url
    host, port = target.broker_host, target.broker_port
    if host is None and settings.broker is not None:
        host, port = settings.broker.host, settings.broker.port
    return (front, f"mqtt://{host}:{port}") if settings.transport == "mqtt" and host else (front,)


def demand_of(scenario: Scenario, workers: int, *, target_is_here: bool, source_addresses: int = 1) -> Demand:
    """What a scenario asks.

    Args:
        scenario: what is to be run.
        workers: how many processes make the load.
        target_is_here: the target is on this machine.
        source_addresses: that devices connect from.
    """
    target, devices = scenario.target, scenario.fleet.devices
    return Demand(
        devices=devices,
        device_bytes=WIRE_DEVICE_BYTES if scenario.kind == "requests" else CORE_DEVICE_BYTES,
        sockets=sockets_of(scenario),
        workers=workers,
        source_addresses=source_addresses,
        tls=target.base_url.startswith("https:") or (target.broker is not None and target.broker.tls),
        target_is_here=target_is_here,
    )


def check_capacity(
    scenario: Scenario, workers: int, *, target_is_here: bool, host: Host | None = None, sources: Sources | None = None
) -> tuple[ResourceCheck, ...]:
    """Compare what a scenario asks with this machine, before anything is made on the target.

    Args:
        scenario: what is to be run.
        workers: how many processes make the load.
        target_is_here: the target is on this machine.
        host: another machine than this one.
        sources: addresses to connect from; None for the system's choice.

    Returns:
        Every need with what there is; those that do not fit will disturb the measurement.

    Raises:
        ConfigurationError: the run cannot be what the scenario says; the text has the numbers and the fix.
    """
    sources = sources or Sources()
    demand = demand_of(scenario, workers, target_is_here=target_is_here, source_addresses=sources.count)
    findings = examine(demand, host or read_host())
    unusable = [f"target.source_addresses: {fault}" for fault in sources.faults]
    if faults := [*(unusable or missing(findings)), *starving(scenario)]:
        raise ConfigurationError(faults, "this machine cannot hold the run as the scenario says")
    return findings


def starving(scenario: Scenario) -> Iterator[str]:
    """What is wrong with held polls on shared connections: each keeps one for as long as the service holds it."""
    target, devices = scenario.target, scenario.fleet.devices
    if not target.holds_polls or not target.is_pooled or devices < target.pool:
        return
    pool = devices + max(devices // 20, 16)
    problem = (
        f"target.connections: {devices} devices hold a poll each, on {target.pool} connections that they share: write "
    )
    yield f"{problem}connections: per_device, or transport: http_poll, or connections: {pool}"
