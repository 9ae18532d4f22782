"""The workers of a run on the machines of a Ray cluster: a crew for each machine, which starts them there and relays.

Each crew is asked for its messages all the time, by one call that waits on its side. A crew that does not answer for as
long as a silent worker is waited for, or whose answer is lost, is lost with its workers.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from agent.errors import ConfigurationError
from simulator.fleet.engine.preflight import ResourceCheck, examine, missing, read_host
from simulator.fleet.plan import count_workers, deal
from simulator.fleet.run.capacity import addresses_of_devices, demand_of, find_sources, starving
from simulator.fleet.run.cluster.job_files import check_files, pack
from simulator.fleet.run.cluster.node_crew import NodeCrew
from simulator.fleet.run.cluster.nodes import (
    SOURCE,
    Node,
    Placement,
    call_on_each,
    connect,
    is_here,
    on,
    place_workers,
    reason,
)
from simulator.fleet.run.workers import SILENCE_S, Finished, FromWorker, ToWorker, Work, WorkerLost
from simulator.fleet.scenario.model import Scenario
from simulator.fleet.scenario.reading import ScenarioFile
from simulator.fleet.target import target as targets
from simulator.fleet.target.target import Target
from simulator.interrupts import without_interrupts

_PLACE_S: Final = 120.0
_END_S: Final = 15.0
_PIECE_S: Final = 60.0
_CANNOT_HOLD: Final = "the cluster cannot hold the run as the scenario says"


@dataclass(slots=True)
class _Crew:
    """One machine's workers.

    Attributes:
        actor: Ray's handle of its :class:`NodeCrew`.
        living: the workers that are neither lost nor done.
        call: the answer to come; None between two calls.
        heard_s: when an answer came last.
    """

    placement: Placement
    actor: Any
    living: set[int] = field(default_factory=set)
    call: Any = None
    heard_s: float = 0.0


class RayWorkers:
    """Workers on the machines of a cluster; otherwise as :class:`~simulator.fleet.run.workers.LocalWorkers`.

    Args:
        work: what each of them does.
        address: of the cluster.
    """

    def __init__(self, work: Work, address: str) -> None:
        self._work = work
        self._address = address
        self._nodes: tuple[Node, ...] = ()
        self._placements: tuple[Placement, ...] = ()
        self._crews: list[_Crew] = []
        self._written: dict[int, Path] = {}

    def __enter__(self) -> Self:
        """Join the cluster.

        Raises:
            ConfigurationError: there is no such cluster, or it cannot be used.
        """
        try:
            self._nodes = connect(self._address)
        except ConfigurationError:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(ImportError), without_interrupts():
            import ray

            calls = [crew.actor.close.remote() for crew in self._crews]
            if calls:
                ray.wait(calls, num_returns=len(calls), timeout=_END_S)
            for crew in self._crews:
                ray.kill(crew.actor, no_restart=True)
            ray.shutdown()

    def count_workers(self, scenario: Scenario) -> int:
        """How many workers make the load."""
        return count_workers(scenario, sum(node.cores for node in self._nodes))

    def check(self, file: ScenarioFile, target: Target, workers: int) -> tuple[ResourceCheck, ...]:
        """Give each machine its workers, and compare what each is asked for with what it has."""
        scenario = file.scenario
        check_files(scenario, file.folder)
        self._placements = place_workers(workers, self._nodes)
        nodes = [placement.node for placement in self._placements]
        addresses, listed = addresses_of_devices(scenario, target), scenario.target.source_addresses
        faults = [*starving(scenario), *_loopback_faults(nodes, {*target.addresses, *addresses})]
        parts = deal(scenario.fleet.devices, workers, len(target.keys) or 1)
        found: list[ResourceCheck] = []
        hosts = call_on_each(nodes, lambda: (read_host(), find_sources(listed, addresses)))
        for placement, (host, sources) in zip(self._placements, hosts, strict=True):
            name = placement.node.name
            whole = demand_of(scenario, workers, target_is_here=False, source_addresses=sources.count)
            devices = sum(len(parts[worker]) for worker in placement.workers)
            sockets = math.ceil(whole.sockets * devices / max(whole.devices, 1))
            share = replace(whole, devices=devices, sockets=sockets, workers=len(placement.workers))
            checks = tuple(replace(each, what=f"{name}: {each.what}") for each in examine(share, host))
            without = [f"{name}: target.source_addresses: {fault}" for fault in sources.faults]
            faults += without or missing(checks)
            found += checks
        if faults:
            raise ConfigurationError(faults, _CANNOT_HOLD)
        return tuple(found)

    def describe(self) -> str:
        """Which machine has which workers."""
        return "; ".join(map(str, self._placements))

    def start(self, jobs: Sequence[Any]) -> None:
        """Send each machine its jobs and their files, and wait until its workers are started.

        Raises:
            ConfigurationError: they cannot be started; the text has the fix.
        """
        import ray

        job_files = pack(jobs)
        self._written = {
            worker: job.ledger.path for worker, job in enumerate(jobs) if getattr(job, "ledger", None) is not None
        }
        files = ray.put(job_files)  # an object, not an argument: what a call is given stands in the table of actors
        started = []
        for placement in self._placements:
            made = ray.remote(
                num_cpus=len(placement.workers),
                max_restarts=0,
                max_task_retries=0,
                concurrency_groups={"orders": 1, "reports": 1},
                scheduling_strategy=on(placement.node),
            )(NodeCrew)
            crew = _Crew(placement, made.remote(self._work, placement.workers[0]), set(placement.workers))
            self._crews.append(crew)
            started.append(crew.actor.start.remote([jobs[worker] for worker in placement.workers], files))
        deadline_s = time.monotonic() + _PLACE_S
        for crew, call in zip(self._crews, started, strict=True):
            name = crew.placement.node.name
            try:
                ray.get(call, timeout=max(0.0, deadline_s - time.monotonic()))
            except ray.exceptions.GetTimeoutError:
                fix = "end what runs there, or write fewer workers"
                fault = f"{name}: its cores were not free within {_PLACE_S:g} s: {fix}"
                raise ConfigurationError([fault], SOURCE) from None
            except ray.exceptions.RayError as error:
                raise ConfigurationError([f"{name}: no worker could be started: {reason(error)}"], SOURCE) from None
            crew.heard_s = time.monotonic()

    @property
    def living(self) -> tuple[int, ...]:
        """The workers that are neither lost nor done."""
        return tuple(sorted(worker for crew in self._crews for worker in crew.living))

    def send(self, worker: int, message: ToWorker) -> None:
        """Send a message."""
        for crew in self._crews:
            if worker in crew.living:
                crew.actor.send.options(concurrency_group="orders").remote(worker, message)

    def receive(self, timeout_s: float) -> Iterator[FromWorker]:
        """The workers' messages, and which are lost."""
        import ray

        crews = [crew for crew in self._crews if crew.living]
        if not crews:
            time.sleep(timeout_s)
            return
        for crew in crews:
            if crew.call is None:
                crew.call = crew.actor.receive.options(concurrency_group="reports").remote()
        calls = [crew.call for crew in crews]
        ray.wait(calls, num_returns=1, timeout=timeout_s)
        ready, _ = ray.wait(calls, num_returns=len(calls), timeout=0)
        for crew in crews:
            if crew.call in ready:
                yield from self._take(crew)
            if crew.living and time.monotonic() - crew.heard_s > SILENCE_S:
                yield from self._lose(crew, f"{crew.placement.node.name} was not heard for {SILENCE_S:g} s")

    def collect(self, on_progress: Callable[[int, int], object]) -> tuple[str, ...]:
        """Fetch the ledgers from their machines."""
        missed, done = [], 0
        for crew in self._crews:
            gone = ""
            for worker in crew.placement.workers:
                if (path := self._written.get(worker)) is None:
                    continue
                on_progress(done, len(self._written))
                gone = gone or _fetch(crew.actor, path)  # its other ledgers would be waited for as long
                if gone:
                    where = f"the ledger of worker {worker} on {crew.placement.node.name}"
                    missed.append(f"{where} could not be fetched: {gone}")
                done += 1
        return tuple(missed)

    def _take(self, crew: _Crew) -> Iterator[FromWorker]:
        """The messages of an answer."""
        import ray

        call, crew.call = crew.call, None
        try:
            messages = ray.get(call)
        except ray.exceptions.RayError as error:
            yield from self._lose(crew, f"the workers on {crew.placement.node.name} ended: {reason(error)}")
            return
        crew.heard_s = time.monotonic()
        for message in messages:
            if message.worker in crew.living:
                if isinstance(message, Finished | WorkerLost):
                    crew.living.discard(message.worker)
                yield message

    def _lose(self, crew: _Crew, why: str) -> Iterator[WorkerLost]:
        lost, crew.living = sorted(crew.living), set()
        for worker in lost:
            yield WorkerLost(worker, why)


def _loopback_faults(nodes: Sequence[Node], addresses: set[str]) -> list[str]:
    """A sentence for each loopback address where workers are on other machines: there it leads to those."""
    others = ", ".join(node.name for node in nodes if not is_here(node))
    fix = "give the target's address in the network"
    return [
        f"{address} leads to the machine that uses it, and workers are on {others}: {fix}"
        for address in sorted(addresses)
        if others and targets.is_here(address)
    ]


def _fetch(actor: Any, path: Path) -> str:
    """Write what a worker wrote to where it would have been on this machine; why not, or empty when it is whole."""
    import ray

    new = path.with_name(f"{path.name}.part")  # half a ledger would be taken for a whole one
    try:
        with new.open("wb") as file:
            while piece := ray.get(actor.read.remote(str(path), file.tell()), timeout=_PIECE_S):
                file.write(piece)
        new.replace(path)
    except (ray.exceptions.RayError, OSError) as error:
        return reason(error)
    finally:
        with contextlib.suppress(OSError):
            new.unlink(missing_ok=True)
    return ""
