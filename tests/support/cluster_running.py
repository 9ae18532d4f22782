"""A Ray cluster on this machine: several nodes, each with processes of its own."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from simulator.fleet.run.local_workers import Work
from simulator.fleet.run.ray_workers import RayWorkers

SMALL = {"object_store_memory": 100_000_000, "include_dashboard": False, "node_ip_address": "127.0.0.2"}
"""Of each node: Ray takes no less than 75 MB for its objects, and makes another address of 127.0.0.1."""


@contextlib.contextmanager
def running_cluster(*cores: int) -> Iterator[str]:
    """A cluster with a node for each number of cores, the first one its head; its address."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": cores[0], **SMALL})
    try:
        for number in cores[1:]:
            cluster.add_node(num_cpus=number, **SMALL)
        yield cluster.address
    finally:
        cluster.shutdown()


@contextlib.contextmanager
def open_workers(*cores: int) -> Iterator[Callable[[Work], RayWorkers]]:
    """Be part of a cluster of such nodes; what comes back makes workers that are spread over them."""

    class SpreadWorkers(RayWorkers):
        def start(self, jobs: Sequence[Any]) -> None:
            self.place(len(jobs))
            super().start(jobs)

    with running_cluster(*cores) as address:
        yield lambda work: SpreadWorkers(work, address)
