"""The way into a Ray cluster: its machines are looked at before anything is sent; what is wrong is one clear line."""

from __future__ import annotations

import contextlib
import logging
import os
import platform
import signal
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any, Final

from agent.errors import ConfigurationError
from simulator.fleet.run.clocks import WALL_CLOCK_S
from simulator.fleet.run.cluster.placement import Node
from simulator.watched import describe

_SOURCE: Final = "--cluster"
_RAYS_OWN: Final = frozenset({"CPU", "GPU", "memory", "object_store_memory"})
_LOOK_S: Final = 60.0
_JOIN: Final = (
    "'ray start --address=HOST:PORT' makes this machine one of a cluster, 'ray start --head' makes a cluster of it"
)


@contextlib.contextmanager
def connected(address: str, resource: str | None = None) -> Iterator[tuple[Node, ...]]:
    """Be part of a cluster while the block lasts.

    Args:
        address: HOST:PORT of its head, or ``auto`` for the one that this machine belongs to.
        resource: Ray's name of what a machine must have one of for each worker; None for no more than a core.

    Yields:
        The machines that can have workers, by address.

    Raises:
        ConfigurationError: there is no Ray, no such cluster, or a machine of it has another program; with the fix.
    """
    if find_spec("ray") is None:
        raise ConfigurationError(["Ray is not installed: pip install '.[cluster]' in a clone of device-agent"], _SOURCE)
    if resource is not None and (resource in _RAYS_OWN or not resource):
        what = "is Ray's own" if resource else "is no name"
        fault = f"--cluster-resource {resource!r} {what}: name one that 'ray start --resources' sets, such as fleet"
        raise ConfigurationError([fault], "--cluster-resource")
    import ray

    try:
        _connect(address)
        yield _nodes(resource)
    finally:
        ray.shutdown()


def _connect(address: str) -> None:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    import ray

    # Ray takes the signals that end a program; they stay with whoever has them.
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ray.init(address, log_to_driver=False, configure_logging=True, logging_level=logging.CRITICAL)
    except (RuntimeError, ValueError, OSError, ray.exceptions.RayError) as error:
        raise ConfigurationError(
            [f"no way into the cluster at {address} ({describe(error)}): {_JOIN}"], _SOURCE
        ) from None
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _nodes(resource: str | None) -> tuple[Node, ...]:
    """The machines that can have workers.

    Args:
        resource: what a machine must have one of for each worker; None for no more than a core.

    Raises:
        ConfigurationError: there is none, or one has another program or another time than this one.
    """
    import ray

    here = ray.util.get_node_ip_address()
    found = (
        Node(
            each["NodeID"],
            each["NodeManagerAddress"],
            _count_places(each["Resources"], resource),
            is_here=each["NodeManagerAddress"] == here,
        )
        for each in ray.nodes()
        if each["Alive"]
    )
    nodes = sorted((node for node in found if node.cores > 0), key=lambda node: (node.name, node.node_id))
    if not nodes:
        fault = "no machine of the cluster has a core for workers: 'ray start' sets them"
        if resource:
            start = f"""ray start --resources='{{"{resource}": 4}}'"""
            fault = f"no machine of the cluster has a core and one of {resource!r} for workers: {start} gives it four"
        raise ConfigurationError([fault], _SOURCE)
    asked_s = time.time()
    seen = on_each(nodes, _make_look())
    took_s = time.time() - asked_s
    faults = [fault for node, each in zip(nodes, seen, strict=True) for fault in _differences(node, each, took_s)]
    if faults:
        raise ConfigurationError(faults, _SOURCE)
    return tuple(nodes)


def _make_look() -> Callable[[], tuple[str, str, float]]:
    """Looks at a machine's versions and clock: a function that travels whole, since nothing of ours may be there."""

    def look() -> tuple[str, str, float]:
        import platform
        import time
        from importlib import metadata

        try:
            ours = metadata.version("device-agent")
        except metadata.PackageNotFoundError:
            ours = ""
        return platform.python_version(), ours, time.time()

    return look


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


def _count_places(resources: Mapping[str, float], resource: str | None) -> int:
    """How many workers what a machine has is enough for."""
    return int(min(resources.get(name, 0) for name in ("CPU", resource) if name is not None))


def on_each(nodes: Sequence[Node], function: Callable[[], Any]) -> list[Any]:
    """What a function returns on each machine.

    Raises:
        ConfigurationError: it cannot be called on one of them.
    """
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    calls = [
        ray.remote(
            num_cpus=0, max_retries=0, scheduling_strategy=NodeAffinitySchedulingStrategy(node.node_id, soft=False)
        )(function).remote()
        for node in nodes
    ]
    results, faults = [], []
    for node, call in zip(nodes, calls, strict=True):
        try:
            results.append(ray.get(call, timeout=_LOOK_S))
        except ray.exceptions.RayError as error:
            faults.append(f"{node.name}: cannot be looked at: {reason(error)}")
    if faults:
        raise ConfigurationError(faults, _SOURCE)
    return results


def reason(error: BaseException) -> str:
    """Why a call to a machine came to nothing, in one line; an error of our own program there is the cause of Ray's."""
    cause = getattr(error, "cause", None)
    if isinstance(cause, BaseException):
        return describe(cause)
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
