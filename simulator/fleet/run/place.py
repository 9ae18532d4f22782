"""Where the workers of a run are: on this machine, or on those of a cluster. Nothing else distinguishes them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Protocol

from simulator.fleet.engine.preflight import ResourceCheck
from simulator.fleet.plan import count_workers
from simulator.fleet.run.capacity import addresses_of_devices, check_capacity, find_sources
from simulator.fleet.run.local_workers import LocalWorkers
from simulator.fleet.run.workers import Work, Workers
from simulator.fleet.scenario.model import Scenario
from simulator.fleet.scenario.reading import ScenarioFile
from simulator.fleet.target.safety import is_here
from simulator.fleet.target.target import Target


class Place(Protocol):
    """One machine or several, before a run."""

    def count_workers(self, scenario: Scenario) -> int:
        """How many workers make the load."""
        ...

    def check(self, file: ScenarioFile, target: Target, workers: int) -> tuple[ResourceCheck, ...]:
        """Compare what a scenario asks with what there is, before anything is made on the target.

        Returns:
            Every need with what there is; those that do not fit will disturb the measurement.

        Raises:
            ConfigurationError: the run cannot be what the scenario says; the text has the numbers and the fix.
        """
        ...

    def make_workers(self, work: Work) -> Workers:
        """The workers, not started yet; after :meth:`check`."""
        ...

    def describe(self) -> str:
        """Which machine has which workers, after :meth:`check`; empty for this one alone."""
        ...


class ThisMachine:
    """A process for each core of this machine (:class:`Place`)."""

    def count_workers(self, scenario: Scenario) -> int:
        """How many workers make the load. See :class:`Place`."""
        return count_workers(scenario)

    def check(self, file: ScenarioFile, target: Target, workers: int) -> tuple[ResourceCheck, ...]:
        """Compare the run with this machine. See :class:`Place`."""
        scenario, here = file.scenario, is_here(target.base_url)
        sources = find_sources(scenario.target.source_addresses, addresses_of_devices(scenario, target))
        return check_capacity(scenario, workers, target_is_here=here, sources=sources)

    def make_workers(self, work: Work) -> Workers:
        """The workers, not started yet. See :class:`Place`."""
        return LocalWorkers(work)

    def describe(self) -> str:
        """Nothing beside this machine. See :class:`Place`."""
        return ""


@contextlib.contextmanager
def place_of(cluster: str | None, resource: str | None = None) -> Iterator[Place]:
    """The place of a run; a cluster is left at the end.

    Args:
        cluster: its address or ``auto``; None for this machine alone.
        resource: Ray's name of what a machine must have one of for each worker; None for no more than a core.

    Raises:
        ConfigurationError: there is no such cluster, or it cannot be used.
    """
    if cluster is None:
        yield ThisMachine()
        return
    from simulator.fleet.run.cluster.connection import connected  # most runs have one machine
    from simulator.fleet.run.cluster.place import Cluster

    with connected(cluster, resource) as nodes:
        yield Cluster(nodes, resource)
