"""The messages between coordinator and workers, pickled: both ends are this program of this version.

Times are seconds since the run's begin, since each machine has a monotonic clock of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from simulator.fleet.record import Second
from simulator.fleet.workload.base import WorkloadSummary


@dataclass(frozen=True, slots=True)
class Begin:
    """To a worker: the run begins in so many seconds, for all workers at the same instant."""

    after_s: float


@dataclass(frozen=True, slots=True)
class EnterPhases:
    """To a worker: when these phases begin, one after the other; each ends the one before it.

    They are all that have a time by now: up to the next one with a barrier at its end. Nothing more has to be said for
    them to begin.

    Attributes:
        index: of the first of them, in the scenario's list.
        at_s: when each begins.
    """

    index: int
    at_s: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Drain:
    """To a worker: no new work; hand over what is waiting.

    Attributes:
        from_s: when the phases were over; what fell due before still belongs to them.
        until_s: how long it may take.
    """

    from_s: float
    until_s: float


@dataclass(frozen=True, slots=True)
class Stop:
    """To a worker: close everything and end."""


ToWorker = Begin | EnterPhases | Drain | Stop


@dataclass(frozen=True, slots=True)
class Ready:
    """From a worker: it has started, and nothing is sent yet."""

    worker: int


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """From a worker's own heartbeat thread: the process lives, however busy its loop is."""

    worker: int


@dataclass(frozen=True, slots=True)
class Measured:
    """From a worker: its part of a second."""

    worker: int
    second: Second


@dataclass(frozen=True, slots=True)
class Drained:
    """From a worker: nothing waits any more, or the time for it is over.

    Attributes:
        late: names of devices that still had something to hand over, a few.
        late_count: how many there are.
    """

    worker: int
    late: tuple[str, ...]
    late_count: int


@dataclass(frozen=True, slots=True)
class Finished:
    """From a worker: its last message, with what it adds to the run's record."""

    worker: int
    summary: WorkloadSummary


@dataclass(frozen=True, slots=True)
class Problem:
    """From a worker: why its part of the run proves nothing: an error that ends it, or a clock that jumped."""

    worker: int
    sentence: str


@dataclass(frozen=True, slots=True)
class WorkerLost:
    """In place of a worker: it is not there any more, and why."""

    worker: int
    reason: str


FromWorker = Ready | Heartbeat | Measured | Drained | Finished | Problem | WorkerLost
