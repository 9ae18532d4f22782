"""From exchanges to seconds, from the seconds of workers to those of the run, and from seconds to sums.

In a worker each exchange costs three appends, and a second becomes histograms when it is over. That is left to
:meth:`Cut.measured`, which any thread may do: the loop that makes the load does not.

Everything is added up by the same functions: workers into a second, seconds into a phase or a run. Counts are added,
histograms merged, gauges of workers added, and of the generator's health the worst counts.
"""

from __future__ import annotations

import copy
import math
from array import array
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from simulator.fleet.metrics.histogram import Histogram, merged
from simulator.fleet.outcomes import Attempt, OutcomeClass
from simulator.fleet.record import GeneratorHealth, Operations, Second, Tally, WorkerGap

_UNKNOWN: Final = GeneratorHealth()
_FIRST: Final = Attempt.FIRST
_AMBIGUOUS: Final = Attempt.AMBIGUOUS
CUMULATIVE: Final = ("readings", "commands", "results")
"""First words of gauges that count since the run's begin, such as ``readings_sent``: they never fall."""
PATIENCE: Final = 10
"""Seconds that a worker may be behind the foremost one before a second goes out without it."""
_MERGED_AT_ONCE: Final = 64
_TOO_LATE: Final = "they came too late, if at all, and are in no figure"


class _Cell:
    """The exchanges of one operation and outcome within the second under way.

    Attributes:
        response: from the intended time to the end.
        service: of those that were sent, from the sent time to the end.
        lag: of those that were sent, what the generator added before.
    """

    __slots__ = ("ambiguous", "lag", "resends", "response", "service")

    def __init__(self) -> None:
        self.response = array("d")
        self.service = array("d")
        self.lag = array("d")
        self.resends = 0
        self.ambiguous = 0

    def tally(self, lag: Histogram) -> Tally:
        """The cell as histograms; the generator's lag is added to ``lag``."""
        response, service, count = Histogram(), Histogram(), len(self.response)
        response.record_many(self.response)
        service.record_many(self.service)
        lag.record_many(self.lag)
        return Tally(count, count - self.resends, response.encode(), service.encode(), self.ambiguous)


_Cells = Mapping[str, Mapping[OutcomeClass, _Cell]]


class Recorder:
    """Counts exchanges; one for each worker, used from its loop's thread only.

    ``intended`` and ``sent`` are for the driver: when a request that fell due by the plan has ended, or when it is
    clear that it never will, it adds 1 to ``intended``, and to ``sent`` if its bytes went to the socket. The difference
    is load that was not made. ``undelivered`` are those of them that never ended.
    """

    __slots__ = ("_cells", "_drain_s", "_late", "intended", "sent", "undelivered")

    def __init__(self) -> None:
        self.intended = self.sent = self.undelivered = 0
        self._cells: dict[str, dict[OutcomeClass, _Cell]] = {}
        self._drain_s = math.inf
        self._late: Recorder | None = None

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
        if sent_s is not None:
            cell.service.append(now_s - sent_s)
            cell.lag.append(sent_s - (intended_s if ready_s is None else ready_s))
        if attempt is not _FIRST:
            cell.resends += 1
            cell.ambiguous += attempt is _AMBIGUOUS
        late = self._late
        if late is not None and (intended_s if due_s is None else due_s) < self._drain_s:
            late.record(
                operation, outcome, intended_s=intended_s, sent_s=sent_s, now_s=now_s, ready_s=ready_s, attempt=attempt
            )

    def drain(self, at_s: float) -> None:
        """The phases are over: what falls due from ``at_s`` on belongs to the drain.

        What fell due before and ends from now on is counted as ``late`` as well, so that it can be judged with the
        phases that it belongs to. A second under way counts so as a whole: all of it ended before this was known.
        """
        self._drain_s = at_s
        self._late = Recorder()
        self._late._cells = copy.deepcopy(self._cells)

    def cut(self, number: int, gauges: Mapping[str, float] | None = None) -> Cut:
        """Take out everything since the last cut, as the second with this number.

        Args:
            number: of the second.
            gauges: what is the case now, such as ``online``.
        """
        health = GeneratorHealth(intended=self.intended, sent=self.sent, undelivered=self.undelivered)
        late = self._late.cut(number).cells if self._late is not None else {}
        taken = Cut(number, self._cells, gauges or {}, health, late)
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
        health = merge_health([process, replace(self.health, send_lag=lag.encode())])
        return Second(self.number, operations, self.gauges, health, _tallied(self.late, Histogram()))


def _tallied(cells: _Cells, lag: Histogram) -> Operations:
    return {
        operation: {outcome: cell.tally(lag) for outcome, cell in outcomes.items()}
        for operation, outcomes in cells.items()
    }


# --- adding up --------------------------------------------------------------------------------------------------------


def is_cumulative(gauge: str) -> bool:
    """Whether a gauge counts since the run's begin."""
    family, _, rest = gauge.partition("_")
    return bool(rest) and family in CUMULATIVE


def merge_operations(parts: Iterable[Operations]) -> Operations:
    """Several measurements as one: of workers, or of seconds."""
    found = [part for part in parts if part]
    if len(found) == 1:
        return found[0]
    tallies: dict[str, dict[OutcomeClass, list[Tally]]] = {}
    for part in found:
        for name, outcomes in part.items():
            for outcome, tally in outcomes.items():
                tallies.setdefault(name, {}).setdefault(outcome, []).append(tally)
    return {name: {kind: _merged(each) for kind, each in outcomes.items()} for name, outcomes in tallies.items()}


def _merged(parts: Sequence[Tally]) -> Tally:
    return Tally(
        count=sum(part.count for part in parts),
        first_attempts=sum(part.first_attempts for part in parts),
        response=merged(part.response for part in parts).encode(),
        service=merged(part.service for part in parts).encode(),
        resends_ambiguous=sum(part.resends_ambiguous for part in parts),
    )


def merge_health(parts: Sequence[GeneratorHealth]) -> GeneratorHealth:
    """The worst of each figure; requests are added up, and the lag is that of all of them together."""
    if not parts:
        return GeneratorHealth()
    lag = merged(part.send_lag for part in parts)
    return GeneratorHealth(
        send_lag_p99_s=lag.percentile(99) if lag.count else 0.0,
        send_lag_max_s=lag.max_s if lag.count else 0.0,
        loop_lag_max_s=max(part.loop_lag_max_s for part in parts),
        steal_percent=max(part.steal_percent for part in parts),
        cpu_percent=max(part.cpu_percent for part in parts),
        intended=sum(part.intended for part in parts),
        sent=sum(part.sent for part in parts),
        send_lag=lag.encode(),
        undelivered=sum(part.undelivered for part in parts),
        stood_still_s=max(part.stood_still_s for part in parts),
    )


class Totals:
    """The sums of many seconds, in memory that does not grow with them.

    Args:
        seconds: to begin with.

    Attributes:
        seconds: how many there were.
        last: number of the last one; -1 before the first.
    """

    def __init__(self, seconds: Iterable[Second] = ()) -> None:
        self.seconds = 0
        self.last = -1
        self._parts: list[tuple[Operations, GeneratorHealth]] = []  # merged now and then: one by one would take long
        self._cpu = self._steal = self._stood_still_s = 0.0
        for second in seconds:
            self.add(second)

    def add(self, second: Second) -> None:
        """Add a second; they come in order."""
        self.seconds += 1
        self.last = second.second
        self._cpu += second.health.cpu_percent
        self._steal += second.health.steal_percent
        self._stood_still_s += second.health.stood_still_s
        self._parts.append((second.operations, second.health))
        if len(self._parts) >= _MERGED_AT_ONCE:
            self._parts = [self._merged()]

    def _merged(self) -> tuple[Operations, GeneratorHealth]:
        return (
            merge_operations(operations for operations, _ in self._parts),
            merge_health([health for _, health in self._parts]),
        )

    @property
    def operations(self) -> Operations:
        """The sums of each operation."""
        return self._merged()[0]

    @property
    def health(self) -> GeneratorHealth:
        """The worst of each figure; of the processor the mean over the seconds of each one's busiest worker."""
        seconds = max(self.seconds, 1)
        return replace(
            self._merged()[1],
            cpu_percent=self._cpu / seconds,
            steal_percent=self._steal / seconds,
            stood_still_s=self._stood_still_s,
        )


@dataclass(slots=True)
class _Worker:
    """State of one worker.

    Attributes:
        reported: the last second that it sent.
        silent_because: why it sends no more; None as long as it does. Empty: it ended as it should.
        gauges: in the last second that was handed out.
    """

    reported: int = -1
    silent_because: str | None = None
    gauges: Mapping[str, float] = field(default_factory=dict)


class Merger:
    """Merges the workers' seconds into those of the run; what a worker did not send in time is a declared gap.

    A second is handed out as soon as every worker has reported it, or when it has waited for :data:`PATIENCE` more.

    Args:
        workers: their numbers. A worker's seconds come in ascending order, as a pipe gives them.
        patience: see :data:`PATIENCE`.
    """

    def __init__(self, workers: Iterable[int], patience: int = PATIENCE) -> None:
        self._workers = {worker: _Worker() for worker in workers}
        self._patience = patience
        self._open: dict[int, dict[int, Second]] = {}
        self._next = 0
        self._newest = -1
        self._gaps: dict[tuple[int, str, float], WorkerGap] = {}  # by worker, reason and end

    def add(self, number: int, second: Second) -> None:
        """Take in a worker's second, unless it came before, too late, or from a worker that was lost meanwhile."""
        worker = self._workers[number]
        if second.second <= worker.reported or worker.silent_because is not None:
            return
        worker.reported = second.second
        self._newest = max(self._newest, second.second)
        if second.second >= self._next:
            self._open.setdefault(second.second, {})[number] = second

    def ended(self, worker: int) -> None:
        """A worker has sent its last second, as it should."""
        self._workers[worker].silent_because = ""

    def lost(self, worker: int, reason: str) -> None:
        """A worker will not send any more: it is not waited for, and what is missing becomes a gap."""
        self._workers[worker].silent_because = reason

    def ready(self) -> list[Second]:
        """The seconds, each once and in order, that are complete or have waited long enough."""
        seconds = []
        while self._next <= self._newest and (self._is_complete() or self._newest - self._next >= self._patience):
            seconds.append(self._take_next())
        return seconds

    def finish(self, seconds: int = 0) -> list[Second]:
        """The run is over: the seconds that are left.

        Args:
            seconds: how long it was. Seconds up to there that no worker reported are empty, with their gaps.
        """
        self._newest = max(self._newest, seconds - 1)
        self._patience = 0
        return self.ready()

    @property
    def gaps(self) -> tuple[WorkerGap, ...]:
        """What is missing in the seconds, by time."""
        return tuple(sorted(self._gaps.values(), key=lambda gap: (gap.from_s, gap.worker)))

    def _is_complete(self) -> bool:
        return all(worker.reported >= self._next for worker in self._workers.values() if worker.silent_because is None)

    def _take_next(self) -> Second:
        number = self._next
        self._next += 1
        parts = self._open.pop(number, {})
        gauges: dict[str, float] = defaultdict(float)
        for each, worker in self._workers.items():
            if each in parts:
                worker.gauges = parts[each].gauges
            else:  # what a worker had counted stays counted when it dies
                worker.gauges = {name: value for name, value in worker.gauges.items() if is_cumulative(name)}
                if worker.reported > number:
                    self._note_gap(each, number, "did not report")
                elif worker.silent_because != "":
                    self._note_gap(each, number, worker.silent_because or _TOO_LATE)
            for name, value in worker.gauges.items():
                gauges[name] += value
        return Second(
            number,
            merge_operations(part.operations for part in parts.values()),
            dict(gauges),
            merge_health([part.health for part in parts.values()]),
            merge_operations(part.late for part in parts.values()),
        )

    def _note_gap(self, worker: int, second: int, reason: str) -> None:
        gap = self._gaps.pop((worker, reason, second), None) or WorkerGap(worker, second, second, reason)
        self._gaps[worker, reason, second + 1] = replace(gap, to_s=second + 1)
