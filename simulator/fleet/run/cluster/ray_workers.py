"""The workers of a run on the machines of a Ray cluster: a crew for each machine, which starts them there and relays.

Each crew is asked for its messages all the time, by one call that waits on its side. A crew that does not answer for as
long as a silent worker is waited for is lost with its workers.
"""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from agent.errors import ConfigurationError
from simulator.fleet.run.cluster.connection import reason
from simulator.fleet.run.cluster.job_files import pack
from simulator.fleet.run.cluster.node_crew import NodeCrew
from simulator.fleet.run.cluster.placement import Placement
from simulator.fleet.run.local_workers import SILENCE_S
from simulator.fleet.run.messages import Finished, FromWorker, ToWorker
from simulator.fleet.run.workers import Work, WorkerLost
from simulator.interrupts import without_interrupts

_PLACE_S: Final = 120.0
_END_S: Final = 15.0
_PIECE_S: Final = 60.0
_PAUSE_S: Final = 0.1
"""After a call that could not be made, before the next one."""


@dataclass(slots=True)
class _Crew:
    """One machine's workers.

    Attributes:
        actor: Ray's handle of its :class:`NodeCrew`.
        living: the workers that are neither lost nor done.
        call: the answer to come; None between two calls.
        taken: number of the last batch that has arrived.
        heard_s: when an answer came last.
    """

    placement: Placement
    actor: Any
    living: set[int] = field(default_factory=set)
    call: Any = None
    taken: int = 0
    heard_s: float = 0.0


class RayWorkers:
    """Workers on the machines of the cluster that this process is connected to.

    See :class:`~simulator.fleet.run.workers.Workers`.

    Args:
        work: what each of them does.
        placements: where they go, all of them.
        resource: Ray's name of what each of them takes one of, beside a core; None for nothing.
    """

    def __init__(self, work: Work, placements: Sequence[Placement], *, resource: str | None = None) -> None:
        self._work = work
        self._placements = placements
        self._resource = resource
        self._crews: list[_Crew] = []
        self._written: dict[int, Path] = {}

    def __enter__(self) -> Self:
        return self

    def start(self, jobs: Sequence[Any]) -> None:
        """Send each machine its jobs and their files. See :class:`~simulator.fleet.run.workers.Workers`."""
        import ray

        job_files = pack(jobs)
        self._written = {
            worker: job.ledger.path for worker, job in enumerate(jobs) if getattr(job, "ledger", None) is not None
        }
        # An object, not an argument: what a call is given stands in the cluster's table of actors.
        files = ray.put(job_files)
        begun = []
        for placement in self._placements:
            actor = _make_actor(self._work, placement, self._resource)
            crew = _Crew(placement, actor, set(range(placement.first, placement.first + placement.workers)))
            self._crews.append(crew)
            own = list(jobs[placement.first : placement.first + placement.workers])
            begun.append(crew.actor.start.remote(own, files))
        deadline_s = time.monotonic() + _PLACE_S
        for placement, call in zip(self._placements, begun, strict=True):
            _wait_until_begun(placement.node.name, call, max(0.0, deadline_s - time.monotonic()))
        for crew in self._crews:
            crew.heard_s = time.monotonic()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        import ray

        with without_interrupts():
            calls = [crew.actor.close.remote() for crew in self._crews]
            if calls:
                ray.wait(calls, num_returns=len(calls), timeout=_END_S)
            for crew in self._crews:
                ray.kill(crew.actor, no_restart=True)

    @property
    def living(self) -> tuple[int, ...]:
        """The workers that are neither lost nor done."""
        return tuple(sorted(worker for crew in self._crews for worker in crew.living))

    def send(self, worker: int, message: ToWorker) -> None:
        """Send a message. See :class:`~simulator.fleet.run.workers.Workers`."""
        for crew in self._crews:
            if worker in crew.living:
                crew.actor.send.options(concurrency_group="orders").remote(worker, message)

    def receive(self, timeout_s: float) -> Iterator[FromWorker | WorkerLost]:
        """The workers' messages, and which are lost. See :class:`~simulator.fleet.run.workers.Workers`."""
        import ray

        crews = [crew for crew in self._crews if crew.living]
        if not crews:
            time.sleep(timeout_s)
            return
        for crew in crews:
            if crew.call is None:
                crew.call = crew.actor.receive.options(concurrency_group="reports").remote(crew.taken)
        calls = [crew.call for crew in crews]
        ray.wait(calls, num_returns=1, timeout=timeout_s)
        ready, _ = ray.wait(calls, num_returns=len(calls), timeout=0)
        for crew in crews:
            if crew.call in ready:
                yield from self._take(crew)
            if crew.living and time.monotonic() - crew.heard_s > SILENCE_S:
                yield from self._lose(crew, f"{crew.placement.node.name} was not heard for {SILENCE_S:g} s")

    def collect(self, on_progress: Callable[[int, int], object]) -> tuple[str, ...]:
        """Fetch the ledgers from their machines. See :class:`~simulator.fleet.run.workers.Workers`."""
        missing, done = [], 0
        for crew in self._crews:
            gone = ""
            for worker in range(crew.placement.first, crew.placement.first + crew.placement.workers):
                path = self._written.get(worker)
                if path is None:
                    continue
                on_progress(done, len(self._written))
                gone = gone or _fetch(crew.actor, path)  # its other ledgers would be waited for as long
                if gone:
                    where = f"the ledger of worker {worker} on {crew.placement.node.name}"
                    missing.append(f"{where} could not be fetched: {gone}")
                done += 1
        return tuple(missing)

    def _take(self, crew: _Crew) -> Iterator[FromWorker | WorkerLost]:
        """The messages of an answer."""
        import ray

        call, crew.call = crew.call, None
        try:
            number, messages = ray.get(call)
        except ray.exceptions.ActorUnavailableError:
            time.sleep(_PAUSE_S)  # a connection was cut; asked again, the crew gives the same batch
            return
        except ray.exceptions.RayError as error:
            yield from self._lose(crew, f"the workers on {crew.placement.node.name} ended: {reason(error)}")
            return
        crew.heard_s, crew.taken = time.monotonic(), number
        for message in messages:
            if message.worker in crew.living:
                if isinstance(message, Finished | WorkerLost):
                    crew.living.discard(message.worker)
                yield message

    def _lose(self, crew: _Crew, reason: str) -> Iterator[WorkerLost]:
        lost, crew.living = sorted(crew.living), set()
        for worker in lost:
            yield WorkerLost(worker, reason)


def _make_actor(work: Work, placement: Placement, resource: str | None) -> Any:
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    made = ray.remote(
        num_cpus=placement.workers,
        resources={resource: placement.workers} if resource else {},
        max_restarts=0,
        max_task_retries=0,
        concurrency_groups={"orders": 1, "reports": 1},
        scheduling_strategy=NodeAffinitySchedulingStrategy(placement.node.node_id, soft=False),
    )(NodeCrew)
    return made.remote(work, placement.first)


def _wait_until_begun(name: str, call: Any, timeout_s: float) -> None:
    """Wait until the workers of a machine are started.

    Raises:
        ConfigurationError: they are not.
    """
    import ray

    try:
        ray.get(call, timeout=timeout_s)
    except ray.exceptions.GetTimeoutError:
        fix = "end what runs there, or write fewer workers"
        sentence = f"{name}: its cores were not free within {_PLACE_S:g} s: {fix}"
        raise ConfigurationError([sentence], "--cluster") from None
    except ray.exceptions.RayError as error:
        raise ConfigurationError([f"{name}: no worker could be started: {reason(error)}"], "--cluster") from None


def _fetch(actor: Any, path: Path) -> str:
    """Write what a worker wrote to where it would have been on this machine; why not, or empty when it is whole."""
    import ray

    new = path.with_name(f"{path.name}.part")  # half a ledger would be taken for a whole one
    try:
        size, digest = ray.get(actor.size_of.remote(str(path)), timeout=_PIECE_S)
        if size < 0:
            return "there is none"
        found, offset = hashlib.sha256(), 0
        with new.open("wb") as file:
            while offset < size and (piece := ray.get(actor.read.remote(str(path), offset), timeout=_PIECE_S)):
                file.write(piece)
                found.update(piece)
                offset += len(piece)
        if found.hexdigest() != digest:
            return "what came is not what was there"
        new.replace(path)
    except (ray.exceptions.RayError, OSError) as error:
        return reason(error)
    finally:
        with contextlib.suppress(OSError):
            new.unlink(missing_ok=True)
    return ""
