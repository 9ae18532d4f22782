"""The machines of a cluster: what their workers measure, summed up for each of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from simulator.fleet.metrics.histogram import Histogram, merged
from simulator.fleet.metrics.recorder import Delta
from simulator.fleet.record import NodeRecord
from simulator.fleet.report.run_status import NodeStatus, WorkerState, WorkerStatus


@dataclass(slots=True)
class _WorkerSums:
    """A worker so far.

    Attributes:
        latest: its last second; None before the first.
        cpu: percent, added up over its seconds.
    """

    latest: Delta | None = None
    seconds: int = 0
    cpu: float = 0.0


@dataclass(slots=True)
class _NodeSums:
    """A machine so far; its memory does not grow with the run."""

    placed: NodeRecord
    sent: int = 0
    send_lag: Histogram = field(default_factory=Histogram)
    workers: dict[int, _WorkerSums] = field(default_factory=dict)

    @property
    def numbers(self) -> range:
        return range(self.placed.first, self.placed.first + self.placed.workers)


class NodeFigures:
    """Sums up what the workers of each machine measure.

    Args:
        nodes: the machines with their workers, without figures; none where the run has one machine alone.
    """

    def __init__(self, nodes: Sequence[NodeRecord]) -> None:
        self._nodes = [_NodeSums(node) for node in nodes]

    def add(self, delta: Delta) -> None:
        """Take in a worker's second; one that came before counts once."""
        for node in self._nodes:
            if delta.worker in node.numbers:
                sums = node.workers.setdefault(delta.worker, _WorkerSums())
                if sums.latest is not None and delta.second <= sums.latest.second:
                    return
                node.sent += delta.health.sent
                node.send_lag.add_encoded(delta.health.send_lag)
                sums.latest, sums.seconds = delta, sums.seconds + 1
                sums.cpu += delta.health.process.cpu_percent

    def statuses(self, workers: Mapping[int, WorkerStatus]) -> tuple[NodeStatus, ...]:
        """How each machine stands.

        Args:
            workers: how each worker stands, by its number.
        """
        return tuple(_status(node, workers) for node in self._nodes)

    def records(self, workers: Mapping[int, WorkerStatus]) -> tuple[NodeRecord, ...]:
        """What the record says of each machine.

        Args:
            workers: how each worker stands, by its number.
        """
        return tuple(
            replace(
                node.placed,
                devices=_devices(node, workers),
                sent=node.sent,
                send_lag_p99_s=_p99(node.send_lag),
                cpu_percent=max((each.cpu / each.seconds for each in node.workers.values()), default=0.0),
                lost=len(_lost(node, workers)),
                gone_s=_gone_s(node, workers),
            )
            for node in self._nodes
        )


def describe(nodes: Sequence[NodeRecord]) -> str:
    """Which machine has which workers; empty where there is one alone."""
    return "; ".join(
        f"{node.name} with worker {node.first}" + (f" to {node.first + node.workers - 1}" if node.workers > 1 else "")
        for node in nodes
    )


def _status(node: _NodeSums, workers: Mapping[int, WorkerStatus]) -> NodeStatus:
    lost = _lost(node, workers)
    latest = [sums.latest for number, sums in node.workers.items() if sums.latest is not None and number not in lost]
    return NodeStatus(
        name=node.placed.name,
        first=node.placed.first,
        workers=node.placed.workers,
        lost=len(lost),
        devices=_devices(node, workers),
        sent_per_s=float(sum(delta.health.sent for delta in latest)),
        send_lag_p99_s=_p99(merged([delta.health.send_lag for delta in latest])),
        cpu_percent=max((delta.health.process.cpu_percent for delta in latest), default=0.0),
        gone_s=_gone_s(node, workers),
    )


def _lost(node: _NodeSums, workers: Mapping[int, WorkerStatus]) -> set[int]:
    return {number for number in node.numbers if number in workers and workers[number].state is WorkerState.DEAD}


def _gone_s(node: _NodeSums, workers: Mapping[int, WorkerStatus]) -> float | None:
    """The end of the last second that came from there."""
    if len(_lost(node, workers)) < node.placed.workers:
        return None
    latest = [sums.latest.second for sums in node.workers.values() if sums.latest is not None]
    return float(max(latest, default=-1) + 1)


def _devices(node: _NodeSums, workers: Mapping[int, WorkerStatus]) -> int:
    return sum(workers[number].devices for number in node.numbers if number in workers)


def _p99(lag: Histogram) -> float:
    return lag.percentile(99) if lag.count else 0.0
