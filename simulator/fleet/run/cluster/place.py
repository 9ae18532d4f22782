"""The machines of a cluster as the place of a run: how many workers they take, and whether each can hold its share."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from agent.errors import ConfigurationError
from simulator.fleet.engine.preflight import Demand, ResourceCheck, examine, missing, read_host
from simulator.fleet.plan.digest import deal
from simulator.fleet.plan.workers import count_workers
from simulator.fleet.run.capacity import demand_of, starving
from simulator.fleet.run.cluster.claim import claimed_in_cluster
from simulator.fleet.run.cluster.connection import free_cores, on_each
from simulator.fleet.run.cluster.luggage import check_files
from simulator.fleet.run.cluster.placement import Node, Seat, seats_for
from simulator.fleet.run.cluster.ray_workers import RayWorkers
from simulator.fleet.run.device_lock import claimed_devices
from simulator.fleet.run.workers import Work, Workers
from simulator.fleet.scenario.model import Scenario
from simulator.fleet.scenario.reading import ScenarioFile
from simulator.fleet.target.safety import is_here
from simulator.fleet.target.target import Target


class Cluster:
    """The machines of a cluster (:class:`~simulator.fleet.run.place.Place`).

    Args:
        nodes: those that can have workers.
    """

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = nodes
        self._seats: tuple[Seat, ...] = ()

    def count_workers(self, scenario: Scenario) -> int:
        """How many workers make the load. See :class:`~simulator.fleet.run.place.Place`."""
        return count_workers(scenario, sum(node.cores for node in self._nodes))

    def check(self, file: ScenarioFile, target: Target, workers: int) -> tuple[ResourceCheck, ...]:
        """Compare each machine's share with the machine. See :class:`~simulator.fleet.run.place.Place`."""
        scenario = file.scenario
        check_files(scenario, file.folder)
        self._seats = seats_for(workers, self._nodes)
        if workers > (free := free_cores()):
            fix = "wait until what runs there has ended, or write fewer workers"
            sentence = f"{workers} workers need a core each, and {free} of the cluster's cores are free: {fix}"
            raise ConfigurationError([sentence], "workers")
        nodes = [seat.node for seat in self._seats]
        hosts = on_each(nodes, read_host)
        faults = list(starving(scenario))
        others = ", ".join(node.name for node in nodes if not node.is_here)
        if others:
            faults += [
                f"{address}: is this machine, and on {others} it is that one: give the target's address in the network"
                for address in sorted(target.addresses)
                if is_here(address)
            ]
        whole = demand_of(scenario, workers, target_is_here=False)
        findings: list[ResourceCheck] = []
        for seat, host in zip(self._seats, hosts, strict=True):
            share = share_of(whole, seat, workers, target_is_here=is_here(target.base_url))
            found = [replace(each, what=f"{seat.node.name}: {each.what}") for each in examine(share, host)]
            faults += missing(tuple(found))
            findings += found
        if faults:
            raise ConfigurationError(faults, "the cluster cannot hold the run as the scenario says")
        return tuple(findings)

    @contextlib.contextmanager
    def claim(self, scenario: Scenario, base_url: str) -> Iterator[None]:
        """Keep other runs of this machine and of the cluster away. See :class:`~simulator.fleet.run.place.Place`."""
        with claimed_devices(scenario, base_url), claimed_in_cluster(scenario, base_url):
            yield

    def make_workers(self, work: Work) -> Workers:
        """The workers, not started yet. See :class:`~simulator.fleet.run.place.Place`."""
        return RayWorkers(work, self._seats)

    def describe(self) -> str:
        """Which machine has which workers."""
        return "; ".join(
            f"{seat.node.name} with worker {seat.first}"
            + (f" to {seat.first + seat.workers - 1}" if seat.workers > 1 else "")
            for seat in self._seats
        )


def share_of(whole: Demand, seat: Seat, workers: int, *, target_is_here: bool) -> Demand:
    """What the run asks of one machine.

    Args:
        whole: of all machines together.
        seat: its workers.
        workers: of all machines together.
        target_is_here: the target is on that machine.
    """
    devices = sum(map(len, deal(whole.devices, workers)[seat.first : seat.first + seat.workers]))
    sockets = math.ceil(whole.sockets * devices / max(whole.devices, 1))
    return replace(whole, devices=devices, sockets=sockets, workers=seat.workers, target_is_here=target_is_here)
