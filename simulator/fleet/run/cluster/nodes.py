"""The machines of a Ray cluster: found, compared with this one, and given their workers.

They are checked before anything is sent, and what is wrong is one clear line. Only the public interface of Ray is
used.
"""

from __future__ import annotations

import logging
import os
import platform
import signal
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any, Final

from agent.errors import ConfigurationError
from simulator.fleet.run.workers import WALL_CLOCK_S
from simulator.watched import describe

SOURCE: Final = "--cluster"
_CALL_S: Final = 60.0
_JOIN: Final = (
    "'ray start --address=HOST:PORT' makes this machine one of a cluster, 'ray start --head' makes a cluster of it"
)


@dataclass(frozen=True, slots=True)
class Node:
    """A machine of the cluster that can have workers.

    Attributes:
        node_id: Ray's.
        name: its address, for people.
        cores: how many workers it may have: one for each core that Ray may give away there.
    """

    node_id: str
    name: str
    cores: int


@dataclass(frozen=True, slots=True)
class Placement:
    """Workers on one machine, with neighbouring numbers."""

    node: Node
    workers: range

    def __str__(self) -> str:
        last = f" to {self.workers[-1]}" if len(self.workers) > 1 else ""
        return f"{self.node.name} with worker {self.workers[0]}{last}"


def connect(address: str) -> tuple[Node, ...]:
    """Be part of a cluster, until ``ray.shutdown``; its machines that can have workers, by address.

    Args:
        address: HOST:PORT of its head, or ``auto`` for the one that this machine belongs to.

    Raises:
        ConfigurationError: there is no Ray, no such cluster, no machine with a core for workers, or one that has
            another program or another time than this one; with the fix.
    """
    if find_spec("ray") is None:
        raise ConfigurationError(["Ray is not installed: pip install '.[cluster]' in a clone of device-agent"], SOURCE)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    import ray

    # Ray takes the signals that end a program; they stay with whoever has them.
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ray.init(address, log_to_driver=False, configure_logging=True, logging_level=logging.CRITICAL)
    except (RuntimeError, ValueError, OSError, ray.exceptions.RayError) as error:
        fault = f"no way into the cluster at {address} ({describe(error)}): {_JOIN}"
        raise ConfigurationError([fault], SOURCE) from None
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    found = (
        Node(each["NodeID"], each["NodeManagerAddress"], int(each["Resources"].get("CPU", 0)))
        for each in ray.nodes()
        if each["Alive"]
    )
    nodes = sorted((node for node in found if node.cores > 0), key=lambda node: (node.name, node.node_id))
    if not nodes:
        fault = "no machine of the cluster has a core for workers: 'ray start --num-cpus' sets them"
        raise ConfigurationError([fault], SOURCE)
    asked_s = time.time()
    seen = call_on_each(nodes, _host_reader())
    took_s = time.time() - asked_s
    if faults := [fault for node, each in zip(nodes, seen, strict=True) for fault in _differences(node, each, took_s)]:
        raise ConfigurationError(faults, SOURCE)
    return tuple(nodes)


def is_here(node: Node) -> bool:
    """Whether it is the machine of this process."""
    import ray

    return node.name == str(ray.util.get_node_ip_address())


def place_workers(workers: int, nodes: Sequence[Node]) -> tuple[Placement, ...]:
    """The places of the workers: spread over the machines, more where there are more cores, one for each core at most.

    Raises:
        ConfigurationError: there are fewer cores than workers.
    """
    cores = sum(node.cores for node in nodes)
    if workers > cores:
        there = ", ".join(f"{node.name}: {node.cores}" for node in nodes)
        fix = f"write workers: {cores} at most, or let more machines join"
        raise ConfigurationError(
            [f"{workers} workers need a core each, and there are {cores} ({there}): {fix}"], "workers"
        )
    counts = [0] * len(nodes)
    for _ in range(workers):
        emptiest = max(range(len(nodes)), key=lambda at: (nodes[at].cores - counts[at]) / nodes[at].cores)
        counts[emptiest] += 1
    firsts = [sum(counts[:at]) for at in range(len(nodes))]
    return tuple(
        Placement(node, range(first, first + count))
        for node, first, count in zip(nodes, firsts, counts, strict=True)
        if count
    )


def call_on_each(nodes: Sequence[Node], function: Callable[[], Any]) -> list[Any]:
    """What a function returns on each machine.

    Raises:
        ConfigurationError: it cannot be called on one of them.
    """
    import ray

    calls = [ray.remote(num_cpus=0, max_retries=0, scheduling_strategy=on(node))(function).remote() for node in nodes]
    results, faults = [], []
    for node, call in zip(nodes, calls, strict=True):
        try:
            results.append(ray.get(call, timeout=_CALL_S))
        except ray.exceptions.RayError as error:
            faults.append(f"{node.name}: cannot be examined: {reason(error)}")
    if faults:
        raise ConfigurationError(faults, SOURCE)
    return results


def on(node: Node) -> Any:
    """Ray's name for "on this machine and nowhere else"."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return NodeAffinitySchedulingStrategy(node.node_id, soft=False)


def reason(error: BaseException) -> str:
    """Why a call to a machine came to nothing, in one line; an error of our own program there is the cause of Ray's."""
    cause = getattr(error, "cause", None)
    if isinstance(cause, BaseException):
        return describe(cause)
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def _host_reader() -> Callable[[], tuple[str, str, float]]:
    """Reads a machine's versions and clock: a function that travels whole, since nothing of ours may be there."""

    def read_host() -> tuple[str, str, float]:
        import platform
        import time
        from importlib import metadata

        try:
            ours = metadata.version("device-agent")
        except metadata.PackageNotFoundError:
            ours = ""
        return platform.python_version(), ours, time.time()

    return read_host


def _differences(node: Node, seen: tuple[str, str, float], took_s: float) -> Iterator[str]:
    """What is not the same there as here, a sentence each; ``took_s`` is how long asking took."""
    python, distribution, wall_s = seen
    here = platform.python_version(), version("device-agent")
    if python != here[0]:
        yield f"{node.name}: has Python {python}, and this machine has {here[0]}: install the same"
    elif not distribution:
        yield f"{node.name}: has no device-agent: there pip install '.[cluster]' in a clone of device-agent"
    elif distribution != here[1]:
        yield f"{node.name}: has device-agent {distribution}, and this machine has {here[1]}: install the same"
    ahead_s = wall_s - time.time()
    if abs(ahead_s) > WALL_CLOCK_S + took_s:
        way = "ahead of" if ahead_s > 0 else "behind"
        fix = "devices date their readings by it: set both by a time server"
        yield f"{node.name}: its clock is {abs(ahead_s):.0f} s {way} this machine's, and {fix}"
