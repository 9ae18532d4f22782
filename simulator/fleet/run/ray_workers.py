"""Workers on the machines of a Ray cluster, each of which has an actor (:mod:`simulator.fleet.run.crew`).

Machines are checked before anything is sent. Each actor always has one call for messages pending, which it answers when
there are some. An actor that does not answer within :data:`SILENCE_S`, or whose call fails, is lost with its workers.
Only the public interface of Ray is used.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Self

from agent.errors import ConfigurationError
from simulator.fleet.engine.preflight import ResourceCheck
from simulator.fleet.plan import count_workers, deal
from simulator.fleet.run.capacity import addresses_of_devices, pool_too_small
from simulator.fleet.run.crew import VERSION, Crew, Heard
from simulator.fleet.run.job_files import check_files, pack
from simulator.fleet.run.local_workers import SILENCE_S, Work
from simulator.fleet.run.worker import WALL_CLOCK_S, Lost, ToWorker
from simulator.fleet.scenario.model import Scenario
from simulator.fleet.target import target as targets
from simulator.fleet.target.target import Target
from simulator.fleet.workload.base import WorkloadSummary
from simulator.interrupts import without_interrupts
from simulator.watched import describe

_SOURCE: Final = "--cluster"
_JOIN: Final = (
    "'ray start --address=HOST:PORT' makes this machine one of a cluster, 'ray start --head' makes a cluster of it"
)
_CALL_S: Final = 60.0
_PLACE_S: Final = 120.0
_END_S: Final = 15.0


@dataclass(slots=True)
class Node:
    """A machine of the cluster, and its workers in this run.

    Attributes:
        node_id: Ray's.
        name: its address, for people.
        cores: how many workers it may have: one for each core that Ray may give away there.
        workers: their numbers, a range.
        actor: Ray's handle of its :class:`Crew`.
        living: the workers that are neither lost nor done.
        call: the pending call for messages; None between two calls.
        heard_s: when an answer came last.
    """

    node_id: str
    name: str
    cores: int
    workers: range = range(0)
    actor: Any = None
    living: set[int] = field(default_factory=set)
    call: Any = None
    heard_s: float = 0.0


class RayWorkers:
    """Workers on the machines of a cluster; otherwise as :class:`~simulator.fleet.run.local_workers.LocalWorkers`.

    Args:
        work: what each of them does.
        address: of the cluster's head, HOST:PORT, or ``auto`` for the one that this machine belongs to.

    Attributes:
        machines: which machine has which workers.
    """

    machines = ""

    def __init__(self, work: Work, address: str) -> None:
        self._work = work
        self._address = address
        self._nodes: list[Node] = []
        self._ledgers: dict[int, Path] = {}

    def __enter__(self) -> Self:
        """Join the cluster.

        Raises:
            ConfigurationError: there is no Ray, no such cluster, or no machine with a core for workers; with the fix.
        """
        try:
            self._nodes = _connect(self._address)
        except ConfigurationError:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        with contextlib.suppress(ImportError), without_interrupts():
            import ray

            actors = [node.actor for node in self._nodes if node.actor is not None]
            calls = [actor.close.remote() for actor in actors]
            if calls:
                ray.wait(calls, num_returns=len(calls), timeout=_END_S)
            for actor in actors:
                ray.kill(actor, no_restart=True)
            ray.shutdown()

    def check(self, scenario: Scenario, target: Target) -> tuple[int, tuple[ResourceCheck, ...]]:
        """How many workers make the load, and every need of theirs with what their machines have.

        Raises:
            ConfigurationError: the run cannot be what the scenario says, or a machine has another program or another
                time than this one.
        """
        import ray

        check_files(scenario)
        count = count_workers(scenario, sum(node.cores for node in self._nodes))
        self.place(count)
        addresses = addresses_of_devices(scenario, target)
        faults = [*pool_too_small(scenario), *_loopback_faults(self._nodes, {*target.addresses, *addresses})]
        parts = deal(scenario.fleet.devices, count)
        found: list[ResourceCheck] = []
        asked_s, deadline_s = time.time(), time.monotonic() + _PLACE_S
        calls = []
        for node in self._nodes:
            devices = sum(len(parts[worker]) for worker in node.workers)
            calls.append(node.actor.look.remote(scenario, addresses, devices))
        for node, call in zip(self._nodes, calls, strict=True):
            try:
                there, wall_s, checks, missing = ray.get(call, timeout=max(0.0, deadline_s - time.monotonic()))
            except ray.exceptions.GetTimeoutError:
                fix = "end what runs there, or write fewer workers"
                faults.append(f"{node.name}: its cores were not free within {_PLACE_S:g} s: {fix}")
                continue
            except ray.exceptions.RayError as error:
                fix = f"is device-agent {VERSION} there? pip install '.[cluster]' in a clone of it"
                faults.append(f"{node.name}: cannot be examined: {_reason(error)}; {fix}")
                continue
            if there != VERSION:
                missing.append(f"has device-agent {there}, and this machine has {VERSION}: install the same")
            if not asked_s - WALL_CLOCK_S < wall_s < time.time() + WALL_CLOCK_S:
                ahead_s, fix = wall_s - time.time(), "devices date their readings by it: set both by a time server"
                way = "ahead of" if ahead_s > 0 else "behind"
                missing.append(f"its clock is {abs(ahead_s):.0f} s {way} this machine's, and {fix}")
            faults += [f"{node.name}: {fault}" for fault in missing]
            found += [replace(each, what=f"{node.name}: {each.what}") for each in checks]
        if faults:
            raise ConfigurationError(faults, "the cluster cannot hold the run as the scenario says")
        return count, tuple(found)

    def place(self, workers: int) -> None:
        """Deal the workers out to the machines, and ask Ray for their cores there.

        Raises:
            ConfigurationError: there are fewer cores than workers.
        """
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        self._nodes = place_workers(workers, self._nodes)
        self.machines = "; ".join(f"{node.name} with workers {list(node.workers)}" for node in self._nodes)
        for node in self._nodes:
            made = ray.remote(
                num_cpus=len(node.workers),
                max_restarts=0,
                max_task_retries=0,
                concurrency_groups={"orders": 1, "reports": 1},
                scheduling_strategy=NodeAffinitySchedulingStrategy(node.node_id, soft=False),
            )(Crew)
            node.actor = made.remote(self._work, node.workers)

    def start(self, jobs: Sequence[Any]) -> None:
        """Send each machine its jobs and their files, and wait until its workers are started.

        Raises:
            ConfigurationError: they cannot be started; the text has the fix.
        """
        import ray

        self._ledgers = {
            worker: job.ledger.path.absolute() for worker, job in enumerate(jobs) if job.ledger is not None
        }
        files = ray.put(pack(jobs))  # an object, not an argument: Ray lists those, and keys are among the files
        calls = [node.actor.start.remote(files) for node in self._nodes]
        for node, call in zip(self._nodes, calls, strict=True):
            try:
                ray.get(call, timeout=_CALL_S)
            except ray.exceptions.RayError as error:
                fault = f"{node.name}: no worker could be started: {_reason(error)}"
                raise ConfigurationError([fault], _SOURCE) from None
            node.living, node.heard_s = set(node.workers), time.monotonic()

    @property
    def living(self) -> tuple[int, ...]:
        """The workers that are neither lost nor done."""
        return tuple(sorted(worker for node in self._nodes for worker in node.living))

    def send(self, worker: int, message: ToWorker) -> None:
        """See :meth:`LocalWorkers.send`."""
        for node in self._nodes:
            if worker in node.living:
                node.actor.send.options(concurrency_group="orders").remote(worker, message)

    def receive(self, timeout_s: float) -> Iterator[Heard]:
        """The workers' messages, and which are lost."""
        import ray

        nodes = [node for node in self._nodes if node.living]
        if not nodes:
            time.sleep(timeout_s)
            return
        for node in nodes:
            if node.call is None:
                node.call = node.actor.receive.options(concurrency_group="reports").remote()
        calls = [node.call for node in nodes]
        ray.wait(calls, num_returns=1, timeout=timeout_s)
        ready, _ = ray.wait(calls, num_returns=len(calls), timeout=0)
        for node in nodes:
            if node.call in ready:
                yield from self._take(node)
            if node.living and time.monotonic() - node.heard_s > SILENCE_S:
                yield from _lose(node, f"{node.name} was not heard for {SILENCE_S:g} s")

    def collect(self) -> tuple[str, ...]:
        """Fetch the ledgers from their machines."""
        missed = []
        for node in self._nodes:
            gone = ""
            for worker in sorted(self._ledgers.keys() & node.workers):
                gone = gone or _fetch(node.actor, self._ledgers[worker])  # the next one would take as long to fail
                if gone:
                    missed.append(f"the ledger of worker {worker} on {node.name} could not be fetched: {gone}")
        return tuple(missed)

    def _take(self, node: Node) -> Iterator[Heard]:
        """The messages of an answer."""
        import ray

        call, node.call = node.call, None
        try:
            heard = ray.get(call)
        except ray.exceptions.RayError as error:
            yield from _lose(node, f"the workers on {node.name} ended: {_reason(error)}")
            return
        node.heard_s = time.monotonic()
        for worker, message in heard:
            if worker in node.living:
                if isinstance(message, WorkloadSummary | Lost):
                    node.living.discard(worker)
                yield worker, message


def _lose(node: Node, why: str) -> Iterator[Heard]:
    lost, node.living = sorted(node.living), set()
    for worker in lost:
        yield worker, Lost(why)


def place_workers(workers: int, nodes: Sequence[Node]) -> list[Node]:
    """The machines with their workers: spread over them evenly, one for each core at most.

    Raises:
        ConfigurationError: there are fewer cores than workers.
    """
    cores = sum(node.cores for node in nodes)
    if workers > cores:
        there = ", ".join(f"{node.name}: {node.cores}" for node in nodes)
        fix = f"write workers: {cores} at most, or let more machines join"
        fault = f"{workers} workers need a core each, and there are {cores} ({there}): {fix}"
        raise ConfigurationError([fault], "workers")
    # A core of each machine, then a second one of each that has two, and so on.
    cores_in_turn = [at for turn in range(cores) for at, node in enumerate(nodes) if turn < node.cores]
    placed, first = [], 0
    for at, node in enumerate(nodes):
        if count := cores_in_turn[:workers].count(at):
            placed.append(replace(node, workers=range(first, first + count)))
            first += count
    return placed


def _connect(address: str) -> list[Node]:
    """Join a cluster, until ``ray.shutdown``; its machines that can have workers, sorted by address."""
    if find_spec("ray") is None:
        raise ConfigurationError(["Ray is not installed: pip install '.[cluster]' in a clone of device-agent"], _SOURCE)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    import ray

    # Ray installs its own handlers for the signals that end a program: the ones before are put back.
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ray.init(address, log_to_driver=False, configure_logging=True, logging_level=logging.CRITICAL)
    except (RuntimeError, ValueError, OSError, ray.exceptions.RayError) as error:
        fault = f"no way into the cluster at {address} ({describe(error)}): {_JOIN}"
        raise ConfigurationError([fault], _SOURCE) from None
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
        raise ConfigurationError([fault], _SOURCE)
    return nodes


def _reason(error: BaseException) -> str:
    """Why a call to a machine failed, in one line: the error of our own program there, or else Ray's."""
    cause = getattr(error, "cause", None)
    if isinstance(cause, BaseException):
        return describe(cause)
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def _loopback_faults(nodes: Sequence[Node], addresses: set[str]) -> list[str]:
    """A sentence for each loopback address, if workers are on other machines: there it leads to the machine itself."""
    import ray

    here = str(ray.util.get_node_ip_address())
    others = ", ".join(node.name for node in nodes if node.name != here)
    fix = "give the target's address in the network"
    return [
        f"{address} leads to the machine that uses it, and workers are on {others}: {fix}"
        for address in sorted(addresses)
        if others and targets.is_here(address)
    ]


def _fetch(actor: Any, path: Path) -> str:
    """Copy a worker's file to the same path on this machine; why that failed, or empty."""
    import ray

    new = path.with_name(f"{path.name}.part")  # half a ledger would be taken for a whole one
    try:
        with new.open("wb") as file:
            while piece := ray.get(actor.read.remote(path, file.tell()), timeout=_CALL_S):
                file.write(piece)
        new.replace(path)
    except (ray.exceptions.RayError, OSError) as error:
        return _reason(error)
    finally:
        with contextlib.suppress(OSError):
            new.unlink(missing_ok=True)
    return ""
