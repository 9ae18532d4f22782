"""Which machine of a cluster gets how many workers. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agent.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class Node:
    """A machine of the cluster that can have workers.

    Attributes:
        node_id: Ray's.
        name: its address, for people.
        cores: how many workers it may have: one for each core that Ray may give away there, and for each unit of the
            resource where one is asked for.
        is_here: it is the machine of this process.
    """

    node_id: str
    name: str
    cores: int
    is_here: bool


@dataclass(frozen=True, slots=True)
class Placement:
    """Workers on one machine, with neighbouring numbers.

    Attributes:
        first: number of the first of them.
        workers: how many.
    """

    node: Node
    first: int
    workers: int


def place_workers(workers: int, nodes: Sequence[Node], resource: str | None = None) -> tuple[Placement, ...]:
    """The places of the workers: spread over the machines, more where there are more cores, one for each core at most.

    Args:
        workers: how many.
        nodes: the machines.
        resource: what each worker takes one of beside a core; None for nothing.

    Raises:
        ConfigurationError: there are fewer cores than workers.
    """
    cores = sum(node.cores for node in nodes)
    if workers > cores:
        there = ", ".join(f"{node.name}: {node.cores}" for node in nodes)
        fix = f"write workers: {cores} at most, or let more machines join"
        need = f"need a core and one of {resource!r} each" if resource else "need a core each"
        raise ConfigurationError([f"{workers} workers {need}, and there are {cores} ({there}): {fix}"], "workers")
    counts = [0] * len(nodes)
    for _ in range(workers):
        emptiest = max(range(len(nodes)), key=lambda at: (nodes[at].cores - counts[at]) / nodes[at].cores)
        counts[emptiest] += 1
    placements, first = [], 0
    for node, count in zip(nodes, counts, strict=True):
        if count:
            placements.append(Placement(node, first, count))
        first += count
    return tuple(placements)
