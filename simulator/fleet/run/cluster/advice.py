"""Numbers of workers and devices with which a scenario that is too large fits a cluster, over all machines. Pure."""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence

from simulator.fleet.engine.preflight import Advice, Demand, Host, advice_of, sockets_of_worker
from simulator.fleet.run.cluster.placement import Node, Placement, place_workers

_SCOPE = " on all machines together"


def advise(
    nodes: Sequence[Node], placements: Sequence[Placement], demands: Sequence[Demand], hosts: Sequence[Host]
) -> Advice:
    """The numbers with which every machine fits.

    Args:
        nodes: all machines that can have workers.
        placements: those that have some.
        demands: of each of these.
        hosts: what each of these has.
    """
    workers, devices = sum(each.workers for each in demands), sum(each.devices for each in demands)
    more = max(
        math.ceil(workers * demand.sockets / (demand.workers * sockets_of_worker(host)))
        for demand, host in zip(demands, hosts, strict=True)
    )
    alone = [advice_of(demand, host) for demand, host in zip(demands, hosts, strict=True)]
    share = min(each.devices / max(demand.devices, 1) for each, demand in zip(alone, demands, strict=True))
    most = {place.node.node_id: each.fewer_workers for place, each in zip(placements, alone, strict=True)}

    def is_too_many(count: int) -> bool:
        return any(place.workers > most[place.node.node_id] for place in place_workers(count, nodes))

    # One more worker takes none from any machine, so that the numbers that fit come first.
    fewer = bisect.bisect_left(range(1, workers + 1), x=True, key=is_too_many)
    cores = sum(node.cores for node in nodes)
    return Advice(more if more <= cores else None, max(fewer, 1), int(share * devices), _SCOPE)
