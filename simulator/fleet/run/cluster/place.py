"""The machines of a cluster as the place of a run: how many workers they take, and whether each can hold its share."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from agent.errors import ConfigurationError
from simulator.fleet.engine.preflight import Demand, Host, ResourceCheck, examine, missing, read_host
from simulator.fleet.plan.shares import deal
from simulator.fleet.plan.workers import count_workers
from simulator.fleet.record import NodeRecord
from simulator.fleet.run.capacity import Sources, addresses_of_devices, demand_of, find_sources, starving
from simulator.fleet.run.cluster.advice import advise
from simulator.fleet.run.cluster.claim import claimed_in_cluster
from simulator.fleet.run.cluster.connection import count_free, on_each
from simulator.fleet.run.cluster.job_files import check_files
from simulator.fleet.run.cluster.placement import Node, Placement, place_workers
from simulator.fleet.run.cluster.ray_workers import RayWorkers
from simulator.fleet.run.device_lock import claimed_devices
from simulator.fleet.run.workers import Work, Workers
from simulator.fleet.scenario.model import Scenario
from simulator.fleet.scenario.reading import ScenarioFile
from simulator.fleet.target.safety import is_here
from simulator.fleet.target.target import Target

CANNOT_HOLD: Final = "the cluster cannot hold the run as the scenario says"


@dataclass(frozen=True, slots=True)
class Share:
    """The needs of a run on one machine, compared with the machine's resources.

    Attributes:
        name: of the machine.
        first: number of its first worker.
        demand: of its workers.
        checks: every need with what there is.
        unusable: why it cannot connect from the addresses that the scenario lists.
    """

    name: str
    first: int
    demand: Demand
    checks: tuple[ResourceCheck, ...]
    unusable: tuple[str, ...] = ()

    @property
    def faults(self) -> list[str]:
        """Why the machine cannot hold its share, one sentence each; without addresses, ports are no matter."""
        without = [f"{self.name}: target.source_addresses: {fault}" for fault in self.unusable]
        return without or missing(self.named_checks)

    @property
    def named_checks(self) -> tuple[ResourceCheck, ...]:
        """The same with the machine's name, for a list of those of several machines."""
        return tuple(replace(each, what=f"{self.name}: {each.what}") for each in self.checks)


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
        shares, faults = self.shares(file, target, workers)
        if faults:
            raise ConfigurationError(faults, CANNOT_HOLD)
        return tuple(check for share in shares for check in share.named_checks)

    def shares(self, file: ScenarioFile, target: Target, workers: int) -> tuple[tuple[Share, ...], list[str]]:
        """The share of each machine, and the reasons why the cluster cannot hold the run, one sentence each.

        Raises:
            ConfigurationError: the workers have no place, or a file cannot travel.
        """
        scenario = file.scenario
        check_files(scenario, file.folder)
        self._placements = place_workers(workers, self._nodes, self._resource)
        nodes = [placement.node for placement in self._placements]
        if taken := list(_taken(self._placements, count_free(nodes, self._resource), self._resource)):
            raise ConfigurationError(taken, "workers")
        addresses = addresses_of_devices(scenario, target)
        faults = [*starving(scenario), *_loopback_faults(nodes, {*target.addresses, *addresses})]
        looks = on_each(nodes, _make_look(scenario.target.source_addresses, addresses))
        here = is_here(target.base_url)
        keys = len(target.keys) or len(scenario.target.keys) or 1  # a plan's target has none
        parts = deal(scenario.fleet.devices, workers, keys)
        found = _shares(scenario, self._nodes, self._placements, parts, looks, target_is_here=here)
        return found, faults + [fault for share in found for fault in share.faults]

    @contextlib.contextmanager
    def claim(self, scenario: Scenario, base_url: str) -> Iterator[None]:
        """Keep other runs of this machine and of the cluster away. See :class:`~simulator.fleet.run.place.Place`."""
        with claimed_devices(scenario, base_url), claimed_in_cluster(scenario, base_url):
            yield

    def make_workers(self, work: Work) -> Workers:
        """The workers, not started yet. See :class:`~simulator.fleet.run.place.Place`."""
        return RayWorkers(work, self._placements, resource=self._resource)

    def nodes(self) -> tuple[NodeRecord, ...]:
        """The machines with their workers. See :class:`~simulator.fleet.run.place.Place`."""
        return tuple(
            NodeRecord(placement.node.name, placement.first, placement.workers) for placement in self._placements
        )


def share_of(whole: Demand, placement: Placement, parts: Sequence[range], *, target_is_here: bool) -> Demand:
    """What the run asks of one machine.

    Args:
        whole: of all machines together.
        placement: its workers.
        parts: the devices of each worker, of all machines.
        target_is_here: the target is on that machine.
    """
    devices = sum(map(len, parts[placement.first : placement.first + placement.workers]))
    sockets = math.ceil(whole.sockets * devices / max(whole.devices, 1))
    return replace(whole, devices=devices, sockets=sockets, workers=placement.workers, target_is_here=target_is_here)


def _shares(
    scenario: Scenario,
    nodes: Sequence[Node],
    placements: Sequence[Placement],
    parts: Sequence[range],
    looks: Sequence[tuple[Host, Sources]],
    *,
    target_is_here: bool,
) -> tuple[Share, ...]:
    hosts, sources = [host for host, _ in looks], [found for _, found in looks]
    demands = [
        share_of(
            demand_of(scenario, len(parts), target_is_here=False, source_addresses=own.count),
            placement,
            parts,
            target_is_here=target_is_here,
        )
        for placement, own in zip(placements, sources, strict=True)
    ]
    advice = advise(nodes, placements, demands, hosts)
    return tuple(
        Share(placement.node.name, placement.first, demand, examine(demand, host, advice), own.faults)
        for placement, demand, host, own in zip(placements, demands, hosts, sources, strict=True)
    )


def _taken(placements: Sequence[Placement], free: Sequence[int], resource: str | None) -> Iterator[str]:
    """A sentence for each machine on which fewer cores are free than it has workers."""
    need, what = (f"a core and one of {resource!r}", "them") if resource else ("a core", "its cores")
    fix = "wait until what runs there has ended, or write fewer workers"
    for placement, left in zip(placements, free, strict=True):
        if placement.workers > left:
            asked = f"{placement.node.name}: {placement.workers} workers need {need} each"
            yield f"{asked}, and {left} of {what} are free: {fix}"


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
