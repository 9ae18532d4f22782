"""How old a reading is when it is accepted: from the moment it was taken until the answer that accepted it.

Each reading counts, however many went together. Whatever it waited for is in it: a connection that was refused, a
back-off, a batch, the outbox, a restart of its device. It is measured like an operation, under :data:`READING_AGE`,
and no exchange by itself. A reading that nobody accepted counts under the outcome of its last sending; one that still
waits at the end of the run is a ``timeout`` with what it has waited until then.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

from simulator.fleet.metrics.recorder import Recorder
from simulator.fleet.outcomes import OutcomeClass
from simulator.fleet.record import Operations

READING_AGE: Final = "readings.age"
AGE_OPERATIONS: Final = (READING_AGE,)


class Ages(Protocol):
    """Where devices hand over how old their readings became. All times are on the machine's monotonic clock."""

    def accepted(self, taken_s: Iterable[float], now_s: float) -> None:
        """Readings that were taken at these times are accepted now."""
        ...

    def given_up(self, taken_s: Iterable[float], outcome: OutcomeClass, now_s: float) -> None:
        """Readings that were taken at these times will not be sent any more, and nobody accepted them."""
        ...


class NoAges:
    """Keeps nothing, for runs that are not measured."""

    def accepted(self, taken_s: Iterable[float], now_s: float) -> None:
        """See :class:`Ages`."""

    def given_up(self, taken_s: Iterable[float], outcome: OutcomeClass, now_s: float) -> None:
        """See :class:`Ages`."""


class ReadingAges:
    """See :class:`Ages`.

    Args:
        recorder: where they go.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def accepted(self, taken_s: Iterable[float], now_s: float) -> None:
        """See :class:`Ages`."""
        self.given_up(taken_s, OutcomeClass.OK, now_s)

    def given_up(self, taken_s: Iterable[float], outcome: OutcomeClass, now_s: float) -> None:
        """See :class:`Ages`."""
        record = self._recorder.record
        for at_s in taken_s:
            # Nothing was sent by this alone: it has no part in the send lag.
            record(READING_AGE, outcome, intended_s=at_s, sent_s=None, now_s=now_s)


def ages_of(operations: Operations) -> Operations:
    """What was measured of ages alone."""
    return {name: operations[name] for name in AGE_OPERATIONS if name in operations}
