"""The needs of a run on each machine of a cluster, for ``plan``: checked as before a run, and nothing is sent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from simulator.fleet.plan.forecast_text import table
from simulator.fleet.report.node_text import workers_text
from simulator.fleet.run.cluster.place import Cluster, Share
from simulator.fleet.scenario.reading import ScenarioFile
from simulator.fleet.target.target import Target

_COLUMNS: Final = {"descriptors of each worker": "descriptors each", "ports": "ports", "memory": "memory"}
"""Needs that can be refused, and their columns."""


@dataclass(frozen=True, slots=True)
class ClusterNeeds:
    """The workers, devices and resources that a run needs on each machine of a cluster.

    Attributes:
        workers: of all machines.
        shares: of each machine.
        faults: why the cluster cannot hold the run, one sentence each.
    """

    workers: int
    shares: tuple[Share, ...]
    faults: list[str]

    def lines(self) -> Iterator[str]:
        """For a person, without ends; what will only disturb the measurement is named below the machines."""
        yield from table(
            ["machine", "workers", "devices", "sockets", *_COLUMNS.values(), "source addresses", ""],
            [_row(share) for share in self.shares],
        )
        for share in self.shares:
            yield from (f"note        {each}" for each in share.named_checks if not each.fits and not each.refuses)

    def values(self) -> list[Mapping[str, Any]]:
        """For a program."""
        return [
            {
                "name": share.name,
                "first": share.first,
                "workers": share.demand.workers,
                "devices": share.demand.devices,
                "sockets": share.demand.sockets,
                "source_addresses": share.demand.source_addresses,
                "needs": [{**asdict(each), "fits": each.fits} for each in share.checks],
                "faults": share.faults,
            }
            for share in self.shares
        ]


def needs_of(cluster: Cluster, file: ScenarioFile, base_url: str) -> ClusterNeeds:
    """Look at the machines.

    Args:
        cluster: the machines.
        file: the scenario.
        base_url: of the target.

    Raises:
        ConfigurationError: there are fewer cores than workers, or a file of the scenario cannot travel.
    """
    workers = cluster.count_workers(file.scenario)
    shares, faults = cluster.shares(file, Target(base_url, ()), workers)
    return ClusterNeeds(workers, shares, faults)


def _row(share: Share) -> list[str]:
    demand, checks = share.demand, {each.what: each for each in share.checks}
    wrong = [_COLUMNS[name] for name in _COLUMNS if not checks[name].fits]
    if share.unusable:
        wrong = ["source addresses"]
    return [
        share.name,
        workers_text(share.first, demand.workers),
        f"{demand.devices:,}",
        f"{demand.sockets:,}",
        *(f"{each.asked:,} of {each.held:,} {each.unit}".strip() for each in map(checks.__getitem__, _COLUMNS)),
        f"{demand.source_addresses}",
        f"does not fit: {', '.join(wrong)}" if wrong else "fits",
    ]
