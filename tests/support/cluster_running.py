"""A Ray cluster on this machine: several nodes, each with processes of its own."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from simulator.fleet.run.ray_workers import RayWorkers
from simulator.fleet.run.workers import Work

SMALL = {"object_store_memory": 100_000_000, "include_dashboard": False, "node_ip_address": "127.0.0.2"}
"""Of each node: Ray takes no less than 75 MB for its objects, and makes another address of 127.0.0.1."""


@dataclass
class RunningCluster:
    """Nodes, all of them on 127.0.0.1.

    Attributes:
        address: of the head.
        nodes: Ray's handles.
    """

    cluster: Any
    address: str
    nodes: list[Any] = field(default_factory=list)

    def add_node(self, cores: int) -> Any:
        node = self.cluster.add_node(num_cpus=cores, **SMALL)
        self.nodes.append(node)
        return node


@contextlib.contextmanager
def running_cluster(*cores: int, address: str = SMALL["node_ip_address"]) -> Iterator[RunningCluster]:
    """A cluster with a node for each number of cores; the first one is its head, which listens at this address."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": cores[0], **SMALL, "node_ip_address": address})
    running = RunningCluster(cluster, cluster.address)
    try:
        for number in cores[1:]:
            running.add_node(number)
        yield running
    finally:
        cluster.shutdown()


@contextlib.contextmanager
def open_workers(*cores: int) -> Iterator[Callable[[Work], RayWorkers]]:
    """Be part of a cluster of such nodes; what comes back makes workers that are spread over them."""
    from simulator.fleet.run.ray_workers import place_workers

    class SpreadWorkers(RayWorkers):
        def start(self, jobs: Sequence[Any]) -> None:
            self._nodes = place_workers(len(jobs), self._nodes)
            super().start(jobs)

    with running_cluster(*cores) as running:
        yield lambda work: SpreadWorkers(work, running.address)
