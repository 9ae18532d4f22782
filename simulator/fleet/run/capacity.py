"""What a scenario asks of the machine that runs it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from agent.errors import ConfigurationError
from simulator.fleet.engine.preflight import Demand, Host, ResourceCheck, examine, missing, read_host
from simulator.fleet.scenario.model import Scenario

CORE_DEVICE_BYTES: Final = 12 * 1024
"""A device that runs the agent's core, with a short backlog."""
WIRE_DEVICE_BYTES: Final = 1024
"""A number, an address and when it is due."""


def demand_of(scenario: Scenario, workers: int, *, target_is_here: bool) -> Demand:
    """What a scenario asks.

    Args:
        scenario: what is to be run.
        workers: how many processes make the load.
        target_is_here: the target is on this machine.
    """
    target, devices = scenario.target, scenario.fleet.devices
    if target.traits.has_sessions:
        sockets = devices
    elif target.connections == "pooled":
        sockets = target.pool
    else:
        # While the service holds its poll, a device sends over a second socket.
        sockets = devices * (2 if target.traits.polls == "held" else 1)
    return Demand(
        devices=devices,
        device_bytes=CORE_DEVICE_BYTES if scenario.level == "core" else WIRE_DEVICE_BYTES,
        sockets=sockets,
        workers=workers,
        source_addresses=target.source_addresses,
        tls=target.base_url.startswith("https:") or (target.broker is not None and target.broker.tls),
        target_is_here=target_is_here,
    )


def check_capacity(
    scenario: Scenario, workers: int, *, target_is_here: bool, host: Host | None = None
) -> tuple[ResourceCheck, ...]:
    """Compare what a scenario asks with this machine, before anything is made on the target.

    Args:
        scenario: what is to be run.
        workers: how many processes make the load.
        target_is_here: the target is on this machine.
        host: another machine than this one.

    Returns:
        Every need with what there is; those that do not fit will disturb the measurement.

    Raises:
        ConfigurationError: the run cannot be what the scenario says; the text has the numbers and the fix.
    """
    findings = examine(demand_of(scenario, workers, target_is_here=target_is_here), host or read_host())
    if faults := [*missing(findings), *starving(scenario)]:
        raise ConfigurationError(faults, "this machine cannot hold the run as the scenario says")
    return findings


def starving(scenario: Scenario) -> Iterator[str]:
    """What is wrong with held polls on shared connections: each keeps one for as long as the service holds it."""
    target, devices = scenario.target, scenario.fleet.devices
    holds = scenario.level == "core" and scenario.kind in {"load", "command_round_trip"}
    if not holds or target.traits.polls != "held" or target.connections != "pooled" or devices < target.pool:
        return
    pool = devices + max(devices // 20, 16)
    said = f"target.pool: {devices} devices hold a poll each, on {target.pool} connections that they share: write "
    yield f"{said}connections: per_device, or transport: http_poll, or pool: {pool}"
