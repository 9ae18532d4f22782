"""The way into a Ray cluster: its machines are looked at before anything is sent; what is wrong is one clear line."""

from __future__ import annotations

import contextlib
import logging
import os
import platform
import signal
import socket
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any, Final

from agent.errors import ConfigurationError
from simulator.fleet.run.cluster.comparison import Seen, differences, make_look
from simulator.fleet.run.cluster.placement import Node
from simulator.fleet.run.cluster.ray_errors import reason
from simulator.watched import describe

_log = logging.getLogger(__name__)

AUTO: Final = "auto"
NAMESPACE: Final = "fleet-simulator"
_SOURCE: Final = "--cluster"
_WITHOUT_HEAD_S: Final = "604800"
_RAYS_OWN: Final = frozenset({"CPU", "GPU", "memory", "object_store_memory"})
_ANSWER_S: Final = 5.0
_LOOK_S: Final = 60.0
_HEAD_S: Final = 1.0
_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\x04" + bytes(5)
"""With which a client begins HTTP/2 (RFC 9113, 3.4), which Ray speaks under gRPC; a server begins with SETTINGS."""
_SETTINGS: Final = b"\x04"
_FRAME_HEAD: Final = 9
_START: Final = "start 'ray start --head' there, or name another address"


@contextlib.contextmanager
def connected(address: str, resource: str | None = None) -> Iterator[tuple[Node, ...]]:
    """Be part of a cluster while the block lasts.

    Args:
        address: HOST:PORT of its head, or ``auto`` for the one that this machine belongs to.
        resource: Ray's name of what a machine must have one of for each worker; None for no more than a core.

    Yields:
        The machines that can have workers, by address.

    Raises:
        ConfigurationError: there is no Ray, no such cluster, or a machine of it has other versions; with the fix.
    """
    if find_spec("ray") is None:
        raise ConfigurationError(["Ray is not installed: pip install '.[cluster]' in a clone of device-agent"], _SOURCE)
    _check_address(address)
    if resource is not None and (resource in _RAYS_OWN or not resource):
        what = "is Ray's own" if resource else "is no name"
        fault = f"--cluster-resource {resource!r} {what}: name one that 'ray start --resources' sets, such as fleet"
        raise ConfigurationError([fault], "--cluster-resource")
    import ray

    try:
        _check_membership(address)
        _connect(address)
        yield _nodes(resource)
    finally:
        ray.shutdown()


def _check_address(address: str) -> None:
    """Refuse early what Ray would try for minutes."""
    if address == AUTO:
        return
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or "/" in host:
        fault = f"--cluster {address!r}: write HOST:PORT of the cluster's head, such as 10.0.0.1:6379, or auto"
        raise ConfigurationError([fault], _SOURCE)
    try:
        answer = _greet(host.strip("[]"), int(port))
    except (OSError, OverflowError) as error:
        raise ConfigurationError([f"nobody answers at {address} ({error}): {_START}"], _SOURCE) from None
    if answer != _SETTINGS and not os.environ.get("RAY_USE_TLS"):
        fault = f"what answers at {address} is no head of a Ray cluster: {_START}"
        raise ConfigurationError([fault], _SOURCE)


def _check_membership(address: str) -> None:
    """Refuse at once a cluster that this machine is none of, for which Ray would wait a minute."""
    if address == AUTO:
        return
    from ray._private.services import find_node_ids
    from ray._raylet import GcsClient

    here = find_node_ids()
    try:
        of_cluster = {node.hex() for node in GcsClient(address=address).get_all_node_info(timeout=_ANSWER_S)}
    except Exception as error:  # noqa: BLE001 - any other is Ray's to say when it connects
        if type(error).__name__ == "AuthenticationError":
            fix = "set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN as where it was started"
            raise ConfigurationError([f"{address} wants the token of its cluster: {fix}"], _SOURCE) from None
        _log.info("Ray: the machines of %s are not known: %s", address, describe(error))
        return
    if not here & of_cluster:
        why = "none of the cluster's processes runs here" if here else "no process of Ray's runs here"
        raise ConfigurationError([_not_here(address, why)], _SOURCE)


def _greet(host: str, port: int) -> bytes:
    """The type of the first frame that a server sends; empty where none comes that HTTP/2 has.

    Raises:
        OSError, OverflowError: there is no connection.
    """
    with socket.create_connection((host, port), timeout=_ANSWER_S) as line:
        try:
            line.sendall(_PREFACE)
            begin = line.recv(_FRAME_HEAD, socket.MSG_WAITALL)
        except OSError:  # it says nothing, or closes
            return b""
    return begin[3:4] if len(begin) == _FRAME_HEAD else b""


def silent_head() -> str | None:
    """The address of the head of the cluster that this process is connected to, where nobody answers there any more."""
    import ray

    address = str(ray.get_runtime_context().gcs_address)
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_HEAD_S):
            return None
    except OSError:
        return address


def _connect(address: str) -> None:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Ray ends a process that has not reached the cluster's head for a minute; this one has a record to write.
    os.environ.setdefault("RAY_gcs_rpc_server_reconnect_timeout_s", _WITHOUT_HEAD_S)
    import ray
    from ray._private import worker as ray_worker

    # Ray prints what it notices to standard output, which is for what --json and --progress write.
    ray_worker.print_to_stdstream = _note
    # Ray takes the signals that end a program; they stay with whoever has them.
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ray.init(
                address,
                namespace=NAMESPACE,
                log_to_driver=False,
                configure_logging=True,
                logging_level=logging.CRITICAL,
            )
    except (RuntimeError, ValueError, OSError, ray.exceptions.RayError) as error:
        raise ConfigurationError([_sentence(address, error)], _SOURCE) from None
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _note(data: Mapping[str, Any], *, ignore_prefix: bool = False) -> None:
    del ignore_prefix
    _log.info("Ray: %s", " ".join(str(line) for line in data.get("lines", ())))


def _sentence(address: str, error: BaseException) -> str:
    """Why there is no connection, and the fix."""
    text = describe(error)
    if "ersion mismatch" in text:
        return (
            f"{address} runs another version than Ray {version('ray')} with Python {platform.python_version()}: {text}"
        )
    return _not_here(address, text)


def _not_here(address: str, why: str) -> str:
    """That this machine is none of the cluster's, and the fix."""
    fix = (
        "'ray start --address=HOST:PORT' makes this machine one of a cluster, 'ray start --head' makes a cluster of it"
    )
    where = (
        "this machine belongs to no cluster" if address == AUTO else f"this machine is not part of the one at {address}"
    )
    return f"{where}: {fix} ({why})"


def _nodes(resource: str | None) -> tuple[Node, ...]:
    """The machines that can have workers.

    Args:
        resource: what a machine must have one of for each worker; None for no more than a core.

    Raises:
        ConfigurationError: there is none, or one has other versions than this one.
    """
    import ray

    here = ray.util.get_node_ip_address()
    nodes = sorted(
        (
            Node(
                each["NodeID"],
                each["NodeManagerAddress"],
                _count_places(each["Resources"], resource),
                is_here=each["NodeManagerAddress"] == here,
            )
            for each in ray.nodes()
            if each["Alive"]
        ),
        key=lambda node: (node.name, node.node_id),
    )
    nodes = [node for node in nodes if node.cores > 0]
    if not nodes:
        fault = "no machine of the cluster has a core for workers: 'ray start' sets them"
        if resource:
            start = f"""ray start --resources='{{"{resource}": 4}}'"""
            fault = f"no machine of the cluster has a core and one of {resource!r} for workers: {start} gives it four"
        raise ConfigurationError([fault], _SOURCE)
    before_s = time.time()
    seen = [Seen(*each) for each in on_each(nodes, make_look())]
    faults = differences(nodes, seen, (before_s, time.time()))
    if faults:
        raise ConfigurationError(faults, _SOURCE)
    return tuple(nodes)


def count_free(nodes: Sequence[Node], resource: str | None) -> list[int]:
    """How many workers each machine can have beside what is there now.

    Args:
        nodes: the machines.
        resource: what each worker takes one of beside a core; None for nothing.
    """
    from ray._private.state import available_resources_per_node

    free = available_resources_per_node()
    return [_count_places(free.get(node.node_id, {}), resource) for node in nodes]


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
            faults.append(f"{node.name}: cannot be looked at: {reason(error, silent_head)}")
    if faults:
        raise ConfigurationError(faults, _SOURCE)
    return results
