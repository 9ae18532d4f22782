"""The measurement of a worker: each exchange costs three appends, and a second becomes histograms when it is over.

Making the histograms is left to :meth:`Cut.measured`, which any thread may do: the loop that makes the load does not.
"""

from __future__ import annotations

import copy
import math
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from simulator.fleet.metrics.histogram import Histogram
from simulator.fleet.outcomes import Attempt, OutcomeClass
from simulator.fleet.record import GeneratorHealth, Operations, Second, Tally

_NOT_SENT: Final = math.nan
_UNKNOWN: Final = GeneratorHealth()
_FIRST: Final = Attempt.FIRST
_AMBIGUOUS: Final = Attempt.AMBIGUOUS


class _Cell:
    """The exchanges of one operation and outcome within the second under way.

    Attributes:
        response: from the intended time to the end.
        service: from the sent time to the end; NaN where nothing was sent.
        own_wait: how much of the response an earlier request of the same device caused.
    """

    __slots__ = ("ambiguous", "own_wait", "resends", "response", "service")

    def __init__(self) -> None:
        self.response = array("d")
        self.service = array("d")
        self.own_wait = array("d")
        self.resends = 0
        self.ambiguous = 0

    def tally(self, lag: Histogram) -> Tally:
        """The cell as histograms; the time from intended to sent is added to ``lag``."""
        waited, served = np.frombuffer(self.response), np.frombuffer(self.service)
        sent = ~np.isnan(served)
        response, service = Histogram(), Histogram()
        response.record_many(waited)
        service.record_many(served[sent])
        lag.record_many(np.maximum(waited - served - np.frombuffer(self.own_wait), 0.0)[sent])
        return Tally(len(waited), len(waited) - self.resends, response.encode(), service.encode(), self.ambiguous)


_Cells = Mapping[str, Mapping[OutcomeClass, _Cell]]


class Recorder:
    """Counts exchanges; one for each worker, used from its loop's thread only.

    ``intended`` and ``sent`` are for the driver: when a request that fell due by the plan has ended, or when it is
    clear that it never will, it adds 1 to ``intended``, and to ``sent`` if its bytes went to the socket. The difference
    is load that was not made. ``undelivered`` are those of them that never ended.
    """

    __slots__ = ("_cells", "_drain_s", "_gauges", "_late", "intended", "sent", "undelivered")

    def __init__(self) -> None:
        self.intended = self.sent = self.undelivered = 0
        self._cells: dict[str, dict[OutcomeClass, _Cell]] = {}
        self._drain_s = math.inf
        self._late: Recorder | None = None
        self._gauges: dict[str, float] = {}

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
        cell.response.append(now_s - intended_s)
        cell.service.append(_NOT_SENT if sent_s is None else now_s - sent_s)
        cell.own_wait.append(0.0 if ready_s is None else ready_s - intended_s)
        if attempt is not _FIRST:
            cell.resends += 1
            cell.ambiguous += attempt is _AMBIGUOUS
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
        self._late = Recorder()
        self._late._cells = copy.deepcopy(self._cells)

    def cut(self, number: int) -> Cut:
        """Take out everything since the last cut, as the second with this number."""
        health = GeneratorHealth(intended=self.intended, sent=self.sent, undelivered=self.undelivered)
        late = self._late.cut(number).cells if self._late is not None else {}
        taken = Cut(number, self._cells, dict(self._gauges), health, late)
        self._cells = {}
        self.intended = self.sent = self.undelivered = 0
        return taken


@dataclass(frozen=True, slots=True)
class Cut:
    """A second as it was recorded."""

    number: int
    cells: _Cells
    gauges: Mapping[str, float]
    health: GeneratorHealth
    late: _Cells

    def measured(self, process: GeneratorHealth = _UNKNOWN) -> Second:
        """The second as histograms.

        Args:
            process: what the worker's process knows of itself.
        """
        lag = Histogram()
        operations = _tallied(self.cells, lag)
        health = replace(
            process,
            intended=self.health.intended,
            sent=self.health.sent,
            undelivered=self.health.undelivered,
            send_lag=lag.encode(),
            send_lag_p99_s=lag.percentile(99) if lag.count else 0.0,
            send_lag_max_s=lag.max_s if lag.count else 0.0,
        )
        return Second(self.number, operations, self.gauges, health, _tallied(self.late, Histogram()))


def _tallied(cells: _Cells, lag: Histogram) -> Operations:
    return {
        operation: {outcome: cell.tally(lag) for outcome, cell in outcomes.items()}
        for operation, outcomes in cells.items()
    }
