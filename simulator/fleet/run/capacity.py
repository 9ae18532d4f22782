"""Whether a machine can hold its share of a scenario: memory, descriptors, ports, addresses."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final

from simulator.fleet.engine.addresses import own_addresses, why_unreachable
from simulator.fleet.engine.preflight import Demand, Host, ResourceCheck, examine, missing, read_host
from simulator.fleet.forecast import sockets_of
from simulator.fleet.scenario.model import Scenario
from simulator.fleet.target.target import Target

CORE_DEVICE_BYTES: Final = 12 * 1024
"""A device that runs the agent's core, with a short backlog."""
WIRE_DEVICE_BYTES: Final = 1024
"""A device of plain requests: a number, an address and when it is due."""


def addresses_of_devices(scenario: Scenario, target: Target) -> tuple[str, ...]:
    """The URLs that the devices of a scenario connect to: service or gateway, and over MQTT the broker."""
    settings = scenario.target
    front = (target.gateway_url if settings.uses_gateway else None) or target.base_url
    return (front, target.broker_url) if settings.transport == "mqtt" and target.broker_url else (front,)


def check_share(
    scenario: Scenario,
    addresses: Sequence[str],
    *,
    devices: int,
    workers: int,
    target_is_here: bool = False,
    host: Host | None = None,
) -> tuple[tuple[ResourceCheck, ...], list[str]]:
    """Compare what a share of a scenario's devices asks with what this machine has; nothing is sent.

    Args:
        scenario: what is to be run.
        addresses: that devices connect to, as URLs.
        devices, workers: how many of them this machine has.
        target_is_here: the target is on this machine.
        host: another machine than this one.

    Returns:
        Every need with what this machine has; and why the share cannot be played here, one sentence each. A need that
        is not met, without such a sentence, will only disturb the measurement.
    """
    target = scenario.target
    sources, faults = _count_sources(target.source_addresses, addresses)
    demand = Demand(
        devices=devices,
        device_bytes=WIRE_DEVICE_BYTES if scenario.kind == "requests" else CORE_DEVICE_BYTES,
        sockets=math.ceil(sockets_of(scenario) * devices / max(scenario.fleet.devices, 1)),
        workers=workers,
        source_addresses=sources,
        tls=any(address.startswith(("https:", "mqtts:")) for address in addresses),
        target_is_here=target_is_here,
    )
    checks = examine(demand, host or read_host())
    return checks, faults or missing(checks)


def _count_sources(listed: Sequence[str], addresses: Sequence[str]) -> tuple[int, list[str]]:
    """How many addresses devices connect from (1 where the system chooses), and why they cannot be used."""
    if not listed:
        return 1, []
    own = own_addresses(listed)
    if not own:
        return 0, [f"target.source_addresses: has none of {', '.join(listed)}: list one of its addresses"]
    for source in own:
        for address in addresses:
            if why := why_unreachable(source, address):
                fix = "leave it out, or set up a route"
                return len(own), [f"target.source_addresses: no way from {source} to {address} ({why}): {fix}"]
    return len(own), []


def pool_too_small(scenario: Scenario) -> Iterator[str]:
    """Fault when ``pool`` or more devices long-poll over shared connections: each poll keeps one to itself."""
    target, devices = scenario.target, scenario.fleet.devices
    if target.holds_polls and target.is_pooled and devices >= target.pool:
        fix = f"leave it out, or write transport: http_poll, or connections: {devices + max(devices // 20, 16)}"
        yield f"target.connections: {devices} devices hold a poll each, on {target.pool} that they share: {fix}"
