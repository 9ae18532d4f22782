"""The messages between coordinator and workers, pickled over a pipe: both ends are this program of this version.

Times are seconds on the machine's monotonic clock, which its processes share.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Begin:
    """To a worker: the run begins, for everybody at the same instant."""

    at_s: float


@dataclass(frozen=True, slots=True)
class EnterPhase:
    """To a worker: this phase begins; the one before it ends.

    Attributes:
        index: in the scenario's list.
    """

    index: int
    at_s: float


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


ToWorker = Begin | EnterPhase | Drain | Stop


@dataclass(frozen=True, slots=True)
class Ready:
    """From a worker: every device of it is built, and nothing is sent yet."""

    worker: int
    devices: int


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """From a worker's own heartbeat thread: the process lives, however busy its loop is."""

    worker: int


@dataclass(frozen=True, slots=True)
class Measured:
    """From a worker: one second of measurement.

    Attributes:
        second: since the run's begin.
        delta: what :class:`~simulator.fleet.metrics.recorder.Recorder` cut.
    """

    worker: int
    second: int
    delta: Any


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
    """From a worker: the last word.

    Attributes:
        summary: what it adds to the run's record.
    """

    worker: int
    summary: Any


@dataclass(frozen=True, slots=True)
class Problem:
    """From a worker: why it ends before its time."""

    worker: int
    sentence: str


FromWorker = Ready | Heartbeat | Measured | Drained | Finished | Problem
