"""The messages between coordinator and workers, pickled: both ends are this program of this version.

Times are seconds on the monotonic clock of the worker that a message is for; :func:`on_clock` translates into them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from simulator.fleet.record import Second


@dataclass(frozen=True, slots=True)
class Begin:
    """To a worker: the run begins, for everybody at the same instant."""

    at_s: float


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


def on_clock(message: ToWorker, ahead_s: float) -> ToWorker:
    """The message with its times on a clock that is so far ahead of the one that they are on."""
    match message:
        case Begin(at_s):
            return Begin(at_s + ahead_s)
        case EnterPhases(_, at_s):
            return replace(message, at_s=tuple(each + ahead_s for each in at_s))
        case Drain(from_s, until_s):
            return Drain(from_s + ahead_s, until_s + ahead_s)
        case _:
            return message


@dataclass(frozen=True, slots=True)
class Ready:
    """From a worker: it has begun, and nothing is sent yet.

    Attributes:
        apart_s: how far its wall clock is ahead of its monotonic one.
    """

    worker: int
    devices: int
    apart_s: float


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """From a worker's own heartbeat thread: the process lives, however busy its loop is."""

    worker: int


@dataclass(frozen=True, slots=True)
class Measured:
    """From a worker: one second of measurement.

    Attributes:
        second: the worker's part of it.
    """

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
    """From a worker: the last word.

    Attributes:
        summary: what it adds to the run's record.
    """

    worker: int
    summary: Any


@dataclass(frozen=True, slots=True)
class Problem:
    """From a worker: why its part of the run proves nothing: an error that ends it, or a clock that jumped."""

    worker: int
    sentence: str


FromWorker = Ready | Heartbeat | Measured | Drained | Finished | Problem
