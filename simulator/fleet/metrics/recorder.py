"""What a worker notes of each exchange, at the price of 0.4 µs, and hands over once a second.

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
from simulator.fleet.outcomes import OutcomeClass
from simulator.fleet.record import Operations, Tally

HEALTHY: Final = ProcessHealth()
_NOT_SENT: Final = math.nan
_CHUNK: Final = 65_536
"""Values kept as they are, for each operation and outcome; more within a second are counted at once (1 MiB)."""


@dataclass(frozen=True, slots=True)
class WorkerHealth:
    """How one worker did in one second.

    Attributes:
        send_lag: encoded histogram of how long the generator kept waiting what ended in this second, until it was sent.
        process: what it knows of itself.
        intended, sent: requests that fell due in this second, and those that went out.
    """

    send_lag: str = ""
    process: ProcessHealth = field(default_factory=ProcessHealth)
    intended: int = 0
    sent: int = 0


@dataclass(frozen=True, slots=True)
class Delta:
    """What one worker measured in one second: small, and made of strings and numbers, for a pipe.

    Attributes:
        worker: its number.
        epoch: counted up when a worker is started again under the same number.
        second: since the run's begin.
        gauges: the worker's part; the parts of all workers are added up.
    """

    worker: int
    epoch: int
    second: int
    operations: Operations
    gauges: Mapping[str, float] = field(default_factory=dict)
    health: WorkerHealth = field(default_factory=WorkerHealth)


class _Cell:
    """One operation and outcome within the second under way. ``service`` is NaN where nothing was sent."""

    __slots__ = ("first_attempts", "folded", "held", "response", "service")

    def __init__(self) -> None:
        self.response = array("d")
        self.service = array("d")
        self.held = array("d")
        self.first_attempts = 0
        self.folded: _Folded | None = None

    def fold(self) -> None:
        """Count what lies there, so that it takes no room."""
        folded = self.folded = self.folded or _Folded()
        folded.take(self.response, self.service, self.held)
        self.response, self.service, self.held = array("d"), array("d"), array("d")


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

    def clear(self) -> None:
        self.response.clear()
        self.service.clear()
        self.lag.clear()


class Recorder:
    """Counts exchanges; one for each worker, used from its loop's thread only.

    ``intended`` and ``sent`` are for the driver: it adds 1 to ``intended`` when a request falls due by the plan, sent
    or not, and to ``sent`` when its bytes went to the socket. The difference is load that was not made.

    Args:
        worker, epoch: see :class:`Delta`.
    """

    __slots__ = ("_cells", "_gauges", "_scratch", "epoch", "intended", "sent", "worker")

    def __init__(self, worker: int = 0, epoch: int = 0) -> None:
        self.worker = worker
        self.epoch = epoch
        self.intended = 0
        self.sent = 0
        self._cells: dict[str, dict[OutcomeClass, _Cell]] = {}
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
        first: bool = True,
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
            first: it is no resend.
        """
        try:
            cell = self._cells[operation][outcome]
        except KeyError:
            cell = self._cells.setdefault(operation, {}).setdefault(outcome, _Cell())
        response = cell.response
        response.append(now_s - intended_s)
        cell.service.append(_NOT_SENT if sent_s is None else now_s - sent_s)
        cell.held.append(0.0 if ready_s is None else ready_s - intended_s)
        if first:
            cell.first_attempts += 1
        if len(response) >= _CHUNK:
            cell.fold()

    def gauge(self, name: str, value: float) -> None:
        """Set what is the case now, such as ``online``; it stays until it is set again."""
        self._gauges[name] = value

    def cut(self, second: int) -> Cut:
        """Take out everything since the last cut. Quick: the work is :meth:`Cut.delta`, which any thread may do."""
        taken = Cut(
            self.worker,
            self.epoch,
            second,
            {operation: dict(cells) for operation, cells in self._cells.items()},
            dict(self._gauges),
            self.intended,
            self.sent,
            self._scratch,
        )
        for cells in self._cells.values():
            for outcome in cells:
                cells[outcome] = _Cell()
        self.intended = self.sent = 0
        return taken


@dataclass(frozen=True, slots=True)
class Cut:
    """A second as it was recorded. :meth:`delta` makes it small; cuts of one recorder are made small one by one."""

    worker: int
    epoch: int
    second: int
    cells: Mapping[str, Mapping[OutcomeClass, _Cell]]
    gauges: Mapping[str, float]
    intended: int
    sent: int
    scratch: _Folded

    def delta(self, process: ProcessHealth = HEALTHY) -> Delta:
        """The second as histograms, with what the process knows of its own health."""
        lag = Histogram()
        operations = {
            operation: {
                outcome: self._tally(cell, lag) for outcome, cell in cells.items() if cell.response or cell.folded
            }
            for operation, cells in self.cells.items()
        }
        health = WorkerHealth(lag.encode(), process, self.intended, self.sent)
        kept = {operation: tallies for operation, tallies in operations.items() if tallies}
        return Delta(self.worker, self.epoch, self.second, kept, self.gauges, health)

    def _tally(self, cell: _Cell, lag: Histogram) -> Tally:
        if cell.folded is None:
            folded = self.scratch
            folded.clear()
        else:
            folded = cell.folded
        folded.take(cell.response, cell.service, cell.held)
        lag.add(folded.lag)
        return Tally(folded.response.count, cell.first_attempts, folded.response.encode(), folded.service.encode())
