"""The measurement of a worker: each exchange is recorded in 0.4 µs and handed over once a second.

:meth:`Recorder.record` only appends two numbers; they become histograms when the second is over, all in one go, and off
the loop that makes the load where there is a thread for it.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from simulator.fleet.metrics.health import ProcessHealth
from simulator.fleet.metrics.histogram import Histogram
from simulator.fleet.outcomes import Attempt, OutcomeClass
from simulator.fleet.record import Operations, Tally

HEALTHY: Final = ProcessHealth()
_NOT_SENT: Final = math.nan
_FIRST: Final = Attempt.FIRST
_AMBIGUOUS: Final = Attempt.AMBIGUOUS
_CHUNK: Final = 65_536
"""Values kept as they are, for each operation and outcome; more within a second are counted at once (1 MiB)."""


@dataclass(frozen=True, slots=True)
class WorkerHealth:
    """How one worker did in one second.

    Attributes:
        send_lag: encoded histogram of how long the generator kept waiting what ended in this second, until it was sent.
        process: what it knows of itself.
        intended, sent: requests that fell due, and those that went out; each counts in the second in which it ended.
        undelivered: open arrivals that fell due and never ended; in a worker's last second, among ``intended``.
    """

    send_lag: str = ""
    process: ProcessHealth = field(default_factory=ProcessHealth)
    intended: int = 0
    sent: int = 0
    undelivered: int = 0


@dataclass(frozen=True, slots=True)
class Delta:
    """What one worker measured in one second: small, and made of strings and numbers, for a pipe.

    Attributes:
        worker: its number.
        second: since the run's begin.
        gauges: the worker's part; the parts of all workers are added up.
        late: of the operations what fell due in the phases and ended after them; as in a second of the record.
    """

    worker: int
    second: int
    operations: Operations
    gauges: Mapping[str, float] = field(default_factory=dict)
    health: WorkerHealth = field(default_factory=WorkerHealth)
    late: Operations = field(default_factory=dict)


class _Cell:
    """One operation and outcome within the second under way. ``service`` is NaN where nothing was sent."""

    __slots__ = ("ambiguous", "folded", "held", "resends", "response", "service")

    def __init__(self) -> None:
        self.response = array("d")
        self.service = array("d")
        self.held = array("d")
        self.resends = 0
        self.ambiguous = 0
        self.folded: _Folded | None = None

    def fold(self) -> None:
        """Count what lies there, so that it takes no room."""
        folded = self.folded = self.folded or _Folded()
        folded.take(self.response, self.service, self.held)
        self.response, self.service, self.held = array("d"), array("d"), array("d")

    def copy(self) -> _Cell:
        """The same once more; nothing is shared."""
        twin = _Cell()
        twin.response, twin.service, twin.held = self.response[:], self.service[:], self.held[:]
        twin.resends, twin.ambiguous = self.resends, self.ambiguous
        if self.folded is not None:
            twin.folded = _Folded()
            twin.folded.add(self.folded)
        return twin


class _Folded:
    """The histograms of a cell."""

    __slots__ = ("lag", "response", "service")

    def __init__(self) -> None:
        self.response, self.service, self.lag = Histogram(), Histogram(), Histogram()

    def take(self, response: array[float], service: array[float], held: array[float]) -> None:
        waited, served, own = np.frombuffer(response), np.frombuffer(service), np.frombuffer(held)
        self.response.record_many(waited)
        sent = ~np.isnan(served)
        self.service.record_many(served[sent])
        self.lag.record_many(np.maximum(waited - served - own, 0.0)[sent])

    def add(self, other: _Folded) -> None:
        self.response.add(other.response)
        self.service.add(other.service)
        self.lag.add(other.lag)

    def clear(self) -> None:
        self.response.clear()
        self.service.clear()
        self.lag.clear()


class Recorder:
    """Counts exchanges; one for each worker, used from its loop's thread only.

    ``intended`` and ``sent`` are for the driver: when a request that fell due by the plan has ended, or when it is
    clear that it never will, it adds 1 to ``intended``, and to ``sent`` if its bytes went to the socket. The difference
    is load that was not made. ``undelivered`` are those of them that never ended.

    Args:
        worker: its number.
    """

    __slots__ = (
        "_cells",
        "_drain_s",
        "_gauges",
        "_late",
        "_scratch",
        "intended",
        "sent",
        "undelivered",
        "worker",
    )

    def __init__(self, worker: int = 0) -> None:
        self.worker = worker
        self.intended = 0
        self.sent = 0
        self.undelivered = 0
        self._cells: dict[str, dict[OutcomeClass, _Cell]] = {}
        self._drain_s = math.inf
        self._late: Recorder | None = None
        self._gauges: dict[str, float] = {}
        self._scratch = _Folded()

    def record(
        self,
        operation: str,
        outcome: OutcomeClass,
        *,
        intended_s: float,
        sent_s: float | None,
        now_s: float,
        ready_s: float | None = None,
        attempt: Attempt = Attempt.FIRST,
        due_s: float | None = None,
    ) -> None:
        """Count one exchange that ended. All times are on the loop's monotonic clock.

        Args:
            operation: such as ``http.sensor_data``.
            outcome: how it ended.
            intended_s: when it should have been sent, by the plan or by its own back-off.
            sent_s: when its bytes went to the socket; None when nothing went out.
            now_s: when it ended.
            ready_s: from when on only the generator kept it waiting, and not an earlier request of the same device;
                ``intended_s`` where that is never so. The generator's lag counts from here, the response does not.
            attempt: whether it went out before, and what the service may have of that.
            due_s: what decides whether it belongs to the phases or to the drain; None for ``intended_s``.
        """
        try:
            cell = self._cells[operation][outcome]
        except KeyError:
            cell = self._cells.setdefault(operation, {}).setdefault(outcome, _Cell())
        response = cell.response
        response.append(now_s - intended_s)
        cell.service.append(_NOT_SENT if sent_s is None else now_s - sent_s)
        cell.held.append(0.0 if ready_s is None else ready_s - intended_s)
        if attempt is not _FIRST:
            cell.resends += 1
            cell.ambiguous += attempt is _AMBIGUOUS
        if len(response) >= _CHUNK:
            cell.fold()
        late = self._late
        if late is not None and (intended_s if due_s is None else due_s) < self._drain_s:
            late.record(
                operation, outcome, intended_s=intended_s, sent_s=sent_s, now_s=now_s, ready_s=ready_s, attempt=attempt
            )

    def gauge(self, name: str, value: float) -> None:
        """Set what is the case now, such as ``online``; it stays until it is set again."""
        self._gauges[name] = value

    def drain(self, at_s: float) -> None:
        """The phases are over: what falls due from ``at_s`` on belongs to the drain.

        What fell due before and ends from now on is counted as ``late`` as well, so that it can be judged with the
        phases that it belongs to. A second under way counts so as a whole: all of it ended before this was known.
        """
        self._drain_s = at_s
        self._late = Recorder(self.worker)
        self._late._cells = {
            operation: {outcome: cell.copy() for outcome, cell in cells.items()}
            for operation, cells in self._cells.items()
        }

    def cut(self, second: int) -> Cut:
        """Take out everything since the last cut. Quick: the work is :meth:`Cut.delta`, which any thread may do."""
        taken = Cut(
            self.worker,
            second,
            {operation: dict(cells) for operation, cells in self._cells.items()},
            dict(self._gauges),
            (self.intended, self.sent, self.undelivered),
            self._scratch,
            self._late.cut(second).cells if self._late is not None else {},
        )
        for cells in self._cells.values():
            for outcome in cells:
                cells[outcome] = _Cell()
        self.intended = self.sent = self.undelivered = 0
        return taken


@dataclass(frozen=True, slots=True)
class Cut:
    """A second as it was recorded. :meth:`delta` makes it small; cuts of one recorder are made small one by one."""

    worker: int
    second: int
    cells: Mapping[str, Mapping[OutcomeClass, _Cell]]
    gauges: Mapping[str, float]
    requests: tuple[int, int, int]
    """Intended, sent, undelivered."""
    scratch: _Folded
    late: Mapping[str, Mapping[OutcomeClass, _Cell]]

    def delta(self, process: ProcessHealth = HEALTHY) -> Delta:
        """The second as histograms, with the health of the process."""
        lag = Histogram()
        operations = self._operations(self.cells, lag)
        health = WorkerHealth(lag.encode(), process, *self.requests)
        late = self._operations(self.late, Histogram())
        return Delta(self.worker, self.second, operations, self.gauges, health, late)

    def _operations(self, cells_of: Mapping[str, Mapping[OutcomeClass, _Cell]], lag: Histogram) -> Operations:
        operations = {
            operation: {
                outcome: self._tally(cell, lag) for outcome, cell in cells.items() if cell.response or cell.folded
            }
            for operation, cells in cells_of.items()
        }
        return {operation: tallies for operation, tallies in operations.items() if tallies}

    def _tally(self, cell: _Cell, lag: Histogram) -> Tally:
        if cell.folded is None:
            folded = self.scratch
            folded.clear()
        else:
            folded = cell.folded
        folded.take(cell.response, cell.service, cell.held)
        lag.add(folded.lag)
        count = folded.response.count
        response, service = folded.response.encode(), folded.service.encode()
        return Tally(count, count - cell.resends, response, service, cell.ambiguous)
