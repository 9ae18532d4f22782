"""The machines of a cluster as the place of a run: how many workers they take, and whether each can hold its share."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from agent.errors import ConfigurationError
from simulator.fleet.engine.preflight import Host, ResourceCheck, examine, missing, read_host
from simulator.fleet.plan import count_workers, deal
from simulator.fleet.run.capacity import Sources, addresses_of_devices, demand_of, find_sources, starving
from simulator.fleet.run.cluster.connection import on_each
from simulator.fleet.run.cluster.job_files import check_files
from simulator.fleet.run.cluster.placement import Node, Placement, place_workers
from simulator.fleet.run.cluster.ray_workers import RayWorkers
from simulator.fleet.run.workers import Work, Workers
from simulator.fleet.scenario.model import Scenario
from simulator.fleet.scenario.reading import ScenarioFile
from simulator.fleet.target.safety import is_here
from simulator.fleet.target.target import Target

_CANNOT_HOLD: Final = "the cluster cannot hold the run as the scenario says"


class Cluster:
    """The machines of a cluster (:class:`~simulator.fleet.run.place.Place`).

    Args:
        nodes: those that can have workers.
        resource: Ray's name of what each worker takes one of, beside a core; None for nothing.
    """

    def __init__(self, nodes: Sequence[Node], resource: str | None = None) -> None:
        self._nodes = nodes
        self._resource = resource
        self._placements: tuple[Placement, ...] = ()

    def count_workers(self, scenario: Scenario) -> int:
        """How many workers make the load. See :class:`~simulator.fleet.run.place.Place`."""
        return count_workers(scenario, sum(node.cores for node in self._nodes))

    def check(self, file: ScenarioFile, target: Target, workers: int) -> tuple[ResourceCheck, ...]:
        """Compare each machine's share with the machine. See :class:`~simulator.fleet.run.place.Place`."""
        scenario = file.scenario
        check_files(scenario, file.folder)
        self._placements = place_workers(workers, self._nodes, self._resource)
        nodes = [placement.node for placement in self._placements]
        addresses = addresses_of_devices(scenario, target)
        faults = [*starving(scenario), *_loopback_faults(nodes, {*target.addresses, *addresses})]
        parts = deal(scenario.fleet.devices, workers, len(target.keys) or 1)
        found: list[ResourceCheck] = []
        looks = on_each(nodes, _make_look(scenario.target.source_addresses, addresses))
        for placement, (host, sources) in zip(self._placements, looks, strict=True):
            name = placement.node.name
            checks = tuple(
                replace(each, what=f"{name}: {each.what}")
                for each in _checks(scenario, placement, parts, host, sources)
            )
            without = [f"{name}: target.source_addresses: {fault}" for fault in sources.faults]
            faults += without or missing(checks)
            found += checks
        if faults:
            raise ConfigurationError(faults, _CANNOT_HOLD)
        return tuple(found)

    def make_workers(self, work: Work) -> Workers:
        """The workers, not started yet. See :class:`~simulator.fleet.run.place.Place`."""
        return RayWorkers(work, self._placements, resource=self._resource)

    def describe(self) -> str:
        """Which machine has which workers. See :class:`~simulator.fleet.run.place.Place`."""
        return "; ".join(
            f"{place.node.name} with worker {place.first}"
            + (f" to {place.first + place.workers - 1}" if place.workers > 1 else "")
            for place in self._placements
        )


def _checks(
    scenario: Scenario, placement: Placement, parts: Sequence[range], host: Host, sources: Sources
) -> tuple[ResourceCheck, ...]:
    """What the run asks of one machine, with what there is."""
    whole = demand_of(scenario, len(parts), target_is_here=False, source_addresses=sources.count)
    devices = sum(map(len, parts[placement.first : placement.first + placement.workers]))
    sockets = math.ceil(whole.sockets * devices / max(whole.devices, 1))
    return examine(replace(whole, devices=devices, sockets=sockets, workers=placement.workers), host)


def _make_look(listed: int | Sequence[str], addresses: Sequence[str]) -> Callable[[], tuple[Host, Sources]]:
    """Looks at what a machine has."""
    return lambda: (read_host(), find_sources(listed, addresses))


def _loopback_faults(nodes: Sequence[Node], addresses: set[str]) -> list[str]:
    """A sentence for each loopback address where workers are on other machines: there it leads to those."""
    others = ", ".join(node.name for node in nodes if not node.is_here)
    fix = "give the target's address in the network"
    return [
        f"{address} leads to the machine that uses it, and workers are on {others}: {fix}"
        for address in sorted(addresses)
        if others and is_here(address)
    ]
